import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError

import skewc._training
import skewc._validation
from skewc import EWCClassifier


def blobs(rng, n=60, classes=(0, 1, 2), dtype=np.float64):
    y = np.resize(classes, n)
    centres = np.random.RandomState(7).normal(scale=4, size=(20, 5))
    index = {c: i for i, c in enumerate(dict.fromkeys(classes))}
    X = centres[[(c if isinstance(c, int) else index[c]) for c in y.tolist()]]
    return (X + rng.normal(size=(n, 5))).astype(dtype), y


def small(**parameters):
    defaults = {
        "hidden_layer_sizes": (8,),
        "fisher_smoothing": 0.0,
        "max_iter": 5,
        "n_iter_no_change": 10_000,  # all epochs run
        "batch_size": 20,
        "random_state": 0,
    }
    return EWCClassifier(**{**defaults, **parameters})


def flat(clf):
    return np.concatenate([w.ravel() for w in [*clf.coefs_, *clf.intercepts_]])


def importances(clf):
    parts = [*clf.coef_importances_, *clf.intercept_importances_]
    return np.concatenate([w.ravel() for w in parts])


def everything(clf):
    """All that a call may change, as bytes."""
    return pickle.dumps(vars(clf))


# Tasks


def test_rows_of_several_tasks_are_learned_in_sorted_order(rng):
    X, y = blobs(rng)
    ids = np.repeat(["b", "a", "c"], 20)
    together = small().partial_fit(X, y, task_id=ids)
    one_by_one = small()
    for name in "abc":
        one_by_one.partial_fit(X[ids == name], y[ids == name], task_id=name)
    assert together.task_ids_ == one_by_one.task_ids_ == ["a", "b", "c"]
    assert_array_equal(flat(together), flat(one_by_one))
    assert_array_equal(importances(together), importances(one_by_one))


@pytest.mark.parametrize(
    "container", [list, np.array, pd.Series, lambda i: pd.Series(i, dtype="Int64")]
)
def test_ids_come_in_any_container(rng, container):
    X, y = blobs(rng)
    ids = [3, 1, 10] * 20
    clf = small().partial_fit(X, y, task_id=container(ids))
    assert clf.task_ids_ == [1, 3, 10]
    assert all(type(i) is int for i in clf.task_ids_)
    assert clf.score(X, y, task_id=container(ids)) == clf.score(X, y, task_id=ids)


def test_an_ordered_categorical_keeps_its_order(rng):
    X, y = blobs(rng)
    dtype = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    ids = np.resize(["high", "low"], 60)
    for categories in (pd.Series(ids, dtype=dtype), pd.Categorical(ids, dtype=dtype)):
        assert small().partial_fit(X, y, task_id=categories).task_ids_ == ["low", "high"]
    unordered = pd.Series(ids, dtype="category")
    assert small().partial_fit(X, y, task_id=unordered).task_ids_ == ["high", "low"]


@pytest.mark.parametrize("task_id", ["site", 3, 2.5, np.int64(3), np.str_("site"), np.array(3)])
def test_one_id_for_a_call(rng, task_id):
    X, y = blobs(rng)
    clf = small().partial_fit(X, y, task_id)
    assert clf.task_ids_ in (["site"], [3], [2.5])
    assert type(clf.task_ids_[0]) in (str, int, float)
    assert_array_equal(clf.predict(X, task_id=task_id), clf.predict(X))


@pytest.mark.parametrize(
    ("task_id", "error", "message"),
    [
        (["a"] * 59, ValueError, r"expected shape \(60,\), got \(59,\)"),
        (np.zeros((60, 1)), ValueError, r"got \(60, 1\)"),
        (["a", 1] * 30, TypeError, "mixes strings and numbers"),
        ([None, 1] * 30, TypeError, "got None of type NoneType"),
        ([np.nan, 1] * 30, ValueError, "NaN"),
        (float("nan"), ValueError, "NaN"),
        (pd.Series([pd.NA, 1] * 30, dtype="Int64"), (TypeError, ValueError), "NA|missing"),
        ([{}, 1] * 30, TypeError, "of type dict"),
        (np.datetime64("2020-01-01"), TypeError, "of type date"),
        (np.full(60, np.datetime64("2020-01-01", "ns")), TypeError, "of type datetime64"),
        (np.ma.array([1] * 60, mask=[True] + [False] * 59), ValueError, "masked"),
        ([[1], [1, 2]] * 30, TypeError, "of type list"),
        (b"a", TypeError, "of type bytes"),
        (object(), TypeError, "of type object"),
    ],
)
def test_bad_ids_are_named(rng, task_id, error, message):
    X, y = blobs(rng)
    with pytest.raises(error, match=message):
        small().fit(X, y, task_id=task_id)
    clf = small(max_iter=1).partial_fit(X, y, task_id=1)
    with pytest.raises(error, match=message):
        clf.predict(X, task_id=task_id)


def test_chunks_of_a_task_go_on(rng):
    """Moments go on, importance adds up, and the penalty leaves the task's rows out."""
    X, y = blobs(rng)
    clf = small(ewc_lambda=1e6, batch_size=60, shuffle=False, max_iter=4)
    clf.partial_fit(X, y, task_id="a")
    first = importances(clf)
    clf.partial_fit(X, y, task_id="a")
    whole = small(ewc_lambda=1e6, batch_size=60, shuffle=False, max_iter=8)
    whole.partial_fit(X, y, task_id="a")
    assert_allclose(flat(clf), flat(whole), rtol=1e-12)
    assert clf.t_ == whole.t_ == 480
    assert clf.task_ids_ == ["a"]
    assert clf.penalty_value() == 0
    assert_allclose(importances(clf), first + importances(whole), rtol=1e-12)
    # A new task starts the moments afresh: as a network warm-started from the weights.
    other = copy.deepcopy(clf).set_params(ewc_lambda=0).partial_fit(X, y, task_id="b")
    warm = copy.deepcopy(clf).set_params(warm_start=True)
    with pytest.warns(match="Maximum iterations"):
        warm.fit(X, y)
    assert_array_equal(flat(other), flat(warm))
    assert other.t_ == 240


