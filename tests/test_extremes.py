"""Inputs and parameters that are extreme but legal: finite predictions, or a clear error."""

import pickle

import numpy as np
import pytest

from skewc import EWCClassifier

SOLVERS = ["adam", "sgd", "lbfgs"]
CURVATURES = ["diagonal", "kronecker"]
LARGEST = {np.float64: 1.7e308, np.float32: 3.4e38}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def separable(n=60, n_classes=3, n_features=4, dtype=np.float64):
    """Classes far apart: class k around e_k."""
    y = np.resize(np.arange(n_classes), n)
    X = np.random.RandomState(0).normal(scale=0.1, size=(n, n_features))
    X[np.arange(n), y % n_features] += 1
    return X.astype(dtype), y


def estimator(**parameters):
    defaults = {"hidden_layer_sizes": (8,), "max_iter": 50, "batch_size": 20, "random_state": 0}
    return EWCClassifier(**{**defaults, "n_iter_no_change": 1000, **parameters})


def assert_finite(clf, X, task_id=None):
    proba = clf.predict_proba(X, task_id)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(clf.predict(X, task_id), clf.classes_[proba.argmax(axis=1)])
    assert not np.isnan(clf.predict_log_proba(X, task_id)).any()
    assert not np.isnan(clf.decision_function(X, task_id)).any()
    for array in [*clf.coefs_, *clf.intercepts_, *clf.coef_importances_]:
        assert np.isfinite(array).all()


def learned_or_refused(clf, *calls):
    """Make the calls up to one that is refused; say whether none was."""
    for X, y in calls:
        before = pickle.dumps(vars(clf))
        try:
            clf.partial_fit(X, y)
        except ValueError as error:
            assert "StandardScaler" in str(error)
            assert pickle.dumps(vars(clf)) == before
            return False
        assert_finite(clf, X)
    return True


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("extras", [{}, {"memory_size": 6, "memory_selection": "herding"}])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float64, 1e150), (np.float64, 1e-150), (np.float32, 1e18), (np.float32, 1e-18)],
)
def test_scaled_features(solver, curvature, extras, dtype, scale):
    X, y = separable(dtype=dtype)
    X = X * dtype(scale)
    clf = estimator(solver=solver, curvature=curvature, max_iter=3, **extras)
    learned = learned_or_refused(clf, (X, y), (-X, y), (X[:, ::-1].copy(), y))
    assert learned or (solver == "sgd" and scale > 1)  # whose steps are as large as gradients


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float64, 1e150), (np.float64, 1e-150), (np.float32, 1e18), (np.float32, 1e-18)],
)
def test_the_discriminant_does_not_mind_large_features(dtype, scale):
    X, y = separable(dtype=dtype)
    X = X * dtype(scale)
    clf = estimator(readout="discriminant", readout_features=50, max_iter=1)
    assert learned_or_refused(clf, (X[y < 2], y[y < 2]), (X[y == 2], y[y == 2]))
    if scale > 1:
        assert clf.score(X, y) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("readout", ["softmax", "discriminant"])
def test_predicting_near_the_largest_float(dtype, readout):
    """A row so large that its outputs overflow has no prediction, rather than a wrong one."""
    X, y = separable(dtype=dtype)
    clf = estimator(readout=readout, readout_features=50).partial_fit(X, y)
    refused = 0
    for row in np.vstack([np.eye(4), -np.eye(4), np.ones((1, 4)), [[1, -1, 1, -1]]]):
        for share in (1e-20, 1e-3, 0.1, 1):
            x = (row * LARGEST[dtype] * share).astype(dtype)[None]
            try:
                assert_finite(clf, x)
            except ValueError as error:
                assert "outputs for X overflow" in str(error)
                refused += 1
    assert refused < 40
    with pytest.raises(ValueError, match="outputs for X overflow"):
        clf.predict(np.full((1, 4), LARGEST[dtype], dtype) * np.sign(_overflowing(clf, readout)))


