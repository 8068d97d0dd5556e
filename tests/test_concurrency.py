"""Many threads at one estimator, and many tasks through it."""

import os
import pickle
import resource
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from skewc import EWCClassifier

METHODS = ["predict", "predict_proba", "predict_log_proba", "decision_function"]


def blobs(classes, n=60, seed=0):
    rng = np.random.RandomState(seed)
    y = np.resize(classes, n)
    return np.random.RandomState(9).normal(scale=3, size=(20, 6))[y] + rng.normal(size=(n, 6)), y


def small(**parameters):
    defaults = {"hidden_layer_sizes": (16,), "max_iter": 3, "n_iter_no_change": 100}
    extras = {"memory_size": 20, "readout": "discriminant", "readout_features": 20}
    return EWCClassifier(
        **{**defaults, **extras, "batch_size": 20, "random_state": 0, **parameters}
    )


@pytest.fixture
def often_switched():
    """Let Python switch threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    "parameters", [{}, {"readout": "softmax"}], ids=["discriminant", "softmax"]
)
def test_eight_threads_predict_what_one_does(often_switched, parameters):
    X, y = blobs([0, 1, 2, 3])
    clf = small(**parameters).partial_fit(X, y, "a")
    before = pickle.dumps(vars(clf))
    parts = [X[k::8] + k for k in range(8)]
    calls = [(name, k, task_id) for name in METHODS for k in range(8) for task_id in (None, "a")]
    expected = {
        call: getattr(clf, call[0])(parts[call[1]], task_id=call[2]).tobytes() for call in calls
    }
    barrier = threading.Barrier(8)

    def predict(seed):
        barrier.wait(30)
        for i in np.random.RandomState(seed).permutation(np.repeat(np.arange(len(calls)), 2)):
            name, k, task_id = calls[i]
            found = getattr(clf, name)(parts[k], task_id=task_id).tobytes()
            if found != expected[calls[i]]:
                return calls[i]

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(predict, range(8))] == [None] * 8
    assert pickle.dumps(vars(clf)) == before


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize(
    "parameters", [{}, {"readout": "softmax"}], ids=["discriminant", "softmax"]
)
def test_predictions_while_learning_are_of_before_or_after(often_switched, solver, parameters):
    """Each task brings new classes, so a mixture would even differ in shape."""
    tasks = [blobs([k, k + 1], seed=k) for k in range(6)]
    X = blobs([0, 3, 6])[0][:10]
    known = []
    clf = small(solver=solver, **parameters)
    for n in range(6):
        clf.partial_fit(*tasks[n])
        known.append({name: getattr(clf, name)(X).tobytes() for name in METHODS})
    clf = small(solver=solver, **parameters).partial_fit(*tasks[0])
    done, begun = threading.Event(), threading.Barrier(5)

    def predict(name):
        last = 0
        begun.wait(30)
        while not done.is_set():
            found = getattr(clf, name)(X).tobytes()
            states = [n for n in range(last, 6) if known[n][name] == found]
            assert states, "neither the state seen last nor a later one"
            last = states[0]

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(predict, name) for name in METHODS]
        begun.wait(30)
        try:
            for task in tasks[1:]:
                clf.partial_fit(*task)
        finally:
            done.set()
        for future in running:
            future.result(60)
    assert {name: getattr(clf, name)(X).tobytes() for name in METHODS} == known[-1]


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_estimators_learn_beside_one_another(often_switched, solver):
    tasks = [blobs([k, k + 1, k + 2], seed=k) for k in range(3)]

    def learn(seed):
        clf = small(solver=solver, random_state=seed)
        for task in tasks:
            clf.partial_fit(*task)
        return pickle.dumps(vars(clf))

    before = torch.get_num_threads()
    expected = [learn(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(learn, range(8))] == expected
    assert torch.get_num_threads() == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
def test_five_hundred_tasks_leave_nothing_behind(solver, curvature):
    """The state grows by a task's id and classes only; the process does not grow at all."""
    clf = small(solver=solver, curvature=curvature, memory_selection="herding")
    sizes, resident, leaks = [], [], []
    for k in range(500):
        X, y = blobs([k % 20, (7 * k + 1) % 20, (3 * k + 2) % 20], n=30, seed=k)
        clf.partial_fit(X, y, task_id=k)
        clf.predict(X)
        bare = replace(clf._stream, task_ids=(), task_classes=(), open_task=None)
        sizes.append(len(pickle.dumps(bare)))
        leaks.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
        resident.append(
            int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        )
    assert len(clf.classes_) == 20 and len(clf.task_ids_) == 500
    assert max(sizes[100:]) - min(sizes[100:]) < 1000  # integers of more bytes
    assert {*leaks[5:]} == {leaks[-1]}
    # Not the peak, which tests before this one may have set.
    slope = np.polyfit(np.arange(300), resident[200:], 1)[0]
    assert slope < X.nbytes, "bytes; less than the rows of a task"
