import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from skewc import EWCClassifier
from skewc.pipeline import ContinualPipeline, make_continual_pipeline


@pytest.fixture
def iris():
    return load_iris(return_X_y=True)


def network(**parameters):
    return EWCClassifier((8,), **{"max_iter": 5, "random_state": 0, **parameters})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # toy data
def test_passes_every_check_that_scikit_learns_pipeline_passes():
    passed = []
    for make in (make_pipeline, make_continual_pipeline):
        pipeline = make(StandardScaler(), EWCClassifier((20,), max_iter=100, random_state=0))
        results = check_estimator(pipeline, on_fail=None, on_skip=None)
        passed.append({r["check_name"] for r in results if r["status"] == "passed"})
    theirs, ours = passed
    assert len(theirs) > 40
    assert theirs <= ours


def test_transformers_are_fitted_once_and_then_frozen(iris):
    X, y = iris
    pipeline = make_continual_pipeline(StandardScaler(), "passthrough", network())
    pipeline.partial_fit(X, y, task_id="a")
    mean = pipeline[0].mean_.copy()
    pipeline.partial_fit(X + 5, y, task_id="b")
    assert_array_equal(pipeline[0].mean_, mean)
    by_hand = network()
    scaler = StandardScaler().fit(X)
    by_hand.partial_fit(scaler.transform(X), y, task_id="a")
    by_hand.partial_fit(scaler.transform(X + 5), y, task_id="b")
    assert_array_equal(pipeline.predict_proba(X), by_hand.predict_proba(scaler.transform(X)))


def test_transformers_go_on_learning_if_asked(iris):
    X, y = iris
    pipeline = make_continual_pipeline(StandardScaler(), network(), update_transformers=True)
    pipeline.partial_fit(X, y, task_id="a").partial_fit(X + 5, y, task_id="b")
    both = StandardScaler().fit(np.vstack([X, X + 5]))
    np.testing.assert_allclose(pipeline[0].mean_, both.mean_)
    nested = make_continual_pipeline(
        make_pipeline(StandardScaler()), network(), update_transformers=True
    )
    nested.partial_fit(X, y, task_id="a").partial_fit(X + 5, y, task_id="b")
    np.testing.assert_allclose(nested[0][0].mean_, X.mean(axis=0))  # has no partial_fit


def test_fit_is_pipelines_own_and_is_gone_on_with(iris):
    X, y = iris
    steps = [
        ("scale", StandardScaler()),
        ("learn", network(solver="lbfgs", alpha=1.0, max_iter=500)),
    ]
    ours = ContinualPipeline(clone_steps(steps)).fit(X, y, learn__task_id="a")
    theirs = make_pipeline(*(step for _, step in clone_steps(steps))).fit(X, y)
    assert_array_equal(ours.predict(X), theirs.predict(X))
    mean = ours["scale"].mean_
    ours.partial_fit(X + 5, y, task_id="b")
    assert ours["learn"].task_ids_ == ["a", "b"]
    assert ours["scale"].mean_ is mean


def clone_steps(steps):
    return [(name, clone(step)) for name, step in steps]


def test_parameters_reach_their_steps(iris):
    X, y = iris
    weight = np.where(y == 0, 0.0, 1.0)
    pipeline = make_continual_pipeline(StandardScaler(), network())
    pipeline.partial_fit(
        X, y, classes=[0, 1, 2, 3], sample_weight=weight, standardscaler__sample_weight=weight
    )
    assert pipeline.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(pipeline[0].mean_, X[y > 0].mean(axis=0))
    assert pipeline[-1].task_classes_[0].tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"step 'scaler', but the steps are"):
        pipeline.partial_fit(X, y, scaler__sample_weight=weight)


def test_partial_fit_exists_only_if_the_last_step_has_it():
    assert not hasattr(make_continual_pipeline(StandardScaler()), "fit_predict")
    assert not hasattr(make_continual_pipeline(MinMaxScaler(), "passthrough"), "partial_fit")


def test_a_call_that_fails_changes_nothing(iris):
    X, y = iris
    pipeline = make_continual_pipeline(StandardScaler(), network(), update_transformers=True)
    with pytest.raises(ValueError, match="Unknown label type"):
        pipeline.partial_fit(X, X[:, 0], task_id="a")
    assert not hasattr(pipeline[0], "mean_")
    pipeline.partial_fit(X, y, task_id="a")
    mean = pipeline[0].mean_.copy()
    with pytest.raises(ValueError, match="Unknown label type"):
        pipeline.partial_fit(X + 5, X[:, 0], task_id="b")
    assert_array_equal(pipeline[0].mean_, mean)


class Fragile(SGDClassifier):
    """Fails after it has changed itself."""

    def partial_fit(self, X, y, classes=None, sample_weight=None, fail=False):
        super().partial_fit(X, y, classes=classes, sample_weight=sample_weight)
        if fail:
            raise RuntimeError("half way")
        return self


