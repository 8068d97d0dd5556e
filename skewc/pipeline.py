"""A Pipeline that learns task after task."""

from __future__ import annotations

import copy
from inspect import signature

from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skewc._callbacks import following
from skewc._compat import _name_estimators, with_callbacks

__all__ = ["ContinualPipeline", "make_continual_pipeline"]


def _final_has(method: str):
    """Make a check whether the last step of a pipeline has a method."""

    def check(pipeline) -> bool:
        final = pipeline.steps[-1][1]
        return not _passes_through(final) and hasattr(final, method)

    return check


def _passes_through(step) -> bool:
    return step is None or isinstance(step, str)


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
        Others stay frozen: so does a Pipeline or ColumnTransformer among the steps, with all
        that is in it, since these have no `partial_fit`.

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

    Notes
    -----
    What the first task does not show, frozen transformers do not know: scikit-learn's
    scalers leave a feature that was constant there as it is, however it varies later.

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

    def fit(self, X, y=None, task_id=None, **params):
        """Fit the transformers anew, and the last step on what they make of the rows.

        Nothing is frozen yet: the transformers see the rows of all tasks of this call.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows, as the first step takes them.

        y : array-like of shape (n_samples,), default=None
            Class labels.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each. Passed to the last step where its `fit` takes
            it (with metadata routing on: to all steps that request it), else left out.

        **params : dict
            As for Pipeline: ``<step>__<parameter>``, or metadata with routing on.

        Returns
        -------
        ContinualPipeline
            The pipeline itself.

        Raises
        ------
        ValueError
            If a parameter has no step's name before it, or a step refuses the rows.

        See Also
        --------
        partial_fit : Learn task after task with the transformers of the first.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> from sklearn.preprocessing import StandardScaler
        >>> from skewc.pipeline import make_continual_pipeline
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0)
        >>> pipeline = make_continual_pipeline(StandardScaler(), clf).fit(X, y, task_id="garden")
        >>> pipeline[-1].task_ids_
        ['garden']
        """
        if task_id is not None and self._wants_task_id("fit", may_take_task_id):
            on = get_config()["enable_metadata_routing"]
            params["task_id" if on else f"{self.steps[-1][0]}__task_id"] = task_id
        return super().fit(X, y, **params)

    @available_if(_final_has("partial_fit"))
    @with_callbacks
    def partial_fit(self, X, y=None, task_id=None, *, classes=None, **params):
        """Learn one more task, or another chunk of the latest one.

        The first call fits the transformers; later ones leave them as they are, unless
        `update_transformers` says otherwise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows, as the first step takes them.

        y : array-like of shape (n_samples,), default=None
            Class labels.

        task_id : str or number, or array-like of shape (n_samples,), default=None
            The task of all rows, or of each. Passed to the last step where its
            `partial_fit` takes it (with metadata routing on: to all steps that request
            it), else left out.

        classes : array-like of shape (n_classes,), default=None
            All classes that may ever come, for the last step.

        **params : dict
            Parameters of the last step's `partial_fit`, such as `sample_weight`, and, as
            ``<step>__<parameter>``, of other steps. With metadata routing on: metadata,
            which goes to the steps that request it.

        Returns
        -------
        ContinualPipeline
            The pipeline itself.

        Raises
        ------
        ValueError
            If a parameter is meant for a step that does not exist. After this as after any
            other error, each step is what it was before the call.

        See Also
        --------
        fit : Fit all steps anew.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> from sklearn.preprocessing import StandardScaler
        >>> from skewc.pipeline import make_continual_pipeline
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0)
        >>> pipeline = make_continual_pipeline(StandardScaler(), clf)
        >>> pipeline = pipeline.partial_fit(X, y, task_id="garden")
        >>> mean = pipeline[0].mean_
        >>> pipeline = pipeline.partial_fit(X + 1, y, task_id="meadow")
        >>> (pipeline[0].mean_ == mean).all()
        np.True_
        """
        self._validate_steps()
        if task_id is not None and self._wants_task_id("partial_fit", takes_task_id):
            params["task_id"] = task_id
        routed = self._route(params)
        draft = copy.copy(self)
        draft.steps = list(self.steps)
        first = not self.__sklearn_is_fitted__()
        for k, (name, transformer) in enumerate(self.steps[:-1]):
            if not _passes_through(transformer):
                more = draft._get_metadata_for_step(
                    step_idx=k, step_params=routed[name], all_params=params
                )
                X, transformer = self._transform_by(transformer, X, y, more, first=first)
                draft.steps[k] = name, transformer
        name, final = self.steps[-1]
        more = draft._get_metadata_for_step(
            step_idx=len(self.steps) - 1, step_params=routed[name], all_params=params
        )["partial_fit"]
        if classes is not None:
            more = {**more, "classes": classes}
        _partial_fit_or_restore(final, X, y, more, self)
        self.steps = draft.steps
        return self

    def _transform_by(self, transformer, X, y, more, *, first):
        """Return the transformed rows, and the transformer that a new copy has become."""
        if first:
            transformer = clone(transformer)
            if hasattr(transformer, "fit_transform"):
                return transformer.fit_transform(X, y, **more["fit_transform"]), transformer
            transformer.fit(X, y, **more["fit"])
        elif self.update_transformers and hasattr(transformer, "partial_fit"):
            transformer = copy.deepcopy(transformer).partial_fit(X, y, **more["partial_fit"])
        return transformer.transform(X, **more["transform"]), transformer

    def _wants_task_id(self, method: str, takes) -> bool:
        if get_config()["enable_metadata_routing"]:
            return bool(self.get_metadata_routing().consumes(method, ["task_id"]))
        final = self.steps[-1][1]
        return not _passes_through(final) and takes(getattr(final, method))

    def _route(self, params: dict):
        """Sort parameters by step and method; those without a step's name are for the last."""
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "partial_fit", **params)
        if self.transform_input is not None:
            raise ValueError(
                "transform_input needs metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
        by_step = {name: {} for name, _ in self.steps}
        for key, value in params.items():
            name, separator, parameter = key.partition("__")
            if not separator:
                name, parameter = self.steps[-1][0], key
            if name not in by_step:
                raise ValueError(f"{key!r} is for a step {name!r}, but the steps are {[*by_step]}.")
            by_step[name][parameter] = value
        learning = ("fit", "fit_transform", "partial_fit")
        return {
            name: {**dict.fromkeys(learning, own), "transform": {}} for name, own in by_step.items()
        }

    def get_metadata_routing(self):
        """Get what each step requests, `partial_fit` included.

        scikit-learn asks for it where metadata routing is on.

        Returns
        -------
        MetadataRouter
            That of Pipeline, with routes for `partial_fit`.

        See Also
        --------
        partial_fit : What the routes lead to.

        Examples
        --------
        >>> from skewc import EWCClassifier
        >>> from skewc.pipeline import make_continual_pipeline
        >>> router = make_continual_pipeline(EWCClassifier()).get_metadata_routing()
        >>> router.consumes("partial_fit", ["task_id"])
        {'task_id'}
        """
        router = super().get_metadata_routing()
        *transformers, (final, _) = self.steps
        callees = {final: ["partial_fit"]}
        for name, transformer in transformers:
            callees[name] = ["transform"]
            fits = ["fit_transform"] if hasattr(transformer, "fit_transform") else ["fit"]
            callees[name] += fits + ["partial_fit"] * bool(self.update_transformers)
        for name, route in router:
            for callee in callees[name]:
                route.mapping.add(caller="partial_fit", callee=callee)
        return router

    @available_if(_final_has("score"))
    def score(self, X, y=None, sample_weight=None, **params):
        """Score the transformed rows by the last step.

        `task_id` reaches the last step with metadata routing off, too.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Test rows, as the first step takes them.

        y : array-like of shape (n_samples,), default=None
            True labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, passed on if given.

        **params : dict
            Parameters of the last step's `score`, such as `task_id`. Pipeline drops them
            unless metadata routing is on.

        Returns
        -------
        float
            What the last step's `score` returns.

        Raises
        ------
        NotFittedError
            If nothing has been learned yet.

        See Also
        --------
        fit : Fit the steps.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> from skewc.pipeline import make_continual_pipeline
        >>> pipeline = make_continual_pipeline(EWCClassifier(solver="lbfgs", random_state=0))
        >>> pipeline = pipeline.partial_fit(X, y, task_id="garden")
        >>> pipeline.score(X, y, task_id="garden") > 0.95
        True
        """
        if not params or get_config()["enable_metadata_routing"]:
            return super().score(X, y, sample_weight=sample_weight, **params)
        check_is_fitted(self)
        for _, transformer in self.steps[:-1]:
            if not _passes_through(transformer):
                X = transformer.transform(X)
        if sample_weight is not None:
            params["sample_weight"] = sample_weight
        return self.steps[-1][1].score(X, y, **params)

    def __getitem__(self, ind):
        """Return a step, or for a slice a pipeline of the same kind."""
        part = super().__getitem__(ind)
        if isinstance(ind, slice):
            part.update_transformers = self.update_transformers
        return part


def _partial_fit_or_restore(estimator, X, y, params: dict, pipeline) -> None:
    """Call `partial_fit`; what fails half way leaves the estimator as it was."""
    before = copy.deepcopy(vars(estimator))
    try:
        with following(pipeline, estimator, X=X, y=y):
            estimator.partial_fit(X, y, **params)
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def final_step(estimator):
    """Return the last step of a pipeline, also of nested ones, else the estimator itself."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def takes_task_id(method) -> bool:
    """Tell whether a method has a parameter `task_id`."""
    return "task_id" in signature(method).parameters


def may_take_task_id(method) -> bool:
    """Tell whether a method has a parameter `task_id`, or one for any keyword."""
    parameters = signature(method).parameters.values()
    return any(p.name == "task_id" or p.kind is p.VAR_KEYWORD for p in parameters)


def make_continual_pipeline(
    *steps, transform_input=None, memory=None, verbose=False, update_transformers=False
):
    """Make a :class:`ContinualPipeline` whose steps are named by their types.

    As :func:`sklearn.pipeline.make_pipeline` does for a Pipeline.

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

    See Also
    --------
    ContinualPipeline : The same with names of your own.

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
