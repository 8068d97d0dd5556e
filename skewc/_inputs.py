"""Inputs of rows, wherever they lie: dense or sparse in memory, or in blocks elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import numpy as np
import torch
from scipy import sparse


def to_tensor(array: np.ndarray, device: str) -> torch.Tensor:
    """Share the array with torch, or copy it where torch could not read it safely."""
    array = np.require(array, requirements="CW")
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array).to(device)


def take_rows(array: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
    """Copy rows out of a tensor, or view a slice of them."""
    return array[index] if isinstance(index, slice) else array.index_select(0, index)


class SparseBatch:
    """Sparse inputs (n, n_features), as far as products with them are needed.

    Their rows, and their columns, say which rows of a dense matrix to add up: bags, as torch
    has them for embeddings.
    """

    def __init__(self, matrix: sparse.csr_matrix, device):
        self._matrix, self.device = matrix, device
        self._values, self._columns, self._starts = (
            to_tensor(part, device) for part in (matrix.data, matrix.indices, matrix.indptr[:-1])
        )

    @property
    def T(self) -> SparseBatch:
        """The transposed."""
        return SparseBatch(self._matrix.T.tocsr(), self.device)

    def square(self) -> SparseBatch:
        """Return the squares of all elements."""
        return SparseBatch(self._matrix.power(2), self.device)

    def toarray(self) -> np.ndarray:
        """Return the same as an array."""
        return self._matrix.toarray()

    def times(self, b: torch.Tensor) -> torch.Tensor:
        """Return the product with a dense matrix (n_features, K)."""
        return torch.nn.functional.embedding_bag(
            self._columns, b.contiguous(), self._starts,
            mode="sum", per_sample_weights=self._values,
        )  # fmt: skip

    @staticmethod
    def stacked(batches: list[SparseBatch], order: np.ndarray) -> SparseBatch:
        """Return the rows of several, in another order."""
        matrix = sparse.vstack([batch._matrix for batch in batches], "csr")
        return SparseBatch(matrix[order], batches[0].device)


def dense(x: torch.Tensor | SparseBatch) -> torch.Tensor:
    """Return inputs as a tensor."""
    return to_tensor(x.toarray(), x.device) if isinstance(x, SparseBatch) else x


def inputs_of(X, device: str) -> Dense | Sparse | Loaded:
    """Wrap an ndarray, CSR or `Blocks`."""
    if isinstance(X, Blocks):
        return Loaded(X, device)
    return Sparse(X, device) if sparse.issparse(X) else Dense(to_tensor(X, device))


class Dense:
    """A tensor."""

    def __init__(self, x: torch.Tensor):
        self._x = x

    def rotated(self, u: torch.Tensor) -> Dense:
        """Return (x, 1)·u in place of x."""
        return Dense(torch.addmm(u[-1], self._x, u[:-1]))

    def take(self, index: torch.Tensor | slice) -> torch.Tensor:
        """Return rows."""
        return take_rows(self._x, index)

    def pick(self, kept: np.ndarray) -> np.ndarray:
        """Copy rows out as they came."""
        return self.take(torch.from_numpy(kept).to(self._x.device)).cpu().numpy()

    def extended(self, X) -> Dense:
        """Return these with more rows behind them."""
        more = X.toarray() if sparse.issparse(X) else X
        return Dense(torch.cat([self._x, to_tensor(more, self._x.device)]))

    def by_block(self, order: np.ndarray) -> list[np.ndarray]:
        """Split row numbers by the block in which the rows lie; here it is one."""
        return [order]


class Sparse:
    """CSR, without a copy that is dense; a rotation waits until a batch is taken."""

    def __init__(self, X, device: str, rotation: torch.Tensor | None = None):
        # A shallow copy, since scipy notes on a matrix what it was asked about.
        self._x, self._device, self._rotation = copy.copy(X), device, rotation
        if not self._x.has_canonical_format:  # some element is in parts
            self._x = X.copy()
            self._x.sum_duplicates()

    def rotated(self, u: torch.Tensor) -> Sparse:
        """Return (x, 1)·u in place of x."""
        return Sparse(self._x, self._device, u)

    def take(self, index: torch.Tensor | slice) -> torch.Tensor | SparseBatch:
        """Return rows."""
        kept = index if isinstance(index, slice) else index.cpu().numpy()
        x, u = SparseBatch(self._x[kept], self._device), self._rotation
        return x if u is None else x.times(u[:-1]) + u[-1]

    def pick(self, kept: np.ndarray) -> sparse.csr_matrix:
        """Copy rows out as they came."""
        return self._x[kept]

    def extended(self, X) -> Sparse:
        """Return these with more rows behind them."""
        return Sparse(sparse.vstack([self._x, sparse.csr_matrix(X)], "csr"), self._device)

    def by_block(self, order: np.ndarray) -> list[np.ndarray]:
        """Split row numbers by the block in which the rows lie; here it is one."""
        return [order]


@dataclass(frozen=True)
class Blocks:
    """A matrix that lies elsewhere, in blocks of rows that are loaded when asked for.

    Parameters
    ----------
    source : object
        ``load(number)`` returns a block as it lies there; ``summed(function, calls)`` adds
        up ``function(block, *arguments)``, lists of tensors, over calls (number, arguments).
    parts : tuple of (number, n_rows, kept)
        The blocks: number and rows at the source, and which of these count, None for all.
    check : callable
        What makes an ndarray or CSR of a block.
    """

    source: object
    parts: tuple
    check: Callable | None = None
    n_features: int | None = None
    dtype: np.dtype | None = None

    @property
    def sizes(self) -> list[int]:
        """Rows that count, of each block."""
        return [n if kept is None else len(kept) for _, n, kept in self.parts]

    @property
    def shape(self) -> tuple:
        """As of an array."""
        return sum(self.sizes), self.n_features

    def __getitem__(self, rows: np.ndarray) -> Blocks:
        """Return some rows, of ascending numbers."""
        parts, stop = [], 0
        for (number, n, kept), size in zip(self.parts, self.sizes, strict=True):
            start, stop = stop, stop + size
            own = rows[slice(*rows.searchsorted([start, stop]))] - start
            if len(own):
                parts.append((number, n, own if kept is None else kept[own]))
        return replace(self, parts=tuple(parts))

    def load(self, k: int):
        """Return the k-th block, as an ndarray or CSR."""
        return self.reader(k)(self.source.load(self.parts[k][0]))

    def reader(self, k: int) -> Callable:
        """Return what makes the k-th block of what the source holds of it."""
        return partial(_read, self.check, *self.parts[k])

    def summed(self, function: Callable, beside: list) -> list:
        """Add up function(block, *its rows of each array in `beside`), where the source likes.

        What is None in place of an array stays so.
        """
        borders = np.cumsum(self.sizes)[:-1]
        split = [repeat(None) if a is None else np.split(a, borders) for a in beside]
        calls = [
            (number, (self.reader(k), *own))
            for k, ((number, *_), *own) in enumerate(zip(self.parts, *split, strict=False))
        ]
        return self.source.summed(partial(_work, function), calls)


def _work(function, block, read, *arguments):
    return function(read(block), *arguments)


def _read(check, number, n_rows, kept, block):
    """Check a block as it was loaded, and take the rows that count."""
    try:
        block = check(block)
    except (TypeError, ValueError) as error:
        error.add_note(f"This is said of block {number} of X.")
        raise
    if block.shape[0] != n_rows:
        raise ValueError(
            f"Block {number} of X should have {n_rows} rows as X says, but {block.shape[0]} came."
        )
    return block if kept is None else block[kept]


class Loaded:
    """Inputs in `Blocks`, of which the one used last stays; behind them rows in memory."""

    def __init__(self, blocks: Blocks, device: str):
        self.blocks, self._device = blocks, device
        self._borders = np.cumsum([0, *blocks.sizes])
        self._rotation = self._tail = None
        self._latest = None, None

    def rotated(self, u: torch.Tensor) -> Loaded:
        """Return (x, 1)·u in place of x, a block at a time."""
        other = copy.copy(self)
        other._rotation, other._latest = u, (None, None)
        other._tail = self._tail and self._tail.rotated(u)
        return other

    def take(self, index: torch.Tensor | slice) -> torch.Tensor | SparseBatch:
        """Return rows, which should come from few blocks."""
        is_slice = isinstance(index, slice)
        index = np.arange(index.start, index.stop) if is_slice else index.cpu().numpy()
        block, parts, places = self._block(index), [], []
        for k in dict.fromkeys(block):  # as they come, so that what comes next stays
            places.append(np.flatnonzero(block == k))
            local = index[places[-1]] - self._borders[k]
            parts.append(self._load(k).take(torch.from_numpy(local).to(self._device)))
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(places))
        if all(isinstance(part, SparseBatch) for part in parts):
            return SparseBatch.stacked(parts, order)
        rows = torch.cat([dense(part) for part in parts])
        return rows.index_select(0, torch.from_numpy(order).to(self._device))

    def pick(self, kept: np.ndarray):
        """Copy rows out as they came."""
        blocks = self.blocks[kept]
        loaded = [blocks.load(k) for k in range(len(blocks.parts))]
        if any(map(sparse.issparse, loaded)):
            return sparse.vstack(loaded, "csr")
        return np.concatenate(loaded)

    def extended(self, X) -> Loaded:
        """Return these with more rows, in memory, behind them."""
        other = copy.copy(self)
        other._tail = inputs_of(X, self._device)
        return other

    def by_block(self, order: np.ndarray) -> list[np.ndarray]:
        """Split row numbers by the block in which the rows lie."""
        block = self._block(order)
        by_block = np.argsort(block, kind="stable")
        return np.split(order[by_block], np.flatnonzero(np.diff(block[by_block])) + 1)

    def _block(self, index):
        """Return the place of each row's block; that of rows in memory is the last."""
        return np.searchsorted(self._borders, index, side="right") - 1

    def _load(self, k: int) -> Dense | Sparse:
        if k == len(self.blocks.parts):
            return self._tail
        if k != self._latest[0]:
            self._latest = None, None  # room for the next
            block = inputs_of(self.blocks.load(k), self._device)
            self._latest = k, block if self._rotation is None else block.rotated(self._rotation)
        return self._latest[1]
