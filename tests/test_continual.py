"""Continual learning itself, on streams of digits."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from skewc import EWCClassifier

N_TASKS = 5


def learn(tasks, *, known=False, **parameters):
    """R[i, j]: accuracy on task j after learning task i."""
    defaults = {"max_iter": 20, "batch_size": 32}
    clf = EWCClassifier(**{**defaults, **parameters})
    R = np.full((N_TASKS, N_TASKS), np.nan)
    for i, (X, y, _, _) in enumerate(tasks):
        clf.partial_fit(X, y, task_id=i)
        for j, (_, _, X_test, y_test) in enumerate(tasks[: i + 1]):
            R[i, j] = clf.score(X_test, y_test, task_id=j if known else None)
    return R


def forgetting(R):
    return np.mean(np.diag(R)[:-1] - R[-1, :-1])


@pytest.fixture
def permuted(seed, digits):
    X, y, X_test, y_test = digits
    rng = np.random.RandomState(seed)
    orders = [np.arange(64)] + [rng.permutation(64) for _ in range(N_TASKS - 1)]
    return [(X[:, order], y, X_test[:, order], y_test) for order in orders]


def test_permuted_digits_are_kept(permuted, seed):
    fine_tuned = learn(permuted, ewc_lambda=0, random_state=seed)
    default = learn(permuted, random_state=seed)
    grid = [learn(permuted, ewc_lambda=value, random_state=seed) for value in (3, 10, 100)]
    best = max([default, *grid], key=lambda R: R[-1].mean())
    assert fine_tuned[-1].mean() < 0.6
    assert best[-1].mean() > fine_tuned[-1].mean() + 0.15
    assert default[-1].mean() > fine_tuned[-1].mean() + 0.10
    assert forgetting(best) < 0.5 * forgetting(fine_tuned)
    # Not by refusing to learn: each new task is learned too.
    assert np.diag(best).min() > 0.6


def test_per_task_penalty_keeps_permuted_digits(permuted, seed):
    fine_tuned = learn(permuted, ewc_lambda=0, random_state=seed)
    kept = learn(permuted, ewc_lambda=10, penalty="per_task", random_state=seed)
    assert kept[-1].mean() > fine_tuned[-1].mean() + 0.15


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_split_digits_with_the_task_known(digits, seed, penalty):
    X, y, X_test, y_test = digits
    tasks = [
        (X[y // 2 == k], y[y // 2 == k], X_test[y_test // 2 == k], y_test[y_test // 2 == k])
        for k in range(N_TASKS)
    ]
    R = learn(tasks, known=True, penalty=penalty, random_state=seed)
    assert R[-1].mean() > 0.98
    fine_tuned = learn(tasks, known=True, ewc_lambda=0, random_state=seed)
    assert R[-1].mean() > fine_tuned[-1].mean()


def test_with_known_optimum_the_second_task_ends_nearer_than_fine_tuning():
    """No hidden layer, λ = 1, α = 0: both tasks' loss has one minimum."""
    X, y = load_iris(return_X_y=True)
    X = (X[:, :2] - X[:, :2].mean(axis=0)) / X[:, :2].std(axis=0)
    order = np.random.RandomState(0).permutation(150)
    halves = order[:75], order[75:]
    parameters = {"solver": "lbfgs", "alpha": 0, "tol": 1e-7, "max_iter": 5000}
    parameters["fisher_smoothing"] = 0.0  # the Bayesian quadratic

    def loss(clf):
        return -np.mean(clf.predict_log_proba(X)[np.arange(150), y])

    optimum = loss(EWCClassifier((), random_state=0, **parameters).fit(X, y))
    losses = {}
    for ewc_lambda in (0, 1):
        clf = EWCClassifier((), ewc_lambda=ewc_lambda, random_state=0, **parameters)
        for half in halves:
            clf.partial_fit(X[half], y[half])
        losses[ewc_lambda] = loss(clf)
    assert optimum < losses[1] < losses[0]
    assert losses[1] - optimum < 0.2 * (losses[0] - optimum)
