"""Scoring in searches, with every task counting alike."""

from sklearn.utils.metadata_routing import MetadataRequest

from skewc.metrics import average_task_accuracy
from skewc.pipeline import final_step, may_take_task_id


class TaskScorer:
    """Average of the tasks' accuracies, for `scoring=` in searches.

    It needs the `task_id` of the rows it scores, and so metadata routing: with
    ``sklearn.set_config(enable_metadata_routing=True)`` searches and `cross_validate` pass
    it on, once they are given it: ``search.fit(X, y, task_id=ids)``. Called without, it is a
    TypeError, never a plain accuracy; but searches turn errors of scorers into NaN scores
    and a warning, unless they are made with ``error_score="raise"``.

    Parameters
    ----------
    known_task : bool, default=False
        Whether `predict` is told the task too (task-incremental). If it takes no
        `task_id`, that is a TypeError.

    See Also
    --------
    TaskStratifiedKFold : Folds that hold every task.
    skewc.metrics.average_task_accuracy : What it computes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from skewc import EWCClassifier
    >>> from skewc.model_selection import TaskScorer
    >>> X, y = load_iris(return_X_y=True)
    >>> ids = np.where(y < 2, "early", "late")
    >>> clf = EWCClassifier(solver="lbfgs", random_state=0).partial_fit(X, y, task_id=ids)
    >>> TaskScorer(known_task=True)(clf, X, y, task_id=ids)
    1.0
    """

    def __init__(self, *, known_task=False):
        self.known_task = known_task

    def __repr__(self):
        return f"TaskScorer(known_task={self.known_task})"

    def get_metadata_routing(self):
        """Request `task_id` and `sample_weight` from whatever scores.

        `sample_weight` is passed on only where it is asked for.

        Returns
        -------
        MetadataRequest
            The request.

        See Also
        --------
        TaskScorer : What the ids are for.

        Examples
        --------
        >>> from skewc.model_selection import TaskScorer
        >>> TaskScorer().get_metadata_routing().consumes("score", ["task_id"])
        {'task_id'}
        """
        request = MetadataRequest(owner=self)
        request.score.add_request(param="task_id", alias=True)
        request.score.add_request(param="sample_weight", alias=False)
        return request

    def __call__(self, estimator, X, y, *, task_id=None, sample_weight=None):
        """Score `estimator` on rows whose tasks are given."""
        if task_id is None:
            raise TypeError(
                "TaskScorer needs task_id, the task of each row that it scores. A search passes "
                "it on with metadata routing, sklearn.set_config(enable_metadata_routing=True), "
                "and fit(X, y, task_id=ids)."
            )
        if self.known_task and not may_take_task_id(final_step(estimator).predict):
            raise TypeError(
                "TaskScorer(known_task=True) needs an estimator whose predict takes task_id; "
                f"that of {type(final_step(estimator)).__name__} does not."
            )
        more = {"task_id": task_id} if self.known_task else {}
        predicted = estimator.predict(X, **more)
        return average_task_accuracy(y, predicted, task_id=task_id, sample_weight=sample_weight)
