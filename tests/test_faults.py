"""Whatever stops a call, wherever in it, the estimator is what it was before.

A trace function numbers what happens in skewc's own code: each call, each line, each return.
One pass counts; then a fault is raised at a chosen number. So no stage can be forgotten.
"""

import copy
import functools
import inspect
import itertools
import linecache
import pickle
import sys
import uuid
from pathlib import Path
from unittest import mock

import dask
import dask.array as da
import numpy as np
import pytest
import torch
from scipy import sparse

import skewc
import skewc._training
import skewc.dask
from skewc import EWCClassifier

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PACKAGE = str(Path(skewc.__file__).parent)
RNG = np.random.RandomState(0)
X, Y = RNG.normal(size=(40, 4)), np.resize([0, 1, 2], 40)
X += 3 * np.eye(3, 4)[Y]
NEW = np.where(Y == 1, 5, Y)  # of class 5 nothing was learned
IDS = np.repeat(["a", "b"], 20)
WEIGHTS = RNG.uniform(0.5, 2, size=40)


class Fault:
    """While it is entered, raise `error` at event number `n` of skewc's code; count if None."""

    def __init__(self, n=None, error=None):
        self.n, self.error, self.places, self._entered = n, error, [], set()

    def __enter__(self):
        self._previous = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info):
        sys.settrace(self._previous)

    def _trace(self, frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        if event == "call":
            self._entered = {key for key in self._entered if key[0] != id(frame)}
        if event == "exception" or (event == "line" and self._leaves_with(frame)):
            return self._trace
        # A generator returns whenever it yields; and when it is called it may be to be closed
        # by Python, which heeds no error. Its lines count.
        if event in ("call", "return") and code.co_flags & inspect.CO_GENERATOR:
            return self._trace
        self.places.append((Path(code.co_filename).stem, code.co_name, event, frame.f_lineno))
        if len(self.places) == self.n:
            raise self.error
        return self._trace

    def _leaves_with(self, frame):
        """Whether the line is a `with` that the frame has met before.

        Python comes back to it just before it calls __exit__, where it hears no signal.
        """
        key = id(frame), frame.f_lineno
        if not is_with(frame.f_code.co_filename, frame.f_lineno):
            return False
        met = key in self._entered
        self._entered.add(key)
        return met


@functools.cache
def is_with(filename, line):
    return linecache.getline(filename, line).lstrip().startswith("with ")


def estimator(kept, **parameters):
    """Few epochs; `kept` are what an estimator may keep of the rows, and other extras."""
    defaults = {
        "hidden_layer_sizes": (4,),
        "max_iter": 2,
        "batch_size": 8,
        "ewc_lambda": 1.0,
        "n_iter_no_change": 100,
        "random_state": 0,
    }
    extras = {
        "memory_size": 6,
        "readout": "discriminant",
        "readout_features": 5,
        "penalty": "per_task",
        "fisher": "sample",
        "fisher_samples": 10,
        "early_stopping": True,
        "validation_fraction": 0.4,
        "class_weight": "balanced",
        "random_state": np.random.RandomState(0),
    }
    return EWCClassifier(**{**defaults, **(extras if kept else {}), **parameters})


def first_fit(clf, kept):
    clf.fit(sparse.csr_matrix(X) if kept else X, Y, WEIGHTS if kept else None, IDS)


def warm_fit(clf, kept):
    clf.fit(X, Y, WEIGHTS if kept else None)


def next_tasks(clf, kept):
    """Another chunk of a known task, and a new task; a class joins."""
    clf.partial_fit(X, NEW, IDS, sample_weight=WEIGHTS if kept else None)


def next_tasks_in_blocks(clf, kept):
    """The same from blocks that Dask loads: one task from three of them, one from two."""
    blocks = da.from_array(X, chunks=((9, 9, 7, 15), 4))
    keys = itertools.count()  # which settle the order in which Dask sums up blocks
    unique = mock.patch("uuid.uuid4", lambda: uuid.UUID(int=next(keys)))
    with unique, dask.config.set(scheduler="synchronous"):
        skewc.dask.partial_fit(clf, blocks, NEW, IDS, sample_weight=WEIGHTS if kept else None)


CASES = {
    f"{call.__name__}-{solver}-{curvature}-{'kept' if kept else 'plain'}": (
        call,
        kept,
        {"solver": solver, "curvature": curvature},
    )
    for solver in ("adam", "sgd", "lbfgs")
    for curvature in ("diagonal", "kronecker")
    for kept in (False, True)
    for call in (next_tasks, next_tasks_in_blocks, warm_fit if kept else first_fit)
}


def started(call, kept, parameters):
    """Return an estimator about to be called."""
    selection = "random" if call is next_tasks_in_blocks else "herding"
    clf = estimator(kept, warm_start=call is warm_fit, memory_selection=selection, **parameters)
    return clf if call is first_fit else clf.partial_fit(X, Y, task_id="a")


def everything(clf):
    """All that a call may change, as bytes; and what is torch's."""
    return pickle.dumps(vars(clf)), torch.get_num_threads(), len(skewc._training._holders)


@pytest.fixture(autouse=True)
def three_threads():
    """Let torch have a number of threads that training changes."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def check(case, numbers_of, rng):
    """Let the call of `case` fail at the numbers that `numbers_of` chooses of its places."""
    call, kept, parameters = CASES[case]
    start = started(call, kept, parameters)
    undisturbed = copy.deepcopy(start)
    with Fault() as counted:
        call(undisturbed, kept)
    after = everything(undisturbed)
    numbers = numbers_of(counted.places)
    for n in numbers:
        error, clf = rng.choice([KeyboardInterrupt, MemoryError]), copy.deepcopy(start)
        before = everything(clf)
        with pytest.raises(error), Fault(n, error) as fault:
            call(clf, kept)
        place = fault.places[-1]
        assert fault.places == counted.places[:n]
        if everything(clf) == before:
            call(clf, kept)
        else:  # too late: all was done
            assert place[1] in ("_commit", "fit", "partial_fit"), place
        assert everything(clf) == after, place
    return len(numbers)


def everywhere(places, rng):
    """At every place when first met, and when met some other time."""
    met = {}
    for n, place in enumerate(places, start=1):
        met.setdefault(place, []).append(n)
    return sorted({n for numbers in met.values() for n in (numbers[0], rng.choice(numbers))})


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_fails_never_happened(case, rng):
    def some(places):
        return rng.choice(everywhere(places, rng), 2, replace=False)

    assert check(case, some, rng) == 2


@pytest.mark.parametrize("case", ["next_tasks-adam-diagonal-kept", "first_fit-adam-diagonal-plain"])
def test_no_line_of_a_commit_or_of_changing_threads_may_be_stopped_halfway(case, rng):
    def delicate(places):
        functions = ("_commit", "one_thread", "_hold", "_let_go")
        return [n for n in everywhere(places, rng) if places[n - 1][1] in functions]

    assert check(case, delicate, rng) > 30


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_call_that_fails_anywhere_never_happened(case, rng):
    def many(places):
        return rng.choice(everywhere(places, rng), 50, replace=False)

    assert check(case, many, rng) == 50


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize(
    "kept, curvature, poisoned",
    [
        (False, "diagonal", "skewc._objective.nll_and_delta"),
        (True, "diagonal", "skewc._objective.nll_and_delta"),
        (False, "diagonal", "skewc._curvature.label_distributions"),
        (True, "diagonal", "skewc._curvature.label_vectors"),
        (False, "kronecker", "skewc._objective.nll_and_delta"),
        (False, "kronecker", "skewc._curvature.label_distributions"),
        (True, "kronecker", "skewc._curvature.label_vectors"),
    ],
)
def test_what_is_not_finite_never_enters(solver, kept, curvature, poisoned, monkeypatch):
    where, name = poisoned.rsplit(".", 1)
    module = sys.modules[where]
    original, calls, bad = getattr(module, name), 0, np.inf

    def poison(*args, **kwargs):
        nonlocal calls
        calls += 1
        result = original(*args, **kwargs)
        if calls >= bad:  # once is nothing to L-BFGS, which takes a shorter step
            for part in result if isinstance(result, tuple) else (result,):
                part *= np.nan
        return result

    monkeypatch.setattr(module, name, poison)
    start = started(next_tasks, kept, {"solver": solver, "curvature": curvature})
    calls, good = 0, copy.deepcopy(start)
    next_tasks(good, kept)
    after, n_calls = everything(good), calls
    for bad in range(1, n_calls + 1):
        calls, clf = 0, copy.deepcopy(start)
        before = everything(clf)
        with pytest.raises(ValueError, match="as it was before this call"):
            next_tasks(clf, kept)
        assert everything(clf) == before
        bad = np.inf
        next_tasks(clf, kept)
        assert everything(clf) == after
    assert n_calls >= 2


def spoiled(block):
    """Return what may come in place of a block."""
    return [
        OSError("no such block"),
        np.where(block == block[-1, -1], np.nan, block),
        block[:, 1:],
        block[1:],
        block[:, None].astype(str),
        sparse.csr_matrix(block)[:, [0, 1, 2, 3, 3]],
    ]


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
def test_a_block_that_is_other_whenever_loaded_changes_nothing(solver, curvature):
    loads, bad, instead = 0, None, None

    def load(block):
        nonlocal loads
        loads += 1
        if loads != bad:
            return block
        if isinstance(instead, OSError):
            raise instead
        return instead

    def learn(clf):
        nonlocal loads
        loads = 0
        parts = [da.from_delayed(dask.delayed(load)(x), x.shape, x.dtype) for x in np.split(X, 4)]
        with dask.config.set(scheduler="synchronous"):
            skewc.dask.partial_fit(clf, da.concatenate(parts), NEW, "b")

    start = estimator(False, solver=solver, curvature=curvature).partial_fit(X, Y, "a")
    good = copy.deepcopy(start)
    learn(good)
    n_loads = loads
    for n in range(1, n_loads + 1):
        instead = spoiled(X[:10])[(n + len(solver + curvature)) % 6]
        bad, clf = n, copy.deepcopy(start)
        before = everything(clf)
        with pytest.raises((OSError, ValueError), match="such block|X must|[Bb]lock"):
            learn(clf)
        assert everything(clf) == before
        bad = None
        learn(clf)
        assert everything(clf) == everything(good)
    assert n_loads >= 12
