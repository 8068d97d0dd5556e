import re

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks, make_split_tasks, stack_tasks
from skewc.model_selection import TaskScorer, TaskStratifiedKFold, evaluate_stream
from skewc.pipeline import make_continual_pipeline

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# New classes come, and some scores ask about all of them.
untold = pytest.mark.filterwarnings("ignore:The tasks have different classes")


def network(**parameters):
    return EWCClassifier(
        (30,), **{"max_iter": 15, "batch_size": 32, "random_state": 0, **parameters}
    )


@pytest.fixture(scope="module")
def permuted():
    return make_permuted_tasks(*load_digits(return_X_y=True), n_tasks=3, random_state=0)


@pytest.fixture(scope="module")
def split():
    return make_split_tasks(*load_digits(return_X_y=True), random_state=0)


# Folds


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_fold_holds_every_task_and_class_in_proportion(rng, shuffle):
    ids = rng.choice(["a", "b", "c"], 300)
    y = rng.randint(4, size=300)
    folds = TaskStratifiedKFold(3, shuffle=shuffle, random_state=0 if shuffle else None)
    seen = []
    for train, test in folds.split(np.zeros((300, 1)), y, ids):
        assert not set(train) & set(test)
        seen.extend(test)
        for name in "abc":
            for c in range(4):
                whole = np.sum((ids == name) & (y == c))
                assert abs(np.sum((ids[test] == name) & (y[test] == c)) - whole / 3) < 1
    assert sorted(seen) == list(range(300))
    assert folds.get_n_splits() == 3


def test_folds_need_the_tasks():
    with pytest.raises(ValueError, match="needs the task of each row"):
        next(TaskStratifiedKFold().split(np.zeros((4, 1)), [0, 1, 0, 1]))
    with pytest.raises(ValueError, match=r"shape \(3,\), but `y` has shape \(4,\)"):
        next(TaskStratifiedKFold().split(np.zeros((4, 1)), [0, 1, 0, 1], [1, 2, 3]))


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([1, "1", 1, "1"], TypeError, "groups mixes strings and numbers"),
        (np.ma.masked_equal([1, 1, 2, 2], 2), ValueError, "groups has masked entries"),
        (["a", "a", "b", np.nan], ValueError, "groups holds NaN or a missing value"),
    ],
)
def test_folds_refuse_unclear_tasks(groups, error, message):
    with pytest.raises(error, match=message):
        next(TaskStratifiedKFold(2).split(np.zeros((4, 1)), [0, 1, 0, 1], groups))


def test_folds_name_the_task_and_class_with_few_rows():
    ids, y = np.repeat(["a", "b"], 8), np.repeat(["x", "y", "x", "y"], [4, 4, 7, 1])
    few = r"Class .*'y'.* has only 1 rows in task .*'b'.*, fewer than n_splits=3"
    with pytest.warns(UserWarning) as caught:
        parts = list(TaskStratifiedKFold(3).split(np.zeros((16, 1)), y, ids))
    assert len(caught) == 1
    assert re.search(few, str(caught[0].message))
    assert len(parts) == 3
    with pytest.raises(ValueError, match=r"has only 1 rows in task .*every task"):
        next(TaskStratifiedKFold(8).split(np.zeros((16, 1)), y, ids))


def test_folds_get_their_tasks_from_task_id():
    X, y = load_digits(return_X_y=True)
    ids = np.where(np.arange(len(y)) < 500, "few", "many")
    sizes = []

    class Noting(EWCClassifier):
        def fit(self, X, y, sample_weight=None, task_id=None):
            sizes.append(np.sum(task_id == "few"))
            return super().fit(X, y, sample_weight=sample_weight, task_id=task_id)

    with sklearn.config_context(enable_metadata_routing=True):
        folds = TaskStratifiedKFold(4)
        cross_validate(Noting((3,), max_iter=1), X, y, cv=folds, params={"task_id": ids})
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 10


# Scores


