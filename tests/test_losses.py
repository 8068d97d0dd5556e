import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal

from skewc._losses import (
    ExactVectors,
    class_mask,
    label_distributions,
    label_vectors,
    nll_and_delta,
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
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_vectors_add_up_to_the_fisher_at_the_logits(rows, active, weighted):
    logits, _ = rows
    mask = None if active is None else class_mask(active, logits)
    s = torch.linspace(0.5, 2, 6, dtype=torch.float64)[:, None] if weighted else None
    p = torch.softmax(logits if mask is None else logits + mask, dim=1)
    expected = sum(
        (1 if s is None else s[i]) * (torch.diag(p[i]) - torch.outer(p[i], p[i])) for i in range(6)
    )
    vectors = ExactVectors(*label_distributions(logits, mask, 0.0))
    assert_allclose(vectors.gram(s), expected, atol=1e-14)
    assert_allclose(vectors.squares().sum(dim=0), (p - p**2).sum(dim=0), atol=1e-14)
    kept = slice(None) if active is None else torch.from_numpy(active)
    identity = torch.eye(4, dtype=torch.float64)
    formed = vectors.through(identity, kept)
    assert formed.shape == (4 if active is None else 3, 6, 4)
    assert_allclose(formed, reference.exact_vectors(p, p)[kept], atol=1e-15)


def test_empirical_vectors_are_gradients_of_the_own_label(rows):
    logits, labels = rows
    vectors = label_vectors("empirical", logits, labels, None, None, 0.0)
    _, delta = nll_and_delta(logits, labels, None, None)
    assert_allclose(vectors, delta, rtol=1e-13)


def test_sampled_labels_follow_the_model(seed):
    logits = torch.tensor([[0.0, 5.0, 1.0, 0.5]], dtype=torch.float64).repeat(40_000, 1)
    mask = class_mask(ACTIVE, logits)
    u = torch.from_numpy(np.random.RandomState(seed).uniform(size=(40_000, 1)))
    vectors = label_vectors("sample", logits, None, mask, u, 0.0)
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
        vectors = label_vectors("sample", logits, None, mask, u, 0.0)
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
    assert_allclose(label_vectors("sample", logits, None, mask, u, 0.0), expected, rtol=1e-15)


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
    p = torch.softmax(logits.double(), dim=1)
    expected = reference.exact_vectors(p, (1 - smoothing) * p + smoothing / 50)
    vectors = ExactVectors(*label_distributions(logits, None, smoothing))
    assert_allclose(vectors.squares(), expected.square().sum(dim=0), rtol=1e-4, atol=1e-37)
    through = (expected @ coef.double().T).square().sum(dim=0)
    assert_allclose(vectors.squares_through(coef), through, rtol=1e-4, atol=1e-37)
    for row in range(len(logits)):
        gram = ExactVectors(vectors.p[row, None], vectors.q[row, None]).gram(None)
        own = expected[:, row].T @ expected[:, row]
        size = own.diagonal().sqrt()
        assert ((gram - own).abs() <= 1e-4 * torch.outer(size, size) + 1e-37).all()
