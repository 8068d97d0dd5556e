"""Cross-validation that keeps every task in every fold."""

import warnings

import numpy as np
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold

from skewc.metrics._matrix import check_one_kind


class TaskStratifiedKFold(BaseCrossValidator):
    """K folds, each of which holds every task, and its classes, in proportion.

    The ids of the tasks are the `groups`. With metadata routing on, they are requested
    under the name `task_id`, so that a search hands the same ids to splitter and estimator.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.

    shuffle : bool, default=False
        Whether to shuffle the rows of each task and class first.

    random_state : int, RandomState instance or None, default=None
        Drives the shuffling; only used if `shuffle` is True.

    See Also
    --------
    sklearn.model_selection.StratifiedKFold : Folds that hold every class.
    skewc.datasets.stack_tasks : Rows that default folds split well, too.

    Examples
    --------
    >>> import numpy as np
    >>> from skewc.model_selection import TaskStratifiedKFold
    >>> y = np.tile([0, 1], 6)
    >>> ids = np.repeat(["a", "b", "c"], 4)
    >>> folds = TaskStratifiedKFold(n_splits=2)
    >>> for train, test in folds.split(np.zeros((12, 1)), y, ids):
    ...     print(ids[test], y[test])
    ['a' 'a' 'b' 'b' 'c' 'c'] [0 1 0 1 0 1]
    ['a' 'a' 'b' 'b' 'c' 'c'] [0 1 0 1 0 1]
    """

    __metadata_request__split = {"groups": "task_id"}

    def __init__(self, n_splits=5, *, shuffle=False, random_state=None):
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X=None, y=None, groups=None):
        """Return the number of folds.

        It does not depend on the rows.

        Parameters
        ----------
        X : object, default=None
            Not used, present for API consistency.

        y : object, default=None
            Not used, present for API consistency.

        groups : object, default=None
            Not used, present for API consistency.

        Returns
        -------
        int
            The number of folds.

        See Also
        --------
        split : The folds themselves.

        Examples
        --------
        >>> from skewc.model_selection import TaskStratifiedKFold
        >>> TaskStratifiedKFold(3).get_n_splits()
        3
        """
        return self.n_splits

    def split(self, X, y, groups=None):
        """Yield the row numbers of each fold's training and test rows.

        Every task, and every class of it, is shared out evenly among the folds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; only their number is used.

        y : array-like of shape (n_samples,)
            Class labels.

        groups : array-like of shape (n_samples,)
            The task of each row.

        Yields
        ------
        train : ndarray of int
            Row numbers of the training rows.

        test : ndarray of int
            Row numbers of the test rows.

        Raises
        ------
        TypeError
            If ids or labels mix strings and numbers.

        ValueError
            If an id or a label is missing, their numbers differ, or every class of every
            task has fewer rows than there are folds.

        Warns
        -----
        UserWarning
            If some class of some task has fewer rows than there are folds.

        See Also
        --------
        get_n_splits : Their number.

        Examples
        --------
        >>> import numpy as np
        >>> from skewc.model_selection import TaskStratifiedKFold
        >>> ids = ["a", "a", "b", "b"]
        >>> for train, test in TaskStratifiedKFold(2).split(np.zeros((4, 1)), [0, 0, 0, 0], ids):
        ...     print(train, test)
        [1 3] [0 2]
        [0 2] [1 3]
        """
        if groups is None:
            raise ValueError(
                "TaskStratifiedKFold needs the task of each row as `groups`. A search passes it on "
                "from fit(X, y, groups=ids), or, with "
                "sklearn.set_config(enable_metadata_routing=True), from fit(X, y, task_id=ids)."
            )
        groups, y = check_one_kind("groups", groups), check_one_kind("y", y)
        if groups.shape != y.shape:
            raise ValueError(
                f"`groups` has shape {groups.shape}, but `y` has shape {y.shape}: "
                "expected the task of each row."
            )
        _, tasks = np.unique(groups, return_inverse=True)
        classes, labels = np.unique(y, return_inverse=True)
        strata = tasks * len(classes) + labels
        folds = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        _, first, counts = np.unique(strata, return_index=True, return_counts=True)
        fewest = first[counts.argmin()]
        if counts.min() < self.n_splits:
            message = (
                f"Class {y[fewest]!r} has only {counts.min()} rows in task {groups[fewest]!r}, "
                f"fewer than n_splits={self.n_splits}: some folds lack it."
            )
            if counts.max() < self.n_splits:
                raise ValueError(f"{message} So it is with every class of every task.")
            warnings.warn(message, UserWarning, stacklevel=2)
        with warnings.catch_warnings():  # strata are not what a user knows as classes
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            parts = list(folds.split(np.zeros((len(strata), 1)), strata))
        yield from parts
