import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose
from scipy import sparse

import skewc._curvature
import skewc._rows
from skewc._curvature import check_importance_fits, importance_floor, measure_importance
from skewc._losses import class_mask
from skewc._network import Network
from skewc._rows import Rows

SIZES = (4, 6, 5, 3)


def importance(network, weights, X, y, s=None, mask=None, **options):
    options = {"fisher": "exact", "n_samples": None, "rng": np.random.RandomState(0), **options}
    options = {"curvature": "diagonal", "smoothing": 0.0, **options}
    return measure_importance(network, weights, Rows(X, y, s), mask, **options)[0].numpy()


@pytest.fixture(params=["logistic", "relu"])
def problem(rng, request):
    network = Network(SIZES, request.param)
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    return network, weights, rng.normal(size=(12, 4)), rng.randint(3, size=12)


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
@pytest.mark.parametrize("active", [None, [True, False, True]])
def test_equals_a_loop_over_rows_with_autograd(rng, problem, fisher, active):
    network, weights, X, y = problem
    if active is not None:
        y = np.where(y == 1, 2, y)
    s = rng.uniform(size=12)
    mask = None if active is None else class_mask(np.array(active), weights)
    expected = reference.fisher_by_rows(
        fisher, weights, SIZES, network.activation, torch.from_numpy(X), y, s, active
    )
    actual = importance(network, weights, X, y, s, mask, fisher=fisher)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-16)


@pytest.mark.parametrize("sizes", [(4, 3), (4, 6, 3), (4, 6, 5, 3)])
@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("active", [None, [True, False, True]])
def test_the_exact_fisher_of_any_depth(rng, sizes, activation, smoothing, active):
    network = Network(sizes, activation)
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    X, classes = rng.normal(size=(9, 4)), [0, 1, 2] if active is None else [0, 2]
    log_p = reference.log_proba(weights, sizes, activation, torch.from_numpy(X), active)
    expected = 0
    for row, p in zip(X, log_p.exp(), strict=True):
        for c in classes:
            w = weights.clone().requires_grad_()
            one = reference.log_proba(w, sizes, activation, torch.from_numpy(row[None]), active)
            (gradient,) = torch.autograd.grad(one[0, c], w)
            share = (1 - smoothing) * p[c] + smoothing / len(classes)
            expected += share * gradient**2
    mask = None if active is None else class_mask(np.array(active), weights)
    actual = importance(network, weights, X, np.zeros(9, int), mask=mask, smoothing=smoothing)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-16)