def test_a_last_step_that_fails_half_way_is_restored(iris):
    X, y = iris
    pipeline = make_continual_pipeline(StandardScaler(), Fragile(random_state=0))
    final = pipeline[-1]
    with pytest.raises(RuntimeError, match="half way"):
        pipeline.partial_fit(X, y, classes=[0, 1, 2], fail=True)
    assert not hasattr(final, "coef_")
    pipeline.partial_fit(X, y, classes=[0, 1, 2])
    coef, steps = final.coef_.copy(), final.t_
    with pytest.raises(RuntimeError, match="half way"):
        pipeline.partial_fit(X + 5, y, fail=True)
    assert pipeline[-1] is final
    assert_array_equal(final.coef_, coef)
    assert final.t_ == steps
    untouched = make_continual_pipeline(StandardScaler(), Fragile(random_state=0))
    untouched.partial_fit(X, y, classes=[0, 1, 2]).partial_fit(X + 5, y)
    assert_array_equal(pipeline.partial_fit(X + 5, y)[-1].coef_, untouched[-1].coef_)


# Metadata


class Noting(TransformerMixin, BaseEstimator):
    """Notes the metadata that reach it."""

    def fit(self, X, y=None, task_id=None):
        self.fitted_with_ = task_id
        return self

    def partial_fit(self, X, y=None, task_id=None):
        self.updated_with_ = task_id
        return self

    def transform(self, X):
        return X