@untold
def test_the_scorer_averages_over_tasks_and_tells_known_ones(split):
    X, y, ids = stack_tasks(split, part="test")
    clf = network()
    for task in split:
        clf.partial_fit(task.X_train, task.y_train, task_id=task.id)
    for known in (False, True):
        each = [clf.score(t.X_test, t.y_test, task_id=t.id if known else None) for t in split]
        assert_allclose(TaskScorer(known_task=known)(clf, X, y, task_id=ids), np.mean(each))
    assert "known_task=True" in repr(TaskScorer(known_task=True))


def test_a_scorer_without_task_id_is_an_error(permuted):
    X, y, ids = stack_tasks(permuted)
    clf = network().partial_fit(X, y, task_id=ids)
    message = r"needs task_id.*enable_metadata_routing=True.*fit\(X, y, task_id=ids\)"
    with pytest.raises(TypeError, match=message):
        TaskScorer()(clf, X, y)
    search = GridSearchCV(
        network(max_iter=1), {"ewc_lambda": [0]}, scoring=TaskScorer(), error_score="raise"
    )
    with pytest.raises(TypeError, match=message):
        search.fit(X, y, task_id=ids)


def test_a_scorer_of_known_tasks_needs_an_estimator_that_takes_them(split):
    X, y, ids = stack_tasks(split)
    pipeline = make_continual_pipeline(StandardScaler(), SGDClassifier(random_state=0)).fit(X, y)
    assert TaskScorer()(pipeline, X, y, task_id=ids) > 0.5
    for estimator in (pipeline, pipeline[-1]):
        with pytest.raises(TypeError, match="whose predict takes task_id; that of SGDClassifier"):
            TaskScorer(known_task=True)(estimator, X, y, task_id=ids)


def test_a_scorer_of_known_tasks_scores_what_passes_ids_on(split):
    X, y, ids = stack_tasks(split)
    bag = BaggingClassifier(network(max_iter=1), n_estimators=1, random_state=0)
    frozen = FrozenEstimator(network().fit(X, y, task_id=ids))
    assert TaskScorer(known_task=True)(frozen, X, y, task_id=ids) > 0.9
    with sklearn.config_context(enable_metadata_routing=True):
        bag.fit(X, y, task_id=ids)
        assert TaskScorer(known_task=True)(bag, X, y, task_id=ids) >= 0


LAMBDA = "ewcclassifier__ewc_lambda"


def forgotten(tasks, ewc_lambda):
    """Forgetting on rows held out, each task learned in turn."""
    pipeline = make_continual_pipeline(
        StandardScaler(), network(max_iter=10, ewc_lambda=ewc_lambda)
    )
    return evaluate_stream(pipeline, tasks).summary()["forgetting"]


@pytest.mark.parametrize("routing", [False, True])
def test_a_plain_search_over_a_stream_finds_protection(permuted, routing):
    X, y, ids = stack_tasks(permuted)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), network(max_iter=10)),
        {LAMBDA: [0, 1, 10]},
        error_score="raise",
    )
    with sklearn.config_context(enable_metadata_routing=routing):
        search.fit(X, y, **{"task_id" if routing else "ewcclassifier__task_id": ids})
    best = search.best_params_[LAMBDA]
    assert best > 0
    assert forgotten(permuted, best) < forgotten(permuted, 0) - 0.05
    # The default folds judge all tasks: each agrees with the others on what protection is worth.
    folds = [search.cv_results_[f"split{k}_test_score"] for k in range(5)]
    assert all(scores[0] < scores[1:].max() for scores in folds)
    assert np.ptp(folds, axis=0).max() < 0.15


def test_a_search_with_the_folds_and_the_scorer_for_tasks(split):
    X, y, ids = stack_tasks(split)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), network(max_iter=10)),
        {LAMBDA: [0, 10]},
        cv=TaskStratifiedKFold(2),
        scoring=TaskScorer(known_task=True),
        error_score="raise",
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, task_id=ids)
    assert search.best_params_[LAMBDA] == 10
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("backend", ["loky", "threading"])
@pytest.mark.parametrize("routing", [False, True])
def test_parallel_searches_score_as_serial_ones(permuted, backend, routing):
    X, y, ids = (part[:600] for part in stack_tasks(permuted))
    found = []
    for jobs in (1, 2):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), network(max_iter=3)),
            {LAMBDA: [0, 30]},
            cv=2,
            n_jobs=jobs,
        )
        with (
            sklearn.config_context(enable_metadata_routing=routing),
            joblib.parallel_config(backend),
        ):
            search.fit(X, y, **{"task_id" if routing else "ewcclassifier__task_id": ids})
        found.append((search.best_score_, search.best_params_))
    assert found[0] == found[1]


