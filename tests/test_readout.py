"""The discriminant read-out, against scikit-learn's discriminant of the same features."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.covariance import oas
from sklearn.datasets import load_digits, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split

from skewc import EWCClassifier
from skewc._readout import Discriminant
from skewc._rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 3, "random_state": 0}
DISCRIMINANT = {**QUICK, "readout": "discriminant", "readout_features": 30}


def features(clf, X):
    *R, r = clf._stream.readout.projection
    return np.maximum(X @ np.array(R) + r, 0)


def within_class(phi, y):
    return np.concatenate([phi[y == c] - phi[y == c].mean(axis=0) for c in np.unique(y)])


def sklearn_discriminant(clf, X, y):
    """scikit-learn's, with the shrinkage its own estimator chooses from the pooled rows."""
    phi = features(clf, X)
    _, shrinkage = oas(within_class(phi, y), assume_centered=True)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    return lda.fit(phi, y)


@pytest.fixture
def rows(rng):
    X, y = make_classification(
        400, 12, n_informative=8, n_classes=4, weights=[0.4, 0.3, 0.2], random_state=rng
    )
    return X, y


def in_tasks(clf, X, y, *tasks):
    for task_id, classes in enumerate(tasks):
        part = np.isin(y, classes)
        clf.partial_fit(X[part], y[part], task_id=task_id)
    return clf


@pytest.mark.parametrize("tasks", [[[0, 1, 2, 3]], [[1, 3], [0], [2]]])
def test_equals_scikit_learns_discriminant(rows, tasks):
    X, y = rows
    clf = in_tasks(EWCClassifier(**DISCRIMINANT), X, y, *tasks)
    lda = sklearn_discriminant(clf, X, y)
    np.testing.assert_allclose(clf.predict_proba(X), lda.predict_proba(features(clf, X)), atol=1e-9)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[clf.decision_function(X).argmax(1)])


def test_statistics_do_not_depend_on_order_chunks_or_tasks(rows, rng, monkeypatch):
    X, y = rows
    whole = EWCClassifier(**DISCRIMINANT).fit(X, y).predict_proba(X)
    order = rng.permutation(len(y))
    monkeypatch.setattr("skewc._rows._CHUNK_ELEMENTS", 30 * 17)
    clf = EWCClassifier(**DISCRIMINANT)
    for k, part in enumerate(np.array_split(order, 7)):
        clf.partial_fit(X[part], y[part], task_id=k // 2, classes=range(4))
    np.testing.assert_allclose(clf.predict_proba(X), whole, atol=1e-9)


def test_weights_are_repetitions(rows, rng):
    X, y = rows
    weights = rng.randint(0, 3, len(y))
    weighted = EWCClassifier(**DISCRIMINANT).fit(X, y, sample_weight=weights)
    repeated = EWCClassifier(**DISCRIMINANT).fit(X.repeat(weights, 0), y.repeat(weights))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_are_dense_rows(rows, container):
    X, y = rows
    X = np.where(np.abs(X) < 1, 0, X)
    dense = in_tasks(EWCClassifier(**DISCRIMINANT), X, y, [0, 1], [2, 3])
    thin = EWCClassifier(**DISCRIMINANT)
    for k, classes in enumerate([[0, 1], [2, 3]]):
        part = np.isin(y, classes)
        thin.partial_fit(container(X[part]), y[part], task_id=k)
    expected = dense.predict_proba(X)
    np.testing.assert_allclose(thin.predict_proba(container(X)), expected, atol=1e-9)


def test_float32_stays_float32_and_agrees(rows):
    X, y = rows
    double = EWCClassifier(**DISCRIMINANT).fit(X, y)
    single = EWCClassifier(**DISCRIMINANT).fit(X.astype(np.float32), y)
    p = single.predict_proba(X.astype(np.float32))
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, double.predict_proba(X), atol=1e-3)
    readout = single._stream.readout
    for name in ("projection", "means", "scatter", "coef", "intercept"):
        assert getattr(readout, name).dtype == np.float32, name


