"""Checks of task ids, class labels, row weights and devices, each with a clear error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from skewc._compat import _check_sample_weight


def check_device(device: str) -> str:
    """Return `device` if torch can compute on it here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={device!r} cannot be used: expected 'cpu', or 'cuda' where torch sees a "
            f"GPU (torch.cuda.is_available() is {torch.cuda.is_available()}). {error}"
        ) from error
    return device


def _plain_id(task_id):
    """One id as str, int or float."""
    if isinstance(task_id, np.generic):
        task_id = task_id.item()
    if isinstance(task_id, float) and task_id != task_id:
        raise ValueError("task_id holds NaN or a missing value; every row needs a task.")
    if not isinstance(task_id, str | int | float):
        raise TypeError(
            "task_id must be a string or a number, or hold one for each row; got "
            f"{task_id!r} of type {type(task_id).__name__}."
        )
    return task_id


def split_by_task(task_id, n_samples: int) -> Iterator[tuple[object, np.ndarray]]:
    """Yield each task's id and its row numbers, in the order in which to learn them.

    One id, or None, stands for all rows. Otherwise the ids are one for each row, and
    come out sorted, or in the categories' order for an ordered pandas Categorical.
    """
    if task_id is None or isinstance(task_id, str) or np.ndim(task_id) == 0:
        if isinstance(task_id, np.ndarray):
            task_id = task_id[()]
        yield None if task_id is None else _plain_id(task_id), np.arange(n_samples)
        return
    is_sequence = isinstance(task_id, list | tuple)
    ids = np.asarray(task_id, dtype=object if is_sequence else None)
    if ids.shape != (n_samples,):
        raise ValueError(
            "task_id must be one id for the call or one for each row: expected shape "
            f"({n_samples},), got {ids.shape}."
        )
    if ids.dtype == object:
        ids = np.fromiter(map(_plain_id, ids.tolist()), dtype=object, count=n_samples)
    try:
        found, codes = np.unique(ids, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            "task_id mixes strings and numbers; use one kind so that tasks have an order."
        ) from error
    found = [_plain_id(i) for i in found]
    dtype = getattr(task_id, "dtype", None)
    ranks = range(len(found))
    if getattr(dtype, "ordered", False):
        categories = list(dtype.categories)
        ranks = sorted(ranks, key=lambda k: categories.index(found[k]))
    for k in ranks:
        yield found[k], np.flatnonzero(codes == k)


def merge_classes(known: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Sorted union of two arrays of class labels, both numbers or both strings."""

    def kind(labels):
        return "numbers" if labels.dtype.kind in "biuf" else "strings"

    if kind(known) != kind(found):
        raise ValueError(
            f"`y` has {kind(found)} as labels, but earlier tasks had {kind(known)}: "
            f"classes_ is {known}, `y` has {found}."
        )
    return np.union1d(known, found)


def check_closed(found: np.ndarray, declared: np.ndarray) -> None:
    """Refuse labels outside the declared classes."""
    unknown = np.setdiff1d(found, declared)
    if len(unknown):
        raise ValueError(
            f"`y` has classes not in `self.classes_`: {unknown}. The first partial_fit "
            f"declared classes={declared}; leave `classes` out there if new classes may come."
        )


def row_weights(sample_weight, class_weight, X, y) -> np.ndarray | None:
    """sample_weight times class_weight, in X's float type; None where all are one.

    ``"balanced"`` gives every class of the call the same total weight, counting a row of
    weight 2 as two rows.
    """
    if sample_weight is None and class_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
    if not weights.any():
        raise ValueError(
            "Every row has sample_weight zero: at least one row, and so one class, "
            "must have a positive weight."
        )
    if class_weight is None:
        return weights
    classes, codes = np.unique(y, return_inverse=True)
    if class_weight == "balanced":
        totals = np.bincount(codes, weights=weights)
        present = totals > 0
        factors = np.where(present, totals.sum() / (present.sum() * np.maximum(totals, 1e-300)), 0)
    else:
        factors = np.array([class_weight.get(c, 1.0) for c in classes.tolist()], dtype=float)
        if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.any()):
            raise ValueError(
                "class_weight must hold finite weights >= 0, not all zero for the classes "
                f"of a call; got {class_weight} for classes {classes}."
            )
    return weights * factors[codes].astype(X.dtype)
