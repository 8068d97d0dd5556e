"""Checks of what users hand over, each with an error that says what was expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from skewc._compat import _check_sample_weight
from skewc._inputs import Blocks
from skewc.metrics._matrix import check_one_kind

_FEATURES = ("n_features_in_", "feature_names_in_")


def check_device(device: str) -> str:
    """Return `device` if torch can compute on it here."""
    if device == "cpu":
        return device
    try:
        known = torch.device(device).type in ("cpu", "cuda")
        if known:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        known = False
    if not known:
        raise ValueError(
            f"device={device!r} cannot be used: expected 'cpu', or 'cuda' where torch sees a "
            f"GPU (torch.cuda.is_available() is {torch.cuda.is_available()})."
        )
    return device


def check_unmasked(name: str, values) -> None:
    """Refuse masked entries, of which numpy would take what lies under the mask."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries; every row needs a value.")


def validated(estimator, X, **options):
    """Return X, and y if given, as scikit-learn validates them; errors name what is wrong."""
    if isinstance(X, Blocks):
        return _validated_blocks(estimator, X, **options)
    check_unmasked("X", X)
    try:
        with np.errstate(all="ignore"):  # what overflows is told as infinite
            return validate_data(estimator, X, accept_sparse="csr", **options)
    except (TypeError, ValueError, OverflowError) as error:
        beside = ", and y a label for each of its rows" if "y" in options else ""
        raise (TypeError if isinstance(error, TypeError) else ValueError)(
            "X must have shape (n_samples, n_features) and hold finite real numbers"
            f"{beside}: {error}"
        ) from error


def _validated_blocks(estimator, X: Blocks, *, dtype, reset: bool, **labels):
    """Validate y and the first block, and let each block be validated when it is loaded.

    What validates them knows the features only, so little goes to the workers.
    """
    if labels:  # beside as many rows of nothing
        stand_in = np.zeros((X.shape[0], 1), np.int8)
        _, y = validated(type(estimator)(), stand_in, **labels)
    first = replace(X, check=partial(validated, estimator, dtype=dtype, reset=reset)).load(0)
    like = type(estimator)()
    vars(like).update({k: v for k, v in vars(estimator).items() if k in _FEATURES})
    check = partial(validated, like, dtype=first.dtype, reset=False)
    X = replace(X, check=check, n_features=first.shape[1], dtype=first.dtype)
    return (X, y) if labels else X


def check_labels_known(y) -> None:
    """Refuse labels that are missing, or that numpy cannot hold as labels."""
    check_unmasked("y", y)
    try:
        labels = np.asarray(y)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold one class label for each row: {error}") from error
    if labels.dtype.kind == "c":
        raise ValueError(f"y holds complex numbers. Complex data not supported: {labels}")
    if labels.ndim == 1 and (labels.dtype == object or isinstance(y, list | tuple)):
        check_one_kind("y", y)


def check_targets(y: np.ndarray) -> None:
    """Refuse labels that scikit-learn takes for those of another problem."""
    try:
        with np.errstate(invalid="ignore"):  # of labels too large for int
            check_classification_targets(y)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "y must hold class labels, whole numbers or strings; got some of dtype "
            f"{y.dtype} such as {y[:1].tolist()}. {error}"
        ) from error


def check_hidden_layer_sizes(sizes) -> tuple[int, ...]:
    """Return the sizes as a tuple; a single number is one layer."""
    sizes = [sizes] if np.ndim(sizes) == 0 else list(sizes)
    if any(not isinstance(n, Integral) or isinstance(n, bool) or n <= 0 for n in sizes):
        raise ValueError(f"hidden_layer_sizes must be > 0, got {sizes}; expected whole numbers.")
    return tuple(map(int, sizes))


def check_task_weights(task_weights: dict | None) -> dict[object, float]:
    """Return the relative weights of tasks as floats."""
    for name, weight in (task_weights or {}).items():
        if not isinstance(weight, Real) or not 0 <= weight < float("inf"):
            raise ValueError(
                f"task_weights must hold finite numbers >= 0; got {weight!r} for task {name!r}."
            )
    return {name: float(weight) for name, weight in (task_weights or {}).items()}


