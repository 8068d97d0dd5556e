import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks, make_split_tasks, stack_tasks
from skewc.model_selection import TaskScorer, TaskStratifiedKFold, evaluate_stream
from skewc.pipeline import make_continual_pipeline

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


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
    with pytest.raises(TypeError, match="task_id"):
        TaskScorer()(clf, X, y)
    search = GridSearchCV(
        network(max_iter=1), {"ewc_lambda": [0]}, scoring=TaskScorer(), error_score="raise"
    )
    with pytest.raises(TypeError, match="task_id"):
        search.fit(X, y, task_id=ids)


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
def test_parallel_searches_score_as_serial_ones(permuted, backend):
    import joblib

    X, y, ids = stack_tasks(permuted)
    scores = []
    for jobs in (1, 2):
        search = GridSearchCV(network(max_iter=3), {"ewc_lambda": [0, 30]}, cv=2, n_jobs=jobs)
        with joblib.parallel_config(backend):
            search.fit(X[:600], y[:600], task_id=ids[:600])
        scores.append(search.best_score_)
    assert scores[0] == scores[1]


# Streams


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
    assert_allclose(result.baseline, 0.5)
    assert result.name == "EWCClassifier"
    assert (result.fit_times > 0).all()
    assert result.summary()["average_accuracy"] == pytest.approx(result.matrix[-1].mean())


@pytest.mark.parametrize(
    "estimator",
    [
        SGDClassifier(random_state=0),
        MLPClassifier((20,), random_state=0),
        make_continual_pipeline(StandardScaler(), SGDClassifier(random_state=0)),
        make_continual_pipeline(StandardScaler(), network(max_iter=3)),
    ],
    ids=["SGD", "MLP", "pipeline of SGD", "pipeline of EWC"],
)
def test_any_estimator_with_partial_fit_can_be_compared(permuted, estimator, capsys):
    result = evaluate_stream(estimator, permuted, epochs=20, verbose=True)
    assert result.matrix.shape == (3, 3)
    assert result.matrix[0, 0] > 0.5
    assert_allclose(result.baseline, 0.1)
    assert result.estimator is None
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert printed[-1].startswith("task 3 of 3 (2) learned in ")
    assert f"{result.matrix[-1].mean():.3f}" in printed[-1]


def test_data_frames_keep_their_names(split):
    frames = [
        task._replace(
            X_train=pd.DataFrame(task.X_train).add_prefix("x"),
            X_test=pd.DataFrame(task.X_test).add_prefix("x"),
        )
        for task in split
    ]
    result = evaluate_stream(network(max_iter=1), frames, return_estimator=True)
    assert result.estimator.feature_names_in_[0] == "x0"
