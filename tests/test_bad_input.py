"""Whatever comes in is refused by a sentence that names it, or learned and predicted well."""

import copy
import pickle
import re
import warnings
from decimal import Decimal
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

import skewc.dask
from skewc import EWCClassifier

N, N_FEATURES = 12, 3
Y = np.resize([0, 1, 2], N)
X = np.random.RandomState(0).normal(size=(N, N_FEATURES)) + 4 * np.eye(3)[Y]
PARAMETERS = [
    {},
    {"solver": "lbfgs", "curvature": "kronecker"},
    {"solver": "sgd", "readout": "discriminant", "readout_features": 5},
    {"memory_size": 5, "memory_selection": "random"},
    {"memory_size": 5, "memory_selection": "herding", "class_weight": "balanced"},
]
# What a message must name, for each thing handed over.
NAMED = {
    "X": r"\bX\b|input data",
    "y": r"\by\b",
    "sample_weight": "sample_weight",
    "task_id": "task_id",
    "classes": "classes",
}


def estimator(parameters):
    defaults = {"hidden_layer_sizes": (4,), "max_iter": 2, "random_state": 0}
    return EWCClassifier(**{**defaults, "n_iter_no_change": 100, **parameters})


def learn(begun, dtype, closed, parameters):
    clf = estimator(parameters)
    if begun:
        clf.partial_fit(X.astype(dtype), Y, "a", classes=[0, 1, 2] if closed else None)
    return clf


with warnings.catch_warnings():
    # Not under test: these calls make the estimators, some in too few iterations of L-BFGS.
    warnings.simplefilter("ignore", ConvergenceWarning)
    STATES = [
        (closed, learn(begun, dtype, closed, parameters))
        for parameters in PARAMETERS
        for begun, dtype, closed in [(False, "f8", False), (True, "f4", False), (True, "f8", True)]
    ]

# Scalars of every kind, the good among the bad.

huge = st.sampled_from([1e18, 1e150, 1e300, 1.7e308, -1.7e308, 3e38, 2.0**63, 10**400, -(10**30)])
tiny = st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-45, 1e-20])
strange = st.sampled_from(
    [
        None, pd.NA, pd.NaT, np.nan, float("inf"), -np.inf, "a", "", "é", b"a", 1j, {}, [], [1],
        (1, 2), {1}, object(), True, np.bool_(False), np.float16(3), np.longdouble("1e4000"),
        np.datetime64("2020"), np.datetime64("NaT"), np.timedelta64(1, "s"), Decimal("1.5"),
        np.str_("b"), pd.Timestamp("2020"), range(3), np.array(1), np.array([1, 2]), len, 2**64,
    ]
)  # fmt: skip
ordinary = st.sampled_from([0, 1, 2, 3, -1, 0.5, 2.0])
scalars = st.one_of(ordinary, huge, tiny, strange)
DTYPES = [
    "f2", "f4", "f8", "g", "i1", "i8", "u1", "u8", "?", "c8", "c16", "S3", "U3", "O", "M8[s]",
    "m8[s]", ">f8", "V3", [("a", "f8"), ("b", "i4")],
]  # fmt: skip
PANDAS = ["Float64", "Int64", "boolean", "string", "category", "object", "float32"]
FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]


def or_as_it_is(convert, values):
    """Convert what can be; what cannot is handed over unconverted."""
    try:
        with warnings.catch_warnings():
            # numpy, scipy and pandas warn of conversions that lose something: here they make
            # the bad input, before any code under test is called.
            warnings.simplefilter("ignore")
            return convert(values)
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        return values


