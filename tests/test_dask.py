"""Tasks that Dask holds: learned block by block, searched and scored on workers."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import contextmanager

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from dask_ml.wrappers import Incremental
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from state import bits

from skewc import EWCClassifier
from skewc._inputs import Blocks, dense
from skewc._rows import Rows
from skewc._validation import validated
from skewc.dask import partial_fit, score
from skewc.datasets import Task
from skewc.model_selection import evaluate_stream
from skewc.pipeline import make_continual_pipeline

SIZES = (90, 30, 130, 50)  # batches of 40 cross their borders
N = sum(SIZES)


@pytest.fixture
def task(digits):
    return digits[0][:N], digits[1][:N]


def blocks_of(X, sizes=SIZES):
    return da.from_array(X, chunks=(sizes, X.shape[1]))


def classifier(**options):
    return EWCClassifier(
        **{"hidden_layer_sizes": 20, "max_iter": 3, "batch_size": 40, "random_state": 0, **options}
    )


def assert_close_state(a, b, rtol):
    """Compare weights and importance, each array on its own scale."""
    for one, other in zip(
        [a._stream.weights, *a._stream.importance], [b._stream.weights, *b._stream.importance],
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=0, atol=rtol * np.abs(one).max())


@contextmanager
def two_processes():
    """A cluster of two processes of one thread each; its dashboard takes any free port."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="localhost:0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with two_processes() as client:
        yield client


def test_nothing_imports_dask_unasked():
    code = (
        "import sys, skewc, skewc.model_selection, skewc.pipeline, skewc.datasets, skewc.metrics;"
        "skewc.EWCClassifier; assert not {'dask', 'distributed'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"curvature": "kronecker", "solver": "sgd", "fisher": "sample"},
        {"solver": "lbfgs", "early_stopping": True, "shuffle": False},
        {"early_stopping": True, "fisher_samples": 100},
        {"memory_size": 30, "memory_selection": "random", "fisher": "empirical"},
        {"readout": "discriminant", "readout_features": 40, "class_weight": "balanced"},
    ],
)
def test_one_block_is_the_memory_bit_for_bit(task, options):
    X, y = task
    mine, plain = classifier(**options), classifier(**options)
    for name, part in [("a", X), ("b", X[:, ::-1])]:
        partial_fit(mine, blocks_of(part, (N,)), y, task_id=name)
        plain.partial_fit(part, y, task_id=name)
    assert bits(mine) == bits(plain)


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("fisher", ["exact", "sample", "empirical"])
def test_blocks_in_order_learn_what_memory_does(task, curvature, fisher):
    X, y = task
    options = {"shuffle": False, "curvature": curvature, "fisher": fisher, "solver": "sgd"}
    mine, plain = classifier(**options), classifier(**options)
    partial_fit(mine, blocks_of(X).rechunk({1: 30}), y, task_id="a")
    plain.partial_fit(X, y, task_id="a")
    assert mine._stream.weights.tobytes() == plain._stream.weights.tobytes()
    assert_close_state(plain, mine, 1e-13)
    partial_fit(mine, blocks_of(X[:, ::-1]), y, task_id="b")
    plain.partial_fit(X[:, ::-1], y, task_id="b")
    assert_close_state(plain, mine, 1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memory_size": 30, "memory_selection": "random"},
        {"early_stopping": True, "solver": "sgd", "learning_rate_init": 0.1},
    ],
)
def test_order_of_rows_is_shuffled_blocks_of_shuffled_rows(task, options, monkeypatch):
    X, y = task
    mine, plain = classifier(**options), classifier(**options)
    borders = np.cumsum([0, *SIZES])

    def by_hand(self, order, rng):
        own = [[i for i in order if lo <= i < hi] for lo, hi in zip(borders, borders[1:])]  # noqa: B905
        own = [rows for rows in [*own, [i for i in order if i >= N]] if rows]
        mixed = []
        for k in rng.permutation(len(own)):
            turns = np.arange(len(own[k]))
            rng.shuffle(turns)
            mixed += [own[k][i] for i in turns]
        return np.array(mixed)

    for name, part in [("a", X), ("b", X[:, ::-1])]:
        partial_fit(mine, blocks_of(part), y, task_id=name)
        with monkeypatch.context() as patch:
            patch.setattr(Rows, "shuffled", by_hand)
            plain.partial_fit(part, y, task_id=name)
    assert_close_state(plain, mine, 1e-11)
    assert mine.loss_curve_ == pytest.approx(plain.loss_curve_, rel=1e-12)
    assert mine.validation_scores_ == plain.validation_scores_