@pytest.mark.parametrize("learning_rate", ["constant", "adaptive"])
def test_a_new_learning_rate_holds_from_the_next_chunk_on(rng, learning_rate):
    X, y = blobs(rng)
    clf = small(solver="sgd", learning_rate=learning_rate, momentum=0, learning_rate_init=0.1)
    before = flat(clf.partial_fit(X, y, task_id="a"))
    clf.set_params(learning_rate_init=1e-12).partial_fit(X, y, task_id="a")
    assert_allclose(flat(clf), before, rtol=0, atol=1e-9)


def test_passes_over_chunks_count_rows_once(rng):
    X, y = blobs(rng)
    clf = small(max_iter=1)
    for last in (False, False, True):
        for chunk in (slice(0, 30), slice(30, 60)):
            before = importances(clf) if hasattr(clf, "coefs_") else 0
            clf.partial_fit(X[chunk], y[chunk], task_id="a", consolidate=last)
            assert (importances(clf) != before).any() == last
    assert clf.t_ == 180


def test_calls_without_an_id_are_tasks_of_their_own(rng):
    X, y = blobs(rng)
    clf = small(ewc_lambda=10.0).partial_fit(X, y).partial_fit(-X, y)
    assert clf.task_ids_ == [None, None]
    assert clf.penalty_value() > 0
    named = small(ewc_lambda=10.0).partial_fit(X, y, 1).partial_fit(-X, y, 2)
    assert_array_equal(flat(clf), flat(named))


def test_fit_starts_afresh_and_the_next_call_protects_it(rng):
    X, y = blobs(rng)
    fitted = small(max_iter=3)
    with pytest.warns(match="Maximum iterations"):
        fitted.fit(X, y, task_id="a")
    streamed = small(max_iter=3).partial_fit(X, y, task_id="a")
    for clf in (fitted, streamed):
        clf.partial_fit(-X, y, task_id="b")
    assert_array_equal(flat(fitted), flat(streamed))
    assert fitted.penalty_value() == streamed.penalty_value() > 0
    with pytest.warns(match="Maximum iterations"):
        fitted.fit(X, y, task_id="c")
    assert fitted.task_ids_ == ["c"]
    assert fitted.penalty_value() == 0


def test_a_task_met_again_is_listed_once_and_counted_again(rng):
    X, y = blobs(rng)
    clf = small()
    for name in "aba":
        clf.partial_fit(X, y, task_id=name)
        counted = importances(clf).sum()
    assert clf.task_ids_ == ["a", "b"]
    clf.partial_fit(X, y, task_id="a")  # the open task: a further chunk
    assert clf.task_ids_ == ["a", "b"]
    assert importances(clf).sum() > counted


def test_a_task_met_again_joins_its_classes(rng):
    X, y = blobs(rng, classes=(0, 1))
    clf = small().partial_fit(X, y, "a").partial_fit(X, y, "b").partial_fit(X, y + 5, "a")
    assert [c.tolist() for c in clf.task_classes_] == [[0, 1, 5, 6], [0, 1]]


def test_a_warm_fit_opens_a_declared_set(rng):
    X, y = blobs(rng)
    clf = small(warm_start=True).partial_fit(X, y, classes=[0, 1, 2])
    with pytest.warns(match="Maximum iterations"):
        clf.fit(X, y)
    assert clf.partial_fit(X, y + 5).classes_.tolist() == [0, 1, 2, 5, 6, 7]


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_task_weights_and_scale(rng, scale):
    X, y = blobs(rng)
    plain = small(fisher_scale=scale).partial_fit(X, y, task_id="a")
    heavy = small(fisher_scale=scale, task_weights={"a": 3.0}).partial_fit(X, y, task_id="a")
    assert_allclose(importances(heavy), 3 * importances(plain), rtol=1e-13)
    total = small().partial_fit(X, y, task_id="a")
    assert_allclose(importances(total), importances(plain) * (60 if scale == "mean" else 1))
    none = small(task_weights={"a": 0}).partial_fit(X, y, task_id="a").partial_fit(-X, y)
    assert none.penalty_value() == 0


def test_mean_scale_is_sum_scale_at_another_lambda(rng):
    """With N rows in every task, mean-Fisher λ equals sum-Fisher λ of the same size."""
    X, y = blobs(rng)
    by_sum = small(ewc_lambda=5.0).partial_fit(X, y).partial_fit(-X, y)
    by_mean = small(ewc_lambda=5.0, fisher_scale="mean").partial_fit(X, y).partial_fit(-X, y)
    assert_allclose(flat(by_mean), flat(by_sum), rtol=1e-9)
    assert_allclose(by_mean.penalty_value() * 60, by_sum.penalty_value(), rtol=1e-9)


def test_decay_is_applied_once_for_each_consolidation(rng):
    X, y = blobs(rng)
    parts = []
    clf = small(fisher_decay=0.5, ewc_lambda=0)
    full = small(fisher_decay=1.0, ewc_lambda=0)
    for k in range(3):
        before = importances(full) if k else 0
        full.partial_fit(X * (k + 1), y, task_id=k)
        parts.append(importances(full) - before)
        clf.partial_fit(X * (k + 1), y, task_id=k)
    assert_allclose(importances(clf), 0.25 * parts[0] + 0.5 * parts[1] + parts[2], rtol=1e-7)


def oracle(clf, kind, X, y, weights=None):
    """Fisher's diagonal at the weights of `clf`, by a loop over rows with autograd."""
    hidden = np.atleast_1d(clf.hidden_layer_sizes).tolist()
    sizes = (X.shape[1], *hidden, len(clf.classes_))
    codes = np.searchsorted(clf.classes_, y)
    weights = np.ones(len(y)) if weights is None else weights
    rows = torch.from_numpy(X), torch.from_numpy(codes), torch.from_numpy(weights)
    at = torch.from_numpy(flat(clf))
    return reference.fisher_by_rows(kind, at, sizes, clf.activation, *rows).numpy()


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_importance_is_that_of_the_oracle_at_the_final_weights(rng, fisher):
    X, y = blobs(rng)
    clf = small(activation="tanh", fisher=fisher).partial_fit(X, y)
    assert_allclose(importances(clf), oracle(clf, fisher, X, y), rtol=1e-9, atol=1e-15)


def test_sampled_importance_is_exact_on_average(rng):
    X, y = (part[:12] for part in blobs(rng))
    copies = np.repeat(X / 5, 2000, axis=0), np.repeat(y, 2000)
    clf = small(activation="tanh", fisher="sample", batch_size="auto", max_iter=1)
    found = importances(clf.partial_fit(*copies)) / 2000
    exact = oracle(clf, "exact", X / 5, y)
    assert_allclose(found, exact, rtol=0.1, atol=0.02 * exact.max())
    assert np.abs(found / exact - 1).max() > 1e-4