def test_sampled_converges_to_exact(problem):
    network, weights, X, y = problem
    exact = importance(network, weights, X, y)
    copies = 4000
    many = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    sampled = importance(network, weights, *many, fisher="sample") / copies
    assert_allclose(sampled, exact, rtol=0.1, atol=0.02 * exact.max())


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_row_order_and_chunks_do_not_matter(problem, fisher, rng, monkeypatch):
    network, weights, X, y = problem
    whole = importance(network, weights, X, y, fisher=fisher)
    order = rng.permutation(12)
    for elements in (1, 60, 10_000):
        monkeypatch.setattr(skewc._rows, "_CHUNK_ELEMENTS", elements)
        shuffled = importance(network, weights, X[order], y[order], fisher=fisher)
        assert_allclose(shuffled, whole, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("fisher", ["exact", "sample", "empirical"])
@pytest.mark.parametrize(
    "sizes", [(12, 3), (12, 6, 3), (12, 6, 5, 3), (12, 5, 6, 3), (12, 2, 2, 9), (12, 2, 9)]
)
@pytest.mark.parametrize("masked", [False, True])
def test_memory_is_bounded_by_the_vectors_sent_back(
    rng, curvature, fisher, sizes, masked, monkeypatch
):
    """Chunks are made for the most numbers that one row takes."""
    network = Network(sizes, "tanh")
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    mask = class_mask(np.arange(sizes[-1]) % 2 == 0, weights) if masked else None
    bounds, sent = [], []
    chunks, reduction = Rows.chunks, {"diagonal": "_squares", "kronecker": "_factors"}[curvature]
    make = getattr(skewc._curvature, reduction)

    def seen(self, widest, order):
        bounds.append(widest)
        return chunks(self, widest, order)

    def counting(*arguments):
        add = make(*arguments)

        def counted(layer, a, d, row_weights):
            sent.append((d if torch.is_tensor(d) else d.p).numel() / len(a))
            add(layer, a, d, row_weights)

        return counted

    monkeypatch.setattr(Rows, "chunks", seen)
    monkeypatch.setattr(skewc._curvature, reduction, counting)
    X, y = rng.normal(size=(8, 12)), np.zeros(8, int)
    importance(network, weights, X, y, mask=mask, curvature=curvature, fisher=fisher)
    assert bounds == [max(sent)]


def test_chunks_do_not_change_what_is_sampled(problem, monkeypatch):
    network, weights, X, y = problem
    whole = importance(network, weights, X, y, fisher="sample")
    monkeypatch.setattr(skewc._rows, "_CHUNK_ELEMENTS", 1)
    assert_allclose(importance(network, weights, X, y, fisher="sample"), whole, rtol=1e-12)


def test_weights_are_repetitions(problem, rng):
    network, weights, X, y = problem
    s = rng.randint(1, 4, size=12)
    repeated = importance(network, weights, np.repeat(X, s, axis=0), np.repeat(y, s))
    assert_allclose(importance(network, weights, X, y, s.astype(float)), repeated, rtol=1e-12)


def test_drawn_rows_stand_for_all_on_average(problem):
    network, weights, X, y = problem
    whole = importance(network, weights, X, y)
    rng = np.random.RandomState(0)
    draws = [importance(network, weights, X, y, n_samples=5, rng=rng) for _ in range(600)]
    assert_allclose(np.mean(draws, axis=0), whole, rtol=0.15, atol=0.02 * whole.max())
    assert_allclose(importance(network, weights, X, y, n_samples=50), whole, rtol=1e-13)
    before = rng.get_state()[2]
    assert_allclose(importance(network, weights, X, y, n_samples=12, rng=rng), whole, rtol=1e-13)
    assert rng.get_state()[2] == before  # nothing was drawn
    # Five rows of one kind tell that no row is drawn twice and that 12/5 is the scale.
    alike = np.repeat(X[:1], 12, axis=0), np.repeat(y[:1], 12)
    few = importance(network, weights, *alike, n_samples=5)
    assert_allclose(few, importance(network, weights, *alike), rtol=1e-12)


@pytest.mark.parametrize("sizes", [(4, 3), (4, 6, 3), SIZES])
@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
def test_sparse_rows_give_the_same(rng, sizes, curvature):
    network = Network(sizes, "relu")
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    X, y = rng.normal(size=(12, 4)), rng.randint(3, size=12)
    X = np.where(np.abs(X) > 0.7, X, 0)
    dense = importance(network, weights, X, y, curvature=curvature)
    found = importance(network, weights, sparse.csr_array(X), y, curvature=curvature)
    assert_allclose(found, dense, rtol=1e-13)


def test_the_batch_mistake_would_be_seen(problem):
    """Squaring the mean gradient of a batch underestimates the per-row Fisher."""
    network, weights, X, y = problem
    flat = weights.clone().requires_grad_()
    value = reference.nll(flat, SIZES, network.activation, torch.from_numpy(X), y, torch.ones(12))
    (gradient,) = torch.autograd.grad(value, flat)
    per_batch = gradient.square() / 12
    per_row = importance(network, weights, X, y, fisher="empirical")
    assert per_batch.sum() < 0.5 * per_row.sum()


def test_silent_units_are_held_and_unused_inputs_are_free(rng):
    network = Network((3, 4, 2), "relu")
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    _, intercepts = network.split(weights)
    intercepts[0][1] = -1e3  # a unit silent on all rows
    X = rng.normal(size=(30, 3))
    X[:, 2] = 0
    found = torch.from_numpy(importance(network, weights, X, rng.randint(2, size=30)))
    floors = network.split(importance_floor(network, found))
    (hidden, output), (b_hidden, b_output) = floors
    (found_hidden, _), (found_b, _) = network.split(found)
    assert (found_hidden[:, 1] == 0).all()
    assert_allclose(hidden, 1e-3 * found_hidden.mean(dim=1, keepdim=True).expand(3, 4))
    assert_allclose(b_hidden, 1e-3 * found_b.mean().expand(4))
    assert (hidden[:2] > 0).all()
    assert not hidden[2].any()
    assert not output.any()
    assert not b_output.any()


def test_factors_must_fit_in_a_gibibyte():
    """Kept twice in float64, (in + 1)² + out² numbers for each layer."""
    check_importance_fits("kronecker", Network((8190, 2), "relu"), 8)
    check_importance_fits("kronecker", Network((8191, 2), "relu"), 4)
    check_importance_fits("diagonal", Network((10**6, 10**4), "relu"), 8)
    with pytest.raises(ValueError, match=r"would keep 1\.0 GiB .* the limit of 1\.0 GiB"):
        check_importance_fits("kronecker", Network((8191, 2), "relu"), 8)
    with pytest.raises(ValueError, match=r"would keep 1\.5 GiB .* \(10030, 2\) units, above"):
        check_importance_fits("kronecker", Network((10_030, 2), "relu"), 8)


def test_factors_that_just_fit_are_taken(monkeypatch):
    network = Network((2, 3, 4), "relu")
    needed = 2 * 8 * (3**2 + 3**2 + 4**2 + 4**2)
    monkeypatch.setattr(skewc._curvature, "_LARGEST_FACTORS", needed)
    check_importance_fits("kronecker", network, 8)
    monkeypatch.setattr(skewc._curvature, "_LARGEST_FACTORS", needed - 1)
    with pytest.raises(ValueError, match="curvature='kronecker' would keep"):
        check_importance_fits("kronecker", network, 8)
