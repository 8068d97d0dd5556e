"""Exemplars, against loops over rows."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from test_classifier import everything, flat, importances

from skewc import EWCClassifier
from skewc._memory import Memory, _balanced, _turns, herding_ranks
from skewc._network import Network
from skewc._objective import Objective
from skewc._rows import Rows
from skewc._training import _evenly_mixed


def small(**parameters):
    defaults = {
        "hidden_layer_sizes": (6,), "activation": "tanh", "fisher_smoothing": 0.0,
        "max_iter": 3, "memory_size": 9, "memory_selection": "random", "random_state": 0,
    }  # fmt: skip
    return EWCClassifier(**{**defaults, **parameters})


def problem(rng, n=60, classes=(0, 1, 2), dtype=np.float64):
    y = rng.choice(classes, n)
    y[: len(classes)] = classes
    return (rng.normal(size=(n, 5)) + y[:, None] / 2).astype(dtype), y


def memory_of(clf):
    return clf._stream.memory


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


def origin(memory, X):
    """Row numbers in X of the memory's rows, which must be found there bit by bit."""
    numbers = {row.tobytes(): i for i, row in enumerate(dense(X))}
    return np.array([numbers[row.tobytes()] for row in dense(memory.X)])


# Which rows


def water_filling(available, size):
    """Places for each, given one by one to whoever has the fewest and rows left."""
    places = dict.fromkeys(available, 0)
    for _ in range(min(size, sum(available.values()))):
        places[min((g for g in places if places[g] < available[g]), key=places.get)] += 1
    return places


@pytest.mark.parametrize("size", [1, 3, 10, 26, 60, 100])
def test_rows_are_as_even_as_possible_over_classes_and_then_tasks(rng, size):
    n = 60
    codes = rng.choice(5, n, p=[0.5, 0.3, 0.1, 0.05, 0.05])
    tasks = rng.choice(4, n, p=[0.6, 0.2, 0.1, 0.1])
    ranks = rng.uniform(size=n)
    kept = _balanced(codes, tasks, ranks, size)
    assert_array_equal(kept, np.unique(kept))
    assert len(kept) == min(n, size)

    def count(labels):
        return {int(g): int(np.sum(labels == g)) for g in np.unique(labels)}

    expected = water_filling(count(codes), size)
    assert sorted(expected.values()) == sorted(np.sum(codes[kept] == c) for c in expected)
    for c in np.unique(codes[kept]):
        chosen = kept[codes[kept] == c]
        expected = water_filling(count(tasks[codes == c]), len(chosen))
        assert sorted(expected.values()) == sorted(np.sum(tasks[chosen] == t) for t in expected)
        for t in np.unique(tasks[chosen]):
            group = ranks[(codes == c) & (tasks == t)]
            of_group = ranks[chosen[tasks[chosen] == t]]
            assert_array_equal(np.sort(of_group), np.sort(group)[: len(of_group)])


@pytest.mark.parametrize("by_class", [True, False])
def test_the_rest_goes_to_each_alike(by_class):
    groups, same = np.repeat(range(4), 5), np.zeros(20, int)
    codes, tasks = (groups, same) if by_class else (same, groups)
    rest = np.zeros(4)
    for k in range(400):
        ranks = np.random.RandomState(k).uniform(size=20)
        rest += np.bincount(groups[_balanced(codes, tasks, ranks, 5)], minlength=4) - 1
    assert rest.sum() == 400
    assert (np.abs(rest - 100) < 40).all()


def test_turns_are_places_within_groups(rng):
    groups, first, second = rng.randint(0, 3, (2, 40)), rng.randint(0, 4, 40), rng.uniform(size=40)
    found = _turns(groups, first, second)
    for i in range(40):
        alike = [j for j in range(40) if (groups[:, j] == groups[:, i]).all()]
        before = [j for j in alike if (first[j], second[j]) < (first[i], second[i])]
        assert found[i] == len(before)


