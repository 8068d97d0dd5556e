"""Learn a whole stream and keep the books."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score

from skewc import metrics
from skewc.datasets._streams import Task, check_count
from skewc.pipeline import final_step, takes_task_id


@dataclass(frozen=True)
class StreamResult:
    """What :func:`evaluate_stream` found.

    The metrics and displays of :mod:`skewc.metrics` take its matrix.

    Parameters
    ----------
    name : str
        What the estimator is called in tables and pictures.

    task_ids : list
        The ids of the T tasks, in the order learned.

    matrix : ndarray of shape (T, T)
        ``matrix[i, j]`` is the test accuracy on task j after learning task i.

    baseline : ndarray of shape (T,)
        Accuracy on each task before anything is learned: 1 / n_classes, which is what an
        untrained network gets on average over its initial weights, since no output is
        preferred to another. (One draw of them would add noise, and some estimators
        predict nothing before they learn.) All classes of the stream count, also where the
        task is told later: it cannot be told before it is learned.

    fit_times : ndarray of shape (T,)
        Seconds spent learning each task.

    score_times : ndarray of shape (T,)
        Seconds spent predicting all tasks after each.

    estimator : object or None
        The estimator as it was after the last task.

    See Also
    --------
    evaluate_stream : Makes one.
    skewc.metrics.TaskAccuracyDisplay : Draws one.

    Examples
    --------
    >>> import numpy as np
    >>> from skewc.model_selection import StreamResult
    >>> matrix = np.array([[0.9, 0.5], [0.7, 0.9]])
    >>> result = StreamResult("A", [0, 1], matrix, np.full(2, 0.5), np.ones(2), np.ones(2))
    >>> for name, value in result.summary().items():
    ...     print(f"{name:17} {value:4.1f}")
    average_accuracy   0.8
    forgetting         0.2
    backward_transfer -0.2
    forward_transfer   0.0
    fit_time           2.0
    """

    name: str
    task_ids: list
    matrix: np.ndarray
    baseline: np.ndarray
    fit_times: np.ndarray
    score_times: np.ndarray
    estimator: object = None

    def summary(self):
        """Compute the metrics of the accuracy matrix, a row of a table of comparison.

        The matrix itself says more: which task was lost, and when.

        Returns
        -------
        dict of str to float
            `average_accuracy`, `forgetting`, `backward_transfer` and `forward_transfer`,
            as :mod:`skewc.metrics` defines them, where all but the first are NaN for one
            task; and `fit_time`, the seconds spent learning all tasks.

        See Also
        --------
        skewc.metrics.forgetting : One of the metrics.

        Examples
        --------
        >>> import numpy as np
        >>> from skewc.model_selection import StreamResult
        >>> matrix = np.array([[0.9, 0.5], [0.7, 0.9]])
        >>> result = StreamResult("A", [0, 1], matrix, np.full(2, 0.5), np.ones(2), np.ones(2))
        >>> round(result.summary()["forgetting"], 3)
        0.2
        """
        return {
            "average_accuracy": metrics.average_accuracy(self.matrix),
            "forgetting": metrics.forgetting(self.matrix),
            "backward_transfer": metrics.backward_transfer(self.matrix),
            "forward_transfer": metrics.forward_transfer(self.matrix, self.baseline),
            "fit_time": float(np.sum(self.fit_times)),
        }


def evaluate_stream(
    estimator,
    tasks,
    *,
    known_task=False,
    epochs=1,
    name=None,
    return_estimator=False,
    verbose=False,
):
    """Learn tasks one after another, and test on all of them after each.

    Works for any classifier with `partial_fit`, pipelines included, so that they can be
    compared. What takes a `task_id` is given it; what does not is told all classes. An
    EWCClassifier learns X_train of Dask block by block (see :mod:`skewc.dask`), and X_test of
    Dask is predicted so.

    Parameters
    ----------
    estimator : estimator with `partial_fit`
        It is cloned, not changed.

    tasks : iterable of Task
        Records with `id`, `X_train`, `y_train`, `X_test` and `y_test`, as
        :mod:`skewc.datasets` makes them.

    known_task : bool, default=False
        Whether the task is given when predicting (task-incremental). An estimator that
        takes no task predicts without.

    epochs : int, default=1
        Calls of `partial_fit` for each task, for estimators that take no `task_id` and
        whose `partial_fit` is a single pass. An EWCClassifier is always called once, and
        trains for `max_iter` epochs itself.

    name : str, default=None
        What to call the estimator in tables and pictures. None takes its type, of a
        pipeline that of its last step.

    return_estimator : bool, default=False
        Whether to keep the estimator that has learned the stream.

    verbose : bool, default=False
        Whether to print a line after each task: its accuracy, and the average over the
        tasks learned so far.

    Returns
    -------
    StreamResult
        The accuracy matrix, baseline, times and, if asked for, the estimator.

    Raises
    ------
    TypeError
        If the estimator has no `partial_fit`, or a task is no such record.

    ValueError
        If there is no task, two have the same id, one has no test rows, or `epochs` is
        not a whole number >= 1.

    See Also
    --------
    skewc.datasets.make_permuted_tasks : Makes a stream.
    skewc.metrics.TaskAccuracyDisplay : Draws the result.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import SGDClassifier
    >>> from skewc import EWCClassifier
    >>> from skewc.datasets import make_split_tasks
    >>> from skewc.model_selection import evaluate_stream
    >>> tasks = make_split_tasks(*load_digits(return_X_y=True), random_state=0)
    >>> clf = EWCClassifier(max_iter=20, random_state=0)
    >>> result = evaluate_stream(clf, tasks, known_task=True)
    >>> result.summary()["average_accuracy"] > 0.9
    True
    >>> evaluate_stream(SGDClassifier(random_state=0), tasks, epochs=5).matrix.shape
    (5, 5)
    """
    _check_learns_in_parts(estimator)
    check_count("epochs", epochs)
    estimator, tasks = clone(estimator), list(tasks)
    name = type(final_step(estimator)).__name__ if name is None else name
    classes = _all_classes(tasks)
    knows_tasks = takes_task_id(final_step(estimator).partial_fit)
    matrix = np.zeros((len(tasks), len(tasks)))
    fit_times, score_times = np.zeros(len(tasks)), np.zeros(len(tasks))
    for i, task in enumerate(tasks):
        start = perf_counter()
        if knows_tasks:
            _learn(estimator, task, task_id=task.id)
        else:
            for _ in range(epochs):
                _learn(estimator, task, classes=classes)
        learned = perf_counter()
        told = i + 1 if known_task and knows_tasks else 0
        with warnings.catch_warnings():
            if known_task:  # but nobody can name a task that is yet to come
                warnings.filterwarnings("ignore", "The tasks have different classes", UserWarning)
            matrix[i] = [_accuracy(estimator, other, j < told) for j, other in enumerate(tasks)]
        fit_times[i], score_times[i] = learned - start, perf_counter() - learned
        if verbose:
            print(
                f"{name}: task {i + 1} of {len(tasks)} ({task.id}) learned in "
                f"{fit_times[i]:.1f} s, accuracy {matrix[i, i]:.3f}, "
                f"average so far {matrix[i, : i + 1].mean():.3f}",
                flush=True,
            )
    return StreamResult(
        name=name,
        task_ids=[task.id for task in tasks],
        matrix=matrix,
        baseline=np.full(len(tasks), 1 / len(classes)),
        fit_times=fit_times,
        score_times=score_times,
        estimator=estimator if return_estimator else None,
    )


def _is_of_dask(X) -> bool:
    """Whether X is a collection of Dask, by Dask's own protocol and without importing it."""
    return hasattr(X, "__dask_graph__")


