"""Streams whose tasks bring new classes, come back, share classes or have hardly a row."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from test_classifier import everything, flat, importances

from skewc import EWCClassifier

CENTRES = np.random.RandomState(7).normal(scale=2, size=(10, 5))


def rows_of(rng, classes, n=40):
    """Rows of some classes, each class around its centre."""
    y = np.resize(classes, n)
    return CENTRES[y] + rng.normal(size=(n, 5)), y


def small(**parameters):
    defaults = {
        "hidden_layer_sizes": (6,), "activation": "tanh", "fisher_smoothing": 0.0,
        "max_iter": 10, "learning_rate_init": 0.01, "random_state": 0,
    }  # fmt: skip
    return EWCClassifier(**{**defaults, **parameters})


def learned(rng, *tasks, **parameters):
    """Learn a stream of tasks, given as lists of classes, with ids 0, 1, ..."""
    clf = small(**parameters)
    for k, classes in enumerate(tasks):
        clf.partial_fit(*rows_of(rng, classes), task_id=k)
    return clf


def told(clf, method="predict", *args, **keywords):
    """Messages of the warnings of a call, and the files that they are put down to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(clf, method)(*args, **keywords)
    assert all(w.category is UserWarning for w in caught)
    return [str(w.message) for w in caught], [w.filename for w in caught]


# The warning


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_log_proba", "decision_function"]
)
def test_an_estimator_warns_once_of_outputs_never_trained_together(rng, method):
    clf = learned(rng, [0, 1], [2, 3])
    X, y = rows_of(rng, [0, 1, 2, 3])
    (message,), (filename,) = told(clf, method, X)
    assert filename == __file__
    for way_out in ("readout='discriminant'", "memory_size=", "task_id="):
        assert way_out in message
    for again in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
        assert told(clf, again, X) == ([], [])
    assert told(clf, "score", X, y) == ([], [])
    clf.partial_fit(*rows_of(rng, [4, 5]), task_id=2)
    assert told(clf, "predict", X) == ([], [])