@st.composite
def spoiled(draw, good):
    """An array like `good` with some entries replaced, as any type and in any container."""
    values = good.astype(object)
    which = draw(st.sampled_from(["none", "one", "all"]))
    if which == "one":
        flat = [*values.ravel()]
        flat[draw(st.integers(0, values.size - 1))] = draw(scalars)
        values = objects(flat, values.shape)
    elif which == "all":
        values = objects([draw(scalars)] * values.size, values.shape)
    shape = draw(
        st.sampled_from(
            ["same", "same", "short", "empty", "narrow", "ravel", "column", "deep", "row"]
        )
    )
    values = {
        "same": values, "short": values[:-1], "narrow": values[..., :-1], "empty": values[:0],
        "ravel": values.ravel(), "column": values[..., None], "deep": values[None],
        "row": values.reshape(1, -1),
    }[shape]  # fmt: skip
    if which == "none":
        values = values.astype(good.dtype)
    container = draw(
        st.sampled_from(["array", "dtype", "list", "masked", "pandas", "sparse", "view"])
    )
    if container == "dtype":
        return or_as_it_is(lambda v: v.astype(draw(st.sampled_from(DTYPES))), values)
    if container == "list":
        return values.tolist()
    if container == "masked":
        mask = np.zeros(values.shape, bool)
        mask.flat[:1] = draw(st.booleans())
        return np.ma.array(values, mask=mask)
    if container == "pandas":
        dtype = draw(st.sampled_from(PANDAS))
        frame = pd.Series if values.ndim == 1 else pd.DataFrame
        values = or_as_it_is(lambda v: frame(v).astype(dtype), or_as_it_is(frame, values))
        names = draw(st.sampled_from([None, None, "abc", ["a", 1, "c"], ["a", "a", "b"]]))
        if names is not None and values.ndim == 2 and values.shape[1] == 3:
            values = pd.DataFrame(values)
            values.columns = [*names]
        return values
    if container == "sparse":
        kind, of = draw(st.sampled_from(FORMATS)), draw(st.sampled_from(["f8", "f4", "i8", "c16"]))
        return or_as_it_is(lambda v: sparse.coo_array(v.astype(of)).asformat(kind), values)
    if container == "view":
        return np.repeat(values, 2, axis=0)[::2][::-1][::-1]
    return values


def objects(flat, shape):
    values = np.empty(len(flat), dtype=object)
    values[:] = [None] * len(flat)
    for i, value in enumerate(flat):
        values[i] = value
    return values.reshape(shape)


