"""The rows of a task as torch batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from sklearn.utils import shuffle as shuffled

from skewc._inputs import Loaded, SparseBatch, inputs_of, take_rows, to_tensor

# Elements of one intermediate matrix; bounds memory wherever all rows are passed through.
# Four times as many are slower by half, out of the cache.
_CHUNK_ELEMENTS = 2**20


class Rows:
    """Inputs, labels and weights of n rows, handed out in batches.

    Parameters
    ----------
    X : ndarray, CSR or Blocks of shape (n, n_features)
    labels : ndarray of int of shape (n,), columns of the output layer
    weights : ndarray of shape (n,), or None where every row weighs one
    """

    def __init__(self, X, labels=None, weights=None, *, device="cpu"):
        self.n, self.n_features = X.shape
        self.device = device
        self._inputs = inputs_of(X, device)
        self.labels = None if labels is None else to_tensor(labels[:, None], device)
        self.weights = None if weights is None else to_tensor(weights[:, None], device)

    def rotated(self, u: torch.Tensor) -> Rows:
        """Return the same rows with inputs (x, 1)·u in place of x; dense ones are a copy."""
        rows = copy.copy(self)
        rows.n_features = len(u)
        rows._inputs = self._inputs.rotated(u)
        return rows

    def pick(self, kept: np.ndarray) -> tuple:
        """Copy rows out: inputs as they came (ndarray or CSR), and weights."""
        weights = None if self.weights is None else self.weights[self.index(kept), 0].cpu().numpy()
        return (
            self._inputs.pick(kept),
            np.ones(len(kept)) if weights is None else weights.astype(np.float64),
        )

    def extend(self, X, labels: np.ndarray, weights: np.ndarray) -> Rows:
        """Return these rows with more behind them, and new weights for all."""
        rows = copy.copy(self)
        rows.n += len(labels)
        rows._inputs = self._inputs.extended(X)
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
        return self._inputs.take(index)

    def targets(self, index: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return labels and weights (None for ones) of n rows, each (n, 1)."""
        weights = None if self.weights is None else take_rows(self.weights, index)
        return take_rows(self.labels, index), weights

    def shuffled(self, order: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Shuffle row numbers within each block in which rows lie, and shuffle the blocks."""
        blocks = self._inputs.by_block(order)
        turns = rng.permutation(len(blocks))
        return np.concatenate([shuffled(blocks[k], random_state=rng) for k in turns])

    def chunks(self, widest: int, order: np.ndarray | None = None) -> Iterator:
        """Split `order`, or all rows, so that a chunk's rows of `widest` numbers are few.

        Rows in blocks come out block by block.
        """
        size = max(1, _CHUNK_ELEMENTS // max(widest, self.n_features))
        if order is not None:
            order = np.concatenate(self._inputs.by_block(order))
        n = self.n if order is None else len(order)
        for start in range(0, n, size):
            chunk = slice(start, min(start + size, n))
            yield chunk if order is None else self.index(order[chunk])

    def summed(self, function: Callable, order: np.ndarray | None, draws: np.ndarray | None):
        """Return function(rows, order, draws), or its sum over blocks, worked on in parallel.

        `order` are the rows to take, None for all; `draws` a number for each row, or None.
        """
        if not isinstance(self._inputs, Loaded):
            return function(self, order, draws)
        labels = self.labels.cpu().numpy()[:, 0]
        labels = labels.astype(np.min_scalar_type(labels.max()))  # less to send
        weights = None if self.weights is None else self.weights.cpu().numpy()[:, 0]

        def beside(rows: slice) -> tuple:
            return tuple(a if a is None else a[rows] for a in (draws, labels, weights))

        order = np.arange(self.n) if order is None else order
        return self._inputs.summed(partial(_of_block, function, self.device), order, beside)


def _of_block(function, device, X, order, draws, labels, weights):
    """Let `function` have a block of rows."""
    return function(Rows(X, labels.astype(np.int64), weights, device=device), order, draws)