def test_fisher_samples_takes_so_many_rows_to_stand_for_all(rng):
    X, y = blobs(rng)
    clf = small(activation="tanh", fisher_samples=1).partial_fit(X, y)
    by_row = [60 * oracle(clf, "exact", X[i : i + 1], y[i : i + 1]) for i in range(60)]
    assert sum(np.allclose(importances(clf), row, rtol=1e-9, atol=1e-15) for row in by_row) == 1


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_the_penalty_is_the_list_of_the_tasks_quadratics(rng, penalty, decay):
    X, y = blobs(rng)
    clf = small(activation="tanh", penalty=penalty, fisher_decay=decay, ewc_lambda=3.0)
    terms = []
    for k in range(3):
        clf.partial_fit(np.roll(X, k, axis=1), y)
        terms = [(decay * F, at) for F, at in terms]
        terms.append((oracle(clf, "exact", np.roll(X, k, axis=1), y), flat(clf)))
    clf.partial_fit(-X, y)
    if penalty == "running_sum":
        terms = [(F, terms[-1][1]) for F, _ in terms]
    expected = 3 / 2 * reference.quadratic(flat(clf), terms)
    assert_allclose(clf.penalty_value(), expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_held_out_count_into_the_mean_importance(rng, weighted):
    X, y = blobs(rng)
    s = rng.uniform(0.5, 2, size=60) if weighted else np.ones(60)
    clf = small(activation="tanh", early_stopping=True, fisher_scale="mean")
    clf.partial_fit(X, y, sample_weight=s if weighted else None)
    expected = oracle(clf, "exact", X, y, s) / s.sum()
    assert_allclose(importances(clf), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("between", "last"), [([], "sgd"), (["sgd"], "adam"), (["lbfgs"], "adam")])
def test_another_solver_starts_its_moments_afresh_within_a_task(rng, between, last):
    X, y = blobs(rng)
    clf = small(shuffle=False, solver="adam", warm_start=True).partial_fit(X, y, task_id="a")
    for solver in between:
        clf.set_params(solver=solver, learning_rate_init=0.01).partial_fit(X, y, task_id="a")
    clf.set_params(solver=last, learning_rate_init=0.01)
    warm = copy.deepcopy(clf)
    with pytest.warns(match="Maximum iterations"):
        warm.fit(X, y, task_id="a")
    assert_array_equal(flat(clf.partial_fit(X, y, task_id="a")), flat(warm))


def test_one_hidden_layer_may_be_a_number(rng):
    X, y = blobs(rng)
    number, layer = (small(hidden_layer_sizes=sizes).partial_fit(X, y) for sizes in (8, (8,)))
    assert_array_equal(flat(number), flat(layer))
    assert number.coefs_[0].shape == (5, 8)


# Classes


def test_new_classes_grow_the_output_layer(rng):
    X, y = blobs(rng, classes=(4, 1))
    clf = small(ewc_lambda=10.0).partial_fit(X, y, task_id="a")
    before, held = clf._logits(X, None)[0].numpy(), importances(clf)
    clf = pickle.loads(pickle.dumps(clf))
    grown = clf._stream.grow(np.array([0, 1, 3, 4]), np.random.RandomState(0))
    clf._stream = grown
    logits = clf._logits(X, None)[0].numpy()
    assert_array_equal(logits[:, [1, 3]], before)
    assert np.isneginf(logits[:, [0, 2]]).all()
    assert_array_equal(clf.coef_importances_[1][:, [0, 2]], 0)
    assert_allclose(importances(clf).sum(), held.sum(), rtol=1e-13)

    X2, y2 = blobs(rng, classes=(3, 0))
    clf.partial_fit(X2, y2, task_id="b")
    assert_array_equal(clf.classes_, [0, 1, 3, 4])
    assert [c.tolist() for c in clf.task_classes_] == [[1, 4], [0, 3]]
    with pytest.warns(UserWarning, match="Three ways out"):
        assert clf.predict_proba(X).shape == (60, 4)
    assert set(clf.predict(X, task_id="a")) <= {1, 4}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_of_old_classes_keep_every_bit(rng, dtype):
    """Matrix products round by the number of columns; predictions must not show it."""
    X, y = blobs(rng, n=99, classes=tuple(range(0, 18, 2)), dtype=dtype)
    clf = small(hidden_layer_sizes=(33,)).partial_fit(X, y)
    before = clf.decision_function(X)
    clf._stream = clf._stream.grow(np.arange(19), rng)
    assert_array_equal(clf.decision_function(X)[:, 0:18:2], before)


def test_growth_within_a_task_moves_the_solvers_moments(rng):
    """Gradients on a new output start from nothing; those on old ones go on."""
    X, y = blobs(rng, classes=(4, 1))
    for solver, name in (("adam", "variance"), ("sgd", "velocity")):
        clf = small(solver=solver).partial_fit(X, y, task_id="a")
        old = clf._stream.network.split(clf._stream.moments[name])[0][-1]
        grown = clf._stream.grow(np.array([0, 1, 4]), rng)
        new = grown.network.split(grown.moments[name])[0][-1]
        assert_array_equal(new[:, 1:], old)
        assert_array_equal(new[:, 0], 0)
        X2, y2 = blobs(rng, classes=(4, 0))
        clf.partial_fit(X2, y2, task_id="a")
        assert clf.task_classes_[0].tolist() == [0, 1, 4]


def test_labels_are_strings_of_any_length(rng):
    X, y = blobs(rng, classes=("b", "a"))
    clf = small().partial_fit(X, y)
    X2, y2 = blobs(rng, classes=("longer than before", "b"))
    clf.partial_fit(X2, y2.astype(object))
    assert clf.classes_.tolist() == ["a", "b", "longer than before"]
    with pytest.warns(UserWarning, match="different classes"):
        assert set(clf.predict(X2)) <= set(clf.classes_)


def test_kinds_of_labels_do_not_mix(rng):
    X, y = blobs(rng)
    clf = small().partial_fit(X, y)
    with pytest.raises(ValueError, match="has strings as labels, but earlier tasks had numbers"):
        clf.partial_fit(X, y.astype(str))


def test_declared_classes_close_the_set(rng):
    X, y = blobs(rng, classes=(0, 1))
    with pytest.raises(ValueError, match=r"classes not in `self.classes_`: \[1\]"):
        small().partial_fit(X, y, classes=[0, 2])
    clf = small().partial_fit(X, y, classes=[0, 1, 2])
    assert clf.classes_.tolist() == [0, 1, 2]
    assert_array_equal(clf.predict_proba(X)[:, 2], 0)
    assert_array_equal(clf.predict_log_proba(X)[:, 2], -np.inf)
    assert_array_equal(clf.decision_function(X)[:, 2], -np.inf)
    with pytest.raises(ValueError, match=r"declared classes=\[0 1 2\]"):
        clf.partial_fit(X, np.where(y == 0, 7, y))
    with pytest.raises(ValueError, match="not the same as on last call"):
        clf.partial_fit(X, y, classes=[0, 1])
    clf.partial_fit(X, y, classes=[2, 1, 0])


def test_warm_start_keeps_weights_and_forgets_tasks(rng):
    X, y = blobs(rng)
    clf = small(warm_start=True, max_iter=1, learning_rate_init=1e-9)
    with pytest.warns(match="Maximum iterations"):
        clf.fit(X, y)
    before = flat(clf)
    with pytest.warns(match="Maximum iterations"):
        clf.fit(X, y)
    assert_allclose(flat(clf), before, atol=1e-7)
    assert clf.task_ids_ == [None]
    with pytest.raises(ValueError, match="warm_start can only be used where `y` has the same"):
        clf.fit(X, np.minimum(y, 1))


def test_softmax_spans_the_active_classes(rng):
    """Which outputs a task moves tells which classes its softmax spans."""
    X, y = blobs(rng, classes=(0, 1))
    X2, y2 = blobs(rng, classes=(2, 3))

    def moved(active_classes, y2=y2, **more):
        clf = small(active_classes=active_classes, alpha=0.0, ewc_lambda=0)
        clf.partial_fit(X, y, classes=[0, 1, 2, 3, 4])
        before = clf.intercepts_[-1].copy()
        clf.partial_fit(X2, y2)
        return (clf.intercepts_[-1] != before).tolist()

    assert moved("task") == [False, False, True, True, False]
    assert moved("seen") == [True, True, True, True, False]
    assert moved("all") == [True] * 5
    one_class = np.full_like(y2, 2)
    assert moved("task", one_class) == [True, True, True, False, False]


@pytest.mark.parametrize("active_classes", ["task", "seen", "all"])
def test_a_first_task_of_one_class_is_learned_among_those_declared(rng, active_classes):
    X, y = blobs(rng, classes=(1,))
    clf = small(active_classes=active_classes, alpha=0.0, max_iter=200)
    clf.partial_fit(X, y, classes=[0, 1, 2])
    logits = clf.to_torch()(torch.from_numpy(X)).detach()
    assert -torch.log_softmax(logits, dim=1)[:, 1].mean() < 0.05
    assert clf.loss_curve_[0] > 10 * clf.loss_ > 0
    assert all((w > 0).any() for w in clf.intercept_importances_)
    # In an open set of one class there is nothing to learn.
    assert small(active_classes=active_classes, alpha=0.0).partial_fit(X, y).loss_ == 0


def test_task_known_at_prediction(rng):
    X, y = blobs(rng, classes=(0, 1, 2, 3))
    ids = np.where(y < 2, "low", "high")
    clf = small(max_iter=60, learning_rate_init=0.01).partial_fit(X, y, task_id=ids)
    mixed = clf.predict(X, task_id=ids)
    for name, classes in (("low", {0, 1}), ("high", {2, 3})):
        of_task = ids == name
        assert set(mixed[of_task]) <= classes
        assert_array_equal(mixed[of_task], clf.predict(X[of_task], task_id=name))
        proba = clf.predict_proba(X, task_id=name)
        assert_allclose(proba.sum(axis=1), 1)
        assert_array_equal(proba[:, [c for c in range(4) if c not in classes]], 0)
    assert clf.score(X, y, task_id=ids) > 0.95
    with pytest.raises(ValueError, match=r"'middle' was never learned.*\['high', 'low'\]"):
        clf.predict(X, task_id="middle")


def test_two_classes_decide_by_the_difference_of_logits(rng):
    X, y = blobs(rng, classes=(0, 1))
    clf = small().partial_fit(X, y)
    logits = clf.to_torch()(torch.from_numpy(X)).detach().numpy()
    assert_allclose(clf.decision_function(X), logits[:, 1] - logits[:, 0], atol=1e-13)


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 6)])
def test_to_torch_gives_the_same_logits(rng, activation, hidden):
    X, y = blobs(rng, dtype=np.float32)
    clf = small(activation=activation, hidden_layer_sizes=hidden).partial_fit(X, y)
    network = clf.to_torch()
    assert len(network) == 2 * len(hidden) + 1
    logits = network(torch.from_numpy(X)).detach().numpy()
    assert_allclose(clf.decision_function(X), logits, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        network[0].weight.zero_()
    assert clf.coefs_[0].any()


# Weights


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_weighted_rows_equal_repeated_rows(rng, solver, penalty):
    X, y = blobs(rng)
    s = rng.randint(0, 4, size=60)
    parameters = {
        "solver": solver, "penalty": penalty, "batch_size": "auto", "max_iter": 20,
        "ewc_lambda": 10.0, "learning_rate_init": 0.01, "activation": "tanh", "tol": 0.01,
    }  # fmt: skip
    weighted, repeated = small(**parameters), small(**parameters)
    for k in range(2):
        rows = X[:, np.roll(np.arange(5), k)]
        for clf, data in (
            (weighted, (rows, y, k)),
            (repeated, (np.repeat(rows, s, axis=0), np.repeat(y, s), k)),
        ):
            clf.partial_fit(*data, sample_weight=s if clf is weighted else None)
    assert_allclose(flat(weighted), flat(repeated), rtol=1e-10, atol=1e-10)
    assert_allclose(importances(weighted), importances(repeated), rtol=1e-10, atol=1e-10)
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-10)
    assert_allclose(weighted.penalty_value(), repeated.penalty_value(), rtol=1e-9)


