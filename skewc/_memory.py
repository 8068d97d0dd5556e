"""Exemplars: a bounded number of earlier rows, replayed while learning later ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from scipy import sparse

from skewc._inputs import dense
from skewc._layout import Saved
from skewc._network import Network
from skewc._rows import Rows

# Replayed rows for each row of the task. Fewer make batches without a replayed row, more
# make the network learn the few rows by heart.
_REPLAYED = 1 / 8


@dataclass(frozen=True)
class Memory(Saved):
    """Rows kept, with the class, the task, the weight and the rank of each.

    Of the rows of one class and task, those of the lowest ranks are kept. A rank lies in
    [0, 1] and does not depend on rows that come later, so that chunks of a task can join.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
    codes : ndarray of int of shape (n,), columns of the output layer
    tasks : ndarray of int of shape (n,), places among the task ids
    weights, ranks : ndarray of shape (n,)
    """

    X: object
    codes: np.ndarray
    tasks: np.ndarray
    weights: np.ndarray
    ranks: np.ndarray

    @staticmethod
    def of(rows: Rows, task: int, ranks: np.ndarray, size: int) -> Memory:
        """Keep at most `size` rows of the task at a place."""
        codes = rows.labels.cpu().numpy()[:, 0]
        tasks = np.full(rows.n, task)
        kept = _balanced(codes, tasks, ranks, size)
        X, weights = rows.pick(kept)
        return Memory(X, codes[kept], tasks[kept], weights, ranks[kept])

    def join(self, other: Memory) -> Memory:
        """Return the rows of both; sparse if those of one are."""
        both = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        X = sparse.vstack(both[0], "csr") if any(map(sparse.issparse, both[0])) else None
        return Memory(
            np.concatenate(both[0]) if X is None else X, *(np.concatenate(two) for two in both[1:])
        )

    def limit(self, size: int) -> Memory:
        """Keep at most `size` rows."""
        kept = _balanced(self.codes, self.tasks, self.ranks, size)
        return Memory(*(getattr(self, field.name)[kept] for field in fields(self)))

    def grow(self, columns: np.ndarray) -> Memory:
        """Let the output layer grow; the old outputs become `columns` of it."""
        return replace(self, codes=columns[self.codes])

    def beside(self, rows: Rows, order: np.ndarray, task: int, *, each_once: bool):
        """Return the task's rows with the memory's behind them, and the order of a replay.

        `order` are the rows of the task to train on. The replay names each row of the
        memory, and again until it is `_REPLAYED` as long as `order` unless `each_once`.
        The weights are such that every class counts alike over one pass through `order`
        and the replay, as does every task within a class, and that their sum is that of
        the rows in `order`. Rows held out keep theirs.
        """
        n = len(self.codes)
        length = n if each_once else max(n, math.ceil(_REPLAYED * len(order)))
        replay = rows.n + np.resize(np.arange(n), length)
        old = rows.weights
        own = np.ones(rows.n) if old is None else old.cpu().numpy()[:, 0].astype(np.float64)
        weights = np.concatenate([own, self.weights])
        codes = np.concatenate([rows.labels.cpu().numpy()[:, 0], self.codes])
        tasks = np.concatenate([np.full(rows.n, task), self.tasks])
        present = np.concatenate([order, rows.n + np.arange(n)])
        pairs, group = np.unique(np.stack([codes, tasks])[:, present], axis=1, return_inverse=True)
        group = group.ravel()
        n_tasks = np.bincount(pairs[0])[pairs[0]]
        share = own[order].sum() / len(np.unique(pairs[0])) / n_tasks
        times = np.bincount(replay, minlength=rows.n + n)[present]
        # A row's share of its group comes first: the rest could overflow.
        totals = np.bincount(group, weights[present])
        weights[present] = weights[present] / totals[group] * share[group] / np.maximum(times, 1)
        return rows.extend(self.X, self.codes, weights), replay


def herding_ranks(network: Network, weights: torch.Tensor, rows: Rows, size: int) -> np.ndarray:
    """Rank rows so that the mean of the first k of a class is near the mean of all.

    Rows are compared in the last hidden layer, each scaled to length one (Rebuffi et al.
    2017). Only the first `size` of a class are told apart.
    """
    coefs, intercepts = network.split(weights)
    features = torch.cat(
        [
            torch.nn.functional.normalize(
                dense(network.forward(coefs, intercepts, rows.inputs(index))[-2])
            )
            for index in rows.chunks(max(network.sizes))
        ]
    )
    codes = rows.labels[:, 0]
    ranks = np.ones(rows.n)
    for code in codes.unique():
        members = (codes == code).nonzero()[:, 0]
        own = features[members]
        weight = None if rows.weights is None else rows.weights[members]
        mean = own.mean(dim=0) if weight is None else (own * weight).sum(dim=0) / weight.sum()
        # Next comes the row that brings the mean of those chosen nearest to the mean of all.
        goal, along, squares = own @ mean, torch.zeros_like(own[:, 0]), own.square().sum(dim=1)
        for k in range(min(size, len(members))):
            chosen = int((2 * ((k + 1) * goal - along) - squares).argmax())
            ranks[int(members[chosen])] = (k + 0.5) / len(members)
            along += own @ own[chosen]
            squares[chosen] = torch.inf
    return ranks


def _balanced(codes, tasks, ranks, size: int) -> np.ndarray:
    """Choose `size` rows, alike over classes and, in a class, over tasks; lowest ranks first.

    The rows of a class take turns by task, and then the classes take turns. Of those whose
    turn it is alike, the lowest ranks come first: no class or task has the others' rest.
    """
    of_task = _turns(np.stack([codes, tasks]), ranks)
    of_class = _turns(codes[None], of_task, ranks)
    return np.sort(np.lexsort((ranks, of_class))[:size])


def _turns(groups: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Place of each column of `groups` among the columns like it, by ascending keys."""
    order = np.lexsort((*reversed(keys), *groups))
    places = np.arange(len(order))
    begins = np.r_[True, (np.diff(groups[:, order]) != 0).any(axis=0)]
    turns = np.empty_like(places)
    turns[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return turns
