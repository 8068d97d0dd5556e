"""Learn tasks that are larger than memory, or lie on other machines, by Dask.

``import skewc.dask`` brings it; it needs ``pip install "skewc[dask]"``. See :ref:`scaling`.
"""

# Nothing in skewc imports this module before a Dask collection is met.

from __future__ import annotations

import warnings
from functools import partial

import dask
import dask.array
import dask.dataframe
import numpy as np
from sklearn.metrics import accuracy_score

from skewc._classifier import EWCClassifier
from skewc._inputs import Blocks
from skewc._training import one_thread

__all__ = ["partial_fit", "score"]

_ADDED_AT_ONCE = 8


def partial_fit(
    estimator, X, y, task_id=None, *, classes=None, sample_weight=None, consolidate=True
):
    """Learn one more task, or another chunk of the latest one, from blocks of rows.

    What :meth:`skewc.EWCClassifier.partial_fit` does, but that X need not fit in memory. Each
    epoch loads one block after another, here, and no more than one is kept. With
    ``shuffle=True`` the blocks come in a new order in each epoch, and so do the rows within
    each: they should be mixed over the blocks beforehand. Then the importance is
    summed over the blocks, by Dask's workers where there are any. For the same order of rows
    all is what it would be in memory, to rounding.

    Parameters
    ----------
    estimator : EWCClassifier
        It is changed, once all has gone well.

    X : dask.array.Array or dask.dataframe.DataFrame of shape (n_samples, n_features)
        Training rows. A block is validated whenever it is loaded, to the float type of the
        first. Where the lengths of blocks are not known, all are read once to count them.

    y : array-like or Dask collection of shape (n_samples,)
        Class labels. They are held in memory, as are `sample_weight` and `task_id`.

    task_id : str or number, or array-like of shape (n_samples,), default=None
        The task of all rows, or of each.

    classes : array-like of shape (n_classes,), default=None
        In the first call, all classes that may ever come.

    sample_weight : array-like or Dask collection of shape (n_samples,), default=None
        Weights of the rows.

    consolidate : bool, default=True
        Whether these rows count into the task's importance.

    Returns
    -------
    EWCClassifier
        The estimator itself, fitted.

    Raises
    ------
    TypeError
        If the estimator is not an EWCClassifier, or X not an Array or DataFrame of Dask.

    ValueError
        As in ``EWCClassifier.partial_fit``; and with ``memory_selection='herding'`` or
        with ``early_stopping=True`` and ``shuffle=False``, which need all rows at once.

    See Also
    --------
    skewc.EWCClassifier.partial_fit : The same for rows in memory.
    skewc.model_selection.evaluate_stream : Learn and score a stream of such tasks.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from skewc import EWCClassifier
    >>> from skewc.dask import partial_fit, score
    >>> X, y = load_digits(return_X_y=True)
    >>> X = da.from_array(X / 16, chunks=(600, 64))
    >>> clf = EWCClassifier(curvature="kronecker", max_iter=20, batch_size=32, random_state=0)
    >>> clf = partial_fit(clf, X, y, task_id="plain")
    >>> permuted = X[:, np.random.RandomState(0).permutation(64)]
    >>> clf = partial_fit(clf, permuted, y, task_id="permuted")
    >>> score(clf, X, y) > 0.9
    True
    """
    if not isinstance(estimator, EWCClassifier):
        raise TypeError(
            "Only an EWCClassifier learns from blocks; got one of type "
            f"{type(estimator).__name__}. Transform X by Dask beforehand in place of a pipeline, "
            "and use dask_ml.wrappers.Incremental for other estimators."
        )
    _check_parameters(estimator)
    X = _blocks(X)
    y, task_id, sample_weight = map(_computed, (y, task_id, sample_weight))
    return estimator.partial_fit(
        X, y, task_id, classes=classes, sample_weight=sample_weight, consolidate=consolidate
    )