def test_class_weight(rng):
    X, y = blobs(rng)
    y[:20] = 0
    counts = np.bincount(y)
    balanced = {c: 60 / (3 * n) for c, n in enumerate(counts)}
    by_dict = small(class_weight=balanced).partial_fit(X, y)
    by_name = small(class_weight="balanced").partial_fit(X, y)
    by_rows = small().partial_fit(X, y, sample_weight=[balanced[c] for c in y])
    assert_allclose(flat(by_name), flat(by_dict), rtol=1e-12)
    assert_allclose(flat(by_rows), flat(by_dict), rtol=1e-12)
    assert_allclose(importances(by_rows), importances(by_dict), rtol=1e-12)
    # Classes that a task lacks may be named, and classes not named weigh one.
    partial = small(class_weight={0: 2.0, 9: 5.0}).partial_fit(X, y)
    assert_allclose(
        flat(partial), flat(small().partial_fit(X, y, sample_weight=1.0 + (y == 0))), rtol=1e-12
    )
    with pytest.raises(ValueError, match="class_weight must hold finite numbers"):
        small(class_weight={0: -1}).partial_fit(X, y)


def test_balanced_counts_a_row_of_weight_two_twice(rng):
    X, y = blobs(rng)
    s = rng.randint(0, 3, size=60)
    weighted = small(class_weight="balanced", batch_size="auto")
    repeated = small(class_weight="balanced", batch_size="auto")
    weighted.partial_fit(X, y, sample_weight=s)
    repeated.partial_fit(np.repeat(X, s, axis=0), np.repeat(y, s))
    assert_allclose(flat(weighted), flat(repeated), rtol=1e-8, atol=1e-10)


