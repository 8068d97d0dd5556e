"""Importance of a task: its Fisher information, summed over its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from skewc._inputs import dense, to_tensor
from skewc._losses import ExactVectors, label_distributions, label_vectors
from skewc._network import BACKWARD, Growth, Network
from skewc._products import product
from skewc._rows import Rows

# Share of its input's mean importance below which no weight into a hidden unit is held.
_SILENT_SHARE = 1e-3
_LARGEST_FACTORS = 2**30  # bytes
_STRIP = 64  # columns


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


def importance_shapes(curvature: str, network: Network) -> list[tuple[int, ...]]:
    """Shapes of the arrays that hold a task's importance.

    Diagonal: one flat vector. Kronecker: a matrix (in + 1, in + 1) of inputs for each
    layer, then a matrix (out, out) of outputs for each layer.
    """
    if curvature == "diagonal":
        return [(network.n_weights,)]
    sizes = network.sizes
    return [*((n + 1, n + 1) for n in sizes[:-1]), *((n, n) for n in sizes[1:])]


def check_importance_fits(curvature: str, network: Network, itemsize: int) -> None:
    """Refuse Kronecker factors that would take more memory than `_LARGEST_FACTORS`.

    They are kept twice: for the earlier tasks, and for the open one.
    """
    sizes = map(math.prod, importance_shapes(curvature, network))
    needed = 2 * itemsize * sum(sizes)
    if curvature == "kronecker" and needed > _LARGEST_FACTORS:
        raise ValueError(
            f"curvature='kronecker' would keep {needed / 2**30:.1f} GiB of factors for layers of "
            f"{network.sizes} units, above the limit of {_LARGEST_FACTORS / 2**30:.1f} GiB. Use "
            "curvature='diagonal', or fewer inputs (PCA) or narrower hidden layers."
        )


def grow_importance(curvature: str, importance: list, growth: Growth) -> list[np.ndarray]:
    """Return a task's importance once the output layer has grown; new weights have none."""
    if curvature == "diagonal":
        return [growth.vector(importance[0])]
    return [*importance[:-1], growth.rows(growth.rows(importance[-1]).T)]


def measure_importance(
    network: Network,
    weights: torch.Tensor,
    rows: Rows,
    mask: torch.Tensor | None,
    *,
    curvature: str,
    fisher: str,
    smoothing: float,
    n_samples: int | None,
    rng: np.random.RandomState,
) -> list[torch.Tensor]:
    """Fisher information of the rows, in the arrays of `importance_shapes`.

    For a linear layer with inputs a (n, in) and vectors δ (n, out), the squared per-row
    gradients sum to (a²)ᵀ(δ²), so no gradient of a single row is ever formed and no
    batch enters the definition. The Kronecker factors are Σ s·aaᵀ, with a trailing 1 for the
    intercept, and Σ s·δδᵀ.

    With `n_samples`, that many rows are drawn without replacement and their sum is
    scaled up by n / n_samples, which keeps it unbiased.
    """
    order, scale = None, 1.0
    if n_samples is not None and n_samples < rows.n:
        order = np.sort(rng.permutation(rows.n)[:n_samples])
        scale = rows.n / n_samples
    # Drawn for all rows at once, so that blocks and chunks do not change the result.
    draws = None
    if fisher == "sample":
        draws = rng.uniform(size=(rows.n, 1)).astype(weights.cpu().numpy().dtype)
    add_up = partial(_added_up, network, weights, mask, curvature, fisher, smoothing)
    sums = rows.summed(add_up, order, draws)
    for total in sums if curvature == "kronecker" else ():
        total.copy_(total.triu() + total.triu(1).T)
    return [total.mul_(scale) for total in sums]


def _added_up(network, weights, mask, curvature, fisher, smoothing, rows, order, draws):
    """Fisher information of the rows in `order`; of a matrix, the upper triangle."""
    uniforms = None if draws is None else to_tensor(draws, rows.device)
    sums = [weights.new_zeros(shape) for shape in importance_shapes(curvature, network)]
    add = _squares(network, sums) if curvature == "diagonal" else _factors(network, sums)
    coefs, intercepts = network.split(weights)
    widest = max(network.sizes[1:])
    if fisher == "exact" and (curvature == "kronecker" or len(coefs) > 2):
        n_active = network.sizes[-1] if mask is None else int(mask.isfinite().sum())
        widest = max(widest, n_active * max(network.sizes[1:-1], default=0))
    for index in rows.chunks(widest, order):
        labels, row_weights = rows.targets(index)
        activations = network.forward(coefs, intercepts, rows.inputs(index))
        if fisher == "exact":
            pairs = _exact_pairs(network, coefs, activations, mask, smoothing, curvature)
        else:
            u = None if uniforms is None else uniforms[index]
            delta = label_vectors(fisher, activations[-1], labels, mask, u, smoothing)
            pairs = network.backpropagate(coefs, activations, delta[None])
        for layer, a, d in pairs:
            add(layer, a, d, row_weights)
    return sums


def _exact_pairs(network, coefs, activations, mask, smoothing, curvature) -> Iterator[tuple]:
    """Yield (layer, input, δ) of the exact Fisher, last layer first.

    At the logits the vectors of the classes need not be formed, nor for the diagonal in the
    layer before: if that is the first, one vector, √Σ_c δ_c², stands for all.
    """
    vectors = ExactVectors(*label_distributions(activations[-1], mask, smoothing))
    yield len(coefs) - 1, activations[-2], vectors
    if len(coefs) == 1:
        return
    if curvature == "diagonal" and len(coefs) == 2:
        d = vectors.squares_through(coefs[-1]).sqrt_()[None]
    else:
        d = vectors.through(coefs[-1], slice(None) if mask is None else mask.isfinite())
    d = BACKWARD[network.activation](d, activations[-2])
    yield from network.backpropagate(coefs[:-1], activations, d)


def _squares(network: Network, sums):
    """Return what adds Σ s·(squared per-row gradients) of a layer to the flat vector."""
    coef_sums, intercept_sums = network.split(sums[0])

    def add(layer, a, d, row_weights):
        squared = d.squares() if isinstance(d, ExactVectors) else d.square().sum(dim=0)
        if row_weights is not None:
            squared *= row_weights
        coef_sums[layer].add_(product(a.square().T, squared))
        intercept_sums[layer].add_(squared.sum(dim=0))

    return add


def _factors(network: Network, sums):
    """Return what adds a layer's Σ s·aaᵀ and Σ s·δδᵀ to the matrices' upper triangles."""
    n_layers = len(network.sizes) - 1

    def add(layer, a, d, row_weights):
        a = torch.nn.functional.pad(dense(a), (0, 1), value=1.0)
        add_gram(sums[layer], a, row_weights)
        if isinstance(d, ExactVectors):
            sums[n_layers + layer].add_(d.gram(row_weights))
        else:
            repeated = None if row_weights is None else row_weights.repeat(len(d), 1)
            add_gram(sums[n_layers + layer], d.flatten(0, 1), repeated)

    return add


def add_gram(total: torch.Tensor, a: torch.Tensor, row_weights) -> None:
    """Add Σ s·aaᵀ to the upper triangle of `total`, which saves nearly half the work."""
    weighted = a if row_weights is None else a * row_weights
    for start in range(0, len(total), _STRIP):
        strip = slice(start, start + _STRIP)
        total[strip, start:].addmm_(weighted[:, strip].T, a[:, start:])