@untold
def test_the_scorer_is_one_of_several(split):
    X, y, ids = stack_tasks(split)
    scoring = {"known": TaskScorer(known_task=True), "all": TaskScorer(), "plain": "accuracy"}
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            network(max_iter=5), X, y, cv=TaskStratifiedKFold(2), scoring=scoring,
            params={"task_id": ids}, return_estimator=True, return_indices=True,
            error_score="raise",
        )  # fmt: skip
    for k, (clf, rows) in enumerate(zip(found["estimator"], found["indices"]["test"], strict=True)):
        for name, told in [("known", {"task_id": ids[rows]}), ("all", {})]:
            right = clf.predict(X[rows], **told) == y[rows]
            by_hand = np.mean([right[ids[rows] == task].mean() for task in range(5)])
            assert found[f"test_{name}"][k] == pytest.approx(by_hand)
        assert found["test_plain"][k] == clf.score(X[rows], y[rows])
    assert (found["test_known"] > found["test_all"]).all()


# Streams


@untold
def test_the_matrix_equals_learning_by_hand(split):
    result = evaluate_stream(network(), split, known_task=True, return_estimator=True)
    clf = network()
    for i, task in enumerate(split):
        clf.partial_fit(task.X_train, task.y_train, task_id=task.id)
        for j, other in enumerate(split):
            told = other.id if j <= i else None
            assert result.matrix[i, j] == clf.score(other.X_test, other.y_test, task_id=told)
    assert_array_equal(result.estimator.coefs_[0], clf.coefs_[0])
    assert result.task_ids == [task.id for task in split]
    assert result.name == "EWCClassifier"
    assert (result.fit_times > 0).all()
    summary = result.summary()
    assert summary["average_accuracy"] == pytest.approx(result.matrix[-1].mean())
    assert summary["fit_time"] == pytest.approx(result.fit_times.sum())
    assert summary["forward_transfer"] == pytest.approx(
        np.mean([result.matrix[j - 1, j] - 0.1 for j in range(1, 5)])
    )


def test_the_baseline_is_what_untrained_networks_get_on_average(permuted):
    """With next to no step, the weights stay as they were drawn."""
    tasks = [task._replace(X_train=task.X_train[:10], y_train=np.arange(10)) for task in permuted]
    clf = network(batch_size=10, max_iter=1, learning_rate_init=1e-12)
    untrained = [
        evaluate_stream(clone(clf).set_params(random_state=seed), tasks) for seed in range(60)
    ]
    accuracies = np.array([result.matrix[0] for result in untrained])
    error = accuracies.std(axis=0) / np.sqrt(len(accuracies))
    assert (np.abs(accuracies.mean(axis=0) - untrained[0].baseline) < 3 * error).all()


@pytest.mark.parametrize(
    "estimator",
    [
        SGDClassifier(random_state=0),
        MLPClassifier((20,), random_state=0),
        GaussianNB(var_smoothing=0.01),
        make_continual_pipeline(StandardScaler(), SGDClassifier(random_state=0)),
        make_continual_pipeline(StandardScaler(), network(max_iter=3)),
    ],
    ids=["SGD", "MLP", "naive Bayes", "pipeline of SGD", "pipeline of EWC"],
)
@pytest.mark.parametrize("routing", [False, True])
def test_any_estimator_with_partial_fit_can_be_compared(permuted, estimator, routing, capsys):
    with sklearn.config_context(enable_metadata_routing=routing):
        result = evaluate_stream(
            estimator, (task for task in permuted), epochs=20, name="mine", verbose=True
        )
    assert result.matrix.shape == (3, 3)
    assert result.matrix[0, 0] > 0.5
    assert_allclose(result.baseline, 0.1)
    assert result.estimator is None
    assert result.name == "mine"
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert re.fullmatch(
        rf"mine: task 3 of 3 \(2\) learned in \d+\.\d s, accuracy {result.matrix[2, 2]:.3f}, "
        rf"average so far {result.matrix[-1].mean():.3f}",
        printed[-1],
    )


