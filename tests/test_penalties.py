import numpy as np
import pytest
import reference
import scipy.optimize
import torch
from numpy.testing import assert_allclose, assert_array_equal

from skewc._network import Network
from skewc._penalties import DiagonalPenalty, KroneckerPenalty

LINEAR = Network((3, 2), "identity")  # of eight weights


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_worked_numbers():
    penalty = DiagonalPenalty(tensor(5.0), tensor(0.8))
    assert_allclose(penalty.value(tensor(0.5)), 0.225)
    assert_allclose(penalty.gradient(tensor(0.5)), [-1.5])
    assert_allclose(penalty.scaled(10.0).value(tensor(0.5)), 2.25)
    assert_allclose(
        DiagonalPenalty(tensor(5.0), tensor(0.8), 0.3).scaled(2.0).value(tensor(0.5)), 0.75
    )
    flat = DiagonalPenalty(tensor(0.05), tensor(1.0))
    assert_allclose(flat.value(tensor(3.0)), 0.1)


def stream(rng, n_tasks=5, n=8):
    """Importances with some zeros, alone and in all tasks, and weights."""
    importances = rng.exponential(size=(n_tasks, n)) * (rng.uniform(size=(n_tasks, n)) > 0.4)
    importances[:, 0] = 0
    return torch.from_numpy(importances), torch.from_numpy(rng.normal(size=(n_tasks, n)))


def absorb_all(importances, weights, **options):
    penalty = DiagonalPenalty.restore(DiagonalPenalty.zero(LINEAR, np.float64), LINEAR, "cpu")
    for F, w in zip(importances, weights, strict=True):
        penalty = penalty.absorb(w, importance=[F / 2.5], rows_weight=1.0, scale=2.5, **options)
    return penalty


