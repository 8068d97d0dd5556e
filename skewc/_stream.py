"""What has been learned so far: classes, tasks, weights and their importance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from skewc._network import Network
from skewc._penalties import DiagonalPenalty


@dataclass(frozen=True)
class Stream:
    """Fitted state, in numpy arrays and plain Python; every change makes a new one.

    Flat vectors are laid out as `Network` says. `importance` is that of the open task,
    summed over rows of total weight `importance_weight`; it joins `penalty` when
    another task opens.
    """

    classes: np.ndarray
    closed: bool
    weights: np.ndarray
    network: Network
    seen: np.ndarray
    penalty: dict
    importance: np.ndarray
    importance_weight: float = 0.0
    moments: dict = field(default_factory=dict)
    task_ids: tuple = ()
    task_classes: tuple = ()
    open_task: int | None = None

    @staticmethod
    def begin(classes, closed: bool, network: Network, weights: np.ndarray) -> Stream:
        """Return the state in which no task is learned and nothing protected."""
        return Stream(
            classes=classes,
            closed=closed,
            weights=weights,
            network=network,
            seen=np.zeros(len(classes), dtype=bool),
            penalty=DiagonalPenalty.zero(weights),
            importance=np.zeros_like(weights),
        )

    def grow(self, merged: np.ndarray, rng: np.random.RandomState) -> Stream:
        """Admit new classes: every number kept for an old weight moves with it."""
        columns = np.searchsorted(merged, self.classes)
        network, index = self.network.grow(columns, len(merged))

        def move(state: dict) -> dict:
            return {
                name: _place(value, index, np.zeros(network.n_weights, value.dtype))
                if isinstance(value, np.ndarray)
                else value
                for name, value in state.items()
            }

        fresh = network.initialise(rng, self.weights.dtype)
        return replace(
            self,
            classes=merged,
            network=network,
            weights=_place(self.weights, index, fresh),
            seen=np.isin(merged, self.classes[self.seen]),
            penalty=move(self.penalty),
            moments=move(self.moments),
            **move({"importance": self.importance}),
        )

    def open(self, task_id, consolidation: Consolidation) -> Stream:
        """Make `task_id` the open task; leaving another one consolidates it."""
        if self.is_open(task_id):
            return self
        left = replace(
            self,
            penalty=self.consolidated(consolidation).state(),
            importance=np.zeros_like(self.importance),
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

        One class alone would have no loss: the next wider choice takes its place.
        """
        of_task = np.isin(self.classes, self.task_classes[self.open_task])
        everyone = np.ones_like(self.seen)
        choices = [of_task, self.seen, everyone][["task", "seen", "all"].index(kind) :]
        return next((active for active in choices if active.sum() > 1), everyone)

    def allowed(self, task_id) -> np.ndarray:
        """Classes, as booleans (K,), that a row of `task_id` (None: of any task) may have."""
        if task_id is None:
            return self.seen
        if task_id not in self.task_ids:
            raise ValueError(
                f"task_id {task_id!r} was never learned; the tasks known are {[*self.task_ids]}."
            )
        return np.isin(self.classes, self.task_classes[self.task_ids.index(task_id)])

    def consolidated(self, consolidation: Consolidation) -> DiagonalPenalty:
        """Absorb the open task: the penalty by which the next task will be held.

        A task of which no row was consolidated adds nothing and weakens nothing, but the
        anchor of the running sum, always the latest weights, moves on with it.
        """
        penalty = DiagonalPenalty.restore(self.penalty, "cpu")
        if self.open_task is None:
            return penalty
        counted = self.importance_weight > 0
        scale = consolidation.task_weights.get(self.task_ids[self.open_task], 1.0)
        if consolidation.scale == "mean" and counted:
            scale /= self.importance_weight
        penalty = penalty.absorb(
            torch.tensor(self.importance, device="cpu") * scale,
            torch.tensor(self.weights, device="cpu"),
            kind=consolidation.kind,
            decay=float(consolidation.decay) if counted else 1.0,
        )
        if not torch.isfinite(penalty.precision).all():
            raise ValueError(
                f"The importance of the tasks overflows {self.weights.dtype}; smaller "
                f"task_weights are needed, got {consolidation.task_weights}."
            )
        return penalty


@dataclass(frozen=True)
class Consolidation:
    """How a task's importance joins the penalty; the estimator's parameters of that name."""

    kind: str
    scale: str
    decay: float
    task_weights: dict


def _place(old: np.ndarray, index: np.ndarray, new: np.ndarray) -> np.ndarray:
    new[index] = old
    return new