def _plain_id(task_id):
    """One id as str, int or float."""
    if isinstance(task_id, np.generic) and task_id.dtype.kind not in "mM":
        task_id = task_id.item()
    if isinstance(task_id, float) and not np.isfinite(task_id):
        raise ValueError(
            "task_id holds NaN or a missing value, or infinity; every row needs a task."
        )
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
    if isinstance(task_id, np.ndarray) and task_id.ndim == 0:
        task_id = task_id[()]
    if isinstance(task_id, str | bytes) or not hasattr(task_id, "__len__"):
        yield None if task_id is None else _plain_id(task_id), np.arange(n_samples)
        return
    check_unmasked("task_id", task_id)
    try:
        ids = np.asarray(task_id, dtype=object if isinstance(task_id, list | tuple) else None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"task_id must hold one id for each row: {error}") from error
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
    found, ranks = [_plain_id(i) for i in found], range(len(found))
    dtype = getattr(task_id, "dtype", None)
    if getattr(dtype, "ordered", False):
        categories = [_plain_id(i) for i in dtype.categories]
        ranks = sorted(ranks, key=lambda k: categories.index(found[k]))
    for k in ranks:
        yield found[k], np.flatnonzero(codes == k)


def check_classes(classes) -> np.ndarray:
    """Return declared classes, sorted."""
    check_unmasked("classes", classes)
    try:
        labels = check_labels(column_or_1d(check_one_kind("classes", classes)))
        if len(labels) and all(isinstance(label, str | bytes | Real) for label in labels.tolist()):
            return labels
    except (TypeError, ValueError):
        pass  # told below, with the parameter's name
    raise ValueError(
        "classes must be a one-dimensional array-like of class labels, all numbers or all "
        f"strings; got {classes!r}."
    )


def check_labels(y: np.ndarray) -> np.ndarray:
    """Return the distinct labels of y, sorted."""
    if y.dtype.kind not in "biufUSO":
        raise ValueError(f"Labels must be numbers or strings; got `y` of dtype {y.dtype}.")
    return np.unique(y)


def merge_classes(known: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Sorted union of two arrays of class labels, both numbers or both strings."""

    def kind(labels):
        texts = any(isinstance(label, str | bytes) for label in labels.tolist())
        return "strings" if texts else "numbers"

    if kind(known) != kind(found):
        raise ValueError(
            f"`y` has {kind(found)} as labels, but earlier tasks had {kind(known)}: "
            f"classes_ is {known}, `y` has {found}."
        )
    merged = np.union1d(known, found)
    if {*merged.tolist()} != {*known.tolist(), *found.tolist()}:
        raise ValueError(
            f"The labels of `y`, of dtype {found.dtype}, cannot be kept apart from those in "
            f"classes_, of dtype {known.dtype}, in one array; use one dtype."
        )
    return merged


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
    weights = _checked_weights(sample_weight, X)
    with np.errstate(all="ignore"):  # what overflows is told below
        if class_weight is not None:
            weights = weights * _class_factors(class_weight, y, weights)
        weights = weights.astype(X.dtype)
        total = weights.sum()
        usable = np.isfinite([total, 1 / total]).all()
    if not usable:
        raise ValueError(
            "sample_weight, times class_weight where given, must be finite and leave at least "
            f"one row, and so one class, a positive weight in {X.dtype}; their sum is {total}."
        )
    return weights


def _checked_weights(sample_weight, X) -> np.ndarray:
    check_unmasked("sample_weight", sample_weight)
    try:
        if sample_weight is not None and np.asarray(sample_weight).dtype.kind in "cmM":
            raise TypeError(f"got {sample_weight!r}")
        with np.errstate(all="ignore"):  # what overflows is told as infinite
            return _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
    except (TypeError, ValueError, OverflowError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(
            f"sample_weight must be a finite number >= 0, or one for each row: {error}"
        ) from error


def _class_factors(class_weight, y, weights) -> np.ndarray:
    """Return the weight of each row's class."""
    classes, codes = np.unique(y, return_inverse=True)
    if class_weight == "balanced":
        totals = np.bincount(codes, weights=weights)
        return (weights.sum() / (np.count_nonzero(totals) * np.where(totals, totals, 1)))[codes]
    for label, weight in class_weight.items():
        if not isinstance(weight, Real) or not 0 <= weight < float("inf"):
            raise ValueError(
                f"class_weight must hold finite numbers >= 0; got {weight!r} for class {label!r}."
            )
    return np.array([float(class_weight.get(c, 1.0)) for c in classes.tolist()])[codes]
