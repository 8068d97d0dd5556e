"""A Pipeline that learns task after task."""

from __future__ import annotations

import copy
from inspect import signature

from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from skewc._compat import _name_estimators

__all__ = ["ContinualPipeline", "make_continual_pipeline"]


def _final_learns_in_parts(pipeline) -> bool:
    final = pipeline.steps[-1][1]
    return final not in (None, "passthrough") and hasattr(final, "partial_fit")


class ContinualPipeline(Pipeline):
    """A :class:`~sklearn.pipeline.Pipeline` with `partial_fit`.

    The transformers are fitted by the first call and then frozen: a scaler that moved on
    would feed old weights new meanings, and so void what the penalty protects.

    Parameters
    ----------
    steps : list of tuples
        As in Pipeline: pairs of name and transformer, a classifier last.

    transform_input : list of str, default=None
        As in Pipeline.

    memory : str or object with the joblib.Memory interface, default=None
        As in Pipeline; used by `fit` only.

    verbose : bool, default=False
        As in Pipeline; used by `fit` only.

    update_transformers : bool, default=False
        Whether transformers that have a `partial_fit` go on learning with every call.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes of the last step.

    n_features_in_ : int
        Number of features of the first step.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features of the first step, if it has them.

    See Also
    --------
    make_continual_pipeline : Make one without naming the steps.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skewc import EWCClassifier
    >>> from skewc.pipeline import ContinualPipeline
    >>> X, y = load_iris(return_X_y=True)
    >>> pipeline = ContinualPipeline(
    ...     [("scale", StandardScaler()), ("learn", EWCClassifier(random_state=0))]
    ... )
    >>> pipeline = pipeline.partial_fit(X, y, task_id="garden")
    >>> pipeline = pipeline.partial_fit(X + 1, y, task_id="meadow")
    >>> pipeline["learn"].task_ids_
    ['garden', 'meadow']
    """

    def __init__(
        self,
        steps,
        *,
        transform_input=None,
        memory=None,
        verbose=False,
        update_transformers=False,
    ):
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.update_transformers = update_transformers

    @available_if(_final_learns_in_parts)
    def partial_fit(self, X, y=None, task_id=None, **params):
        """Learn one more task, or another chunk of the latest one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows, as the first step takes them.

        y : array-like of shape (n_samples,), default=None
            Class labels.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each. Passed to the last step where its
            `partial_fit` takes it.

        **params : dict
            Parameters of the last step's `partial_fit`, such as `classes` and
            `sample_weight`, and, as ``<step>__<parameter>``, of other steps.

        Returns
        -------
        ContinualPipeline
            The pipeline itself.

        Raises
        ------
        ValueError
            If a parameter is meant for a step that does not exist. The transformers are
            then what they were before, as they are after any call that fails.
        """
        self._validate_steps()
        by_step = self._params_by_step(params)
        first = not self.__sklearn_is_fitted__()
        steps = []
        for name, transformer in self.steps[:-1]:
            if transformer not in (None, "passthrough"):
                more = by_step[name]
                if first:
                    transformer = clone(transformer)
                    X = transformer.fit_transform(X, y, **more)
                else:
                    if self.update_transformers and hasattr(transformer, "partial_fit"):
                        transformer = copy.deepcopy(transformer).partial_fit(X, y, **more)
                    X = transformer.transform(X)
            steps.append((name, transformer))
        name, final = self.steps[-1]
        if task_id is not None and takes_task_id(final.partial_fit):
            by_step[name]["task_id"] = task_id
        final.partial_fit(X, y, **by_step[name])
        self.steps = [*steps, (name, final)]
        return self

    def _params_by_step(self, params: dict) -> dict[str, dict]:
        """Sort parameters by step; those without a step's name are for the last."""
        by_step = {name: {} for name, _ in self.steps}
        for key, value in params.items():
            name, _, parameter = key.rpartition("__")
            name = name or self.steps[-1][0]
            if name not in by_step:
                raise ValueError(f"{key!r} is for a step {name!r}, but the steps are {[*by_step]}.")
            by_step[name][parameter] = value
        return by_step


def takes_task_id(method) -> bool:
    """Tell whether a method has a parameter `task_id`."""
    return "task_id" in signature(method).parameters


def make_continual_pipeline(
    *steps, transform_input=None, memory=None, verbose=False, update_transformers=False
):
    """Make a :class:`ContinualPipeline` whose steps are named by their types.

    Parameters
    ----------
    *steps : estimators
        Transformers, and a classifier last.

    transform_input : list of str, default=None
        As in :class:`ContinualPipeline`.

    memory : str or object with the joblib.Memory interface, default=None
        As in :class:`ContinualPipeline`.

    verbose : bool, default=False
        As in :class:`ContinualPipeline`.

    update_transformers : bool, default=False
        As in :class:`ContinualPipeline`.

    Returns
    -------
    ContinualPipeline
        The pipeline.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skewc import EWCClassifier
    >>> from skewc.pipeline import make_continual_pipeline
    >>> pipeline = make_continual_pipeline(StandardScaler(), EWCClassifier())
    >>> [name for name, _ in pipeline.steps]
    ['standardscaler', 'ewcclassifier']
    """
    return ContinualPipeline(
        _name_estimators(steps),
        transform_input=transform_input,
        memory=memory,
        verbose=verbose,
        update_transformers=update_transformers,
    )