def test_tasks_without_weight_are_skipped(rng):
    X, y = blobs(rng)
    ids = np.resize(["a", "b"], 60)
    clf = small().partial_fit(X, y, task_id=ids, sample_weight=(ids == "a").astype(float))
    assert clf.task_ids_ == ["a"]
    with pytest.raises(ValueError, match=r"at least one (non-zero|row)"):
        clf.partial_fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match="sample_weight"):
        clf.partial_fit(X, y, sample_weight=-np.ones(60))


# Types, sparse rows and size


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_float32_stays_float32(rng, solver):
    X, y = blobs(rng, dtype=np.float32)
    clf = small(solver=solver, ewc_lambda=10.0, max_iter=50).partial_fit(X, y, 1)
    clf.partial_fit(-X.astype(np.float64), y, 2)
    for array in (flat(clf), importances(clf), clf.predict_proba(X), clf.decision_function(X)):
        assert array.dtype == np.float32
    state = clf._stream
    vectors = [state.penalty["precision"], state.penalty["anchor"], *state.importance]
    vectors += [v for v in state.moments.values() if isinstance(v, np.ndarray)]
    assert {v.dtype for v in vectors} == {np.dtype(np.float32)}
    assert clf.to_torch()[0].weight.dtype == torch.float32


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_sparse_rows_learn_what_dense_rows_do(rng, solver):
    X, y = blobs(rng)
    X[np.abs(X) < 2] = 0
    dense, compressed = (small(solver=solver, max_iter=30) for _ in range(2))
    for container in (sparse.csr_matrix, sparse.csr_array, sparse.csc_array):
        dense.partial_fit(X, y)
        compressed.partial_fit(container(X), y)
    assert_allclose(flat(compressed), flat(dense), rtol=1e-9, atol=1e-12)
    assert_allclose(compressed.predict_proba(sparse.csr_array(X)), dense.predict_proba(X))


def test_sparse_rows_are_made_dense_for_kronecker_factors_only(rng, monkeypatch):
    X = sparse.csr_array(np.where(rng.uniform(size=(300, 50)) < 0.1, 1.0, 0.0))
    y = np.resize([0, 1], 300)
    largest = []
    original = sparse.csr_array.toarray

    def toarray(self, *args, **kwargs):
        largest.append(self.shape[0])
        return original(self, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_array, "toarray", toarray)
    monkeypatch.setattr("skewc._rows._CHUNK_ELEMENTS", 64 * 40)
    small(early_stopping=True).partial_fit(X, y).predict(X)
    assert not largest
    small(curvature="kronecker").partial_fit(X, y)
    assert 0 < max(largest) <= 64 * 40 // 50


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("solver", ["adam", "sgd"])
def test_state_does_not_grow_with_tasks(rng, penalty, solver):
    X, y = blobs(rng, n=20)
    clf = small(penalty=penalty, solver=solver, hidden_layer_sizes=(50,), max_iter=2)
    sizes = []
    for k in range(50):
        clf.partial_fit(X, y, task_id=k)
        lists = len(pickle.dumps((clf._stream.task_ids, clf._stream.task_classes)))
        sizes.append(len(pickle.dumps(clf)) - lists)
    assert abs(sizes[49] - sizes[1]) < 50


def test_training_rows_and_read_only_memory_are_left_alone(rng):
    X, y = blobs(rng)
    X, y, s = X.copy(), y.copy(), np.ones(60)
    before = X.copy(), y.copy()
    for array in (X, y, s):
        array.setflags(write=False)
    clf = small().partial_fit(X, y, sample_weight=s)
    clf.partial_fit(X[::-1], y[::-1], sample_weight=s)
    clf.predict(X[:1][::-1])
    assert_array_equal(X, before[0])
    assert_array_equal(y, before[1])


# Reproducibility


def test_seeds_drive_everything_and_global_generators_are_left_alone(rng):
    X, y = blobs(rng)
    parameters = {"fisher": "sample", "fisher_samples": 30, "early_stopping": True}
    state, torch_state = np.random.get_state(), torch.get_rng_state()
    one = small(**parameters).partial_fit(X, y).partial_fit(-X, y)
    two = small(**parameters).partial_fit(X, y).partial_fit(-X, y)
    instance = small(**{**parameters, "random_state": np.random.RandomState(0)})
    instance.partial_fit(X, y).partial_fit(-X, y)
    small(**{**parameters, "random_state": None}).partial_fit(X, y)
    assert_array_equal(importances(one), importances(two))
    assert_array_equal(importances(one), importances(instance))
    other = small(**{**parameters, "random_state": 1}).partial_fit(X, y)
    assert (flat(other) != flat(small(**parameters).partial_fit(X, y))).any()
    assert all(np.array_equal(a, b) for a, b in zip(state, np.random.get_state(), strict=True))
    assert torch.equal(torch_state, torch.get_rng_state())


def test_predicting_and_the_fisher_pass_change_nothing(rng):
    X, y = blobs(rng)
    clf = small().partial_fit(X, y)
    before = everything(clf)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        getattr(clf, method)(X)
    clf.penalty_value(), clf.to_torch(), importances(clf)
    assert everything(clf) == before