@pytest.mark.parametrize("decay", [1.0, 0.7, 0.0])
def test_merged_per_task_equals_the_list_of_quadratics(rng, decay):
    importances, weights = stream(rng)
    penalty = absorb_all(importances, weights, kind="per_task", decay=decay)
    terms = [
        (decay ** (len(weights) - 1 - k) * F, w)
        for k, (F, w) in enumerate(zip(importances, weights, strict=True))
    ]
    for _ in range(3):
        point = torch.from_numpy(rng.normal(size=8)).requires_grad_()
        expected = 0.5 * reference.quadratic(point, terms)
        (gradient,) = torch.autograd.grad(expected, point)
        point = point.detach()
        assert_allclose(penalty.value(point), float(expected.detach()), rtol=1e-10)
        assert_allclose(penalty.gradient(point), gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_running_sum_pulls_to_the_latest_weights(rng, decay):
    importances, weights = stream(rng)
    penalty = absorb_all(importances, weights, kind="running_sum", decay=decay)
    terms = [(decay ** (4 - k) * F, weights[-1]) for k, F in enumerate(importances)]
    point = torch.from_numpy(rng.normal(size=8))
    assert_allclose(penalty.value(point), 0.5 * float(reference.quadratic(point, terms)))
    assert penalty.value(weights[-1]) == 0


def test_decay_weakens_the_old_once_and_never_the_new():
    one, w = torch.ones(8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
    for kind in ("running_sum", "per_task"):
        penalty = absorb_all([one, one, one], [w, w, w], kind=kind, decay=0.5)
        assert_allclose(penalty.precision, 1 + 0.5 * (1 + 0.5))


def test_importances_are_the_next_precision(rng):
    importances, weights = stream(rng)
    penalty = absorb_all(importances[:1], weights[:1], kind="per_task", decay=1.0)
    actual = penalty.importances([importances[1]], scale=0.3, decay=0.7, rows_weight=1.0)
    assert_allclose(actual, 0.7 * importances[0] + 0.3 * importances[1], rtol=1e-13)


@pytest.mark.parametrize("step", [0.1, "per coordinate"])
def test_prox_equals_a_numerical_minimiser(rng, step):
    P, a, w = (torch.from_numpy(rng.exponential(size=6)) for _ in range(3))
    P[0] = 0
    eta = step if step == 0.1 else torch.from_numpy(rng.uniform(0.1, 2, size=6))
    penalty = DiagonalPenalty(P, a)

    def proximal_objective(u):
        u = torch.from_numpy(u)
        return penalty.value(u) + float(((u - w) ** 2 / (2 * eta)).sum())

    found = scipy.optimize.minimize(proximal_objective, w.numpy(), tol=1e-12).x
    moved = w.clone()
    penalty.prox_(moved, 1 / eta)
    assert_allclose(moved, found, atol=1e-6)
    assert moved[0] == w[0]


def test_prox_never_overshoots():
    penalty = DiagonalPenalty(tensor(1e30, 1e-30, 1.0), tensor(1.0, 1.0, 1.0))
    weights = tensor(0.0, 0.0, 0.0)
    penalty.prox_(weights, 1e-3)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert weights[0] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strength", [1e-300, 1.0, 1e12, 1e308])
def test_no_strength_makes_nan(dtype, strength):
    P = torch.tensor([0.0, 1e-30, 1.0, 1e30], dtype=dtype)
    penalty = DiagonalPenalty(P, torch.ones(4, dtype=dtype)).scaled(strength)
    weights = torch.zeros(4, dtype=dtype)
    for inverse_step in (1e3, torch.full((4,), 1e-5, dtype=dtype), torch.zeros(4, dtype=dtype)):
        penalty.prox_(weights, inverse_step + 1e-30)
        assert torch.isfinite(weights).all()
    assert weights[0] == 0
    # Nor does the sum with the largest inverse step overflow, which would let go of all.
    largest = torch.finfo(dtype).max
    pinned = DiagonalPenalty(P[2:3], torch.ones(1, dtype=dtype)).scaled(largest)
    pinned.prox_(weights[1:2].zero_(), largest / 2)
    assert 0.1 < weights[1] < 1


def test_the_value_is_finite_where_the_squared_distance_is_not():
    penalty = DiagonalPenalty(tensor(1e-300), tensor(0.0))
    assert_allclose(penalty.value(tensor(1e200)), 5e99)


def test_state_is_numpy_and_restores_to_copies(rng):
    importances, weights = stream(rng)
    penalty = absorb_all(importances, weights, kind="per_task", decay=1.0)
    state = penalty.state()
    again = DiagonalPenalty.restore(state, LINEAR, "cpu")
    assert isinstance(state["precision"], np.ndarray)
    assert again.constant == penalty.constant > 0
    again.precision.zero_()
    assert_array_equal(state["precision"], penalty.precision)
    assert DiagonalPenalty.restore(DiagonalPenalty.zero(LINEAR, np.float64), LINEAR, "cpu").is_zero


def test_floor_holds_what_is_held_less_at_the_weights_given():
    penalty = DiagonalPenalty(tensor(0.0, 0.5, 2.0, 1.0), tensor(1.0, 2.0, 3.0, 4.0), 4.0)
    floored = penalty.floored(tensor(1.0, 0.1, 1.0, 1.0), tensor(6.0, 7.0, 8.0, 9.0))
    assert_array_equal(floored.precision, [1.0, 0.5, 2.0, 1.0])
    assert_array_equal(floored.anchor, [6.0, 2.0, 3.0, 4.0])
    assert floored.constant == 4.0


@pytest.mark.parametrize(
    ("precision", "finite", "zero"),
    [((0, 0), True, True), ((0, 2), True, False), ((1, np.inf), False, False)],
)
def test_overflow_and_emptiness_are_seen(precision, finite, zero):
    penalty = DiagonalPenalty(tensor(*precision), tensor(0.0, 0.0))
    assert penalty.is_finite is finite
    assert penalty.is_zero is zero


@pytest.mark.parametrize(
    ("a", "g", "finite", "zero"),
    [(0, 0, True, True), (1e20, 1e18, True, False), (1e20, 1e20, False, False)],
)
def test_products_that_overflow_are_seen(a, g, finite, zero):
    state = KroneckerPenalty.zero(LINEAR, np.float32)
    state["inputs"][0][1][1], state["outputs"][0][1][1] = a, g
    penalty = KroneckerPenalty.restore(state, LINEAR, "cpu")
    assert penalty.is_finite is finite
    assert penalty.is_zero is zero