def test_every_pass_has_another_order():
    blocks = Blocks(None, tuple((k, n, None) for k, n in enumerate(SIZES)), n_features=1)
    rows, rng = Rows(blocks), np.random.RandomState(0)
    first = rows.shuffled(np.arange(N), rng)
    second = rows.shuffled(first, rng)
    block_of = np.repeat(np.arange(4), SIZES)
    for order in first, second:
        assert sorted(order) == list(range(N))
        assert np.count_nonzero(np.diff(block_of[order])) == 3  # blocks stay together
    ways = [list(dict.fromkeys(block_of[order])) for order in (first, second)]
    assert ways[0] != ways[1]
    assert list(first[block_of[first] == 2]) != list(second[block_of[second] == 2])


class Stored:
    """A source of blocks that lie in a list."""

    def __init__(self, blocks):
        self._blocks = blocks

    def load(self, number):
        return self._blocks[number]

    def summed(self, function, calls):
        sums = [function(self._blocks[number], *arguments) for number, arguments in calls]
        return [sum(parts) for parts in zip(*sums, strict=True)]


def as_it_is(block):
    return block


@pytest.mark.parametrize("kinds", ["dddd", "ssss", "dsds", "sdsd"])
def test_rows_in_blocks_are_those_of_the_matrix(rng, kinds):
    X = rng.normal(size=(N, 5)) * (rng.uniform(size=(N, 5)) > 0.5)
    borders = np.cumsum(SIZES)[:-1]
    parts = [sparse.csr_matrix(block) if kind == "s" else block
             for kind, block in zip(kinds, np.split(X, borders), strict=True)]  # fmt: skip
    numbered = tuple((k, n, None) for k, n in enumerate(SIZES))
    blocks = Blocks(Stored(parts), numbered, check=as_it_is, n_features=5, dtype=X.dtype)
    some = np.sort(rng.permutation(N)[:200])
    fewer = np.sort(rng.permutation(200)[:90])
    fewer = fewer[fewer < 50]  # nothing of the last blocks
    more = rng.normal(size=(7, 5))
    labels, weights = rng.randint(0, 300, N), rng.uniform(size=N)
    labels[0] = 299  # does not fit one byte
    for which in np.arange(N), some, some[fewer]:
        own = blocks if len(which) == N else blocks[some]
        own = own[fewer] if len(which) < 200 else own
        n = len(which)
        assert own.shape == (n, 5)
        rows = Rows(own, labels[which], weights[which])
        longer = rows.extend(more, np.zeros(7, np.int64), np.ones(n + 7))
        u = torch.from_numpy(rng.normal(size=(6, 4)))
        for these, whole in (rows, X[which]), (longer, np.vstack([X[which], more])):
            turned = [whole, whole @ u[:-1].numpy() + u[-1].numpy()]
            order = rng.permutation(len(whole))
            for index in rows.index(order), rows.index(order[:20]), slice(n // 2, len(whole)):
                for x, expected in zip((these, these.rotated(u)), turned, strict=True):
                    np.testing.assert_allclose(
                        dense(x.inputs(index)), expected[index], rtol=0, atol=1e-13
                    )
        kept = np.flatnonzero(rng.uniform(size=n) < 0.2)
        picked, picked_weights = rows.pick(kept)
        picked = picked.toarray() if sparse.issparse(picked) else picked
        np.testing.assert_array_equal(picked, X[which][kept])
        np.testing.assert_array_equal(picked_weights, weights[which][kept])
        draws = rng.uniform(size=(n, 1))
        for order in None, kept:
            (found,) = rows.summed(moments, order, draws)
            mine = which if order is None else which[order]
            drawn = draws if order is None else draws[order]
            factors = labels[mine] * weights[mine] * drawn[:, 0]
            np.testing.assert_allclose(found, X[mine].T @ factors, rtol=1e-12)


def moments(rows, order, draws):
    """Σ x·label·weight·draw over rows."""
    index = slice(0, rows.n) if order is None else order
    labels, weights = rows.targets(index)
    x = dense(rows.inputs(index))
    return [(x * labels * weights * torch.from_numpy(draws[index])).sum(dim=0)]


class CountedLoads:
    """Dask blocks that say when they are loaded; none lies in memory."""

    def __init__(self, sizes, n_features):
        self.loads, parts = [], []
        for k, n in enumerate(sizes):
            block = dask.delayed(self._load)(k, n, n_features)
            parts.append(da.from_delayed(block, (n, n_features), np.float64))
        self.X = da.concatenate(parts)

    def _load(self, k, n, n_features):
        self.loads.append(k)
        return np.random.RandomState(k).normal(size=(n, n_features))


@pytest.mark.parametrize(
    "batch_size, options, passes",
    [(300, {}, 3), (1300, {}, 3), (300, {"early_stopping": True, "validation_fraction": 0.5}, 5)],
)
def test_one_block_lies_in_memory_and_is_loaded_once_a_pass(batch_size, options, passes):
    sizes, n_features = (500,) * 20, 500  # 2 MB each
    counted, loads_of_y = CountedLoads(sizes, n_features), []
    y = dask.delayed(lambda: loads_of_y.append(1) or np.arange(sum(sizes)) % 3)()
    clf = EWCClassifier((5,), max_iter=2, batch_size=batch_size, random_state=0, tol=0, **options)
    tracemalloc.start()
    try:
        with dask.config.set(scheduler="synchronous"):
            partial_fit(clf, counted.X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 2**21  # of the 40 MB: a block, its check, and what is made of it
    assert loads_of_y == [1]
    first, *loads = counted.loads
    assert first == 0  # to be validated
    assert not [k for k, after in zip(loads, loads[1:], strict=False) if k == after]
    # Epochs, scores of rows held out, importance; what ends a pass and begins the next stays.
    assert 20 * passes - (passes - 1) <= len(loads) <= 20 * passes


def test_a_block_is_brought_to_the_float_type_of_the_first(task):
    X, y = task
    parts = np.split(X, np.cumsum(SIZES)[:-1])
    mixed = [parts[0].astype(np.float32), *parts[1:]]
    blocks = [da.from_delayed(dask.delayed(part), part.shape, np.float32) for part in mixed]
    mine, plain = classifier(shuffle=False), classifier(shuffle=False)
    partial_fit(mine, da.concatenate(blocks), y)
    plain.partial_fit(X.astype(np.float32), y)
    assert mine._stream.weights.dtype == np.float32
    assert mine._stream.weights.tobytes() == plain._stream.weights.tobytes()


def test_what_validates_a_block_is_little_to_send(task):
    X, y = task
    clf = classifier(hidden_layer_sizes=500).partial_fit(X, y)
    blocks = Blocks(Stored([X]), ((0, N, None),))
    checked, _ = validated(clf, blocks, y=y, dtype=X.dtype, reset=False)
    assert len(pickle.dumps(checked.reader(0))) < 2_000


def test_parquet_with_names_words_and_empty_blocks(task, tmp_path):
    X, y = task
    names = [f"pixel {k}" for k in range(64)]
    frame = pd.DataFrame(X.astype(np.float32), columns=names)
    frame["label"] = np.array(["even", "odd"])[y % 2]
    for k, rows in enumerate(np.split(np.arange(N), np.cumsum(SIZES)[:-1])):
        frame.iloc[rows].to_parquet(tmp_path / f"{k}.parquet")
    frame.iloc[:0].to_parquet(tmp_path / "4.parquet")
    table = dd.read_parquet(tmp_path)
    assert table.npartitions == 5
    mine, plain = classifier(shuffle=False), classifier(shuffle=False)
    partial_fit(mine, table[names], table["label"])
    plain.partial_fit(frame[names], frame["label"])
    assert mine.coefs_[0].dtype == np.float32
    assert list(mine.feature_names_in_) == names and list(mine.classes_) == ["even", "odd"]
    assert mine._stream.weights.tobytes() == plain._stream.weights.tobytes()
    assert_close_state(plain, mine, 1e-5)
    array = table[names].to_dask_array()  # of unknown lengths, as the table
    again = partial_fit(classifier(shuffle=False), array, frame["label"])
    assert again._stream.weights.tobytes() == plain._stream.weights.tobytes()
    right = np.mean(plain.predict(frame[names]) == frame["label"])
    assert score(mine, table[names], table["label"]) == right
    assert score(mine, table[names], frame["label"]) == right


def test_weights_and_a_task_for_each_row(task, rng):
    X, y = task
    weights = rng.choice([0.0, 0.5, 2.0], size=N)
    ids = rng.choice(["a", "b"], size=N)
    options = {"shuffle": False, "class_weight": {3: 2.0}, "solver": "sgd", "memory_size": 40,
               "memory_selection": "random"}  # fmt: skip
    mine, plain = classifier(**options), classifier(**options)
    partial_fit(
        mine, blocks_of(X), blocks_of(y[:, None])[:, 0], da.from_array(ids, chunks=70),
        sample_weight=da.from_array(weights, chunks=50),
    )  # fmt: skip
    plain.partial_fit(X, y, ids, sample_weight=weights)
    assert mine.task_ids_ == ["a", "b"]
    assert_close_state(plain, mine, 1e-12)
    np.testing.assert_array_equal(mine._stream.memory.X, plain._stream.memory.X)


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
def test_sparse_blocks(task, curvature):
    X, y = task
    options = {"shuffle": False, "curvature": curvature, "solver": "sgd", "memory_size": 20,
               "memory_selection": "random"}  # fmt: skip
    mine, plain = classifier(**options), classifier(**options)
    for name, part in [("a", X), ("b", X[:, ::-1].copy())]:
        partial_fit(mine, blocks_of(part).map_blocks(sparse.csr_matrix), y, task_id=name)
        plain.partial_fit(sparse.csr_matrix(part), y, task_id=name)
    assert sparse.issparse(mine._stream.memory.X)
    assert_close_state(plain, mine, 1e-10)


def test_chunks_of_a_task_go_on_and_may_not_count(task):
    X, y = task
    mine, plain = classifier(shuffle=False), classifier(shuffle=False)
    for consolidate in False, True:
        partial_fit(mine, blocks_of(X), [*y], "a", classes=range(12), consolidate=consolidate)
        plain.partial_fit(X, y, "a", classes=range(12), consolidate=consolidate)
    assert mine._stream.importance_weight == N and len(mine.classes_) == 12
    assert_close_state(plain, mine, 1e-13)


def with_fault(X, row, value):
    X = X.copy()
    X[row, 3] = value
    return blocks_of(X)


@pytest.mark.parametrize(
    "change, options, error, message",
    [
        (lambda X, y: (with_fault(X, 200, np.nan), y), {}, ValueError, r"(?s)NaN.*block 2 of X"),
        (lambda X, y: (with_fault(X, -1, np.inf), y), {}, ValueError, r"(?s)inf.*block 3 of X"),
        (lambda X, y: (blocks_of(X[:, 1:]), y), {}, ValueError, "63 features"),
        (lambda X, y: (blocks_of(X), y[1:]), {}, ValueError, "inconsistent numbers of samples"),
        (lambda X, y: (blocks_of(X), y + 0.5), {}, ValueError, "whole numbers or strings"),
        (lambda X, y: (blocks_of(X), y.astype(str)), {}, ValueError, "classes not in"),
        (lambda X, y: (blocks_of(X), np.where(y == 1, np.nan, y)), {}, ValueError, "y .*NaN"),
        (lambda X, y: (blocks_of(X), y + 100), {}, ValueError, "classes not in"),
        (lambda X, y: (blocks_of(X), y, "b", -1), {}, ValueError, "sample_weight must"),
        (lambda X, y: (blocks_of(X), None), {}, ValueError, "requires y .* is None"),
        (lambda X, y: (blocks_of(X), da.ones(())), {}, ValueError, "y should be a 1d array"),
        (lambda X, y: (X, y), {}, TypeError, "Array or DataFrame of Dask"),
        (lambda X, y: (blocks_of(X)[:0], y[:0]), {}, ValueError, "0 sample"),
        (
            lambda X, y: (dd.from_pandas(pd.DataFrame(X).set_axis(["a"] * 64, axis=1)), y),
            {}, ValueError, "X must",
        ),
        (
            lambda X, y: (blocks_of(X), y),
            {"memory_size": 5}, ValueError, "memory_selection='herding'",
        ),
        (
            lambda X, y: (blocks_of(X), y),
            {"early_stopping": True, "shuffle": False}, ValueError, "shuffle=True",
        ),
        (
            lambda X, y: (blocks_of(X), y),
            {"solver": "sgd", "learning_rate_init": 1e30}, ValueError, "non-finite",
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
def test_bad_input_is_named_and_changes_nothing(task, change, options, error, message):
    X, y = task
    clf = classifier().partial_fit(X, y, "a", classes=range(10)).set_params(**options)
    before = bits(clf)
    rows, labels, *more = change(X, y)
    name, weight = more or ("b", None)
    with pytest.raises(error, match=message):
        partial_fit(clf, rows, labels, name, sample_weight=weight)
    assert bits(clf) == before


def test_blocks_of_unknown_lengths_and_of_others_than_said(task):
    X, y = task
    table = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    labels = blocks_of(y[:, None], (10, N - 10))[:, 0]  # in other blocks, as many
    mine, known = classifier(), classifier()
    partial_fit(mine, table, labels)
    partial_fit(known, blocks_of(X, (150, 150)), y)
    assert mine._stream.weights.tobytes() == known._stream.weights.tobytes()
    short = da.from_delayed(dask.delayed(X[:7]), (20, 64), X.dtype)
    clf = classifier()
    with pytest.raises(ValueError, match="Block 4 of X should have 20 rows .*, but 7 came"):
        partial_fit(clf, da.concatenate([blocks_of(X), short]), np.r_[y, y[:20]])
    assert not hasattr(clf, "classes_")


@pytest.mark.parametrize(
    "X, shape",
    [(da.ones(6), r"\(6,\)"), (da.ones((6, 2, 2)), r"\(6, 2, 2\)"), (da.ones(()), r"\(\)")],
)
def test_an_array_of_other_dimensions_is_refused(X, shape):
    for function in partial_fit, score:
        with pytest.raises(ValueError, match=rf"\(n_samples, n_features\), got {shape}"):
            function(classifier(), X, np.arange(6) % 2)


def test_only_an_ewc_classifier_learns_from_blocks(task):
    X, y = task
    for other in SGDClassifier(), make_continual_pipeline(classifier()):
        with pytest.raises(TypeError, match="Only an EWCClassifier learns from blocks"):
            partial_fit(other, blocks_of(X), y)
        with pytest.raises(TypeError, match="Only an EWCClassifier learns from blocks"):
            evaluate_stream(other, [Task("a", blocks_of(X), y, X, y)])


def test_accuracy_by_blocks(task):
    X, y = task
    low = y < 5
    clf = classifier().partial_fit(X[low], y[low], "low").partial_fit(X[~low], y[~low], "high")
    halves = blocks_of(X[low], (low.sum() - 40, 0, 40))
    assert score(clf, halves, y[low], task_id="low") == clf.score(X[low], y[low], task_id="low")
    naive = GaussianNB(var_smoothing=0.1).fit(X, y)
    for labels in y, y[:, None], y.astype(float), da.from_array(y[:, None], chunks=70), [*y]:
        assert score(naive, blocks_of(X), labels) == naive.score(X, y)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda X, y: (X, y[1:]), r"inconsistent numbers of samples: \[299, 300\]"),
        (lambda X, y: (X, y.astype(str)), "Mix of label input types"),
        (lambda X, y: (X[:, 1:], y), "63 features"),
        (lambda X, y: (X[:0], y[:0]), "empty"),
    ],
)
def test_accuracy_refuses_what_it_does_in_memory(task, change, message):
    X, y = task
    naive = GaussianNB(var_smoothing=0.1).fit(X, y)
    X, y = change(X, y)
    with pytest.raises(ValueError, match=message):
        score(naive, da.from_array(X, chunks=(100, 64)), y)


def test_streams_of_blocks(task):
    X, y = task
    plain = [Task(k, part[:200], y[:200], part[200:], y[200:])
             for k, part in enumerate([X, X[:, ::-1]])]  # fmt: skip
    dasked = [
        Task(
            t.id, blocks_of(t.X_train, (120, 80)), da.from_array(t.y_train, chunks=60),
            blocks_of(t.X_test, (40, 60)), da.from_array(t.y_test, chunks=30),
        )
        for t in plain
    ]  # fmt: skip
    clf = classifier(shuffle=False, max_iter=10)
    expected = evaluate_stream(clf, plain).matrix
    assert len(np.unique(expected)) > 2
    np.testing.assert_array_equal(evaluate_stream(clf, dasked).matrix, expected)
    mixed = [dasked[0], plain[1]]
    np.testing.assert_array_equal(evaluate_stream(clf, mixed).matrix, expected)


def test_callbacks_may_score_the_blocks(task):
    monitor = pytest.importorskip("sklearn.callback").ScoringMonitor(scoring="accuracy")
    X, y = task
    clf = partial_fit(classifier().set_callbacks(monitor), blocks_of(X), y)
    assert monitor.get_logs().data_as_pandas["accuracy"].iloc[-1] == clf.score(X, y)


# On workers


def test_workers_sum_up_the_importance(task, client):
    X, y = task
    for options in {}, {"curvature": "kronecker", "fisher": "sample", "fisher_samples": 250}:
        far, near = classifier(**options), classifier(**options)
        partial_fit(far, blocks_of(X), y, "a")
        with dask.config.set(scheduler="synchronous"):
            partial_fit(near, blocks_of(X), y, "a")
        assert bits(far) == bits(near)
        assert score(far, blocks_of(X), y) == near.score(X, y)


def test_labels_are_meant_to_be_in_the_graph(client):
    X, y = da.random.random((200_000, 1), chunks=50_000), np.arange(200_000) % 2
    clf = EWCClassifier((2,), max_iter=1, batch_size=50_000)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "150 kB"}):
        partial_fit(clf, X, y)


