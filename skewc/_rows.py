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


class Rows:
    """Inputs, labels and weights of n rows, handed out in dense batches.

    Sparse rows are kept as CSR and made dense one batch at a time, only here.

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
        self._sparse = X if sparse.issparse(X) else None
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
            rows._rotation = u.cpu().numpy()
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

    def inputs(self, index: torch.Tensor) -> torch.Tensor:
        """Return inputs (len(index), n_features), dense."""
        if self._sparse is None:
            return self._dense.index_select(0, index)
        x, u = self._sparse[index.cpu().numpy()], self._rotation
        return to_tensor(x.toarray() if u is None else x @ u[:-1] + u[-1], self.device)

    def targets(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return labels and weights (None for ones), each (len(index), 1)."""
        weights = None if self.weights is None else self.weights.index_select(0, index)
        return self.labels.index_select(0, index), weights

    def chunks(self, order: np.ndarray, widest: int) -> Iterator[torch.Tensor]:
        """Split `order` so that a chunk's rows of `widest` numbers stay within bounds."""
        size = max(1, _CHUNK_ELEMENTS // max(widest, self.n_features))
        for start in range(0, len(order), size):
            yield self.index(order[start : start + size])