def greedy(features, weights, size):
    """Numbers of the rows chosen one after another to bring their mean nearest to all's."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = np.average(features, axis=0, weights=weights)
    chosen = []
    for _ in range(min(size, len(features))):
        left = [i for i in range(len(features)) if i not in chosen]
        gaps = [np.linalg.norm(features[[*chosen, i]].mean(axis=0) - mean) for i in left]
        chosen.append(left[int(np.argmin(gaps))])
    return chosen


def hidden(clf, X):
    """The last hidden layer of `small`."""
    return np.tanh(X @ clf.coefs_[0] + clf.intercepts_[0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [4, 1000])
def test_herding_is_greedy(rng, monkeypatch, weighted, size):
    X, y = problem(rng)
    s = rng.uniform(0.1, 3, 60) if weighted else None
    clf = small().partial_fit(X, y)
    weights = torch.from_numpy(clf._stream.weights)
    monkeypatch.setattr("skewc._rows._CHUNK_ELEMENTS", 6 * 17)
    found = herding_ranks(clf._stream.network, weights, Rows(X, y, s), size)
    expected = np.ones(60)
    for c in range(3):
        members = np.flatnonzero(y == c)
        chosen = greedy(hidden(clf, X[members]), None if s is None else s[members], size)
        expected[members[chosen]] = (np.arange(len(chosen)) + 0.5) / len(members)
    assert_allclose(found, expected, rtol=1e-15)


def test_herding_chooses_at_the_weights_learned(rng):
    X, y = problem(rng)
    clf = small(memory_selection="herding", memory_size=12).partial_fit(X, y, "a")
    for c in range(3):
        members = np.flatnonzero(y == c)
        expected = X[members[greedy(hidden(clf, X[members]), None, 4)]]
        kept = memory_of(clf).X[memory_of(clf).codes == c]
        assert_array_equal(np.unique(kept, axis=0), np.unique(expected, axis=0))


def test_chunks_of_a_task_are_alike_in_the_memory():
    per_chunk = np.zeros(4)
    for k in range(60):
        X, y = problem(np.random.RandomState(k), n=40, classes=(0, 1))
        clf = small(memory_size=10, max_iter=1, random_state=k)
        for chunk in range(4):
            rows = slice(10 * chunk, 10 * chunk + 10)
            clf.partial_fit(X[rows], y[rows], "a", classes=[0, 1])
        per_chunk += np.bincount(origin(memory_of(clf), X) // 10, minlength=4)
    assert per_chunk.sum() == 600
    assert (np.abs(per_chunk - 150) < 35).all()


def test_rows_not_consolidated_are_not_kept(rng):
    X, y = problem(rng)
    clf = small().partial_fit(X, y, "a", consolidate=False)
    assert memory_of(clf) is None
    clf.partial_fit(X[:6], y[:6], "a").partial_fit(X[6:], y[6:], "a", consolidate=False)
    assert (origin(memory_of(clf), X) < 6).all()


# How they weigh


def by_hand(rng, held_out=(), n=30, dtype=np.float64):
    """Rows of task 2 of classes 0 to 2, and a memory of classes 0, 1 and 3 of tasks 0 to 2."""
    X, y = problem(rng, n, dtype=dtype)
    s = rng.uniform(0.1, 3, n).astype(dtype)
    order = rng.permutation(np.setdiff1d(np.arange(n), held_out))
    codes, tasks = np.array([0, 0, 0, 1, 3, 3, 3]), np.array([0, 1, 2, 0, 0, 1, 1])
    more = rng.normal(size=(7, 5)).astype(dtype)
    memory = Memory(more, codes, tasks, rng.uniform(0.1, 3, 7), rng.uniform(size=7))
    return Rows(X, y, s), memory, order, s, np.r_[y, codes], np.r_[np.full(n, 2), tasks]


@pytest.mark.parametrize("each_once", [True, False])
@pytest.mark.parametrize("n", [30, 333])
def test_every_class_and_every_task_in_it_counts_alike(rng, each_once, n):
    rows, memory, order, s, codes, tasks = by_hand(rng, range(5), n)
    both, replay = memory.beside(rows, order, 2, each_once=each_once)
    times = np.bincount(replay, minlength=n + 7)
    assert times[:n].sum() == 0
    assert len(replay) == (7 if each_once else max(7, int(np.ceil(len(order) / 8))))
    assert np.ptp(times[n:]) <= (not each_once)
    one_pass, weights = np.r_[order, replay], both.weights.numpy()[:, 0]
    total = s[order].sum()
    assert_allclose(weights[one_pass].sum(), total, rtol=1e-12)
    for c in range(4):
        of_class = one_pass[codes[one_pass] == c]
        assert_allclose(weights[of_class].sum(), total / 4, rtol=1e-12)
        tasks_of_class = np.unique(tasks[of_class])
        for t in tasks_of_class:
            found = weights[of_class[tasks[of_class] == t]].sum()
            assert_allclose(found, total / 4 / len(tasks_of_class), rtol=1e-12)
    # Within a group rows keep their proportions, and rows held out their weights.
    natural, counted = np.r_[s, memory.weights], np.where(times, times, 1) * weights
    group = np.flatnonzero((codes == 0) & (tasks == 2) & (np.arange(n + 7) >= 5))
    assert_allclose(counted[group] / counted[group[0]], natural[group] / natural[group[0]])
    assert_allclose(weights[:5], s[:5])
    assert_array_equal(both.labels.numpy()[:, 0], codes)
    assert_array_equal(both.inputs(torch.arange(n, n + 7)).numpy(), memory.X)


def test_a_class_that_is_all_held_out_has_no_part(rng):
    rows, memory, _, s, codes, tasks = by_hand(rng)
    memory = Memory(memory.X[:3], np.zeros(3, int), np.zeros(3, int), np.ones(3), np.ones(3))
    order = np.flatnonzero(codes[:30] < 2)
    both, replay = memory.beside(rows, order, 2, each_once=True)
    weights = both.weights.numpy()[:, 0]
    total = s[order].sum()
    assert_allclose(weights[order[codes[order] == 1]].sum(), total / 2, rtol=1e-12)
    of_task = weights[order[codes[order] == 0]].sum()
    assert_allclose([of_task, weights[replay].sum()], total / 4, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("faint", [1e-37, 1e-320])
def test_no_weight_is_too_small_to_be_divided_by(rng, dtype, faint):
    """A class of next to no weight counts like the others, and nothing overflows."""
    X, y = problem(rng, dtype=dtype)
    memory = Memory(X[:2], y[:2], np.array([0, 0]), np.array([faint, 1.0]), np.ones(2))
    rows = Rows(X, y, np.full(60, 3, dtype))
    both, replay = memory.beside(rows, np.arange(60), 1, each_once=True)
    weights = both.weights.numpy()[:, 0]
    assert weights.dtype == dtype
    assert_allclose(weights.sum(), 180, rtol=1e-6)
    assert_allclose(weights[replay], 180 / 3 / 2, rtol=1e-6)


def test_the_objective_is_the_mean_over_classes_of_the_mean_over_tasks(rng):
    rows, memory, order, s, codes, tasks = by_hand(rng, range(5))
    both, replay = memory.beside(rows, order, 2, each_once=False)
    network = Network((5, 6, 4), "tanh")
    at = torch.from_numpy(network.initialise(rng, np.float64))
    objective = Objective(network, at, both, order, mask=None, alpha=0.7, replay=replay)
    value = objective.full()
    w = at.clone().requires_grad_()
    natural, X = np.r_[s, memory.weights], both.inputs(torch.arange(37))
    expected = 0.7 / 2 / s[order].sum() * (w[: 5 * 6 + 6 * 4] ** 2).sum()
    present = np.r_[order, 30:37]
    for c in range(4):
        tasks_of_class = np.unique(tasks[present][codes[present] == c])
        for t in tasks_of_class:
            group = [i for i in present if codes[i] == c and tasks[i] == t]
            weights = torch.from_numpy(natural[group])
            labels = torch.from_numpy(codes[group])
            nll = reference.nll(w, network.sizes, "tanh", X[group], labels, weights)
            expected = expected + nll / weights.sum() / 4 / len(tasks_of_class)
    expected.backward()
    assert_allclose(value, expected.item(), rtol=1e-12)
    assert_allclose(objective.gradient.numpy(), w.grad.numpy(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("n", "m"), [(100, 13), (10, 40), (7, 7), (1, 5), (50, 1)])
def test_every_batch_has_its_share_of_replayed_rows(n, m):
    order = _evenly_mixed([np.arange(n), n + np.arange(m)])
    assert_array_equal(np.sort(order), np.arange(n + m))
    assert_array_equal(order[order < n], np.arange(n))
    passed = np.cumsum(order >= n)
    assert np.abs(passed - np.arange(1, n + m + 1) * m / (n + m)).max() <= 1


def test_the_importance_is_that_of_the_tasks_own_rows(rng):
    """With their natural weights, at the final weights, over the classes trained on."""
    X, y = problem(rng)
    X2, y2 = problem(rng, classes=(3, 4))
    s = rng.uniform(0.1, 3, 60)
    clf = small(memory_size=2, ewc_lambda=1.0).partial_fit(X, y, "a", classes=range(6))
    before = importances(clf)
    known = np.unique(memory_of(clf).codes)
    assert len(known) == 2
    clf.partial_fit(X2, y2, "b", sample_weight=s)
    active = np.isin(range(6), [*known, 3, 4])
    rows = torch.from_numpy(X2), torch.from_numpy(y2), torch.from_numpy(s)
    at = torch.from_numpy(flat(clf))
    expected = reference.fisher_by_rows("exact", at, (5, 6, 6), "tanh", *rows, active)
    assert_allclose(importances(clf) - before, expected, rtol=1e-7, atol=1e-12)
    assert clf._stream.importance_weight == pytest.approx(s.sum(), rel=1e-12)


# What is kept


@pytest.mark.parametrize("selection", ["random", "herding"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_rows_carry_their_class_task_and_weight(rng, selection, dtype, container):
    X, y = problem(rng, 90, range(6), dtype)
    X[np.abs(X) < 0.4] = 0
    task_of, s = y // 2, rng.uniform(0.5, 2, 90).astype(dtype)
    clf = small(memory_selection=selection, memory_size=17)
    for t in (2, 0, 1):  # so that classes join before, and between, those known
        part = np.flatnonzero(task_of == t)
        clf.partial_fit(container(X[part]), y[part], f"t{t}", sample_weight=s[part])
    memory = memory_of(clf)
    assert isinstance(memory.X, np.ndarray if container is np.asarray else container)
    assert memory.X.dtype == dtype
    if sparse.issparse(memory.X):
        assert memory.X.nnz == np.count_nonzero(memory.X.toarray())
    numbers = origin(memory, X)
    assert len(set(numbers)) == 17
    assert_array_equal(clf.classes_[memory.codes], y[numbers])
    names = np.array(clf.task_ids_)[memory.tasks]
    assert_array_equal(names, [f"t{t}" for t in task_of[numbers]])
    assert_array_equal(memory.weights, s[numbers])
    assert np.bincount(memory.codes).tolist().count(3) == 5


def test_weights_of_classes_are_part_of_a_rows_weight(rng):
    X, y = problem(rng)
    s = rng.uniform(0.5, 2, 60)
    clf = small(class_weight={0: 2.0, 2: 0.0}).partial_fit(X, y, sample_weight=s)
    numbers = origin(memory_of(clf), X)
    assert set(y[numbers]) == {0, 1}
    assert_allclose(memory_of(clf).weights, (s * np.where(y == 0, 2, 1))[numbers])


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_the_memory_is_bounded_after_every_call(rng, selection):
    clf, task, filled = small(memory_selection=selection, max_iter=1), 0, set()
    for size in [5, 5, 30, 30, 2, 1, 400, 400, 3, 0, 0, 7, 7]:
        X, y = problem(rng, 40, (task % 4, task % 4 + 1))
        clf.set_params(memory_size=size)
        task = (task + rng.randint(0, 2)) % 5  # chunks, and tasks met again
        clf.partial_fit(X, y, task, consolidate=bool(rng.randint(0, 4)))
        memory = memory_of(clf)
        if memory is not None:
            lengths = {a.shape[0] for a in vars(memory).values()}
            assert len(lengths) == 1
            assert 1 <= lengths.pop() <= size
            filled.add(size)
        assert size or memory is None
        clf.partial_fit(X[:1], y[:1], task, consolidate=False)
        assert memory_of(clf) is None or len(memory_of(clf).codes) <= size
    assert len(filled) > 4


def test_a_memory_larger_than_all_rows_keeps_all(rng):
    X, y = problem(rng)
    clf = small(memory_size=10**12)
    for part in np.array_split(rng.permutation(60), 4):
        clf.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert_array_equal(np.sort(origin(memory_of(clf), X)), np.arange(60))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("readout", ["softmax", "discriminant"])
@pytest.mark.parametrize("size", [0, 5])
def test_the_state_has_as_many_rows_as_asked_for(rng, container, curvature, readout, size):
    X, y = problem(rng, 40)
    more = {"readout": readout, "readout_features": 20, "curvature": curvature}
    clf = small(memory_size=size, **more)
    clf.partial_fit(container(X[:20]), y[:20], "a").partial_fit(container(X[20:]), y[20:], "b")
    state = everything(clf)
    assert sum(row.tobytes() in state for row in X) == size
    assert sum(number.tobytes() in state for number in X.ravel()) == size * 5
    for labels in (y[:20], y[20:]):
        assert labels.tobytes() not in state
    weighted = small(memory_size=0, **more).partial_fit(X, y, sample_weight=X[:, 0] ** 2)
    assert not any(number.tobytes() in everything(weighted) for number in X[:, 0] ** 2)


# How it learns

WAYS = {
    "plain": {},
    "early": {"early_stopping": True},
    # So few rows to train on that classes may be held out altogether.
    "mostly_held_out": {"early_stopping": True, "validation_fraction": 0.9},
    "in_order": {"shuffle": False},
    "balanced": {"class_weight": "balanced"},
    "one_by_one": {"batch_size": 1},
    "no_hidden_layer": {"hidden_layer_sizes": ()},
    "one_row": {"memory_size": 1},
}


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("way", WAYS)
def test_it_goes_with_everything_and_can_be_repeated(solver, curvature, way):
    rng = np.random.RandomState(0)
    s = rng.choice([0.0, 1.0, 2.5], 60)
    tasks = [problem(rng, classes=c) for c in [(1, 3), (0, 2, 3), (1, 4)]]

    def learn(container=np.asarray, dtype=np.float64):
        clf = small(
            solver=solver, curvature=curvature, memory_selection="herding",
            **{"readout": "discriminant", "readout_features": 12, **WAYS[way]},
        )  # fmt: skip
        for k, (X, y) in enumerate(tasks):
            X = np.where(np.abs(X) < 0.3, 0, X).astype(dtype)
            clf.partial_fit(container(X), y, k, sample_weight=s)
        return clf

    X = tasks[0][0]
    clf, again, single = learn(), learn(), learn(dtype=np.float32)
    assert_array_equal(flat(clf), flat(again))
    assert_array_equal(memory_of(clf).X, memory_of(again).X)
    assert single.predict_proba(X).dtype == memory_of(single).X.dtype == np.float32
    for k in (None, 0, 1, 2):
        p = clf.predict_proba(X, task_id=k)
        assert_allclose(p.sum(axis=1), 1)
    thin = learn(sparse.csr_matrix)
    assert_allclose(flat(thin), flat(clf), rtol=1e-6, atol=1e-8)
    assert_allclose(memory_of(thin).X.toarray(), memory_of(clf).X)


@pytest.mark.parametrize("order", [(0, 1, 0), (1, 0, 0), (0, 0, 1), (1, 1, 0)])
def test_dense_and_sparse_calls_mix(rng, order):
    containers = [np.asarray, sparse.csr_matrix]
    mixed, plain = small(), small()
    for k, which in enumerate(order):
        X, y = problem(rng, classes=(k, k + 1))
        X[np.abs(X) < 0.3] = 0
        mixed.partial_fit(containers[which](X), y, k)
        plain.partial_fit(X, y, k)
    assert_allclose(flat(mixed), flat(plain), rtol=1e-7, atol=1e-10)
    assert_array_equal(dense(memory_of(mixed).X), memory_of(plain).X)


def test_only_the_memory_changes_what_a_task_teaches(rng):
    X, y = problem(rng)
    one, other = small(shuffle=False), small(shuffle=False, memory_size=0)
    for clf in (one, other):
        clf.partial_fit(X, y, "a")
    assert_array_equal(flat(one), flat(other))
    for clf in (one, other):
        clf.partial_fit(-X, y, "b")
    assert (flat(one) != flat(other)).any()


def test_rows_of_one_call_of_several_tasks_are_learned_one_after_another(rng):
    X, y = problem(rng)
    ids = rng.randint(0, 3, 60)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Stochastic Optimizer")
        together = small(memory_selection="herding").fit(X, y, task_id=ids)
    one_by_one = small(memory_selection="herding")
    for k in range(3):
        one_by_one.partial_fit(X[ids == k], y[ids == k], k)
    assert_array_equal(flat(together), flat(one_by_one))
    assert_array_equal(memory_of(together).X, memory_of(one_by_one).X)
    assert set(memory_of(together).tasks) == {0, 1, 2}


def test_a_new_start_forgets_the_memory(rng):
    X, y = problem(rng)
    X2, y2 = problem(rng)
    clf = small(warm_start=True).partial_fit(X, y, "a")
    with pytest.warns(match="Maximum iterations"):
        clf.fit(X2, y2)
    origin(memory_of(clf), X2)
    assert set(memory_of(clf).tasks) == {0}


def test_rows_are_copied_and_read_only_ones_do(rng, tmp_path):
    X, y = problem(rng)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    clf = small().partial_fit(mapped, y, "a").partial_fit(mapped[::-1], y[::-1], "b")
    plain = small().partial_fit(X, y, "a").partial_fit(X[::-1].copy(), y[::-1].copy(), "b")
    assert_array_equal(flat(clf), flat(plain))
    assert type(memory_of(clf).X) is np.ndarray
    assert not np.shares_memory(memory_of(plain).X, X)
    assert_array_equal(X, mapped)


def test_a_saved_or_copied_memory_goes_on(rng):
    X, y = problem(rng)
    clf = small().partial_fit(X, y, "a")
    others = [pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)]
    for estimator in (clf, *others):
        estimator.partial_fit(-X, y + 1, "b")
    for other in others:
        assert_array_equal(flat(other), flat(clf))
        assert_array_equal(memory_of(other).X, memory_of(clf).X)


def test_it_brings_new_classes_and_old_ones_side_by_side(seed):
    """Split digits, two new classes in a task: a hundred rows against none."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, y, random_state=seed)
    scores = {}
    for size in (0, 100):
        clf = EWCClassifier(
            (64,), max_iter=30, memory_size=size, memory_selection="random", random_state=seed
        )
        for t in range(5):
            part = y // 2 == t
            clf.partial_fit(X[part], y[part], t)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The tasks have different classes")
            scores[size] = clf.score(X_test, y_test)
    assert scores[100] > 0.85
    assert scores[100] > scores[0] + 0.25