def test_metadata_reach_the_steps_that_request_them(iris):
    X, y = iris
    weight = np.where(y == 0, 0.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_continual_pipeline(
            Noting().set_fit_request(task_id=True).set_partial_fit_request(task_id=False),
            StandardScaler().set_fit_request(sample_weight=True),
            network().set_partial_fit_request(sample_weight="weight_of_rows"),
            update_transformers=False,
        )
        call = {"task_id": "a", "sample_weight": weight, "weight_of_rows": 2 * weight}
        pipeline.partial_fit(X, y, classes=[0, 1, 2, 3], **call)
        assert pipeline[0].fitted_with_ == "a"
        np.testing.assert_allclose(pipeline[1].mean_, X[y > 0].mean(axis=0))
        assert pipeline[-1].task_ids_ == ["a"]
        assert pipeline[-1].task_classes_[0].tolist() == [1, 2]
        assert pipeline.classes_.tolist() == [0, 1, 2, 3]
        pipeline.set_params(update_transformers=True)
        pipeline[1].set_partial_fit_request(sample_weight=False)
        pipeline.partial_fit(X, y, **{**call, "task_id": "b"})
        assert pipeline[0].updated_with_ is None
        assert pipeline[-1].task_ids_ == ["a", "b"]
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            make_continual_pipeline(network()).partial_fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("routing", [False, True])
def test_a_last_step_that_knows_no_tasks_is_not_given_any(iris, routing):
    X, y = iris
    with sklearn.config_context(enable_metadata_routing=routing):
        pipeline = make_continual_pipeline(MinMaxScaler(), SGDClassifier(random_state=0))
        pipeline.partial_fit(X, y, task_id="a", classes=[0, 1, 2])
    by_hand = SGDClassifier(random_state=0)
    by_hand.partial_fit(MinMaxScaler().fit_transform(X), y, classes=[0, 1, 2])
    assert_array_equal(pipeline[-1].coef_, by_hand.coef_)


@pytest.mark.parametrize("routing", [False, True])
def test_fit_gives_ids_to_the_last_step_where_it_takes_them(iris, routing):
    X, y = iris
    ids = np.where(np.arange(len(y)) % 2, "odd", "even")
    converging = {"solver": "lbfgs", "alpha": 1.0, "max_iter": 500}
    by_hand = network(**converging).fit(StandardScaler().fit_transform(X), y, task_id=ids)
    with sklearn.config_context(enable_metadata_routing=routing):
        for final in (network(**converging), make_continual_pipeline(network(**converging))):
            pipeline = make_continual_pipeline(StandardScaler(), final).fit(X, y, task_id=ids)
            clf = final if isinstance(final, EWCClassifier) else final[-1]
            assert clf.task_ids_ == ["even", "odd"]
            assert_array_equal(clf.coefs_[0], by_hand.coefs_[0])
        search = GridSearchCV(network(**converging), {"alpha": [1.0]}, cv=2)
        make_continual_pipeline(StandardScaler(), search).fit(X, y, task_id=ids)
        assert search.best_estimator_.task_ids_ == ["even", "odd"]
        for other in (SGDClassifier(random_state=0), "passthrough"):
            pipeline = make_continual_pipeline(StandardScaler(), other).fit(X, y, task_id=ids)
            assert hasattr(pipeline[0], "mean_")


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.filterwarnings("ignore:The tasks have different classes")  # one score asks of all
def test_scores_know_the_task(iris, routing):
    X, y = iris
    early = y < 2
    pipeline = make_continual_pipeline(StandardScaler(), "passthrough", network())
    with sklearn.config_context(enable_metadata_routing=routing):
        pipeline.partial_fit(X[early], y[early], task_id="a")
        pipeline.partial_fit(X[~early], y[~early], task_id="b")
        # Of the latest task's single class every row is, where the task is told.
        assert pipeline.score(X, np.full(len(y), 2), task_id="b") == 1
        assert pipeline.score(X, np.full(len(y), 2), task_id="a") == 0
        assert 0 < pipeline.score(X, y) < 1
        with pytest.raises(NotFittedError):
            clone(pipeline).score(X, y, task_id="a")
    weighted = pipeline.score(X, y, sample_weight=np.where(early, 0, 1.0), task_id="b")
    assert weighted == 1


@pytest.mark.parametrize("routing", [False, True])
def test_learning_curves_learn_in_parts(iris, routing):
    X, y = iris
    ids = np.where(np.arange(len(y)) % 2, "odd", "even")
    pipeline = make_continual_pipeline(StandardScaler(), network())
    with sklearn.config_context(enable_metadata_routing=routing):
        sizes, train, test = learning_curve(
            pipeline, X, y, cv=2, train_sizes=[0.5, 1.0], shuffle=True, random_state=0,
            exploit_incremental_learning=True, params={"task_id": ids}, error_score="raise",
        )  # fmt: skip
    assert sizes.tolist() == [37, 75]
    assert np.isfinite(test).all()


class LearnsFromMore(BaseEstimator):
    """Takes further rows as metadata."""

    def fit(self, X, y):
        return self

    def partial_fit(self, X, y, X_more=None):
        self.means_ = X.mean(axis=0), X_more.mean(axis=0)
        return self


def test_metadata_are_transformed_like_rows(iris):
    X, y = iris
    steps = [
        ("scale", StandardScaler()),
        ("shift", MinMaxScaler()),
        ("learn", LearnsFromMore()),
    ]
    with pytest.raises(ValueError, match="transform_input needs metadata routing"):
        ContinualPipeline(steps, transform_input=["X_more"]).partial_fit(X, y, X_more=X)
    with sklearn.config_context(enable_metadata_routing=True):
        steps[-1][1].set_partial_fit_request(X_more=True)
        pipeline = ContinualPipeline(steps, transform_input=["X_more"])
        pipeline.partial_fit(X, y, X_more=X[::2])
    transformed = MinMaxScaler().fit_transform(X)
    for found, rows in zip(pipeline["learn"].means_, (transformed, transformed[::2]), strict=True):
        np.testing.assert_allclose(found, rows.mean(axis=0))


# Pipeline's own interface


def test_nested_pipelines(iris):
    X, y = iris
    inner = ContinualPipeline([("shift", MinMaxScaler()), ("learn", network())])
    nested = ContinualPipeline(
        [("clean", make_pipeline("passthrough", StandardScaler())), ("inner", inner)]
    )
    flat = make_continual_pipeline(StandardScaler(), MinMaxScaler(), network())
    weight = np.where(y == 0, 0.5, 1.0)
    for k, rows in enumerate((X, X + 1)):
        nested.partial_fit(rows, y, task_id=k, inner__learn__sample_weight=weight)
        flat.partial_fit(rows, y, task_id=k, sample_weight=weight)
    assert_array_equal(nested.predict_proba(X), flat.predict_proba(X))
    assert nested[-1][-1].task_ids_ == [0, 1]
    assert nested.score(X, y, task_id=0) == flat.score(X, y, task_id=0)
    with sklearn.config_context(enable_metadata_routing=True):
        nested.partial_fit(X + 2, y, task_id=2)
    assert nested[-1][-1].task_ids_ == [0, 1, 2]


def test_slices_are_of_the_same_kind():
    pipeline = make_continual_pipeline(
        StandardScaler(), MinMaxScaler(), network(), update_transformers=True
    )
    head = pipeline[:-1]
    assert type(head) is ContinualPipeline
    assert head.update_transformers
    assert head[0] is pipeline[0]
    assert pipeline["minmaxscaler"] is pipeline[1]


def test_data_frames_go_through(iris):
    X, y = iris
    X = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    pipeline = make_continual_pipeline(StandardScaler(), network()).set_output(transform="pandas")
    pipeline.partial_fit(X, y, task_id="a").partial_fit(X + 1, y, task_id="b")
    assert pipeline.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert pipeline[:-1].get_feature_names_out().tolist() == ["a", "b", "c", "d"]


def test_memory_and_the_page_in_a_notebook(iris, tmp_path):
    X, y = iris
    clf = network(solver="lbfgs", alpha=1.0, max_iter=500)
    pipeline = make_continual_pipeline(StandardScaler(), clf, memory=str(tmp_path))
    unseen = make_continual_pipeline(StandardScaler(), clone(clf))
    for each in (pipeline, unseen):
        each.fit(X, y, ewcclassifier__task_id="a").partial_fit(X + 1, y, task_id="b")
    assert_array_equal(pipeline.predict_proba(X), unseen.predict_proba(X))
    assert any(tmp_path.rglob("*.pkl"))
    page = pipeline._repr_html_()
    assert "ContinualPipeline" in page and "EWCClassifier" in page
    assert "update_transformers=True" in repr(pipeline.set_params(update_transformers=True))
