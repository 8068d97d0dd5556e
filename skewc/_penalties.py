"""The quadratic that stands for all earlier tasks.

A penalty offers its value and gradient, its proximal step, and how it absorbs one more
task. Solvers and the estimator use nothing else of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


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

    def value(self, weights: torch.Tensor) -> float:
        """Ω/2."""
        distance = weights - self.anchor
        # Precision first: precision·distance stays finite where distance² is small.
        return 0.5 * (float(torch.dot(self.precision * distance, distance)) + self.constant)

    def gradient(self, weights: torch.Tensor) -> torch.Tensor:
        """∇(Ω/2) = P∘(w - a)."""
        return self.precision * (weights - self.anchor)

    def prox_(self, weights: torch.Tensor, inverse_step: torch.Tensor | float) -> None:
        """Move w, in place, to the minimiser of Ω(u)/2 + Σ_i (u_i - w_i)²/(2·η_i).

        With η the step and `inverse_step` 1/η, that is w + (a - w)·P/(P + 1/η): the
        implicit gradient step, which no precision can make overshoot.
        """
        weights.lerp_(self.anchor, self.precision / (self.precision + inverse_step))

    def absorb(
        self, importance: torch.Tensor, weights: torch.Tensor, *, kind: str, decay: float
    ) -> DiagonalPenalty:
        """Add the task that ended at `weights` with precision `importance`.

        The older tasks' precision is multiplied by `decay` first. ``"running_sum"``
        moves the anchor to the latest weights (Huszár 2018); ``"per_task"`` adds
        (w - weights)ᵀ·importance·(w - weights) to Ω exactly (Kirkpatrick et al. 2017).
        """
        old = self.precision * decay
        precision = old + importance
        if kind == "running_sum":
            return DiagonalPenalty(precision, weights.clone())
        gain = torch.where(precision > 0, importance / precision, 0)
        distance = weights - self.anchor
        between = float(torch.dot(old * gain * distance, distance))
        anchor = self.anchor + gain * distance
        return DiagonalPenalty(precision, anchor, self.constant * decay + between)

    def state(self) -> dict:
        """Arrays and numbers that `restore` takes back."""
        return {
            "precision": self.precision.cpu().numpy(),
            "anchor": self.anchor.cpu().numpy(),
            "constant": self.constant,
        }

    @staticmethod
    def restore(state: dict, device: str) -> DiagonalPenalty:
        """Rebuild the penalty from copies of the arrays of `state`."""
        precision = torch.tensor(state["precision"], device=device)
        anchor = torch.tensor(state["anchor"], device=device)
        return DiagonalPenalty(precision, anchor, state["constant"])

    @staticmethod
    def zero(like: np.ndarray) -> dict:
        """State of the penalty before any task."""
        zeros = np.zeros_like(like)
        return {"precision": zeros, "anchor": zeros.copy(), "constant": 0.0}
