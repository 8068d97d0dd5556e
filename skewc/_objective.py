"""The loss of the task being learned, as a function of the flat weight vector."""

from __future__ import annotations

import numpy as np
import torch

from skewc._losses import log_softmax, nll_and_delta
from skewc._network import Network, RotatedNetwork
from skewc._rows import Rows


class Objective:
    """L(w) = (1/N)·[Σ s·NLL(x; w) + (α/2)·‖W‖²], the part of J that is not the penalty.

    W are the coefficients without the intercepts and N = Σ s over the rows trained on.
    `weights` and `gradient` are flat tensors that solvers read and write in place.

    Parameters
    ----------
    order : ndarray of int, the task's rows to train on
    replay : ndarray of int, rows of earlier tasks to pass through beside them
    """

    def __init__(
        self,
        network: Network | RotatedNetwork,
        weights: torch.Tensor,
        rows: Rows,
        order: np.ndarray,
        *,
        mask: torch.Tensor | None,
        alpha: float,
        replay: np.ndarray | None = None,
    ):
        self.network = network
        self.weights = weights
        self.rows = rows
        self.parts = [order] if replay is None else [order, replay]
        self.order = np.concatenate(self.parts)
        self.gradient = torch.zeros_like(weights)
        self.total_weight = rows.total_weight(self.order)
        self._mask = mask
        # What overflows makes the loss so, which training reports.
        self._l2 = min(alpha / self.total_weight, torch.finfo(weights.dtype).max)
        self._layers, self._gradients = network.split(weights), network.split(self.gradient)

    def batch(self, index: torch.Tensor) -> torch.Tensor:
        """Write an unbiased estimate of ∇L to `gradient`; return Σ s·NLL of the batch."""
        scale = len(self.order) / (len(index) * self.total_weight)
        return self._write_gradient(index, scale, self._l2)

    def full(self) -> float:
        """Write ∇L over all rows to `gradient` and return L."""
        total, nll, l2 = torch.zeros_like(self.gradient), 0.0, self._l2
        for index in self.rows.chunks(max(self.network.sizes), self.order):
            nll += float(self._write_gradient(index, 1 / self.total_weight, l2))
            total += self.gradient
            l2 = 0.0
        self.gradient.copy_(total)
        return nll / self.total_weight + float(self.l2_value())

    def l2_value(self) -> torch.Tensor:
        """(α / 2N)·‖W‖², a 0-d tensor."""
        return 0.5 * self._l2 * self.network.squared_norm(self.weights)

    def accuracy(self, order: np.ndarray) -> float:
        """Weighted share of rows whose likeliest active class is their own."""
        hits, total = [], []
        for index in self.rows.chunks(max(self.network.sizes), order):
            labels, weights = self.rows.targets(index)
            x = self.rows.inputs(index)
            logits = self.network.forward(*self._layers, x)[-1]
            predicted = log_softmax(logits, self._mask).argmax(dim=1, keepdim=True)
            hit = (predicted == labels).double()
            weights = torch.ones_like(hit) if weights is None else weights
            hits.append((hit * weights).sum())
            total.append(weights.sum(dtype=torch.float64))
        return float(sum(hits) / sum(total))

    def _write_gradient(self, index: torch.Tensor, scale: float, l2: float) -> torch.Tensor:
        """Write scale·Σ s·∇NLL + l2·W to `gradient`; return Σ s·NLL."""
        labels, weights = self.rows.targets(index)
        x = self.rows.inputs(index)
        activations = self.network.forward(*self._layers, x)
        nll, delta = nll_and_delta(activations[-1], labels, weights, self._mask)
        delta *= scale
        for layer, a, d in self.network.backpropagate(self._layers[0], activations, delta):
            self.network.write_gradient(self._gradients, self._layers, l2, layer, a, d)
        return nll