def _overflowing(clf, readout):
    """Signs of the inputs that drive one unit of the first layer the furthest."""
    first = clf.coefs_[0] if readout == "softmax" else clf._stream.readout.projection[:-1]
    return first[:, np.abs(first).sum(axis=0).argmax()]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize(
    "extras",
    [{}, {"memory_size": 4, "readout": "discriminant", "readout_features": 5}],
    ids=["plain", "kept"],
)
@pytest.mark.parametrize("kind", ["constant", "zero", "one feature", "one row", "duplicates"])
def test_poor_data(solver, curvature, extras, kind):
    X, y = separable()
    if kind == "constant":
        X = np.full_like(X, 3)
    elif kind == "zero":
        X = np.zeros_like(X)
    elif kind == "one feature":
        X = y[:, None] - 1.0
    elif kind == "duplicates":
        X, y = np.repeat(X[:3], 20, axis=0), np.repeat(y[:3], 20)
    clf = estimator(solver=solver, curvature=curvature, max_iter=30, learning_rate_init=0.1)
    clf.set_params(batch_size="auto", **extras)
    if kind == "one row":
        for label in y[: 3 if extras else 1]:  # without extras, they would be confused
            clf.partial_fit(X[label : label + 1], [label], classes=[0, 1, 2])
            assert clf.predict(X[label : label + 1]) == label
    else:
        clf.partial_fit(X, y, "a").partial_fit(X, y, "b")
    assert_finite(clf, X)
    if kind in ("one feature", "duplicates"):
        assert clf.score(X, y) == 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_thousand_classes(solver):
    X, y = separable(n=2500, n_classes=1000, n_features=1000)
    clf = estimator(solver=solver, max_iter=2, hidden_layer_sizes=(5,))
    clf.set_params(readout="discriminant", readout_features=200, memory_size=10, fisher_samples=50)
    for half in (y < 500, y >= 500):
        clf.partial_fit(X[half], y[half])
    assert_finite(clf, X)
    assert clf.score(X, y) > 0.99


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_one_row_among_a_hundred_thousand(curvature, class_weight):
    X, y = separable(n=100_001, n_classes=2)
    X, y = X[:100_001], np.zeros(100_001, dtype=int)
    X[:, :2] = [1, 0]
    X[77, :2], y[77] = [-3, 4], 1
    clf = estimator(curvature=curvature, class_weight=class_weight, max_iter=1, batch_size="auto")
    clf.set_params(memory_size=10, readout="discriminant", readout_features=20)
    clf.partial_fit(X, y, "a").partial_fit(X[:40], y[:40] + 2, "b")
    assert_finite(clf, X[:100])
    assert clf.predict(X[77:78]) == 1  # by the discriminant
    assert 77 in [np.abs(X - row).sum(axis=1).argmin() for row in clf._stream.memory.X]
    assert clf.predict(X[77:78], "a") in (0, 1)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["ewc_lambda", "alpha"])
@pytest.mark.parametrize("value", [0, 5e-324, 1e300, 1.7e308])
def test_bounds_of_lambda_and_alpha(solver, curvature, dtype, name, value):
    X, y = separable(dtype=dtype)
    clf = estimator(solver=solver, curvature=curvature, max_iter=5).set_params(**{name: value})
    done = learned_or_refused(clf, (X, y), (-X, y))
    assert done or (name == "alpha" and value > 1)


@pytest.mark.parametrize("solver", ["adam", "sgd"])
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("rate", [1e3, 1e10, 1e100, 1e300])
def test_learning_rates_that_diverge(solver, curvature, rate):
    X, y = separable()
    clf = estimator(solver=solver, curvature=curvature).partial_fit(X, y)
    clf.set_params(learning_rate_init=rate, activation="relu")
    learned = learned_or_refused(clf, (-X, y), (X, y))
    if solver == "adam" or rate == 1e300:
        assert learned == (rate < 1e300)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("curvature", CURVATURES)
def test_perfect_separation_leaves_little_to_protect(solver, curvature):
    """Where the loss and the Fisher vanish, later tasks are learned all the same."""
    X, y = separable()
    clf = estimator(solver=solver, curvature=curvature, fisher_smoothing=0.0, alpha=0)
    clf.set_params(learning_rate_init=0.1, max_iter=300, ewc_lambda=1.0, tol=0)
    clf.partial_fit(X * 10, y, "a")
    assert clf.score(X * 10, y) == 1 and clf.loss_ < 1e-3
    assert_finite(clf, X)
    clf.partial_fit(X[:, ::-1] * 10, y, "b")
    assert_finite(clf, X)
    assert clf.score(X[:, ::-1] * 10, y) == 1
