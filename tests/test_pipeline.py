import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import SGDClassifier
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
    assert pipeline.score(X, y, task_id="a") == by_hand.score(scaler.transform(X), y, task_id="a")


def test_transformers_go_on_learning_if_asked(iris):
    X, y = iris
    pipeline = make_continual_pipeline(StandardScaler(), network(), update_transformers=True)
    pipeline.partial_fit(X, y, task_id="a").partial_fit(X + 5, y, task_id="b")
    both = StandardScaler().fit(np.vstack([X, X + 5]))
    np.testing.assert_allclose(pipeline[0].mean_, both.mean_)


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


def test_a_last_step_that_knows_no_tasks_is_not_given_any(iris):
    X, y = iris
    pipeline = make_continual_pipeline(MinMaxScaler(), SGDClassifier(random_state=0))
    pipeline.partial_fit(X, y, task_id="a", classes=[0, 1, 2])
    assert pipeline.predict(X).shape == y.shape


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