# Threads


class Raced(EWCClassifier):
    """Just after the `left`-th read of the stream another thread commits `then`."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name == "_stream":
            self.left -= 1
            if self.left == 0:
                vars(self).update(self.then)
        return value


READS = {
    **{
        name: lambda clf, X, name=name: getattr(clf, name)
        for name in (
            "classes_", "task_ids_", "task_classes_", "coefs_", "intercepts_",
            "coef_importances_", "intercept_importances_", "n_layers_", "n_outputs_",
        )
    },
    **{
        name: lambda clf, X, name=name: getattr(clf, name)(X)
        for name in ("predict", "predict_proba", "predict_log_proba", "decision_function")
    },
    "penalty_value": lambda clf, X: clf.penalty_value(),
    "to_torch": lambda clf, X: [p.detach().numpy() for p in clf.to_torch().parameters()],
    "score": lambda clf, X: clf.score(X, np.full(len(X), 4)),
}  # fmt: skip


# Told by some reads of the grown estimator and not by others; test_scenarios.py is about it.
@pytest.mark.filterwarnings("ignore:The tasks have different classes")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_sees_one_state_while_another_thread_commits(rng, read):
    X, y = blobs(rng, classes=(4, 1))
    old = small().partial_fit(X, y, "a").partial_fit(-X, y, "b")
    grown = copy.deepcopy(old).partial_fit(X, np.where(y == 4, 4, 0), "c")
    whole = [pickle.dumps(read(clf, X)) for clf in (old, grown)]
    for left in range(1, 5):
        raced = Raced()
        vars(raced).update(vars(old), left=left, then=vars(grown))
        assert pickle.dumps(read(raced, X)) in whole


def test_rows_are_checked_against_the_state_that_predicts(rng, monkeypatch):
    X, y = blobs(rng)
    clf, other = small().partial_fit(X, y), small().partial_fit(X[:, :3], y)
    expected, original = clf.predict(X), skewc._validation.validate_data

    def commit_and_validate(*args, **kwargs):
        clf.__dict__ = vars(other)
        return original(*args, **kwargs)

    monkeypatch.setattr(skewc._validation, "validate_data", commit_and_validate)
    assert_array_equal(clf.predict(X), expected)


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("fisher", ["exact", "sample"])
def test_torchs_defaults_change_nothing(rng, solver, fisher):
    """Device and type of tensors are those of the data, whatever torch's defaults are."""

    def learn():
        clf = small(solver=solver, fisher=fisher, penalty="per_task")
        clf.partial_fit(X[:, ::-1], y, "a", classes=[0, 1, 2, 3]).partial_fit(X, y, "b")
        clf = pickle.loads(pickle.dumps(clf)).partial_fit(X, y, "b")
        network = [p.detach().numpy() for p in clf.to_torch().parameters()]
        outputs = clf.predict_proba(X), clf.predict_log_proba(X), clf.predict(X)
        return pickle.dumps([importances(clf), clf.penalty_value(), clf.loss_, network, outputs])

    X, y = blobs(rng)
    expected = learn()
    with torch.device("meta"):
        assert learn() == expected
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        assert learn() == expected
    finally:
        torch.set_default_dtype(before)


# Failure