def as_pandas(X):
    return pd.DataFrame(X).add_prefix("x")


def as_polars(X):
    return pl.DataFrame(X, schema=[f"x{k}" for k in range(X.shape[1])])


@untold
@pytest.mark.parametrize("container", [as_pandas, as_polars, sparse.csr_array])
@pytest.mark.parametrize("estimator", [network(max_iter=2), SGDClassifier(random_state=0)])
def test_rows_in_any_container(split, container, estimator):
    rows = [
        task._replace(X_train=container(task.X_train), X_test=container(task.X_test))
        for task in split
    ]
    result = evaluate_stream(estimator, rows, return_estimator=True)
    assert_allclose(result.matrix, evaluate_stream(estimator, split).matrix, atol=0.02)
    if container is not sparse.csr_array:
        assert result.estimator.feature_names_in_[0] == "x0"


@pytest.mark.parametrize("estimator", [network(max_iter=5), SGDClassifier(random_state=0)])
@pytest.mark.parametrize("series", [np.asarray, pd.Series, pl.Series], ids=["numpy", "pd", "pl"])
def test_string_labels(split, estimator, series):
    names = np.array("zero one two three four five six seven eight nine".split())
    named = [
        task._replace(
            id=f"task {task.id}",
            y_train=series(names[task.y_train]),
            y_test=series(names[task.y_test]),
        )
        for task in split
    ]
    result = evaluate_stream(estimator, named, known_task=True)
    assert result.task_ids[0] == "task 0"
    assert (np.diag(result.matrix) > 0.7).all()


@untold
@pytest.mark.parametrize(
    "estimator", [network(max_iter=5), SGDClassifier(random_state=0), GaussianNB(var_smoothing=0.1)]
)
def test_tasks_of_one_class_and_of_few_test_rows(estimator):
    tasks = make_split_tasks(*load_digits(return_X_y=True), classes_per_task=1, random_state=0)
    tasks = [t._replace(X_test=t.X_test[: k + 1], y_test=t.y_test[: k + 1])
             for k, t in enumerate(tasks)]  # fmt: skip
    result = evaluate_stream(estimator, tasks)
    assert result.matrix[0, 0] == 1
    assert np.isfinite(result.matrix).all()
    assert (result.matrix * np.arange(1, 11) % 1 < 1e-9).all()  # shares of the rows of each task


def test_what_cannot_be_evaluated_is_named(split):
    with pytest.raises(TypeError, match=r"Pipeline has no partial_fit: .* a .*ContinualPipeline"):
        evaluate_stream(make_pipeline(StandardScaler(), network()), split)
    with pytest.raises(TypeError, match="LogisticRegression has no partial_fit: only such"):
        evaluate_stream(LogisticRegression(), split)
    for make in (make_pipeline, make_continual_pipeline):
        with pytest.raises(TypeError, match=r"step, LogisticRegression\(\), has none either"):
            evaluate_stream(make(StandardScaler(), LogisticRegression()), split)
    with pytest.raises(TypeError, match=r"a pipeline that it ends in, a .*ContinualPipeline"):
        evaluate_stream(make_continual_pipeline(make_pipeline(network())), split)
    with pytest.raises(TypeError, match=r"records with id, X_train, .*Task; got tuple"):
        evaluate_stream(network(), [tuple(split[0])])
    with pytest.raises(ValueError, match=r"an id of its own; got \[0, 1, 0\]"):
        evaluate_stream(network(), [split[0], split[1], split[0]])
    for epochs in (0, 1.5, "2", None):
        with pytest.raises(ValueError, match="epochs must be a whole number >= 1; got"):
            evaluate_stream(SGDClassifier(), split, epochs=epochs)
    with pytest.raises(ValueError, match="at least one task"):
        evaluate_stream(network(), [])
    with pytest.raises(ValueError, match="Task 'b' has no test rows"):
        evaluate_stream(network(), [split[0]._replace(id="b", X_test=[], y_test=[])])