def test_where_the_task_is_known_the_network_answers(rows):
    X, y = rows
    tasks = [[0, 1], [2, 3]]
    clf = in_tasks(EWCClassifier(**DISCRIMINANT), X, y, *tasks)
    z = clf.to_torch()(torch.from_numpy(X)).detach().numpy()
    for k, classes in enumerate(tasks):
        np.testing.assert_array_equal(
            clf.predict(X, task_id=k), np.take(classes, z[:, classes].argmax(axis=1))
        )


def test_protection_is_untouched(rows):
    """Beside the draws of its features, the read-out changes nothing of the network."""
    X, y = rows
    rng = np.random.RandomState(0)
    plain = EWCClassifier(**{**QUICK, "shuffle": False, "warm_start": True}).fit(X, y)
    other = EWCClassifier(**{**DISCRIMINANT, "shuffle": False, "warm_start": True}).fit(X, y)
    for clf in (plain, other):
        clf.set_params(random_state=rng)
        in_tasks(clf, -X, y, [0, 1, 2, 3], [0, 1])
    np.testing.assert_array_equal(plain.coefs_[0], other.coefs_[0])
    np.testing.assert_array_equal(plain.coef_importances_[0], other.coef_importances_[0])


def test_state_does_not_grow_with_tasks(rows):
    X, y = rows
    clf = in_tasks(EWCClassifier(**DISCRIMINANT), X, y, [0, 1, 2, 3])
    before = sum(a.nbytes for a in vars(clf._stream.readout).values())
    for k in range(10):
        clf.partial_fit(X + k, y, task_id=k + 1)
    assert sum(a.nbytes for a in vars(clf._stream.readout).values()) == before


