import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose

from skewc._losses import class_mask
from skewc._network import Network
from skewc._objective import Objective
from skewc._rows import Rows

SIZES = (4, 6, 3)


@pytest.fixture
def problem(rng):
    network = Network(SIZES, "tanh")
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    return weights, network, rng.normal(size=(20, 4)), rng.choice([0, 2], 20), rng.uniform(size=20)


def objective(problem, order=None, mask=None):
    weights, network, X, y, s = problem
    order = np.arange(20) if order is None else order
    return Objective(network, weights, Rows(X, y, s), order, mask=mask, alpha=0.7)


def expected(problem, rows, scale, total):
    """Return scale·Σ s·NLL + α/2N·‖W‖² over `rows`, and its gradient."""
    weights, network, X, y, s = problem
    w = weights.clone().requires_grad_()
    data = torch.from_numpy(X[rows]), torch.from_numpy(y[rows]), torch.from_numpy(s[rows])
    value = scale * reference.nll(w, SIZES, "tanh", *data)
    value = value + 0.7 / 2 / total * (w[: network.n_coefs] ** 2).sum()
    (gradient,) = torch.autograd.grad(value, w)
    return value.item(), gradient


def test_full_value_and_gradient(problem):
    total = problem[4].sum()
    value, gradient = expected(problem, np.arange(20), 1 / total, total)
    full = objective(problem)
    assert_allclose(full.full(), value, rtol=1e-12)
    assert_allclose(full.gradient, gradient, rtol=1e-10, atol=1e-14)


def test_a_batch_estimates_the_gradient_without_bias(problem):
    """Light batches count less: the scale is that of rows, not of the batch's weights."""
    total, batch = problem[4].sum(), np.array([3, 1, 8, 12, 5])
    _, gradient = expected(problem, batch, 20 / (5 * total), total)
    part = objective(problem)
    part.batch(torch.from_numpy(batch))
    assert_allclose(part.gradient, gradient, rtol=1e-10, atol=1e-14)


def test_rows_held_out_do_not_count(problem):
    order = np.arange(0, 20, 2)
    total = problem[4][order].sum()
    value, gradient = expected(problem, order, 1 / total, total)
    half = objective(problem, order)
    assert_allclose(half.full(), value, rtol=1e-12)
    assert_allclose(half.gradient, gradient, rtol=1e-10, atol=1e-14)


def test_accuracy_is_weighted_and_among_active_classes(problem):
    weights, network, X, y, s = problem
    active = np.array([True, False, True])
    network.split(weights)[1][-1][1] += 1  # most rows would be of the inactive class
    order = np.arange(5, 20)
    log_p = reference.log_proba(weights, SIZES, "tanh", torch.from_numpy(X), active)
    hit = log_p.argmax(dim=1).numpy() == y
    score = objective(problem, mask=class_mask(active, weights)).accuracy(order)
    assert_allclose(score, np.average(hit[order], weights=s[order]))
    assert score != np.mean(hit[order])
    unmasked = objective(problem).accuracy(order)
    log_p = reference.log_proba(weights, SIZES, "tanh", torch.from_numpy(X))
    hit = log_p.argmax(dim=1).numpy() == y
    assert_allclose(unmasked, np.average(hit[order], weights=s[order]))
    assert unmasked != score


def test_the_total_weight_is_summed_in_float64():
    s = np.array([2**24, 1, 1, 1], dtype=np.float32)  # their sum is no float32
    rows = Rows(np.zeros((4, 1), dtype=np.float32), np.zeros(4, dtype=int), s)
    assert rows.total_weight(np.arange(4)) == 2**24 + 3