def _learn(estimator, task, **more) -> None:
    """Let the estimator learn the training rows of a task."""
    if _is_of_dask(task.X_train):
        from skewc.dask import partial_fit

        partial_fit(estimator, task.X_train, task.y_train, **more)
    else:
        estimator.partial_fit(task.X_train, task.y_train, **more)


def _accuracy(estimator, task, told: bool) -> float:
    """Accuracy on the test rows of a task, which is told or not."""
    more = {"task_id": task.id} if told else {}
    with np.errstate(divide="ignore"):  # GaussianNB: log 0 for classes yet to come
        if _is_of_dask(task.X_test):
            from skewc.dask import score

            return score(estimator, task.X_test, task.y_test, **more)
        return accuracy_score(task.y_test, estimator.predict(task.X_test, **more))


def _check_learns_in_parts(estimator) -> None:
    """Refuse an estimator without `partial_fit`."""
    if not hasattr(estimator, "partial_fit"):
        final = final_step(estimator)
        if final is estimator:
            advice = "only such estimators learn task after task."
        elif hasattr(final, "partial_fit"):
            advice = (
                "make it, and a pipeline that it ends in, a skewc.pipeline.ContinualPipeline, "
                "whose last step has one."
            )
        else:
            advice = f"its last step, {final!r}, has none either."
        raise TypeError(f"{type(estimator).__name__} has no partial_fit: {advice}")


def _all_classes(tasks) -> np.ndarray:
    """Return the classes of all tasks, each a record with an id of its own and test rows."""
    if not tasks:
        raise ValueError("evaluate_stream needs at least one task; got none.")
    for task in tasks:
        try:
            task_id, _, _, _, y_test = (getattr(task, part) for part in Task._fields)
        except AttributeError as error:
            raise TypeError(
                f"Tasks must be records with {', '.join(Task._fields)}, such as "
                f"skewc.datasets.Task; got {type(task).__name__}."
            ) from error
        if not np.asarray(y_test).size:
            raise ValueError(f"Task {task_id!r} has no test rows to measure its accuracy on.")
    ids = [task.id for task in tasks]
    if len({*ids}) < len(ids):
        raise ValueError(f"Each task needs an id of its own; got {ids}.")
    return np.unique(np.concatenate([np.asarray(task.y_train) for task in tasks]))