def test_new_classes_keep_apart_from_old_ones():
    """Digits, two new ones in a task, none stored: nearly as good as all at once."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, y, random_state=0)
    tasks = np.arange(10).reshape(5, 2)
    clf = EWCClassifier(**{**QUICK, "readout": "discriminant", "readout_features": 500})
    in_tasks(clf, X, y, *tasks)
    at_once = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X, y)
    assert clf.score(X_test, y_test) > at_once.score(X_test, y_test)
    clf.set_params(readout="softmax")  # what was learned decides, not the parameter
    assert clf.score(X_test, y_test) > 0.9


def test_rows_not_consolidated_are_not_counted(rows):
    X, y = rows
    once = EWCClassifier(**DISCRIMINANT).partial_fit(X, y, task_id=0)
    thrice = EWCClassifier(**DISCRIMINANT)
    for consolidate in (False, False, True):
        thrice.partial_fit(X, y, task_id=0, consolidate=consolidate)
    np.testing.assert_array_equal(once._stream.readout.scatter, thrice._stream.readout.scatter)


def test_nothing_counted_yet_gives_even_odds_and_counted_classes_win(rows):
    X, y = rows
    clf = EWCClassifier(**DISCRIMINANT).partial_fit(X, y, task_id=0, consolidate=False)
    np.testing.assert_allclose(clf.predict_proba(X), 0.25)
    part = y < 2
    clf.partial_fit(X[part], y[part], task_id=1)
    assert (clf.predict_proba(X)[:, 2:] == 0).all()
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1)


def test_a_new_class_that_is_not_counted_is_impossible(rows):
    X, y = rows
    clf = in_tasks(EWCClassifier(**DISCRIMINANT), X, y, [1, 3])
    part = np.isin(y, [0, 2])
    expected = clf.predict_proba(X)
    clf.partial_fit(X[part], y[part], task_id=1, consolidate=False)
    np.testing.assert_array_equal(clf.predict_proba(X)[:, [0, 2]], 0)
    np.testing.assert_allclose(clf.predict_proba(X)[:, [1, 3]], expected, atol=1e-12)


@pytest.mark.parametrize("n_per_class", [1, 2])
def test_few_rows(rows, n_per_class):
    """With one row of each class there is no scatter: the nearest mean decides."""
    X, y = rows
    first = np.concatenate([np.flatnonzero(y == c)[:n_per_class] for c in range(4)])
    clf = EWCClassifier(**DISCRIMINANT).fit(X[first], y[first])
    np.testing.assert_array_equal(clf.predict(X[first]), y[first])
    if n_per_class == 1:
        phi, centres = features(clf, X), features(clf, X[first])
        nearest = ((phi[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        np.testing.assert_array_equal(clf.predict(X), y[first][nearest])


def test_closed_set_gives_no_probability_to_unseen_classes(rows):
    X, y = rows
    clf = EWCClassifier(**DISCRIMINANT)
    clf.partial_fit(X, y, classes=range(7))
    assert clf.predict_proba(X).shape == (len(y), 7)
    assert (clf.predict_proba(X)[:, 4:] == 0).all()


@pytest.mark.parametrize("change", [{"readout": "softmax"}, {"readout_features": 31}])
def test_cannot_change_while_learning_goes_on(rows, change):
    X, y = rows
    clf = EWCClassifier(**DISCRIMINANT).fit(X, y)
    before = pickle.dumps(clf)
    with pytest.raises(ValueError, match="readout.*cannot change while learning goes on"):
        clf.set_params(**change).partial_fit(X, y)
    assert pickle.dumps(clf.set_params(**DISCRIMINANT)) == before


def test_cannot_begin_after_tasks_without_statistics(rows):
    X, y = rows
    clf = EWCClassifier(**QUICK).fit(X, y).set_params(readout="discriminant")
    with pytest.raises(ValueError, match="readout.*cannot change"):
        clf.partial_fit(X, y)
    clf.set_params(warm_start=True).fit(X, y)
    assert clf._stream.readout is not None


def test_overflow_is_told_and_nothing_changes(rows):
    X, y = rows
    clf = EWCClassifier(**DISCRIMINANT).fit(X, y)
    before = pickle.dumps(clf)
    with pytest.raises(ValueError, match="overflow|non-finite"):
        clf.partial_fit(X * 1e200, y)
    assert pickle.dumps(clf) == before


def test_float32_copes_with_inputs_far_from_zero(rows):
    X, y = rows[0] + 30, rows[1]
    double = EWCClassifier(**DISCRIMINANT).partial_fit(X, y)
    single = EWCClassifier(**DISCRIMINANT).partial_fit(X.astype(np.float32), y)
    p = single.predict_proba(X.astype(np.float32))
    np.testing.assert_allclose(p, double.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weight", [1e-30, 1.0, 1e12])
@pytest.mark.parametrize("varies", [True, False])
def test_features_that_hardly_vary(rng, dtype, weight, varies):
    """Inputs along one line, or all alike, of next to no or of great weight."""
    z = rng.normal(size=(200, 1)).astype(dtype)
    X, y = np.repeat(z if varies else np.ones_like(z), 5, axis=1), (z[:, 0] > 0).astype(int)
    clf = EWCClassifier(**{**DISCRIMINANT, "readout_features": 300})
    clf.partial_fit(X, y, sample_weight=np.full(200, weight))
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    if varies:
        assert clf.score(X, y) > 0.95
    else:  # a row tells nothing, and the classes are of about the same size
        assert (np.abs(p - 0.5) < 0.15).all()


def test_many_classes_do_not_make_large_chunks(monkeypatch):
    chunks, sizes = Rows.chunks, []

    def spy(self, widest):
        for index in chunks(self, widest):
            sizes.append(len(self.inputs(index)))
            yield index

    monkeypatch.setattr("skewc._rows._CHUNK_ELEMENTS", 5000)
    monkeypatch.setattr(Rows, "chunks", spy)
    rng = np.random.RandomState(0)
    readout = Discriminant.begin(4, 3, 1000, rng, np.float64)
    readout.add(Rows(rng.normal(size=(20, 4)), rng.randint(0, 1000, 20)))
    assert sizes == [5, 5, 5, 5]