BAD_CALLS = {
    "features": (lambda X, y: (X[:, :3], y), {}, "X has 3 features"),
    "NaN": (lambda X, y: (np.where(X > 5, np.nan, X), y), {}, "NaN"),
    "lengths": (lambda X, y: (X, y[:-1]), {}, "inconsistent numbers of samples"),
    "continuous": (lambda X, y: (X, X[:, 0]), {}, "Unknown label type"),
    "ids": (lambda X, y: (X, y), {"task_id": [1, 2]}, "task_id must be"),
    "weights": (lambda X, y: (X, y), {"sample_weight": [1.0]}, "sample_weight"),
    "strings": (lambda X, y: (X, y.astype(str)), {}, "strings as labels"),
    "classes": (lambda X, y: (X, y), {"classes": [0, 1]}, "not the same"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_changes_nothing(rng, name):
    X, y = blobs(rng)
    change, keywords, message = BAD_CALLS[name]
    clf = small().partial_fit(X, y, task_id="a")
    before = everything(clf)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(*change(X, y), **keywords)
    assert everything(clf) == before
    # A first call that fails leaves an unfitted estimator.
    fresh = small()
    if name not in ("features", "strings", "classes"):
        with pytest.raises(ValueError, match=message):
            fresh.partial_fit(*change(X, y), **keywords)
        assert vars(fresh) == vars(small())


def test_divergence_keeps_what_was_known(rng):
    X, y = blobs(rng)
    clf = small(solver="sgd", learning_rate_init=0.01).partial_fit(X, y, task_id="a")
    clf.set_params(learning_rate_init=1e300, ewc_lambda=0)
    before = everything(clf)
    with pytest.raises(ValueError, match="The estimator is as it was before this call"):
        clf.partial_fit(X * 1e10, y, task_id="b")
    assert everything(clf) == before


def test_non_finite_lbfgs_is_an_error(rng, monkeypatch):
    X, y = blobs(rng)
    monkeypatch.setattr(skewc._training.Objective, "full", lambda self: float("nan"))
    with pytest.raises(ValueError, match="non-finite"):
        small(solver="lbfgs").fit(X, y)


def test_parameters_are_checked_at_every_call(rng):
    X, y = blobs(rng)
    clf = small().partial_fit(X, y)
    with pytest.raises(ValueError, match="'ewc_lambda' parameter of EWCClassifier must be"):
        clf.set_params(ewc_lambda=-1).partial_fit(X, y)
    with pytest.raises(ValueError, match="hidden_layer_sizes must be > 0, got"):
        small(hidden_layer_sizes=(5, 0)).fit(X, y)
    with pytest.raises(ValueError, match="device='abacus' cannot be used: expected 'cpu'"):
        small(device="abacus").fit(X, y)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"torch.cuda.is_available\(\) is False"):
            small(device="cuda").fit(X, y)


BAD_PARAMETERS = [
    ({"hidden_layer_sizes": [3.5]}, "expected whole numbers"),
    ({"hidden_layer_sizes": [[3], [4]]}, "expected whole numbers"),
    ({"task_weights": {"a": -1.0}}, "task_weights must hold finite numbers >= 0; got -1.0"),
    ({"task_weights": {"a": np.nan}}, "task_weights must hold finite numbers"),
    ({"task_weights": {"a": "2"}}, "task_weights must hold finite numbers"),
    ({"task_weights": {"a": np.array(2.0)}}, "task_weights must hold finite numbers"),
    ({"class_weight": {0: "2"}}, "class_weight must hold finite numbers"),
    ({"class_weight": {0: np.inf}}, "class_weight must hold finite numbers"),
    ({"class_weight": dict.fromkeys(range(3), 1e-200)}, "sum is 0"),
    ({"device": "meta"}, "expected 'cpu', or 'cuda'"),
    ({"early_stopping": True, "validation_fraction": 0}, "early_stopping cannot hold out"),
    ({"early_stopping": True, "validation_fraction": 1e-9}, "early_stopping cannot hold out"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_parameters_are_named(rng, parameters, message, method):
    X, y = blobs(rng, dtype=np.float32)
    clf = small(**parameters)
    with pytest.raises(ValueError, match=message):
        getattr(clf, method)(X, y)
    assert "_stream" not in vars(clf)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0, 0.0, 1e-320, 1e300])
def test_no_weight_may_be_lost_or_overflow(rng, weight):
    X, y = blobs(rng, dtype=np.float32)
    for sample_weight in (weight, np.full(60, weight)):
        with pytest.raises(ValueError, match=r"(?i)sample.weight"):
            small().fit(X, y, sample_weight=sample_weight)
    halves = small(class_weight={0: 0.0})
    with pytest.raises(ValueError, match="leave at least one row, and so one class, a positive"):
        halves.fit(X, y, sample_weight=(y == 0).astype(float))


@pytest.mark.parametrize(
    "parameters",
    [
        {"ewc_lambda": np.float32(30), "alpha": np.float32(0.1), "momentum": True},
        {"solver": "sgd", "learning_rate_init": np.float16(1e-3), "momentum": True},
        {"learning_rate_init": 5e-324},
        {"solver": "sgd", "learning_rate_init": 5e-324},
        {"solver": "sgd", "learning_rate": "invscaling", "power_t": 10**7},
        {"ewc_lambda": np.float64(1e308)},
        {"ewc_lambda": 5e-324, "n_iter_no_change": np.inf},
    ],
)
def test_extreme_parameters_stay_finite_and_quiet(rng, parameters):
    X, y = blobs(rng, dtype=np.float32)
    clf = small(**parameters).partial_fit(X, y).partial_fit(-X, y)
    assert np.isfinite(flat(clf)).all()


@pytest.mark.parametrize(
    "parameters",
    [{"alpha": 1e300}, {"learning_rate_init": 1e300}],
)
def test_parameters_beyond_float32_are_told_as_divergence(rng, parameters):
    X, y = blobs(rng, dtype=np.float32)
    with pytest.raises(ValueError, match="non-finite"):
        small(solver="sgd", **parameters).fit(X, y)


def test_the_importance_may_not_overflow(rng):
    X, y = blobs(rng, dtype=np.float32)
    clf = small(task_weights={"a": 1e300}).partial_fit(X, y, "a")
    with pytest.raises(ValueError, match="smaller task_weights are needed"):
        clf.partial_fit(X, y, "b")


@pytest.mark.parametrize("change", [{"activation": "tanh"}, {"hidden_layer_sizes": (9,)}])
def test_the_network_cannot_change_while_learning_goes_on(rng, change):
    X, y = blobs(rng)
    clf = small(warm_start=True).partial_fit(X, y)
    proba = clf.predict_proba(X)
    clf.set_params(**change)
    assert_array_equal(clf.predict_proba(X), proba)
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match="cannot change while learning goes on"):
            getattr(clf, method)(X, y)
    clf.set_params(warm_start=False, max_iter=1)
    with pytest.warns(match="Maximum iterations"):
        clf.fit(X, y)  # afresh, so with any network


@pytest.mark.parametrize("classes", [5, [], [[0, 1, 2]], [0, 1, np.nan], [0, None], [0, "a"]])
def test_declared_classes_are_checked(rng, classes):
    X, y = blobs(rng)
    with pytest.raises(ValueError, match=r"classes must be a one-dimensional|labels|classes not"):
        small().partial_fit(X, y, classes=classes)


def test_labels_keep_apart_or_are_refused(rng):
    X, y = blobs(rng, classes=(0, 1))
    clf = small().partial_fit(X, y)
    huge = np.array([2**60 + 1, 2**60 + 3], dtype=np.uint64)
    with pytest.raises(ValueError, match="cannot be kept apart"):
        clf.partial_fit(X, huge[y])
    clf.partial_fit(X, huge.astype(np.int64)[y])
    assert clf.classes_.tolist() == [0, 1, 2**60 + 1, 2**60 + 3]
    with pytest.raises(ValueError, match="Labels must be numbers or strings"):
        small().fit(X, np.array(["2020", "2021"], dtype="M8[Y]")[y])


