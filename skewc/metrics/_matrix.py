"""Metrics of the accuracies R[i, j] on task j after learning task i."""

from __future__ import annotations

import numpy as np


def average_task_accuracy(y_true, y_pred, *, task_id, sample_weight=None):
    """Compute the mean over tasks of the accuracy on each task's rows.

    Every task counts alike, whatever its number of rows.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.

    y_pred : array-like of shape (n_samples,)
        Predicted labels.

    task_id : array-like of shape (n_samples,)
        The task of each row.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights >= 0 of the rows within their task. A task whose rows all weigh zero is
        left out.

    Returns
    -------
    float
        Accuracy in [0, 1].

    Raises
    ------
    TypeError
        If `task_id` is None, or labels or ids mix strings and numbers.

    ValueError
        If the arguments differ in length, true and predicted labels in kind, a label or an
        id is missing, or no row has weight.

    See Also
    --------
    skewc.model_selection.TaskScorer : The same as a scorer of searches.

    Examples
    --------
    >>> from skewc.metrics import average_task_accuracy
    >>> average_task_accuracy([0, 1, 1, 1], [0, 1, 1, 0], task_id=["a", "a", "a", "b"])
    0.5
    """
    if task_id is None:
        raise TypeError("average_task_accuracy needs task_id, one id for each row; got None.")
    columns = {"y_true": y_true, "y_pred": y_pred, "task_id": task_id}
    y_true, y_pred, ids = (check_one_kind(name, values) for name, values in columns.items())
    n = len(y_true) if y_true.ndim else 0
    for name, values in zip(columns, (y_true, y_pred, ids), strict=True):
        _check_length(name, values, n)
    if _is_text(y_true[0]) != _is_text(y_pred[0]):
        raise ValueError(
            "y_true and y_pred must both be strings or both numbers; got "
            f"{y_true[0]!r} and {y_pred[0]!r}."
        )
    weights = np.ones(n) if sample_weight is None else sample_weight
    weights = _check_length("sample_weight", np.asarray(weights), n).astype(float)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            "sample_weight must be finite and >= 0 and leave at least one row a positive "
            f"weight; got {weights}."
        )
    _, codes = np.unique(ids, return_inverse=True)
    total = np.bincount(codes, weights=weights)
    correct = np.bincount(codes, weights=weights * (y_true == y_pred))
    return float(np.mean(correct[total > 0] / total[total > 0]))


def average_accuracy(R):
    """Compute the mean accuracy over all tasks after the last is learned.

    ACC = (1/T)·Σ_j R[T, j], see [1]_.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        R[i, j] is the test accuracy on task j after learning task i. Only the last row is
        used; the others may hold NaN.

    Returns
    -------
    float
        Accuracy in the scale of R.

    Raises
    ------
    ValueError
        If R is not square, or an entry that is used is not finite.

    See Also
    --------
    forgetting : What was lost on the way.

    References
    ----------
    .. [1] Lopez-Paz & Ranzato (2017). Gradient episodic memory for continual learning.
       NeurIPS. :arxiv:`1706.08840`

    Examples
    --------
    >>> from skewc.metrics import average_accuracy
    >>> average_accuracy([[1.0, 0.0], [0.5, 1.0]])
    0.75
    """
    return float(np.mean(_known(check_matrix(R)[-1], "the last row")))


def backward_transfer(R):
    """Compute how learning later tasks changed the accuracy on earlier ones.

    BWT = (1/(T-1))·Σ_(j<T) R[T, j] - R[j, j], see [1]_. Below 0 it is forgetting.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        R[i, j] is the test accuracy on task j after learning task i. Only the diagonal and
        the last row are used; the others may hold NaN.

    Returns
    -------
    float
        Difference in the scale of R; NaN for a single task, which has no later ones.

    Raises
    ------
    ValueError
        If R is not square, or an entry that is used is not finite.

    See Also
    --------
    forgetting : The fall from the best accuracy, not from the first.

    References
    ----------
    .. [1] Lopez-Paz & Ranzato (2017). Gradient episodic memory for continual learning.
       NeurIPS. :arxiv:`1706.08840`

    Examples
    --------
    >>> from skewc.metrics import backward_transfer
    >>> backward_transfer([[1.0, 0.0], [0.5, 1.0]])
    -0.5
    """
    R = check_matrix(R)
    last, learned = _known(R[-1], "the last row"), _known(np.diag(R), "the diagonal")
    return _mean((last - learned)[:-1])


