"""Importance of a task: the diagonal of its Fisher information, summed over its rows."""

from __future__ import annotations

import numpy as np
import torch

from skewc._losses import fisher_vectors
from skewc._network import Network
from skewc._rows import Rows, to_tensor

# Share of its input's mean importance below which no weight into a hidden unit is held.
_SILENT_SHARE = 1e-3


def importance_floor(network: Network, importance: torch.Tensor) -> torch.Tensor:
    """Least precision at which to hold each weight, where anything is held at all.

    A unit silent on some old rows has zero Fisher there, since its derivative is zero.
    Yet waking it up would change the predictions of those rows, for any λ. So each weight
    into a hidden unit is held at least at a small share of what its input means to the
    average unit. Inputs that were zero on all old rows, and outputs, stay free.
    """
    floor = torch.zeros_like(importance)
    for held, part in zip(network.split(floor), network.split(importance), strict=True):
        for layer_floor, layer in zip(held[:-1], part[:-1], strict=True):
            layer_floor += _SILENT_SHARE * layer.mean(dim=-1, keepdim=True)
    return floor


def diagonal_importance(
    network: Network,
    weights: torch.Tensor,
    rows: Rows,
    mask: torch.Tensor | None,
    *,
    fisher: str,
    n_samples: int | None,
    rng: np.random.RandomState,
) -> torch.Tensor:
    """Σ s·(squared per-row gradients): the Fisher's diagonal as one flat vector.

    For a linear layer with inputs a (n, in) and vectors δ (n, out) the squared per-row
    gradients sum to (a²)ᵀ(δ²), so no gradient of a single row is ever formed and no
    batch enters the definition.

    With `n_samples`, that many rows are drawn without replacement and their sum is
    scaled up by n / n_samples, which keeps it unbiased.
    """
    order, scale = np.arange(rows.n), 1.0
    if n_samples is not None and n_samples < rows.n:
        order = np.sort(rng.permutation(rows.n)[:n_samples])
        scale = rows.n / n_samples
    # Drawn for all rows at once, so that the chunks below do not change the result.
    uniforms = None
    if fisher == "sample":
        draws = rng.uniform(size=(rows.n, 1)).astype(weights.cpu().numpy().dtype)
        uniforms = to_tensor(draws, rows.device)

    coefs, intercepts = network.split(weights)
    importance = torch.zeros_like(weights)
    coef_sums, intercept_sums = network.split(importance)
    n_active = network.sizes[-1] if mask is None else int((mask == 0).sum())
    vectors_per_row = n_active if fisher == "exact" else 1
    for index in rows.chunks(order, vectors_per_row * max(network.sizes[1:])):
        labels, row_weights = rows.targets(index)
        activations = network.forward(coefs, intercepts, rows.inputs(index))
        draws = None if uniforms is None else uniforms[index]
        delta = fisher_vectors(fisher, activations[-1], labels, mask, draws)
        for layer, a, d in network.backpropagate(coefs, activations, delta):
            squared = d.square().sum(dim=0)
            if row_weights is not None:
                squared *= row_weights
            coef_sums[layer].addmm_(a.square().T, squared)
            intercept_sums[layer].add_(squared.sum(dim=0))
    return importance.mul_(scale)