def score(estimator, X, y, task_id=None):
    """Compute the accuracy of the classes predicted for blocks of rows.

    Predictions and labels are brought to memory, rows are not.

    Parameters
    ----------
    estimator : fitted classifier
        Any, with `predict`.

    X : dask.array.Array or dask.dataframe.DataFrame of shape (n_samples, n_features)
        Test rows. Each block is predicted where Dask loads it.

    y : array-like or Dask collection of shape (n_samples,)
        True labels.

    task_id : str or number, default=None
        The task of the rows where it is known and the estimator takes it.

    Returns
    -------
    float
        Share of rows predicted right, in [0, 1].

    Raises
    ------
    TypeError
        If X is not an Array or DataFrame of Dask.

    ValueError
        If X and y differ in length.

    See Also
    --------
    partial_fit : Learn from blocks of rows.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skewc.dask import score
    >>> X, y = load_iris(return_X_y=True)
    >>> score(GaussianNB().fit(X, y), da.from_array(X, chunks=50), y) == 0.96
    True
    """
    options = {} if task_id is None else {"task_id": task_id}
    predict = dask.delayed(partial(_predicted, estimator, options), traverse=False)  # sent once
    predicted = dask.compute(*(_on_one_thread(predict, part) for part in _parts(X)[0]))
    predicted = [part for part in predicted if len(part)]
    return accuracy_score(_computed(y), np.concatenate(predicted or [[]]))


def _check_parameters(estimator) -> None:
    """Refuse what needs all rows at once."""
    if estimator.memory_size and estimator.memory_selection == "herding":
        raise ValueError(
            "memory_selection='herding' compares all rows of a task; to learn from blocks, use "
            "memory_selection='random'."
        )
    if estimator.early_stopping and not estimator.shuffle and estimator.solver != "lbfgs":
        raise ValueError(
            "early_stopping=True mixes the rows of all blocks; to learn from blocks, use "
            "shuffle=True, which orders them by block."
        )


def _computed(values):
    """Bring to memory what Dask holds; alone, since it warns where Arrays go with DataFrames."""
    return dask.compute(values, traverse=False)[0]


def _parts(X) -> tuple[list, tuple]:
    """Return the blocks of X, each a Delayed, and their lengths, NaN where not known."""
    if isinstance(X, dask.dataframe.DataFrame):
        parts = X.to_delayed()
        return parts, (np.nan,) * len(parts)
    if not isinstance(X, dask.array.Array):
        raise TypeError(
            "X must be an Array or DataFrame of Dask; got an object of type "
            f"{type(X).__name__}. What lies in memory needs no module for Dask."
        )
    if X.ndim != 2:
        raise ValueError(f"X must have shape (n_samples, n_features), got {X.shape}.")
    X = X.rechunk({1: -1})
    return X.to_delayed().ravel().tolist(), X.chunks[0]


def _blocks(X) -> Blocks:
    """Return X as those of its blocks that hold rows."""
    parts, lengths = _parts(X)
    if np.isnan(lengths).any():
        # One column of each block, where the others need not be read.
        named = isinstance(X, dask.dataframe.DataFrame)  # maybe some twice, which iloc cannot do
        columns, _ = _parts(X[[*X.columns[:1]]] if named else X[:, :1])
        lengths = [shape[0] for shape in dask.compute(*map(dask.delayed(np.shape), columns))]
    numbered = [(k, int(n), None) for k, n in enumerate(lengths) if n]
    return Blocks(_Source(X, parts), tuple(numbered))


class _Source:
    """Blocks of a Dask collection, each a Delayed.

    They do not keep what workers hold of a persisted X, but X does.
    """

    def __init__(self, X, parts: list):
        self._X, self._parts = X, parts

    def load(self, number: int):
        """Return a block."""
        return self._parts[number].compute()

    def summed(self, function, calls) -> list:
        """Add up ``function(block, *arguments)``, in an order that does not depend on timing."""
        function = dask.delayed(function, traverse=False)  # sent once
        sums = [_on_one_thread(function, self._parts[k], *arguments) for k, arguments in calls]
        while len(sums) > 1:
            groups = [sums[k : k + _ADDED_AT_ONCE] for k in range(0, len(sums), _ADDED_AT_ONCE)]
            sums = [_added(group) for group in groups]
        with warnings.catch_warnings():
            # Were labels and weights not in the graph, they would be lost with a worker.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return sums[0].compute()


@dask.delayed
def _on_one_thread(function, block, *arguments):
    """Leave the other cores to the other blocks."""
    with one_thread():
        return function(block, *arguments)


@dask.delayed
def _added(lists):
    return [sum(parts) for parts in zip(*lists, strict=True)]


def _predicted(estimator, options, block):
    return estimator.predict(block, **options) if block.shape[0] else []