def forgetting(R):
    """Compute the mean fall of each earlier task from its best accuracy to the final one.

    F = (1/(T-1))·Σ_(j<T) max_(i<T) R[i, j] - R[T, j], see [1]_. The best is sought in all
    rows before the last, so F may be negative.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        R[i, j] is the test accuracy on task j after learning task i. Entries above the
        diagonal, on tasks not learned yet, count where they are known and may be NaN.

    Returns
    -------
    float
        Difference in the scale of R; NaN for a single task, which nothing could follow.

    Raises
    ------
    ValueError
        If R is not square, or an entry on or below the diagonal is not finite.

    See Also
    --------
    backward_transfer : The change since a task was learned.

    References
    ----------
    .. [1] Chaudhry et al. (2018). Riemannian walk for incremental learning: understanding
       forgetting and intransigence. ECCV. :arxiv:`1801.10112`

    Examples
    --------
    >>> from skewc.metrics import forgetting
    >>> forgetting([[1.0, 0.0], [0.5, 1.0]])
    0.5
    """
    R = check_matrix(R)
    _known(R[np.tril_indices_from(R)], "the part on and below the diagonal")
    before = np.where(np.isnan(R), -np.inf, R)[:-1]
    return _mean((before.max(axis=0, initial=-np.inf) - R[-1])[:-1])


def forward_transfer(R, baseline):
    """Compute how learning earlier tasks helps on a task before it is learned.

    FWT = (1/(T-1))·Σ_(j>1) R[j-1, j] - b_j, see [1]_.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        R[i, j] is the test accuracy on task j after learning task i. Only the entries just
        above the diagonal are used; the others may hold NaN.

    baseline : array-like of shape (n_tasks,)
        Test accuracy b_j on each task of the model before any learning; the first is
        not used.

    Returns
    -------
    float
        Difference in the scale of R; NaN for a single task, which has no earlier ones.

    Raises
    ------
    ValueError
        If R is not square, `baseline` is not one number for each task, or an entry that is
        used is not finite.

    See Also
    --------
    backward_transfer : The effect of later tasks on earlier ones.

    References
    ----------
    .. [1] Lopez-Paz & Ranzato (2017). Gradient episodic memory for continual learning.
       NeurIPS. :arxiv:`1706.08840`

    Examples
    --------
    >>> from skewc.metrics import forward_transfer
    >>> forward_transfer([[1.0, 0.75], [0.5, 1.0]], baseline=[0.5, 0.5])
    0.25
    """
    R = check_matrix(R)
    baseline = as_floats(f"baseline must hold one accuracy for each of {len(R)} tasks", baseline)
    if baseline.shape != R.shape[:1]:
        raise ValueError(
            f"baseline must hold one accuracy for each of {len(R)} tasks; got shape "
            f"{baseline.shape}."
        )
    if not np.isfinite(baseline[1:]).all():
        raise ValueError(f"baseline must be finite; got {baseline}.")
    ahead = _known(
        np.diag(R, 1), "the diagonal above the main one (each task tested before it is learned)"
    )
    return _mean(ahead - baseline[1:])


def check_matrix(R) -> np.ndarray:
    """Return R as a square matrix of floats, NaN where not known."""
    message = "R must be a square matrix of numbers, with a row and a column for each task"
    R = as_floats(message, R)
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not R.size:
        raise ValueError(f"{message}; got shape {R.shape}.")
    if np.isinf(R).any():
        raise ValueError(f"R must hold accuracies, NaN where not known; got infinity in\n{R}.")
    return R


def as_floats(message: str, values) -> np.ndarray:
    """Return a copy of `values` as an array of floats; `message` says what was expected."""
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{message}; got {values!r}.") from error


def check_known(name: str, values: np.ndarray) -> None:
    """Refuse NaN, None and the missing values of pandas and polars among labels or ids."""
    if values.dtype.kind == "O":
        missing = any(map(_is_missing, values.flat))
    else:
        missing = (values != values).any()
    if missing:
        raise ValueError(f"{name} holds NaN or a missing value; every row needs one.")


def check_one_kind(name: str, values) -> np.ndarray:
    """Return labels or ids as an array: none missing, all of them strings or none."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries; every row needs one.")
    array = np.asarray(values)
    if array.dtype.kind == "U" and isinstance(values, list | tuple):
        array = np.array(values, dtype=object)  # else numbers among strings become strings
    check_known(name, array)
    if array.dtype == object and len({*map(_is_text, array.flat)}) > 1:
        raise TypeError(f"{name} mixes strings and numbers; use one kind.")
    return array


def _is_missing(value) -> bool:
    # Compared with itself, NaN differs; pandas' NA gives no truth value, nor do arrays.
    differs = value != value
    return (
        value is None
        or type(value).__name__ == "NAType"
        or (isinstance(differs, bool | np.bool_) and bool(differs))
    )


def _is_text(value) -> bool:
    return isinstance(value, str)


def _known(values, part: str) -> np.ndarray:
    """`values`, none of which may be NaN."""
    if np.isnan(values).any():
        raise ValueError(f"In R, {part} must be known; got NaN in {values}.")
    return values


def _mean(values) -> float:
    """Mean, or NaN where there is nothing to average."""
    return float(np.mean(values)) if len(values) else float("nan")


def _check_length(name: str, values: np.ndarray, n: int) -> np.ndarray:
    """`values`, of which there must be n."""
    if values.shape != (n,) or not n:
        raise ValueError(
            f"{name} must hold one value for each row of y_true, at least one: expected shape "
            f"({n or 'n_samples'},), got {values.shape}."
        )
    return values
