"""The quadratic that stands for all earlier tasks.

A penalty absorbs one more task, and says in which coordinates of the network it is
diagonal. There, training uses a DiagonalPenalty's value, gradient and proximal step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from skewc._inputs import to_tensor
from skewc._network import Growth, Network, RotatedNetwork


@dataclass(frozen=True)
class DiagonalPenalty:
    """Ω(w) = Σ_i P_i·(w_i - a_i)² + constant, with precision P and anchor a.

    Both of EWC's penalties keep this form whatever the number of tasks, because a sum
    of quadratics is one quadratic: P adds up, the anchor is the precision-weighted mean
    of the tasks' weights, and what is left over does not depend on w.
    """

    precision: torch.Tensor
    anchor: torch.Tensor
    constant: float = 0.0

    @property
    def is_zero(self) -> bool:
        """Whether nothing is protected, so that training may leave the penalty out."""
        return not bool(self.precision.any())

    @property
    def is_finite(self) -> bool:
        """Whether no precision overflowed."""
        return bool(self.precision.isfinite().all())

    def scaled(self, strength: float) -> DiagonalPenalty:
        """strength·Ω; no product overflows, so that the largest λ pins instead of NaN."""
        largest = torch.finfo(self.precision.dtype).max / 8
        strength = min(strength, largest)
        precision = (self.precision * strength).clamp_(max=largest)
        return DiagonalPenalty(precision, self.anchor, self.constant * strength)

    def floored(self, floor: torch.Tensor, weights: torch.Tensor) -> DiagonalPenalty:
        """Hold at `weights`, by `floor`, what is held less than that."""
        low = self.precision < floor
        precision = torch.where(low, floor, self.precision)
        return DiagonalPenalty(precision, torch.where(low, weights, self.anchor), self.constant)

    def value(self, weights: torch.Tensor) -> torch.Tensor:
        """Ω/2, a 0-d tensor."""
        distance = weights - self.anchor
        # Precision first: precision·distance stays finite where distance² is small.
        return 0.5 * (torch.dot(self.precision * distance, distance).double() + self.constant)

    def gradient(self, weights: torch.Tensor) -> torch.Tensor:
        """∇(Ω/2) = P∘(w - a)."""
        return self.precision * (weights - self.anchor)

    def prox_(self, weights, inverse_step: torch.Tensor | float, scale=1.0, buffer=None) -> None:
        """Move w, in place, to the minimiser of Ω(u)/2 + Σ_i (u_i - w_i)²/(2·η_i).

        With η the step and scale·`inverse_step` 1/η, that is w + (a - w)·P/(P + 1/η): the
        implicit gradient step, which no precision can make overshoot. `buffer`, if given,
        is overwritten, and may be `inverse_step`.
        """
        total = torch.add(self.precision, inverse_step, alpha=scale, out=buffer)
        weights.lerp_(self.anchor, torch.div(self.precision, total, out=total))

    def diagonal_in(self, network: Network) -> tuple[Network, DiagonalPenalty]:
        """Return coordinates in which the penalty is diagonal, and it in them."""
        return network, self

    def importances(self, importance, *, scale, decay, rows_weight) -> torch.Tensor:
        """Return the diagonal of the precision once `importance` is absorbed."""
        return self.precision * decay + importance[0] * scale

    def absorb(self, weights, *, kind, importance, scale, decay, rows_weight) -> DiagonalPenalty:
        """Add the task that ended at `weights` with precision scale·importance.

        The older tasks' precision is multiplied by `decay` first. ``"running_sum"``
        moves the anchor to the latest weights (Huszár 2018); ``"per_task"`` adds
        (w - weights)ᵀ·importance·(w - weights) to Ω exactly (Kirkpatrick et al. 2017).
        """
        old, new = self.precision * decay, importance[0] * scale
        if kind == "running_sum":
            return DiagonalPenalty(old + new, weights.clone())
        gain = torch.where(new > 0, new / (old + new), 0)
        distance = weights - self.anchor
        between = float(torch.dot(old * gain * distance, distance))
        anchor = self.anchor + gain * distance
        return DiagonalPenalty(old + new, anchor, self.constant * decay + between)

    def state(self) -> dict:
        """Arrays and numbers that `restore` takes back."""
        return {
            "precision": self.precision.cpu().numpy(),
            "anchor": self.anchor.cpu().numpy(),
            "constant": self.constant,
        }

    @staticmethod
    def restore(state: dict, network: Network, device: str) -> DiagonalPenalty:
        """Rebuild the penalty from the arrays of `state`, which it shares and only reads."""
        precision, anchor = (to_tensor(state[name], device) for name in ("precision", "anchor"))
        return DiagonalPenalty(precision, anchor, state["constant"])

    @staticmethod
    def zero(network: Network, dtype) -> dict:
        """State of the penalty before any task."""
        precision, anchor = (np.zeros(network.n_weights, dtype) for _ in range(2))
        return {"precision": precision, "anchor": anchor, "constant": 0.0}

    @staticmethod
    def grow(state: dict, growth: Growth) -> dict:
        """Return the state once the output layer has grown; new weights are free."""
        return {
            "precision": growth.vector(state["precision"]),
            "anchor": growth.vector(state["anchor"]),
            "constant": state["constant"],
        }


@dataclass(frozen=True)
class KroneckerPenalty:
    """Ω(w) = Σ_layers tr(D̃ᵀ·A·D̃·G) + constant, D̃ the distance of W̃ from its anchor.

    W̃ (in + 1, out) are a layer's coefficients with its intercepts as last row, A the mean
    of ããᵀ over all tasks' rows, ã the layer's input with a trailing 1, and G the sum of
    δδᵀ (Martens & Grosse 2015). Both are kept as eigenvectors and eigenvalues, the
    coordinates in which the penalty is diagonal; no task makes the state grow.

    Parameters
    ----------
    inputs, outputs : for each layer, eigenvectors and eigenvalues of A and of G
    weight : the total weight of the rows, by which tasks are averaged in A
    """

    network: Network
    inputs: list[tuple[torch.Tensor, torch.Tensor]]
    outputs: list[tuple[torch.Tensor, torch.Tensor]]
    anchor: torch.Tensor
    constant: float
    weight: float

    @property
    def is_zero(self) -> bool:
        """Whether nothing is protected, so that training may leave the penalty out."""
        return not any(bool(values.any()) for _, values in self.outputs)

    @property
    def is_finite(self) -> bool:
        """Whether no precision overflowed."""
        return all(
            bool((a.max() * g.max()).isfinite())
            for (_, a), (_, g) in zip(self.inputs, self.outputs, strict=True)
        )

    def diagonal_in(self, network: Network) -> tuple[RotatedNetwork, DiagonalPenalty]:
        """Return coordinates in which the penalty is diagonal, and it in them."""
        rotated = RotatedNetwork(
            network, tuple(u for u, _ in self.inputs), tuple(v for v, _ in self.outputs)
        )
        blocks = [
            torch.outer(a, g) for (_, a), (_, g) in zip(self.inputs, self.outputs, strict=True)
        ]
        precision = torch.cat([block.ravel() for block in blocks])
        return rotated, DiagonalPenalty(precision, rotated.coordinates(self.anchor), self.constant)

    def importances(self, importance, *, scale, decay, rows_weight) -> torch.Tensor:
        """Return the diagonal of the precision once `importance` is absorbed."""
        _, A, G, _ = self._joined(importance, scale, decay, rows_weight)
        blocks = [torch.outer(a.diagonal(), g.diagonal()) for a, g in zip(A, G, strict=True)]
        return self.network.unstack(blocks).to(self.anchor)

    def absorb(self, weights, *, kind, importance, scale, decay, rows_weight) -> KroneckerPenalty:
        """Add the task that ended at `weights` with Kronecker factors `importance`.

        The older tasks' precision is multiplied by `decay` first. G adds up and A is
        averaged. ``"running_sum"`` moves the anchor to the latest weights. ``"per_task"``
        moves it from there towards the old anchor, so far that Ω keeps the gradient it had,
        since the new task adds none there. That merges the tasks' quadratics exactly where
        their factors differ by scale only. Elsewhere averaging A may leave less precision
        than the older tasks had, so the anchor is kept from moving beyond the old one.
        """
        old, A, G, weight = self._joined(importance, scale, decay, rows_weight)
        dtype = weights.dtype
        absorbed = replace(
            self,
            inputs=[_eigen(a, dtype) for a in A],
            outputs=[_eigen(g, dtype) for g in G],
            anchor=weights.clone(),
            constant=0.0,
            weight=weight,
        )
        if kind == "running_sum":
            return absorbed
        steps, constant = [], self.constant * decay
        distances = self.network.stack((weights - self.anchor).double())
        for distance, (a, g), u, v in zip(
            distances, old, absorbed.inputs, absorbed.outputs, strict=True
        ):
            step, between = _pull(distance, a, g, *u, *v)
            steps.append(step.to(dtype))
            constant += between
        anchor = weights - self.network.unstack(steps)
        return replace(absorbed, anchor=anchor, constant=constant)

    def _joined(self, importance, scale, decay, rows_weight):
        """Return all tasks' factors, in float64, and their weight.

        That is, for each layer, (A, G) of the older tasks; A, averaged; G, added up.
        """
        n_layers = len(self.inputs)
        old = [
            (_matrix(a), _matrix(g) * decay) for a, g in zip(self.inputs, self.outputs, strict=True)
        ]
        weight = self.weight * decay + rows_weight * scale
        share = rows_weight * scale / weight if weight else 0.0
        new = [array.double() for array in importance]
        # The corner of Σ s·ããᵀ is Σ s, of the rows that were drawn if not all were.
        A = [
            torch.lerp(a, b / b[-1, -1], share) if share else a
            for (a, _), b in zip(old, new[:n_layers], strict=True)
        ]
        G = [g + h * scale for (_, g), h in zip(old, new[n_layers:], strict=True)]
        return old, A, G, weight

    def state(self) -> dict:
        """Arrays and numbers that `restore` takes back."""
        parts = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            **{
                name: [[array.cpu().numpy() for array in pair] for pair in pairs]
                for name, pairs in parts.items()
            },
            "anchor": self.anchor.cpu().numpy(),
            "constant": self.constant,
            "weight": self.weight,
        }

    @staticmethod
    def restore(state: dict, network: Network, device: str) -> KroneckerPenalty:
        """Rebuild the penalty from the arrays of `state`, which it shares and only reads."""
        inputs, outputs = (
            [tuple(to_tensor(array, device) for array in pair) for pair in state[name]]
            for name in ("inputs", "outputs")
        )
        anchor = to_tensor(state["anchor"], device)
        return KroneckerPenalty(
            network, inputs, outputs, anchor, state["constant"], state["weight"]
        )

    @staticmethod
    def zero(network: Network, dtype) -> dict:
        """State of the penalty before any task."""
        sizes = network.sizes
        return {
            "inputs": [[np.eye(n + 1, dtype=dtype), np.zeros(n + 1, dtype)] for n in sizes[:-1]],
            "outputs": [[np.eye(n, dtype=dtype), np.zeros(n, dtype)] for n in sizes[1:]],
            "anchor": np.zeros(network.n_weights, dtype),
            "constant": 0.0,
            "weight": 0.0,
        }

    @staticmethod
    def grow(state: dict, growth: Growth) -> dict:
        """Return the state once the output layer has grown; new weights are free."""
        *hidden, (vectors, values) = state["outputs"]
        new = growth.new_columns
        units = np.eye(len(values) + len(new), dtype=vectors.dtype)[:, new]
        vectors = np.hstack([growth.rows(vectors), units])
        return {
            **state,
            "outputs": [*hidden, [vectors, np.pad(values, (0, len(new)))]],
            "anchor": growth.vector(state["anchor"]),
        }


def penalty_type(curvature: str) -> type[DiagonalPenalty] | type[KroneckerPenalty]:
    """Return the form of the penalty under a curvature."""
    return KroneckerPenalty if curvature == "kronecker" else DiagonalPenalty


def _eigen(matrix: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvectors, as columns, and eigenvalues of a sum of outer products in `dtype`.

    An entry (i, j) of such a sum is known up to a rounding of √(A_ii·A_jj), so an
    eigenvalue is nothing but rounding if it is small against Σ_i v_i²·A_ii.
    """
    diagonal = matrix.diagonal()
    if not matrix.isfinite().all():
        return matrix.to(dtype), torch.full_like(diagonal, torch.nan, dtype=dtype)
    values, vectors = torch.linalg.eigh(matrix)
    noise = 16 * torch.finfo(dtype).eps * (vectors.square().T @ diagonal)
    return vectors.to(dtype), torch.where(values > noise, values, 0).to(dtype)


def _pull(distance, a_old, g_old, u, a, v, g) -> tuple[torch.Tensor, float]:
    """Merge the old quadratic of a layer into one of precision A⊗G.

    `distance` are the latest weights less the old anchor. Returns the latest weights less
    the new anchor, and what is left over. The new anchor keeps the gradient at the latest
    weights, but along no eigenvector lies beyond the old one.
    """
    u, a, v, g = (array.double() for array in (u, a, v, g))
    precision, whole = torch.outer(a, g), u.T @ distance @ v
    pull = a_old @ distance @ g_old
    step = torch.where(precision > 0, u.T @ pull @ v / precision, 0)
    step = step.clamp(whole.clamp(max=0), whole.clamp(min=0))
    between = (distance * pull).sum() - (precision * step**2).sum()
    return u @ step @ v.T, max(float(between), 0.0)


def _matrix(eigen: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Invert `_eigen`, in float64."""
    vectors, values = (array.double() for array in eigen)
    return vectors * values @ vectors.T