def test_unfitted_attributes_say_so():
    clf = EWCClassifier()
    assert not hasattr(clf, "coefs_")
    for read in (lambda: clf.coefs_, lambda: clf.penalty_value(), lambda: clf.to_torch()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            read()


# Range of λ


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_lambda_gives_finite_weights(solver, penalty, dtype, digits):
    """Warnings are errors here, so none comes from numpy or torch."""
    X, y = digits[0][:400].astype(dtype), digits[1][:400]
    for ewc_lambda in (1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9, 1e12):
        clf = small(
            solver=solver, penalty=penalty, ewc_lambda=ewc_lambda, learning_rate_init=0.01,
            max_iter=10,
        )  # fmt: skip
        for k in range(3):
            clf.partial_fit(np.roll(X, 17 * k, axis=1), y, task_id=k)
        assert np.isfinite(flat(clf)).all()
        assert np.isfinite(importances(clf)).all()
        assert np.isfinite(clf.loss_)


@pytest.mark.parametrize("solver", ["adam", "sgd"])
@pytest.mark.parametrize("rate", [1, 10])
def test_a_huge_lambda_keeps_old_predictions(seed, solver, rate, digits):
    X, y = digits[:2]
    order = np.random.RandomState(seed).permutation(64)
    same = {}
    for ewc_lambda in (0, 1e12):
        clf = EWCClassifier(
            solver=solver, ewc_lambda=ewc_lambda, max_iter=10, batch_size=32, random_state=seed,
            learning_rate_init=rate * (0.001 if solver == "adam" else 0.01),
        )  # fmt: skip
        old = clf.partial_fit(X, y).predict(X)
        same[ewc_lambda] = np.mean(clf.partial_fit(X[:, order], y).predict(X) == old)
    assert same[1e12] >= 0.99
    assert same[0] < 0.8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_a_gpu_learns_the_same(rng, solver):
    X, y = blobs(rng)
    cpu, gpu = (small(solver=solver, device=device) for device in ("cpu", "cuda"))
    for clf in (cpu, gpu):
        clf.partial_fit(X, y).partial_fit(-X, y)
    assert_allclose(flat(gpu), flat(cpu), rtol=1e-5, atol=1e-7)
    assert_allclose(importances(gpu), importances(cpu), rtol=1e-4, atol=1e-7)
    assert_allclose(gpu.set_params(device="cpu").predict_proba(X), cpu.predict_proba(X), atol=1e-5)


# What is recorded


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_loss_is_the_whole_objective(rng, penalty, solver):
    """Mean NLL, L2 and penalty, its constant included, at the final weights."""
    X, y = blobs(rng)
    X /= 5
    clf = small(
        hidden_layer_sizes=(), solver="lbfgs", penalty=penalty, ewc_lambda=3.0, alpha=2.0,
        max_iter=30,
    )  # fmt: skip
    rows = np.roll(X, 1, axis=1)
    clf.partial_fit(X, y, "a").partial_fit(X[:, ::-1], y, "b").partial_fit(rows, y, "c")
    # A rate at which the weights hardly move: the epoch's mean loss is that at its end.
    clf.set_params(solver=solver, learning_rate_init=1e-9, max_iter=1)
    clf.partial_fit(rows, y, "c")
    nll = -np.mean(clf.predict_log_proba(rows)[np.arange(60), y])
    l2 = clf.alpha / 2 / 60 * np.sum(clf.coefs_[0] ** 2)
    assert clf.penalty_value() > 0.01
    assert_allclose(clf.loss_, nll + l2 + clf.penalty_value() / 60, rtol=1e-5)
    assert clf.t_ % 60 == 0
    assert clf.t_ >= 60 * max(clf.n_iter_, 1)


def test_penalty_value_is_that_of_the_quadratic(rng):
    X, y = blobs(rng)
    clf = small(ewc_lambda=7.0).partial_fit(X, y)
    anchor, F = flat(clf), importances(clf)
    clf.partial_fit(-X, y)
    assert_allclose(clf.penalty_value(), 7 / 2 * np.sum(F * (flat(clf) - anchor) ** 2), rtol=1e-9)


def test_the_fisher_spans_the_active_classes_only(rng):
    X, y = blobs(rng, classes=(0, 1))
    clf = small().partial_fit(X, y, classes=[0, 1, 2, 3])
    assert_array_equal(clf.coef_importances_[-1][:, 2:], 0)
    assert (clf.intercept_importances_[-1][:2] > 0).all()
    everyone = small(active_classes="all").partial_fit(X, y, classes=[0, 1, 2, 3])
    assert (everyone.intercept_importances_[-1] > 0).all()


def test_rows_without_weight_do_not_shape_the_batches(rng):
    X, y = blobs(rng)
    s = rng.randint(0, 2, size=60).astype(float)
    weighted = small(shuffle=False).partial_fit(X, y, sample_weight=s)
    dropped = small(shuffle=False).partial_fit(X[s > 0], y[s > 0])
    assert_allclose(flat(weighted), flat(dropped), rtol=1e-12)


def test_balanced_leaves_out_classes_without_weight(rng):
    X, y = blobs(rng)
    s = np.where(y == 2, 0.0, 1.0)
    weighted = small(class_weight="balanced", alpha=5.0).partial_fit(X, y, sample_weight=s)
    dropped = small(class_weight="balanced", alpha=5.0)
    dropped.partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert_allclose(flat(weighted), flat(dropped), rtol=1e-10)


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_a_task_that_is_not_consolidated_moves_the_latest_weights_only(rng, penalty, scale):
    X, y = blobs(rng)
    clf = small(fisher_decay=0.5, penalty=penalty, fisher_scale=scale, ewc_lambda=3.0)
    first = flat(clf.partial_fit(X, y, "a"))
    held = importances(clf)
    latest = flat(clf.partial_fit(-X, y, "b", consolidate=False))
    assert_array_equal(importances(clf), held)
    clf.partial_fit(X[:, ::-1], y, "c")
    anchor = latest if penalty == "running_sum" else first
    expected = 3 / 2 * np.sum(held * (flat(clf) - anchor) ** 2)
    assert_allclose(clf.penalty_value(), expected, rtol=1e-9)


def test_classes_never_seen_stay_impossible_as_others_join(rng):
    X, y = blobs(rng)
    clf = small().partial_fit(X, y, sample_weight=np.where(y == 1, 0.0, 1.0))
    X2, y2 = blobs(rng, classes=(0, 5))
    clf.partial_fit(X2, y2)
    assert clf.classes_.tolist() == [0, 1, 2, 5]
    with pytest.warns(UserWarning, match="Three ways out"):
        assert_array_equal(clf.predict_proba(X)[:, 1], 0)


def test_logarithms_agree_with_probabilities_that_underflow(rng):
    X, y = blobs(rng)
    clf = small().partial_fit(X, y)
    proba, log_proba = clf.predict_proba(1e3 * X), clf.predict_log_proba(1e3 * X)
    assert (proba == 0).any()
    assert_array_equal(np.isneginf(log_proba), proba == 0)
    assert_allclose(np.exp(log_proba), proba, rtol=1e-12)


def test_importance_that_overflows_is_an_error(rng):
    X, y = blobs(rng, dtype=np.float32)
    with pytest.raises(ValueError, match="non-finite"):
        small(hidden_layer_sizes=(), learning_rate_init=1e-25, max_iter=1).partial_fit(
            np.float32(1e19) * X, y
        )


def test_lbfgs_holds_no_rows_out(rng):
    X, y = blobs(rng)
    plain = small(solver="lbfgs").partial_fit(X, y)
    stopping = small(solver="lbfgs", early_stopping=True).partial_fit(X, y)
    assert_array_equal(flat(plain), flat(stopping))
    assert stopping.validation_scores_ is None
