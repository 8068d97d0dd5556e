"""The same seed gives the same bits; nothing outside the estimator is touched."""

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
import torch
from scipy import sparse
from state import bits

import skewc.dask
from skewc import EWCClassifier

TESTS = Path(__file__).parent
COMMON = {"hidden_layer_sizes": (12,), "max_iter": 3, "random_state": 0}
CASES = {
    "adam": {"fisher": "sample", "fisher_samples": 70, "early_stopping": True},
    "sgd": {"solver": "sgd", "learning_rate": "adaptive", "penalty": "per_task"},
    "lbfgs": {"solver": "lbfgs", "fisher": "empirical", "fisher_scale": "mean"},
    "adam, kronecker": {"curvature": "kronecker", "fisher": "sample"},
    "sgd, kronecker": {"curvature": "kronecker", "solver": "sgd"},
    "lbfgs, kronecker": {"curvature": "kronecker", "solver": "lbfgs", "penalty": "per_task"},
    "random memory": {"memory_size": 20, "memory_selection": "random"},
    "herded memory": {"memory_size": 20, "memory_selection": "herding", "solver": "lbfgs"},
    "discriminant": {"readout": "discriminant", "readout_features": 50},
}


def rows():
    X = np.random.RandomState(0).normal(size=(300, 20))
    return X, np.resize(np.arange(5), 300)


def learn(parameters, X, y, weight=None):
    clf = EWCClassifier(**COMMON, **parameters)
    clf.partial_fit(X, y, "a", sample_weight=weight)
    return clf.partial_fit(X[::-1], y + 1, "b", sample_weight=weight)


def seen(case, n_threads=None):
    """Return the state of an estimator, and its outputs, after learning on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        X, y = rows()
        clf = learn(CASES[case], X, y)
        return bits(clf), clf.predict_proba(X, task_id="a").tobytes()
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def elsewhere():
    """What a fresh process finds, and what workers of loky do; each on one thread and on two."""
    script = "import sys; sys.path[:0] = sys.argv[1:]\nimport pickle, test_determinism as t\n"
    script += "found = {(c, n): t.seen(c, n) for c in t.CASES for n in (1, 2)}\n"
    script += "sys.stdout.buffer.write(pickle.dumps(found))"
    found = subprocess.run(
        [sys.executable, "-c", script, str(TESTS.parent), str(TESTS)],
        env={**os.environ, "PYTHONHASHSEED": "1"}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    jobs = [(case, n) for case in CASES for n in (1, 2)]
    workers = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(seen)(*job) for job in jobs)
    return pickle.loads(found.stdout), dict(zip(jobs, workers, strict=True))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_gives_the_same_bits_in_every_process(elsewhere, case, n_threads):
    here = seen(case, n_threads)
    assert seen(case, n_threads) == here
    for there in elsewhere:
        assert there[case, n_threads] == here


@pytest.mark.parametrize("case", CASES)
def test_global_generators_are_neither_read_nor_moved(case):
    found = []
    for seed in (1, 2):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        states = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
        found.append(seen(case))
        assert random.getstate() == states[0]
        assert np.random.get_state()[1].tobytes() == states[1]
        assert torch.equal(torch.get_rng_state(), states[2])
    assert found[0] == found[1]


def as_read_only(X, folder):
    X = X.copy()
    X.setflags(write=False)
    return X


def as_map(X, folder):
    path = folder / str(len(os.listdir(folder)))
    np.save(path.with_suffix(".npy"), X)
    return np.load(path.with_suffix(".npy"), mmap_mode="r")


@pytest.mark.parametrize("kept_as", [as_read_only, as_map])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_rows_that_cannot_be_written_are_learned_as_any_other(tmp_path, case, form, kept_as):
    X, y = rows()
    X, weight = np.where(np.abs(X) < 0.3, 0, X), np.linspace(1, 2, 300)
    if form == "sparse":
        X = sparse.csr_matrix(X)
    expected = bits(learn(CASES[case], X, y, weight))
    kept = kept_as(X, tmp_path) if form == "dense" else sparse.csr_matrix(X.shape)
    if form == "sparse":
        for name in ("data", "indices", "indptr"):
            setattr(kept, name, kept_as(getattr(X, name), tmp_path))
    y, weight = kept_as(y, tmp_path), kept_as(weight, tmp_path)
    assert bits(learn(CASES[case], kept, y, weight)) == expected


@pytest.mark.parametrize(
    "form", [np.array, np.asfortranarray, sparse.csr_matrix, sparse.csc_matrix]
)
@pytest.mark.parametrize("case", CASES)
def test_training_rows_are_not_modified(case, form):
    X, y = rows()
    X, weight = form(X), np.linspace(1, 2, 300)
    before = pickle.dumps((X, y, weight))
    clf = learn(CASES[case], X, y, weight)
    for predict in (clf.predict_proba, clf.predict_log_proba, clf.decision_function):
        predict(X, task_id="a")
    assert pickle.dumps((X, y, weight)) == before


@pytest.mark.parametrize("case", ["adam", "lbfgs, kronecker", "random memory"])
@pytest.mark.parametrize("kept_as", [as_read_only, as_map])
def test_blocks_that_cannot_be_written_are_learned_as_any_other(tmp_path, case, kept_as):
    X, y = rows()
    before, found = X.copy(), []
    for whole in X, kept_as(X, tmp_path):
        parts = [whole[:120], whole[120:]]  # as they are: from_array would copy them
        blocks = [da.from_delayed(dask.delayed(part), part.shape, part.dtype) for part in parts]
        clf = EWCClassifier(**COMMON, **CASES[case])
        for name in ("a", "b"):
            skewc.dask.partial_fit(clf, da.concatenate(blocks), y, name)
        found.append(bits(clf))
    assert found[0] == found[1]
    np.testing.assert_array_equal(X, before)