def test_blocks_that_workers_hold_are_kept_until_learned(task, client):
    X, y = task
    expected = partial_fit(classifier(), blocks_of(X), y, "a")
    # Nobody else has hold of them; an assert statement would.
    clf = partial_fit(classifier(), blocks_of(X).persist(), y, "a")
    accuracy = score(clf, blocks_of(X).persist(), y)
    assert bits(clf) == bits(expected)
    assert accuracy == expected.score(X, y)


def test_a_worker_computes_on_one_thread(client):
    assert set(client.run(torch.get_num_threads).values()) == {1}
    assert {os.getpid()}.isdisjoint(client.run(os.getpid).values())


class SearchOverStream:
    """A search over two tasks in one table."""

    def __init__(self, digits):
        X, y = digits[0][:240], digits[1][:240]
        self.X, self.y = np.vstack([X, X[:, ::-1]]), np.tile(y, 2)
        self.ids = np.repeat(["a", "b"], 240)

    def run(self, **options):
        grid = GridSearchCV(classifier(max_iter=5), {"ewc_lambda": [0, 1, 10]}, cv=2, **options)
        return grid.fit(self.X, self.y, task_id=self.ids)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
def test_a_search_on_workers_is_the_serial_one_and_sends_the_rows_once(digits, client, monkeypatch):
    search = SearchOverStream(digits)
    serial, sent = search.run(), []
    submit, scatter = client.submit, client.scatter

    def rows_in(value):
        if isinstance(value, np.ndarray):
            return [value] if value.shape == search.X.shape else []
        if isinstance(value, list | tuple):
            return [array for part in value for array in rows_in(part)]
        return rows_in([*value.values()]) if isinstance(value, dict) else []

    def submit_counting(function, *args, **kwargs):
        sent.extend(("with a candidate", array) for array in rows_in([args, kwargs]))
        return submit(function, *args, **kwargs)

    def scatter_counting(data, *args, **kwargs):
        sent.extend(("once", array) for array in rows_in([data]))
        return scatter(data, *args, **kwargs)

    monkeypatch.setattr(client, "submit", submit_counting)
    monkeypatch.setattr(client, "scatter", scatter_counting)
    with joblib.parallel_config("dask", scatter=[search.X, search.y]):
        parallel = search.run()
    assert [how for how, _ in sent] == ["once"]
    for name, values in serial.cv_results_.items():
        if "time" not in name:
            np.testing.assert_array_equal(parallel.cv_results_[name], values)
    assert bits(parallel.best_estimator_) == bits(serial.best_estimator_)


