import copy
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from skewc import EWCClassifier
from skewc._penalties import DiagonalPenalty
from skewc._solvers import SGD, Adam

ADAM = {"learning_rate_init": 0.01, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8}


def sgd(weights, **options):
    defaults = {
        "learning_rate_init": 0.01,
        "learning_rate": "constant",
        "momentum": 0.9,
        "nesterovs_momentum": True,
        "power_t": 0.5,
    }
    return SGD(weights, **{**defaults, **options})


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "sgd"},
        {"solver": "sgd", "nesterovs_momentum": False, "learning_rate": "invscaling"},
        {"solver": "sgd", "momentum": 0, "learning_rate": "adaptive", "tol": 0.01},
        {"solver": "sgd", "learning_rate_init": 0.1, "shuffle": False, "activation": "tanh"},
        {"solver": "adam"},
        {"solver": "adam", "batch_size": 40, "alpha": 0},
        {"solver": "adam", "epsilon": 0.1, "beta_1": 0.5, "beta_2": 0.9},
        {"solver": "lbfgs", "max_iter": 15, "activation": "logistic"},
    ],
)
def test_without_earlier_tasks_it_is_scikit_learns_network(parameters, seed):
    """The same draws, batches and steps, so the same weights to rounding."""
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    parameters = {
        "hidden_layer_sizes": (8, 5),
        "alpha": 0.5,
        "batch_size": len(X),
        "max_iter": 25,
        "n_iter_no_change": 5,
        "random_state": seed,
        **parameters,
    }
    ours, theirs = EWCClassifier(**parameters), MLPClassifier(**parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few epochs on purpose
        ours.fit(X, y)
        theirs.fit(X, y)
    for mine, reference in zip(ours.coefs_, theirs.coefs_, strict=True):
        assert_allclose(mine, reference, rtol=1e-10, atol=1e-12)
    for mine, reference in zip(ours.intercepts_, theirs.intercepts_, strict=True):
        assert_allclose(mine, reference, rtol=1e-10, atol=1e-12)
    assert ours.n_iter_ == theirs.n_iter_
    if parameters["solver"] != "lbfgs":
        assert ours.t_ == theirs.t_
        assert_allclose(ours.loss_curve_[0], theirs.loss_curve_[0], rtol=0.1)


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_all_solvers_reach_the_same_minimiser_where_it_is_convex(penalty, seed):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rotated = X[:, [2, 0, 3, 1]]
    first = EWCClassifier(
        (), solver="lbfgs", penalty=penalty, ewc_lambda=1.0, alpha=1.0, batch_size=150,
        max_iter=2000, n_iter_no_change=2000, random_state=seed, tol=1e-6,
    ).fit(X, y)  # fmt: skip
    found = {}
    for name, parameters in {
        "lbfgs": {"tol": 1e-7},
        "sgd": {"learning_rate_init": 0.5},
        "sgd, heavy ball": {"learning_rate_init": 0.5, "nesterovs_momentum": False},
        "adam": {"learning_rate_init": 0.02},
    }.items():
        clf = copy.deepcopy(first).set_params(solver=name.split(",")[0], **parameters)
        clf.partial_fit(rotated, y)
        assert clf.penalty_value() > 0.1
        found[name] = clf.predict_log_proba(X)
    for name, log_proba in found.items():
        assert_allclose(log_proba, found["lbfgs"], rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "make",
    [
        lambda w: sgd(w),
        lambda w: sgd(w, nesterovs_momentum=False),
        lambda w: sgd(w, momentum=0.0),
        lambda w: Adam(w, **ADAM),
    ],
)
def test_fixed_point_is_where_gradient_and_penalty_balance(make):
    """Minimise (w - 1)²/2 + P·w²/2: the answer is 1/(1 + P) for any momentum."""
    P = torch.tensor([0.0, 0.1, 1.0, 100.0, 1e9], dtype=torch.float64)
    penalty = DiagonalPenalty(P, torch.zeros(5, dtype=torch.float64))
    weights = torch.full((5,), 0.3, dtype=torch.float64)
    solver = make(weights)
    for _ in range(6000):
        solver.step(weights, weights - 1, penalty)
    assert_allclose(weights, 1 / (1 + P), rtol=2e-3)


@pytest.mark.parametrize(
    "make", [sgd, lambda w: sgd(w, learning_rate="adaptive"), lambda w: Adam(w, **ADAM)]
)
def test_a_solver_goes_on_from_its_state(make):
    weights = torch.ones(4, dtype=torch.float64)
    through = make(weights)
    for _ in range(5):
        through.step(weights, weights**3, None)
    through.slow_down()
    resumed = make(weights)
    resumed.restore(through.state())
    copy = weights.clone()
    through.step(weights, weights**3, None)
    resumed.step(copy, copy**3, None)
    assert_allclose(copy, weights, rtol=0)
    fresh = make(copy)
    before = copy.clone()
    fresh.step(copy, before**3, None)
    assert not np.allclose(copy, weights)


@pytest.mark.parametrize("schedule", ["constant", "invscaling", "adaptive"])
def test_a_new_learning_rate_holds_in_the_middle_of_a_task(schedule):
    weights = torch.zeros(1)
    before = sgd(weights, learning_rate=schedule)
    before.end_epoch(99)
    before.slow_down()
    after = sgd(weights, learning_rate=schedule, learning_rate_init=0.02)
    after.restore(before.state())
    assert_allclose(after.rate, 2 * before.rate)
    constant = sgd(weights, learning_rate_init=0.02)
    constant.restore(before.state())
    assert_allclose(constant.rate, 0.02)


@pytest.mark.parametrize("n_steps", [1, 4])
def test_adams_proximal_step_is_its_step_on_the_loss(n_steps, rng):
    """At β₁ = 0, Adam moves by η·g; a precision of 1/η then moves half the way to 0."""
    parameters = {**ADAM, "beta_1": 0.0, "epsilon": 0.5}
    zero, gradients = (
        torch.zeros(3, dtype=torch.float64),
        torch.from_numpy(rng.normal(size=(n_steps, 3))),
    )
    weights = torch.ones_like(zero)
    solver, twin = Adam(weights, **parameters), Adam(weights, **parameters)
    for g in gradients[:-1]:
        solver.step(weights, g, None)
        twin.step(weights.clone(), g, None)
    g, moved = gradients[-1], weights.clone()
    twin.step(moved, g, None)
    eta = (weights - moved) / g
    solver.step(weights, g, DiagonalPenalty(1 / eta, zero))
    assert_allclose(weights, moved / 2, rtol=1e-12)


def test_schedules():
    weights = torch.zeros(1)
    constant = sgd(weights)
    constant.end_epoch(100)
    assert constant.rate == 0.01
    assert not constant.slow_down()
    inverse = sgd(weights, learning_rate="invscaling")
    inverse.end_epoch(99)
    assert_allclose(inverse.rate, 0.001)
    adaptive = sgd(weights, learning_rate="adaptive")
    assert adaptive.slow_down()
    assert_allclose(adaptive.rate, 0.002)
    adaptive = sgd(weights, learning_rate="adaptive", learning_rate_init=1e-6)
    assert not adaptive.slow_down()
    assert not Adam(weights, **ADAM).slow_down()