FEATURE_NAMES = "X (has|does not have valid) feature names"
IDS = np.repeat(["a", "b"], N // 2)
GOOD = {"X": X, "y": Y, "sample_weight": np.ones(N), "task_id": IDS, "classes": np.arange(3)}


def accepted(clf, call, weights):
    """Whether the call went well; if not, say that it was told as it must be."""
    try:
        with warnings.catch_warnings():
            # These three are what scikit-learn tells users; all other warnings are errors.
            warnings.simplefilter("ignore", DataConversionWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", FEATURE_NAMES)
            call()
    except (TypeError, ValueError) as error:
        assert re.search("|".join(weights), str(error)), f"names none of {weights}: {error!r}"
        assert len(str(error)) > 30, f"says too little: {error!r}"
        return False
    return True


def check(data):
    closed, start = data.draw(st.sampled_from(STATES))
    clf, before = copy.deepcopy(start), pickle.dumps(vars(start))
    names = data.draw(st.sampled_from([[n] for n in GOOD] + [["X", "y"], ["y", "classes"]]))
    given_ = {"X": X, "y": Y}
    for name in names:
        alone = name not in "Xy" and data.draw(st.integers(0, 2)) == 0
        given_[name] = data.draw(scalars if alone else spoiled(GOOD[name]))
    named, hopeless = [NAMED[name] for name in names], any(map(is_hopeless, given_.values()))
    rows = {name: given_[name] for name in ("X", "task_id") if name in given_}
    predicts = {*names} <= {*rows} and "_stream" in vars(clf)
    predicts = predicts and data.draw(st.booleans())
    if predicts:
        well = accepted(clf, lambda: predictions_are_right(clf, **rows), named)
    else:
        learn, how = clf.partial_fit, data.draw(st.sampled_from(["fit", "partial_fit", "blocks"]))
        if how == "fit" and "classes" not in names:
            learn, closed = clf.fit, False
        elif how == "blocks" and (clf.memory_size == 0 or clf.memory_selection == "random"):
            given_["X"] = or_as_it_is(in_blocks, given_["X"])
            if dask.is_dask_collection(given_["X"]):
                learn = partial(skewc.dask.partial_fit, clf)
        well = accepted(clf, lambda: learn(**given_), named)
    assert not (well and hopeless)
    if predicts or not well:
        assert pickle.dumps(vars(clf)) == before
    else:
        assert not closed or clf.classes_.tolist() == [0, 1, 2]
        predictions_are_right(clf, X[:, : clf.n_features_in_].astype("f4"), clf.task_ids_[-1])


def in_blocks(values):
    """Return blocks that Dask loads, the last shorter than the others."""
    if isinstance(values, pd.DataFrame):
        return dd.from_pandas(values, chunksize=5, sort=False)
    if not isinstance(values, np.ndarray) or values.ndim != 2:
        raise TypeError
    return da.from_array(values, chunks=5)


def is_hopeless(values):
    """Whether some values are masked, complex, NaN or infinite."""
    if np.ma.is_masked(values):
        return True
    values = values.tocoo().data if sparse.issparse(values) else values
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fc":
        return False
    return values.dtype.kind == "c" or not np.isfinite(values).all()


def predictions_are_right(clf, X, task_id=None):
    with warnings.catch_warnings():
        # What users are told of rows without names, and of tasks whose id is withheld.
        warnings.filterwarnings("ignore", FEATURE_NAMES)
        warnings.filterwarnings("ignore", "The tasks have different classes")
        proba, log_proba, decision, predicted = (
            getattr(clf, name)(X, task_id=task_id)
            for name in ("predict_proba", "predict_log_proba", "decision_function", "predict")
        )
    assert np.isfinite(proba).all() and (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    assert not np.isnan(log_proba).any() and not np.isnan(decision).any()
    assert np.isin(predicted, clf.classes_).all()
    np.testing.assert_array_equal(predicted, clf.classes_[proba.argmax(axis=1)])


RULES = {
    "deadline": 20_000,  # milliseconds; none may hang
    "derandomize": True,
    "database": None,
    "suppress_health_check": [*HealthCheck],
}


@settings(max_examples=200, **RULES)
@given(data=st.data())
def test_bad_input_is_named_and_good_input_works(data):
    check(data)


@pytest.mark.slow
@settings(max_examples=6000, **RULES)
@given(data=st.data())
def test_much_bad_input_is_named_and_good_input_works(data):
    check(data)


@pytest.mark.parametrize("name", GOOD)
def test_masked_entries_are_refused(name):
    masked = np.ma.array(GOOD[name], mask=np.zeros(GOOD[name].shape))
    estimator({}).partial_fit(**{"X": X, "y": Y, name: masked})
    masked.mask.flat[1] = True
    with pytest.raises(ValueError, match=f"{name} has masked entries"):
        estimator({}).partial_fit(**{"X": X, "y": Y, name: masked})


def test_declared_numbers_are_none_for_strings_whatever_holds_them():
    with pytest.raises(ValueError, match="`y` has strings as labels"):
        estimator({}).partial_fit(X, Y.astype(str), classes=np.array([0, 1, 2], dtype=object))


@pytest.mark.parametrize(
    "classes",
    [
        [0, "1", 2],
        objects([0, "1", 2], (3,)),
        objects([[], [], []], (3,)),
        objects([Decimal(0), Decimal(1), Decimal(2)], (3,)),
        [0, 1, 2, np.nan],
        [],
    ],
)
@pytest.mark.parametrize("y", [Y, Y.astype(str)])
def test_declared_classes_are_all_numbers_or_all_strings(classes, y):
    with pytest.raises(ValueError, match="classes must be a one-dimensional"):
        estimator({}).partial_fit(X, y, classes=classes)


def test_weights_that_make_the_loss_overflow_are_named():
    weights = np.where(np.arange(N), 1, 1.7e308)
    with pytest.raises(ValueError, match="sample_weight or learning_rate_init is too large"):
        estimator({}).partial_fit(X, Y, sample_weight=weights)


def test_features_that_overflow_are_those_of_x():
    clf = estimator({"readout": "discriminant", "readout_features": 5})
    with pytest.raises(ValueError, match=r"\bX\b overflow float64"):
        clf.partial_fit(np.full_like(X, -1.7e308), Y)


def test_a_table_of_categories_that_are_no_ids_is_named():
    ids = pd.DataFrame(objects([range(3)] + ["a"] * (N - 1), (1, N))).astype("category")
    with pytest.raises(ValueError, match="task_id must hold one id for each row"):
        estimator({}).partial_fit(X, Y, task_id=ids)


@pytest.mark.parametrize("one", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, object])
def test_an_id_is_a_finite_number_or_a_string(one, dtype):
    for task_id in (one, np.full(N, one, dtype), np.where(Y, 1.0, one).astype(dtype)):
        with pytest.raises(ValueError, match="task_id holds NaN or a missing value, or infinity"):
            estimator({}).partial_fit(X, Y, task_id=task_id)
