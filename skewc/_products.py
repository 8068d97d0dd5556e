"""Matrix products of a batch: with sparse rows, and with few columns."""

from __future__ import annotations

import torch

from skewc._inputs import SparseBatch

# Products of so few columns, and of at least so large a matrix, are quicker turned.
_FEW_COLUMNS, _LARGE = 12, 2**14
# Columns that are multiplied together where each must round as if alone.
_BLOCK = 16


def product(a: torch.Tensor | SparseBatch, b: torch.Tensor) -> torch.Tensor:
    """Return a·b.

    BLAS is several times slower on a tall result of few columns than on the same result
    turned, and a tall result of few columns is what an output layer of few classes asks for.
    """
    if isinstance(a, SparseBatch):
        return a.times(b)
    return (b.T @ a.T).T if _quicker_turned(a, b) else a @ b


def add_product(start, a, b, *, beta=1.0, out=None) -> torch.Tensor:
    """Return beta·start + a·b; `start` may be a vector, the same for each row."""
    if isinstance(a, SparseBatch) or _quicker_turned(a, b):
        return torch.add(product(a, b), start, alpha=beta, out=out)
    return torch.addmm(start, a, b, beta=beta, out=out)


def stable_product(a: torch.Tensor | SparseBatch, b: torch.Tensor) -> torch.Tensor:
    """Return a·b, each column of the same bits whatever columns are beside it.

    A product of matrices rounds a column differently as the number of columns changes. So
    they come in blocks of one width, the last filled with zeros; and turned, since then no
    place within a block is special.
    """
    n = b.shape[1]
    wider = torch.nn.functional.pad(b, (0, -n % _BLOCK))
    if isinstance(a, SparseBatch):
        return a.times(wider)[:, :n]
    blocks = wider.split(_BLOCK, dim=1)
    return torch.cat([block.contiguous().T @ a.T for block in blocks])[:n].T


def _quicker_turned(a, b) -> bool:
    return b.shape[1] < _FEW_COLUMNS and a.numel() >= _LARGE