def test_incremental_of_dask_ml(task):
    X, y = task
    wrapped = Incremental(classifier(max_iter=1, batch_size=25), shuffle_blocks=False)
    plain = classifier(max_iter=1, batch_size=25)
    with dask.config.set(scheduler="synchronous"):
        for name, part in [("a", X), ("b", X[:, ::-1])]:
            labels = da.from_array(y, chunks=(SIZES,))
            wrapped.partial_fit(blocks_of(part), labels, task_id=name, classes=range(10))
            for rows in np.split(np.arange(N), np.cumsum(SIZES)[:-1]):
                plain.partial_fit(part[rows], y[rows], task_id=name, classes=range(10))
    assert plain.task_ids_ == ["a", "b"]
    assert bits(wrapped.estimator_) == bits(plain)
    assert score(wrapped.estimator_, blocks_of(X), y) == plain.score(X, y)


# Workers that die


@pytest.fixture
def mortal():
    """A cluster of its own, which a test may kill workers of."""
    with two_processes() as client:
        yield client


def kill_one_when(path, client):
    """Kill a worker by its own process id as soon as a file is there."""
    pids = sorted(client.run(os.getpid).values())

    def kill():
        while not path.exists():
            time.sleep(0.01)
        os.kill(pids[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, pids


class Telling(EWCClassifier):
    """Says by a file that it has begun to learn, and then takes its time."""

    def __init__(self, path=None, max_iter=5, random_state=0, ewc_lambda=1):
        super().__init__((20,), max_iter=max_iter, random_state=random_state, ewc_lambda=ewc_lambda)
        self.path = path

    def fit(self, X, y, sample_weight=None, task_id=None):
        self.path.touch()
        time.sleep(0.5)
        return super().fit(X, y, sample_weight, task_id)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
def test_a_search_outlives_a_worker(task, mortal, tmp_path):
    X, y = task
    folds = [*StratifiedKFold(3).split(X, y)]

    def search(path):
        grid = {"ewc_lambda": [0, 1, 10]}
        return GridSearchCV(Telling(path), grid, cv=folds, error_score="raise").fit(X, y)

    serial = search(tmp_path / "serial")
    killer, pids = kill_one_when(tmp_path / "begun", mortal)
    # What lies on one worker is lost with it: the folds, were they not scattered to all, and
    # whatever the memory manager thinks need not be on both.
    mortal.amm.stop()
    with joblib.parallel_config("dask", scatter=[X, y, *(i for fold in folds for i in fold)]):
        parallel = search(tmp_path / "begun")
    killer.join()
    assert pids[0] not in mortal.run(os.getpid).values()
    for k in range(3):
        name = f"split{k}_test_score"
        np.testing.assert_array_equal(parallel.cv_results_[name], serial.cv_results_[name])
    assert bits(parallel.best_estimator_._stream) == bits(serial.best_estimator_._stream)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["training", "importance"])
def test_a_task_outlives_a_worker(task, mortal, tmp_path, moment):
    X, y = task
    expected = partial_fit(classifier(), blocks_of(X), y, "a")
    begun, passes = tmp_path / "begun", tmp_path / "passes"
    passes.mkdir()
    loads = 1 + len(SIZES) * (1 if moment == "training" else 3)

    def tell(block):
        (passes / f"{os.getpid()}-{time.perf_counter_ns()}").touch()
        if len([*passes.iterdir()]) >= loads:
            begun.touch()
        time.sleep(0.2)
        return block

    slow = blocks_of(X).map_blocks(tell, meta=np.zeros((0, 0)))
    clf = classifier()
    killer, pids = kill_one_when(begun, mortal)
    partial_fit(clf, slow, y, "a")
    killer.join()
    assert bits(clf) == bits(expected)
    mortal.wait_for_workers(2)
    assert pids[0] not in mortal.run(os.getpid).values()


@pytest.mark.slow
def test_a_task_whose_block_kills_every_worker_never_happened(task, mortal):
    X, y = task
    clf = classifier().partial_fit(X, y, "a")
    before = bits(clf)

    def die(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    with pytest.raises(distributed.KilledWorker):
        partial_fit(clf, blocks_of(X).map_blocks(die, meta=np.zeros((0, 0))), y, "b")
    assert bits(clf) == before