def test_copies_and_clones_warn_on_their_own(rng):
    clf = learned(rng, [0, 1], [2, 3])
    X, y = rows_of(rng, [0, 1, 2, 3])
    assert len(told(clf, "score", X, y)[0]) == 1
    fresh = clone(clf)
    for k in range(2):
        fresh.partial_fit(X[y // 2 == k], y[y // 2 == k], task_id=k)
    for other in (copy.copy(clf), copy.deepcopy(clf), pickle.loads(pickle.dumps(clf)), fresh):
        assert len(told(other, "predict", X)[0]) == 1
        assert len(told(other, "predict", X)[0]) == 0


def test_a_filter_silences_it_and_predicting_changes_nothing(rng):
    clf = learned(rng, [0, 1], [2, 3])
    X, _ = rows_of(rng, [0, 1, 2, 3])
    names, before = list(vars(clf)), everything(clf)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=UserWarning)
        clf.predict(X)
    assert caught == []
    assert list(vars(clf)) == names
    assert everything(clf) == before
    other = copy.deepcopy(clf)
    with pytest.raises(UserWarning, match="Three ways out"):  # warnings are errors here
        other.predict(X)
    assert everything(other) == before


QUIET = {
    "one_task": ([[0, 1, 2]], {}),
    "domain_incremental": ([[0, 1], [1, 0], [0, 1]], {}),
    "a_class_left_out": ([[0, 1, 2], [0, 1]], {}),
    "all_at_last": ([[0, 1], [0, 1, 2]], {}),
    "memory": ([[0, 1], [2, 3]], {"memory_size": 8}),
    "readout": ([[0, 1], [2, 3]], {"readout": "discriminant", "readout_features": 9}),
}


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_said_where_nothing_is_confused(rng, name):
    tasks, parameters = QUIET[name]
    clf = learned(rng, *tasks, **parameters)
    assert told(clf, "predict", rows_of(rng, [0, 1])[0]) == ([], [])


def test_nothing_is_said_where_the_task_is_known(rng):
    clf = learned(rng, [0, 1], [2, 3])
    X, y = rows_of(rng, [0, 1, 2, 3])
    assert told(clf, "predict", X, task_id=0) == ([], [])
    assert told(clf, "score", X, y, task_id=y // 2) == ([], [])
    assert len(told(clf, "predict", X)[0]) == 1


# Tasks known when predicting


@pytest.mark.parametrize("parameters", [{}, QUIET["memory"][1], QUIET["readout"][1]])
def test_ids_of_rows_are_as_a_call_for_each_task(rng, parameters):
    clf = small(**parameters)
    tasks = {"a": [0, 1], "c": [1, 2, 3], "b": [4]}
    for name, classes in tasks.items():
        clf.partial_fit(*rows_of(rng, classes), task_id=name)
    X, _ = rows_of(rng, range(5), 90)
    ids = rng.choice(list(tasks), 90)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        mixed = getattr(clf, method)(X, task_id=ids)
        for name in tasks:
            alone = getattr(clf, method)(X[ids == name], task_id=name)
            assert_allclose(mixed[ids == name], alone, rtol=1e-12)
    for name, classes in tasks.items():
        assert set(clf.predict(X, task_id=name)) <= set(classes)


@pytest.mark.parametrize("task_id", ["d", np.repeat(["a", "d"], 20)])
def test_an_unknown_id_names_those_known(rng, task_id):
    X, y = rows_of(rng, [0, 1])
    clf = small().partial_fit(X, y, "a").partial_fit(X, y, "b")
    with pytest.raises(ValueError, match=r"'d' was never learned; .* known are \['a', 'b'\]"):
        clf.predict(X, task_id=task_id)


# Tasks met again


def sizes(clf):
    return (5, 6, len(clf.classes_))


def rows_as_tensors(X, y):
    return torch.from_numpy(X), torch.from_numpy(y), torch.ones(len(y), dtype=torch.float64)


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_a_task_met_again_adds_its_importance_once_more(rng, penalty):
    """Three Fishers, each at the weights after its visit; classes of a join."""
    clf, terms = small(penalty=penalty, ewc_lambda=3.0), []
    visits = [("a", [0, 1]), ("b", [0, 2]), ("a", [1, 3])]
    softmax = [[0, 1], [0, 2], [0, 1, 3]]
    for (name, classes), active in zip(visits, softmax, strict=True):
        X, y = rows_of(rng, classes)
        clf.partial_fit(X, y, name, classes=range(4))
        at = torch.from_numpy(flat(clf))
        mask = np.isin(range(4), active)
        rows = rows_as_tensors(X, y)
        F = reference.fisher_by_rows("exact", at, sizes(clf), "tanh", *rows, mask)
        terms.append((F.numpy(), flat(clf)))
    assert clf.task_ids_ == ["a", "b"]
    assert [c.tolist() for c in clf.task_classes_] == [[0, 1, 3], [0, 2]]
    total = sum(F for F, _ in terms)
    assert_allclose(importances(clf), total, rtol=1e-9, atol=1e-12)
    clf.partial_fit(*rows_of(rng, [0, 1]), "c")
    if penalty == "running_sum":
        anchor = terms[-1][1]
        terms = [(F, anchor) for F, _ in terms]
    else:
        anchor = sum(F * at for F, at in terms) / np.where(total > 0, total, 1)
    held = total > 0
    assert_allclose(clf._stream.penalty["anchor"][held], anchor[held], rtol=1e-7, atol=1e-10)
    assert_allclose(clf.penalty_value(), 1.5 * reference.quadratic(flat(clf), terms), rtol=1e-9)


def kronecker_factors(clf, X):
    """A, the mean of inputs' outer products, and G, the sum of δδᵀ, for each layer."""
    coefs = clf.coefs_
    h = np.tanh(X @ coefs[0] + clf.intercepts_[0])
    z = h @ coefs[1] + clf.intercepts_[1]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    A = [np.pad(a, ((0, 0), (0, 1)), constant_values=1) for a in (X, h)]
    G = [np.zeros((6, 6)), np.zeros((len(z.T),) * 2)]
    for hidden, row in zip(h, p, strict=True):
        for c, share in enumerate(row):
            delta = row - np.eye(len(row))[c]
            back = (coefs[1] @ delta) * (1 - hidden**2)
            G[0] += share * np.outer(back, back)
            G[1] += share * np.outer(delta, delta)
    return [torch.from_numpy(a.T @ a / len(X)) for a in A], [torch.from_numpy(g) for g in G]


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_a_task_met_again_adds_its_kronecker_factors_once_more(rng, penalty):
    clf = small(penalty=penalty, curvature="kronecker", ewc_lambda=3.0)
    A, G = [0, 0], [0, 0]
    for name in "aba":
        X, y = rows_of(rng, [0, 1, 2])
        clf.partial_fit(X, y, name)
        a, g = kronecker_factors(clf, X)
        A = [s + new / 3 for s, new in zip(A, a, strict=True)]
        G = [s + new for s, new in zip(G, g, strict=True)]
    latest = flat(clf)
    parts = [torch.outer(a.diagonal(), g.diagonal()) for a, g in zip(A, G, strict=True)]
    expected = np.zeros_like(latest)
    for index, part in zip(reference.layer_index(sizes(clf)), parts, strict=True):
        expected[index] = part.ravel()
    assert_allclose(importances(clf), expected, rtol=1e-7, atol=1e-9)
    clf.partial_fit(*rows_of(rng, [0, 1, 2]), "c")
    anchor = clf._stream.penalty["anchor"]
    w, at = torch.from_numpy(flat(clf)), torch.from_numpy(anchor)
    value = reference.kronecker(w, [(A, G, at)], sizes(clf)) + clf._stream.penalty["constant"]
    assert_allclose(clf.penalty_value(), 1.5 * float(value), rtol=1e-6)
    # Running sum: the latest weights. Per task: pulled back from there towards the visits
    # before, which "a" met again does not undo.
    assert np.array_equal(anchor, latest) == (penalty == "running_sum")


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_a_task_met_again_is_held_by_its_first_visit(rng, penalty, curvature):
    clf = small(penalty=penalty, curvature=curvature, ewc_lambda=1e9)
    X, y = rows_of(rng, [0, 1])
    for name in "ab":
        clf.partial_fit(X, y, name)
    before = clf.predict_proba(X)
    clf.partial_fit(-X, y, "a")
    assert clf.penalty_value() > 0
    assert_allclose(clf.predict_proba(X), before, atol=0.02)


# Tasks of few rows or classes

STREAMS = {
    "one_class_each": [[0], [1], [2], [3]],
    "one_class_first": [[0], [1, 2]],
    "one_class_later": [[0, 1], [2], [3, 4]],
    "shared_classes": [[0, 1], [1, 2], [2, 0, 3]],
    "fewer_classes": [[0, 1, 2, 3], [1, 2], [3]],
    "new_before_old": [[5, 6], [0, 1], [3]],
}
WAYS = {
    "softmax": {},
    "kronecker": {"curvature": "kronecker"},
    "lbfgs": {"solver": "lbfgs"},
    "memory": {"memory_size": 12, "memory_selection": "random"},
    "herding": {"memory_size": 3, "memory_selection": "herding", "solver": "sgd"},
    "readout": {"readout": "discriminant", "readout_features": 40},
    "all": {
        "readout": "discriminant", "readout_features": 40, "memory_size": 12,
        "curvature": "kronecker", "active_classes": "all", "fisher": "sample",
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The tasks have different classes")
@pytest.mark.parametrize("n", [1, 30])
@pytest.mark.parametrize("declared", [None, range(8)])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STREAMS)
def test_any_tasks_can_be_learned(name, way, declared, n):
    """`n` rows of each class; numpy and torch stay quiet, and nothing is NaN."""
    rng = np.random.RandomState(0)
    clf, seen = small(**WAYS[way]), set()
    X_test, _ = rows_of(rng, range(8), 24)
    for k, classes in enumerate(STREAMS[name]):
        X, y = rows_of(rng, classes, n * len(classes))
        clf.partial_fit(X, y, k, classes=declared if k == 0 else None)
        seen |= set(classes)
        known = sorted(seen if declared is None else declared)
        assert clf.classes_.tolist() == known
        for task_id, allowed in [(None, seen), (k, set(classes))]:
            p = clf.predict_proba(X_test, task_id=task_id)
            assert p.shape == (24, len(known))
            assert_allclose(p.sum(axis=1), 1, rtol=1e-9)
            assert (p[:, [c not in allowed for c in known]] == 0).all()
            assert set(clf.predict(X_test, task_id=task_id)) <= allowed
            assert not np.isnan(clf.decision_function(X_test, task_id=task_id)).any()
        assert np.isfinite([*flat(clf), *importances(clf), clf.penalty_value(), clf.loss_]).all()


@pytest.mark.parametrize("way", ["memory", "readout", "all"])
@pytest.mark.parametrize("name", STREAMS)
def test_all_classes_are_told_apart_at_the_end(rng, name, way):
    more = {"max_iter": 100, "hidden_layer_sizes": (20,)}
    if "memory_size" in WAYS[way]:
        more["memory_size"] = 50
    clf = small(**{**WAYS[way], **more})
    for k, classes in enumerate(STREAMS[name]):
        clf.partial_fit(*rows_of(rng, classes, 30 * len(classes)), k)
    X, y = rows_of(rng, clf.classes_, 200)
    assert clf.score(X, y) > 0.9


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("name", ["one_class_later", "shared_classes", "new_before_old"])
def test_where_the_task_is_known_it_is_kept_without_a_row(rng, name, curvature):
    clf = small(curvature=curvature, ewc_lambda=100.0, max_iter=100)
    X, y = rows_of(rng, STREAMS[name][0], 200)
    clf.partial_fit(X, y, 0)
    first = clf.score(X, y, task_id=0)
    for k, classes in enumerate(STREAMS[name][1:], start=1):
        clf.partial_fit(*rows_of(rng, classes), k)
    assert first > 0.95
    assert clf.score(X, y, task_id=0) > first - 0.05
