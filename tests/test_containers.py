"""pandas and polars in, wherever rows, labels, ids and weights are taken."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skewc import EWCClassifier
from skewc.datasets import (
    Task,
    make_drift_tasks,
    make_permuted_tasks,
    make_rotated_tasks,
    make_split_tasks,
    stack_tasks,
)
from skewc.metrics import average_task_accuracy
from skewc.model_selection import TaskScorer, TaskStratifiedKFold, evaluate_stream

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"  # two epochs are few
)
N = 60
X = np.random.RandomState(0).normal(size=(N, 4))
CODES = np.arange(N) // 2 % 3
NAMES = np.array(["ape", "bee", "cat"])[CODES]
Y = np.arange(N) % 2
FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "pandas Float64": lambda X: pd.DataFrame(X, columns=list("abcd")).astype("Float64"),
    "polars": lambda X: pl.DataFrame(X, schema=list("abcd")),
}
NUMBERS = {
    "list": list,
    "int64": pd.Series,
    "Int64": lambda v: pd.Series(v, dtype="Int64"),
    "Int64, other index": lambda v: pd.Series(v, dtype="Int64", index=np.arange(N)[::-1]),
    "array of Int64": lambda v: pd.array(v, dtype="Int64"),
    "category": lambda v: pd.Series(v, dtype="category"),
    "polars": pl.Series,
}
STRINGS = {
    "list": list,
    "object": lambda v: pd.Series(v, dtype=object),
    "str": lambda v: pd.Series(v, dtype=str),
    "string": lambda v: pd.Series(v, dtype="string"),
    "category": lambda v: pd.Series(v, dtype="category"),
    "Categorical": pd.Categorical,
    "Index": pd.Index,
    "polars": pl.Series,
    "polars Categorical": lambda v: pl.Series(v, dtype=pl.Categorical),
    "polars Enum": lambda v: pl.Series(v, dtype=pl.Enum(["ape", "bee", "cat"])),
}
COLUMNS = [(CODES, kind) for kind in NUMBERS.items()] + [(NAMES, kind) for kind in STRINGS.items()]
column = pytest.mark.parametrize(
    ("plain", "kind"),
    [(plain, make) for plain, (_, make) in COLUMNS],
    ids=[f"{plain.dtype.kind} {name}" for plain, (name, _) in COLUMNS],
)
MISSING = {
    "None": [None, *NAMES[1:]],
    "NaN": np.array([np.nan, *CODES[1:]]),
    "Int64": pd.Series([pd.NA, *CODES[1:]], dtype="Int64"),
    "string": pd.Series([pd.NA, *NAMES[1:]], dtype="string"),
    "object": pd.Series([pd.NA, *NAMES[1:]], dtype=object),
    "category": pd.Series([None, *NAMES[1:]], dtype="category"),
    "polars": pl.Series([None, *CODES[1:].tolist()]),
    "polars strings": pl.Series([None, *NAMES[1:].tolist()]),
}
missing = pytest.mark.parametrize("bad", MISSING.values(), ids=MISSING)


def small():
    return EWCClassifier((4,), max_iter=2, random_state=0)


def fold_rows(y, ids):
    folds = TaskStratifiedKFold(3, shuffle=True, random_state=0).split(X, y, ids)
    return [test.tolist() for _, test in folds]


@column
def test_ids(plain, kind):
    clf = small().partial_fit(X, Y, task_id=kind(plain))
    expected = small().fit(X, Y, task_id=plain)
    assert clf.task_ids_ == expected.task_ids_ == np.unique(plain).tolist()
    assert_array_equal(clf.coefs_[0], expected.coefs_[0])
    assert_array_equal(clf.predict(X, task_id=kind(plain)), expected.predict(X, task_id=plain))
    score = expected.score(X, Y, task_id=plain)
    assert clf.score(X, Y, task_id=kind(plain)) == score
    average = average_task_accuracy(Y, clf.predict(X), task_id=plain)
    assert average_task_accuracy(Y, clf.predict(X), task_id=kind(plain)) == average
    assert TaskScorer()(clf, X, Y, task_id=kind(plain)) == average
    assert fold_rows(Y, kind(plain)) == fold_rows(Y, plain)


@column
def test_labels(plain, kind):
    y = kind(plain)
    clf, expected = small().partial_fit(X, y), small().fit(X, plain)
    assert clf.classes_.tolist() == np.unique(plain).tolist()
    assert_array_equal(clf.predict(X), expected.predict(X))
    assert clf.score(X, y) == expected.score(X, plain)
    average = average_task_accuracy(plain, expected.predict(X), task_id=Y)
    assert average_task_accuracy(y, clf.predict(X), task_id=Y) == average
    assert TaskScorer()(clf, X, y, task_id=Y) == average
    assert fold_rows(y, Y) == fold_rows(plain, Y)
    found, tasks = (
        make_split_tasks(X, labels, classes_per_task=1, random_state=0) for labels in (y, plain)
    )
    for task, by_name in zip(found, tasks, strict=True):
        assert_array_equal(task.X_train, by_name.X_train)
        assert task.y_test.tolist() == by_name.y_test.tolist()
    result = evaluate_stream(small(), [Task(k, X, y, X, y) for k in range(2)])
    expected = evaluate_stream(small(), [Task(k, X, plain, X, plain) for k in range(2)])
    assert_array_equal(result.matrix, expected.matrix)
    _, stacked, ids = stack_tasks([Task("a", X, y, X, y), Task("b", X, y, X, y)])
    assert [*stacked[:4]] == [plain[0], plain[0], plain[1], plain[1]]
    assert ids[:2].tolist() == ["a", "b"]


@pytest.mark.parametrize("kind", ["Int64", "Float64", "polars"])
def test_weights(kind):
    plain = np.arange(N) % 4
    weight = pl.Series(plain) if kind == "polars" else pd.Series(plain, dtype=kind)
    clf, expected = (small().fit(X, Y, sample_weight=each) for each in (weight, plain))
    assert_array_equal(clf.coefs_[0], expected.coefs_[0])
    assert clf.score(X, Y, sample_weight=weight) == expected.score(X, Y, sample_weight=plain)
    averages = [
        average_task_accuracy(Y, clf.predict(X), task_id=CODES, sample_weight=each)
        for each in (weight, plain)
    ]
    assert averages[0] == averages[1]


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize(
    "make", [make_permuted_tasks, make_rotated_tasks, make_split_tasks, make_drift_tasks]
)
def test_data_frames_keep_their_names(name, make):
    frame = FRAMES[name](X)
    library = name.partition(" ")[0]
    tasks, plain = (make(rows, Y, random_state=0) for rows in (frame, X))
    for task, expected in zip(tasks, plain, strict=True):
        assert type(task.X_train).__module__.startswith(library)
        assert list(task.X_test.columns) == list("abcd")
        assert_allclose(task.X_train, expected.X_train, rtol=1e-12)
    rows, labels, ids = stack_tasks(tasks)
    assert type(rows) is type(tasks[0].X_train)
    clf = small().fit(rows, labels, task_id=ids)
    assert clf.feature_names_in_.tolist() == list("abcd")
    expected = small().fit(np.asarray(rows), labels, task_id=ids)
    assert_array_equal(clf.predict(rows), expected.predict(np.asarray(rows)))
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(rows[list("bacd")])


@missing
def test_missing_ids(bad):
    message = "task_id (holds NaN or a missing value|must be a string or a number.*(NA|None))"
    with pytest.raises((ValueError, TypeError), match=message):
        small().fit(X, Y, task_id=bad)
    clf = small().partial_fit(X, Y, task_id="ape")
    with pytest.raises((ValueError, TypeError), match=message):
        clf.predict(X, task_id=bad)
    with pytest.raises(ValueError, match="task_id holds NaN or a missing value"):
        average_task_accuracy(Y, Y, task_id=bad)
    with pytest.raises(ValueError, match="groups holds NaN or a missing value"):
        fold_rows(Y, bad)


@missing
def test_missing_labels(bad):
    with pytest.raises(ValueError, match="y_true holds NaN or a missing value"):
        average_task_accuracy(bad, CODES, task_id=Y)
    with pytest.raises(ValueError, match="y_pred holds NaN or a missing value"):
        average_task_accuracy(CODES, bad, task_id=Y)
    with pytest.raises(ValueError, match="y holds NaN or a missing value"):
        fold_rows(bad, Y)
    with pytest.raises(ValueError, match="y holds NaN or a missing value|contains NaN"):
        small().partial_fit(X, bad)
