"""With ``memory_size=0``, the default, no training row is left in an estimator."""

import gc
import pickle
import types
import weakref

import dask
import dask.array as da
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import sparse

import skewc.dask
from skewc import EWCClassifier

N, FEATURES = 61, 5  # no layer, nor anything else, is as long as there are rows
CASES = {
    "adam": {},
    "sgd": {"solver": "sgd", "early_stopping": True, "validation_fraction": 0.2},
    "lbfgs": {"solver": "lbfgs", "penalty": "per_task"},
    "kronecker": {"curvature": "kronecker"},
    "kronecker, lbfgs": {"curvature": "kronecker", "solver": "lbfgs", "class_weight": "balanced"},
    "discriminant": {"readout": "discriminant", "readout_features": 30},
}


def reachable(*roots):
    """Every object that the garbage collector finds below some, code and modules apart."""
    found, queue = {}, [*roots]
    while queue:
        thing = queue.pop()
        if id(thing) in found or isinstance(
            thing, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType
        ):
            continue
        found[id(thing)] = thing
        queue += gc.get_referents(thing)
        if isinstance(thing, np.ndarray) and thing.base is not None:
            queue.append(thing.base)
    return found.values()


def leaks(clf, X, y, weight):
    """Say what of the rows, labels and weights an estimator still holds."""
    numbers = np.concatenate([X.ravel(), weight])
    numbers = np.concatenate([numbers, numbers.astype(np.float32)])
    for thing in reachable(clf):
        if isinstance(thing, torch.Tensor):  # the owner of an array's numbers, and maybe of more
            whole = torch.empty(0, dtype=thing.dtype).set_(thing.untyped_storage())
            thing = whole.numpy()
        if isinstance(thing, np.ndarray):
            if N in thing.shape:
                yield f"an array of shape {thing.shape}"
            if thing.dtype.kind == "f" and np.isin(thing, numbers).any():
                yield "a number of a row"
        if isinstance(thing, float) and thing in numbers:
            yield "a number of a row"
        if isinstance(thing, list | tuple | dict | set) and len(thing) == N:
            yield f"a {type(thing).__name__} as long as the labels"
    written = pickle.dumps(clf)
    for one in (*X, *X.ravel(), *weight, y):
        for dtype in (np.float64, np.float32) if one.dtype.kind == "f" else (np.int64, np.int8):
            if np.asarray(one, dtype).tobytes() in written:
                yield "bytes in the pickle"


def rows():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N, FEATURES))
    return X, rng.randint(0, 3, size=N), rng.uniform(1, 2, size=N)


def in_blocks(X):
    return da.from_array(X, chunks=(23, FEATURES))


def learn(clf, X, *args, **kwargs):
    if dask.is_dask_collection(X):
        return skewc.dask.partial_fit(clf, X, *args, **kwargs)
    return clf.partial_fit(X, *args, **kwargs)


def learned(form, **parameters):
    X, y, weight = rows()
    clf = EWCClassifier((7,), max_iter=3, random_state=0, **parameters)
    learn(clf, form(X), y, "a", sample_weight=weight)
    return learn(clf, form(-X[:, ::-1]), y + 1, "b", sample_weight=weight)


@pytest.mark.parametrize("form", [np.array, sparse.csr_matrix, in_blocks])
@pytest.mark.parametrize("case", CASES)
def test_no_row_and_no_labels_are_reachable(case, form):
    X, y, weight = rows()
    clf = learned(form, **CASES[case])
    clf.predict_proba(form(X), task_id="a")
    assert not [*leaks(clf, X, y, weight)]
    assert not [*leaks(clf, -X[:, ::-1], y + 1, weight)]


@pytest.mark.parametrize("form", [np.array, sparse.csr_matrix])
def test_a_memory_is_found_out(form):
    found = {*leaks(learned(form, memory_size=5), *rows())}
    assert found == {"a number of a row", "bytes in the pickle"}


@pytest.mark.parametrize("kept", ["labels", "weights", "row numbers"])
def test_vectors_are_found_out(kept):
    X, y, weight = rows()
    clf = learned(np.array)
    clf.kept = {"labels": y, "weights": [*weight], "row numbers": np.arange(N)}[kept]
    assert [*leaks(clf, X, y, weight)]


@pytest.mark.parametrize(
    "call", [EWCClassifier.fit, EWCClassifier.partial_fit, skewc.dask.partial_fit]
)
@pytest.mark.parametrize("case", CASES)
def test_nothing_outside_the_estimator_keeps_the_rows_either(case, call):
    X, y, weight = rows()
    clf = EWCClassifier((7,), tol=1e9, n_iter_no_change=1, random_state=0, **CASES[case])
    call(clf, in_blocks(X) if call is skewc.dask.partial_fit else X, y, sample_weight=weight)
    alive = [weakref.ref(array) for array in (X, y, weight)]
    del X, y, weight
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


def test_statistics_of_a_single_row_reveal_it():
    """What the guide warns of."""
    X = rows()[0][:1]
    one, classes = {"max_iter": 2, "active_classes": "all"}, {"classes": [0, 1]}
    kronecker = EWCClassifier((7,), curvature="kronecker", random_state=0, **one)
    factor = kronecker.partial_fit(X, [0], "a", **classes)._stream.importance[0]
    assert_allclose(factor[-1, :-1], X[0], rtol=1e-12)
    diagonal = EWCClassifier((7,), random_state=0, **one).partial_fit(X, [0], "a", **classes)
    importance = diagonal.coef_importances_[0].sum(axis=1)
    assert_allclose(importance / importance[0], (X[0] / X[0, 0]) ** 2, rtol=1e-12)
    parameters = {"readout": "discriminant", "readout_features": 30}
    clf = EWCClassifier((7,), random_state=0, **parameters, **one)
    readout = clf.partial_fit(X, [0], "a", **classes)._stream.readout
    mean, R = readout.means[0], readout.projection
    on = mean > 0
    assert_allclose(
        np.linalg.lstsq(R[:-1, on].T, (mean - R[-1])[on], rcond=None)[0], X[0], rtol=1e-9
    )
