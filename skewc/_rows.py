"""The rows of a task as torch batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse

# Elements of one intermediate matrix; bounds memory wherever all rows are passed through.
# Four times as many are slower by half, out of the cache.
_CHUNK_ELEMENTS = 2**20


def to_tensor(array: np.ndarray, device: str) -> torch.Tensor:
    """Share the array with torch, or copy it where torch could not read it safely."""
    array = np.require(array, requirements="CW")
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array).to(device)


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


def dense(x: torch.Tensor | SparseBatch) -> torch.Tensor:
    """Return inputs as a tensor."""
    return to_tensor(x.toarray(), x.device) if isinstance(x, SparseBatch) else x


class Rows:
    """Inputs, labels and weights of n rows, handed out in batches.

    Sparse rows are kept as CSR, without a copy of them that is dense.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
    labels : ndarray of int of shape (n,), columns of the output layer
    weights : ndarray of shape (n,), or None where every row weighs one
    """

    def __init__(self, X, labels=None, weights=None, *, device="cpu"):
        self.n, self.n_features = X.shape
        self.device = device
        self._rotation = None
        self._sparse = _canonical(X) if sparse.issparse(X) else None
        self._dense = None if sparse.issparse(X) else to_tensor(X, device)
        self.labels = None if labels is None else to_tensor(labels[:, None], device)
        self.weights = None if weights is None else to_tensor(weights[:, None], device)

    def rotated(self, u: torch.Tensor) -> Rows:
        """Return the same rows with inputs (x, 1)·u in place of x; dense ones are a copy."""
        rows = copy.copy(self)
        rows.n_features = len(u)
        if self._sparse is None:
            rows._dense = torch.addmm(u[-1], self._dense, u[:-1])
        else:
            rows._rotation = u
        return rows

    def pick(self, kept: np.ndarray) -> tuple:
        """Copy rows out: inputs as they came (ndarray or CSR), and weights."""
        index = self.index(kept)
        X = self._dense.index_select(0, index).cpu().numpy() if self._sparse is None else None
        weights = None if self.weights is None else self.weights[index, 0].cpu().numpy()
        return (
            self._sparse[kept] if X is None else X,
            np.ones(len(kept)) if weights is None else weights.astype(np.float64),
        )

    def extend(self, X, labels: np.ndarray, weights: np.ndarray) -> Rows:
        """Return these rows with more behind them, and new weights for all."""
        rows = copy.copy(self)
        rows.n += len(labels)
        if self._sparse is None:
            more = to_tensor(X.toarray() if sparse.issparse(X) else X, self.device)
            rows._dense = torch.cat([self._dense, more])
        else:
            rows._sparse = sparse.vstack([self._sparse, sparse.csr_matrix(X)], "csr")
        rows.labels = torch.cat([self.labels, to_tensor(labels[:, None], self.device)])
        rows.weights = to_tensor(weights[:, None].astype(X.dtype), self.device)
        return rows

    def total_weight(self, index: np.ndarray) -> float:
        """Return N_t, the sum of the weights of the rows in `index`."""
        if self.weights is None:
            return float(len(index))
        return float(self.weights[self.index(index)].sum(dtype=torch.float64))

    def index(self, order: np.ndarray) -> torch.Tensor:
        """Return row numbers as `inputs` and `targets` take them."""
        return torch.from_numpy(order).to(self.device)

    def inputs(self, index: torch.Tensor | slice) -> torch.Tensor | SparseBatch:
        """Return inputs (n, n_features) of n rows; a view of them for a slice of dense ones."""
        if self._sparse is None:
            return _take(self._dense, index)
        kept = index if isinstance(index, slice) else index.cpu().numpy()
        x = SparseBatch(self._sparse[kept], self.device)
        return x if self._rotation is None else x.times(self._rotation[:-1]) + self._rotation[-1]

    def targets(self, index: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return labels and weights (None for ones) of n rows, each (n, 1)."""
        weights = None if self.weights is None else _take(self.weights, index)
        return _take(self.labels, index), weights

    def chunks(self, widest: int, order: np.ndarray | None = None) -> Iterator:
        """Split `order`, or all rows, so that a chunk's rows of `widest` numbers are few."""
        size = max(1, _CHUNK_ELEMENTS // max(widest, self.n_features))
        for start in range(0, self.n if order is None else len(order), size):
            chunk = slice(start, start + size)
            yield chunk if order is None else self.index(order[chunk])


def _take(array: torch.Tensor, index: torch.Tensor | slice) -> torch.Tensor:
    return array[index] if isinstance(index, slice) else array.index_select(0, index)


def _canonical(X):
    """Return CSR rows that hold no element in parts."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X
