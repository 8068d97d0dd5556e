import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal

from skewc._losses import (
    class_mask,
    fisher_vectors,
    label_distributions,
    nll_and_delta,
    summed_squares,
    summed_squares_through,
)

ACTIVE = np.array([True, False, True, True])


@pytest.fixture
def rows(rng):
    logits = torch.from_numpy(rng.normal(scale=3, size=(6, 4)))
    labels = torch.from_numpy(rng.choice([0, 2, 3], size=(6, 1)))
    return logits, labels


@pytest.mark.parametrize("active", [None, ACTIVE])
def test_loss_and_gradient_at_the_logits(rows, active):
    logits, labels = rows
    s = torch.linspace(0.5, 2, 6, dtype=torch.float64)[:, None]
    z = logits.clone().requires_grad_()
    masked = z if active is None else z.masked_fill(~torch.from_numpy(active), -torch.inf)
    expected = -(s * torch.log_softmax(masked, 1).gather(1, labels)).sum()
    (expected_delta,) = torch.autograd.grad(expected, z)
    mask = None if active is None else class_mask(active, logits)
    value, delta = nll_and_delta(logits, labels, s, mask)
    assert_allclose(float(value), float(expected.detach()), rtol=1e-13)
    assert_allclose(delta, expected_delta, rtol=1e-12, atol=1e-15)
    if active is not None:
        assert_array_equal(delta[:, 1], 0)


def test_mask_is_left_out_where_all_classes_are_active(rows):
    assert class_mask(np.ones(4, dtype=bool), rows[0]) is None


@pytest.mark.parametrize("active", [None, ACTIVE])
def test_exact_vectors_add_up_to_the_fisher_at_the_logits(rows, active):
    logits, labels = rows
    mask = None if active is None else class_mask(active, logits)
    vectors = fisher_vectors("exact", logits, labels, mask, None)
    p = torch.softmax(logits if mask is None else logits + mask, dim=1)
    assert vectors.shape == (4 if active is None else 3, 6, 4)
    for i in range(len(logits)):
        expected = torch.diag(p[i]) - torch.outer(p[i], p[i])
        assert_allclose(vectors[:, i].T @ vectors[:, i], expected, atol=1e-14)


def test_empirical_vectors_are_gradients_of_the_own_label(rows):
    logits, labels = rows
    vectors = fisher_vectors("empirical", logits, labels, None, None)
    _, delta = nll_and_delta(logits, labels, None, None)
    assert_allclose(vectors[0], delta, rtol=1e-13)


def test_sampled_labels_follow_the_model(seed):
    logits = torch.tensor([[0.0, 5.0, 1.0, 0.5]], dtype=torch.float64).repeat(40_000, 1)
    mask = class_mask(ACTIVE, logits)
    u = torch.from_numpy(np.random.RandomState(seed).uniform(size=(40_000, 1)))
    vectors = fisher_vectors("sample", logits, None, mask, u)[0]
    p = torch.softmax(logits[0] + mask, dim=0)
    drawn = (vectors - p).argmin(dim=1)  # p - e_c is least where c was drawn
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert shares[1] == 0
    assert_allclose(shares, p, atol=4 * np.sqrt(0.25 / 40_000))


def test_no_draw_falls_on_a_class_without_probability():
    logits = torch.zeros(3, 4, dtype=torch.float64)
    u = torch.tensor([[0.0], [1 - 2**-53], [0.5]], dtype=torch.float64)
    for active in ([False, True, True, False], [False, False, False, True], [True] + [False] * 3):
        mask = class_mask(np.array(active), logits)
        vectors = fisher_vectors("sample", logits, None, mask, u)[0]
        drawn = (vectors - torch.softmax(logits + mask, dim=1)).argmin(dim=1)
        assert all(active[c] for c in drawn)


def test_no_draw_falls_beyond_a_total_that_rounds_to_less_than_one():
    mask = class_mask(np.arange(11) < 10, torch.zeros(1, dtype=torch.float64))
    logits = torch.zeros(1, 11, dtype=torch.float64)
    u = torch.tensor([[1 - 2**-53]], dtype=torch.float64)
    p = torch.softmax(logits + mask, dim=1)
    assert p.cumsum(dim=1).max() <= u < 1
    expected = p.clone()
    expected[0, 9] -= 1
    assert_allclose(fisher_vectors("sample", logits, None, mask, u)[0], expected, rtol=1e-15)


def test_reference_masks_like_the_library(rows):
    logits, _ = rows
    flat = torch.cat([torch.eye(4, dtype=torch.float64).ravel(), torch.zeros(4).double()])
    log_p = reference.log_proba(flat, (4, 4), "relu", logits, ACTIVE)
    assert torch.isneginf(log_p[:, 1]).all()
    assert_allclose(log_p.exp().sum(dim=1), 1)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 30.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sums_over_classes_do_not_cancel_where_the_network_is_sure(rng, scale, smoothing):
    """In float32 they equal a loop over the classes in float64."""
    logits = torch.from_numpy(scale * rng.normal(size=(40, 50))).float()
    coef = torch.from_numpy(3 + rng.normal(size=(20, 50))).float()
    vectors = fisher_vectors("exact", logits.double(), None, None, None, smoothing)
    p, q = label_distributions(logits, None, smoothing)
    assert_allclose(summed_squares(p, q), vectors.square().sum(dim=0), rtol=1e-4, atol=1e-37)
    through = (vectors @ coef.double().T).square().sum(dim=0)
    assert_allclose(summed_squares_through(p, q, coef), through, rtol=1e-4, atol=1e-37)
