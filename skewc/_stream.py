"""What has been learned so far: classes, tasks, weights and their importance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from skewc._curvature import check_importance_fits, grow_importance, importance_shapes
from skewc._inputs import to_tensor
from skewc._layout import Saved
from skewc._memory import Memory
from skewc._network import Network
from skewc._penalties import DiagonalPenalty, KroneckerPenalty, penalty_type
from skewc._readout import Discriminant
from skewc._rows import Rows


@dataclass(frozen=True)
class Stream(Saved):
    """Fitted state, in numpy arrays and plain Python; every change makes a new one.

    Flat vectors are laid out as `Network` says. `importance` is that of the open task,
    summed over rows of total weight `importance_weight`; it joins `penalty` when
    another task opens. Both are empty while they would be zero. `moments` are the solver's,
    in the coordinates it works in.
    """

    classes: np.ndarray
    closed: bool
    weights: np.ndarray
    network: Network
    seen: np.ndarray
    curvature: str
    penalty: dict = field(default_factory=dict)
    importance: list = field(default_factory=list)
    importance_weight: float = 0.0
    moments: dict = field(default_factory=dict)
    task_ids: tuple = ()
    task_classes: tuple = ()
    open_task: int | None = None
    memory: Memory | None = None
    readout: Discriminant | None = None

    @staticmethod
    def begin(
        classes, closed: bool, network: Network, weights, curvature: str, readout=None
    ) -> Stream:
        """Return the state in which no task is learned and nothing protected."""
        check_importance_fits(curvature, network, weights.itemsize)
        return Stream(
            classes=classes,
            closed=closed,
            weights=weights,
            network=network,
            seen=np.zeros(len(classes), dtype=bool),
            curvature=curvature,
            readout=readout,
        )

    def grow(self, merged: np.ndarray, rng: np.random.RandomState) -> Stream:
        """Admit new classes: every number kept for an old weight moves with it."""
        growth = self.network.grow(np.searchsorted(merged, self.classes), len(merged))
        check_importance_fits(self.curvature, growth.network, self.weights.itemsize)
        weights = growth.network.initialise(rng, self.weights.dtype)
        weights[growth.index] = self.weights
        move = growth.rotated if self.moments.get("rotated") else growth.vector
        return replace(
            self,
            classes=merged,
            network=growth.network,
            weights=weights,
            seen=np.isin(merged, self.classes[self.seen]),
            penalty=self.penalty and penalty_type(self.curvature).grow(self.penalty, growth),
            importance=self.importance and grow_importance(self.curvature, self.importance, growth),
            moments={
                name: move(value) if isinstance(value, np.ndarray) else value
                for name, value in self.moments.items()
            },
            memory=self.memory and self.memory.grow(growth.columns),
            readout=self.readout and self.readout.grow(growth),
        )

    def open(self, task_id, consolidation: Consolidation) -> Stream:
        """Make `task_id` the open task; leaving another one consolidates it."""
        if self.is_open(task_id):
            return self
        begun = self.open_task is not None
        left = replace(
            self,
            penalty=self._absorbed(consolidation).state() if begun else self.penalty,
            importance=[],
            importance_weight=0.0,
            moments={},
        )
        if task_id is not None and task_id in self.task_ids:
            return replace(left, open_task=self.task_ids.index(task_id))
        return replace(
            left,
            task_ids=(*self.task_ids, task_id),
            task_classes=(*self.task_classes, self.classes[:0]),
            open_task=len(self.task_ids),
        )

    def is_open(self, task_id) -> bool:
        """Whether rows of `task_id` continue the open task; None never does."""
        return (
            task_id is not None
            and self.open_task is not None
            and self.task_ids[self.open_task] == task_id
        )

    def meet(self, codes: np.ndarray) -> Stream:
        """Note the classes, as columns of the output layer, of rows of the open task."""
        present = np.zeros(len(self.classes), dtype=bool)
        present[codes] = True
        task_classes = list(self.task_classes)
        of_task = present | np.isin(self.classes, task_classes[self.open_task])
        task_classes[self.open_task] = self.classes[of_task]
        return replace(self, seen=self.seen | present, task_classes=tuple(task_classes))

    def active(self, kind: str) -> np.ndarray:
        """Classes, as booleans (K,), that the softmax of the open task spans.

        With a memory, its classes are those of the task too. One class alone would have
        no loss: the next wider choice takes its place.
        """
        of_task = np.isin(self.classes, self.task_classes[self.open_task])
        if self.memory is not None:
            of_task[self.memory.codes] = True
        everyone = np.ones_like(self.seen)
        choices = [of_task, self.seen, everyone][["task", "seen", "all"].index(kind) :]
        return next((active for active in choices if active.sum() > 1), everyone)

    def limited(self, memory_size: int) -> Stream:
        """Keep at most `memory_size` rows."""
        if self.memory is None:
            return self
        return replace(self, memory=self.memory.limit(memory_size) if memory_size else None)

    def remember(self, rows: Rows, ranks: np.ndarray, memory_size: int) -> Stream:
        """Let rows of the open task into the memory."""
        new = Memory.of(rows, self.open_task, ranks, memory_size)
        memory = new if self.memory is None else self.memory.join(new).limit(memory_size)
        return replace(self, memory=memory)

    @property
    def is_confusing(self) -> bool:
        """Whether only the softmax tells apart classes that no task had together."""
        n_seen = self.seen.sum()
        return self.memory is None and all(len(known) < n_seen for known in self.task_classes)

    @property
    def readout_parameters(self) -> dict:
        """The parameters that the read-out began with."""
        if self.readout is None:
            return {"readout": "softmax"}
        return {"readout": "discriminant", "readout_features": len(self.readout.scatter)}

    def allowed(self, task_id) -> np.ndarray:
        """Classes, as booleans (K,), that a row of `task_id` (None: of any task) may have."""
        if task_id is None:
            return self.seen
        if task_id not in self.task_ids:
            raise ValueError(
                f"task_id {task_id!r} was never learned; the tasks known are {[*self.task_ids]}."
            )
        return np.isin(self.classes, self.task_classes[self.task_ids.index(task_id)])

    def protection(self, device: str = "cpu") -> DiagonalPenalty | KroneckerPenalty:
        """Return the penalty that holds the open task."""
        form = penalty_type(self.curvature)
        state = self.penalty or form.zero(self.network, self.weights.dtype)
        return form.restore(state, self.network, device)

    def importances(self, consolidation: Consolidation) -> torch.Tensor:
        """Return the diagonal of the precision by which the next task will be held."""
        return self.protection().importances(**self._joining(consolidation))

    def _absorbed(self, consolidation: Consolidation) -> DiagonalPenalty | KroneckerPenalty:
        """Absorb the open task: the penalty by which the next task will be held.

        A task of which no row was consolidated adds nothing and weakens nothing, but the
        anchor of the running sum, always the latest weights, moves on with it.
        """
        penalty = self.protection().absorb(
            to_tensor(self.weights, "cpu"),
            kind=consolidation.kind,
            **self._joining(consolidation),
        )
        if not penalty.is_finite:
            raise ValueError(
                f"The importance of the tasks overflows {self.weights.dtype}; smaller "
                f"task_weights are needed, got {consolidation.task_weights}."
            )
        return penalty

    def _joining(self, consolidation: Consolidation) -> dict:
        """Return what a penalty must know of the open task to absorb it."""
        n, scale = self.importance_weight, 1.0
        if self.open_task is not None:
            scale = consolidation.task_weights.get(self.task_ids[self.open_task], 1.0)
        shapes = importance_shapes(self.curvature, self.network)
        importance = self.importance or [np.zeros(n, self.weights.dtype) for n in shapes]
        return {
            "importance": [to_tensor(array, "cpu") for array in importance],
            "rows_weight": n,
            "scale": scale / n if n and consolidation.scale == "mean" else scale,
            "decay": float(consolidation.decay) if n else 1.0,
        }


@dataclass(frozen=True)
class Consolidation:
    """How a task's importance joins the penalty; the estimator's parameters of that name."""

    kind: str
    scale: str
    decay: float
    task_weights: dict
