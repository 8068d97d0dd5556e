import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.neural_network import MLPClassifier

from skewc._inputs import dense
from skewc._losses import nll_and_delta
from skewc._network import Network
from skewc._products import add_product, product, stable_product
from skewc._rows import Rows


def make(rng, sizes, activation):
    network = Network(sizes, activation)
    weights = torch.from_numpy(network.initialise(rng, np.float64))
    return network, weights


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("sizes", [(4, 3), (4, 6, 3), (4, 6, 5, 3)])
def test_backpropagation_equals_autograd(rng, activation, sizes):
    network, weights = make(rng, sizes, activation)
    X = torch.from_numpy(rng.normal(size=(7, 4)))
    y = torch.from_numpy(rng.randint(3, size=7))
    s = torch.from_numpy(rng.uniform(size=7))

    flat = weights.clone().requires_grad_()
    expected = reference.nll(flat, sizes, activation, X, y, s)
    (expected_gradient,) = torch.autograd.grad(expected, flat)

    coefs, intercepts = network.split(weights)
    activations = network.forward(coefs, intercepts, X)
    value, delta = nll_and_delta(activations[-1], y[:, None], s[:, None], None)
    gradient = torch.zeros_like(weights)
    coef_gradients, intercept_gradients = network.split(gradient)
    for layer, a, d in network.backpropagate(coefs, activations, delta):
        coef_gradients[layer] += a.T @ d
        intercept_gradients[layer] += d.sum(dim=0)
    assert_allclose(float(value), expected.item(), rtol=1e-12)
    assert_allclose(gradient, expected_gradient, rtol=1e-10, atol=1e-13)


def test_several_vectors_per_row_go_back_like_each_alone(rng):
    network, weights = make(rng, (4, 6, 5, 3), "tanh")
    coefs, intercepts = network.split(weights)
    activations = network.forward(coefs, intercepts, torch.from_numpy(rng.normal(size=(7, 4))))
    vectors = torch.from_numpy(rng.normal(size=(2, 7, 3)))
    together = list(network.backpropagate(coefs, activations, vectors))
    for c in range(2):
        alone = network.backpropagate(coefs, activations, vectors[c])
        for (layer, a, d), (layer_c, a_c, d_c) in zip(together, alone, strict=True):
            assert layer == layer_c
            assert a is a_c
            assert_allclose(d[c], d_c, rtol=1e-13)


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_first_weights_are_those_of_scikit_learn(rng, seed, activation):
    network = Network((4, 6, 5, 3), activation)
    weights = network.initialise(np.random.RandomState(seed), np.float64)
    theirs = MLPClassifier(
        (6, 5), activation=activation, solver="sgd", learning_rate_init=1e-300, random_state=seed
    )
    theirs.partial_fit(rng.normal(size=(9, 4)), np.arange(9) % 3, classes=[0, 1, 2])
    assert_allclose(weights, Network.join(theirs.coefs_, theirs.intercepts_), rtol=1e-12)


def test_split_and_join_are_inverse_and_share_memory():
    network = Network((3, 4, 2), "relu")
    vector = np.arange(float(network.n_weights))
    coefs, intercepts = network.split(vector)
    assert [c.shape for c in coefs] == [(3, 4), (4, 2)]
    assert [b.shape for b in intercepts] == [(4,), (2,)]
    assert network.n_coefs == 20
    assert_array_equal(Network.join(coefs, intercepts), vector)
    coefs[1][0, 0] = -1
    assert vector[12] == -1


@pytest.mark.parametrize("sizes", [(5, 2), (5, 7, 3), (20, 33, 9), (5, 33, 57), (5, 33, 60)])
def test_growing_keeps_old_logits_bit_for_bit(rng, sizes):
    network, weights = make(rng, sizes, "relu")
    old = sizes[-1]
    columns = np.sort(rng.permutation(old + 3)[:old])
    growth = network.grow(columns, old + 3)
    wider = growth.network
    grown = torch.from_numpy(wider.initialise(rng, np.float64))
    grown[growth.index] = weights
    x = torch.from_numpy(rng.normal(size=(50, sizes[0])))
    before = network.logits(*network.split(weights), x)
    after = wider.logits(*wider.split(grown), x)
    assert_array_equal(after[:, columns], before)
    assert_allclose(after, wider.forward(*wider.split(grown), x)[-1], rtol=1e-9)


@pytest.mark.parametrize("n_rows", [1, 4, 5, 17, 300])
@pytest.mark.parametrize("n_inputs", [1, 7, 64, 100, 300])
@pytest.mark.parametrize("form", ["float32", "float64", "sparse"])
def test_a_column_of_a_stable_product_does_not_know_the_others(rng, n_rows, n_inputs, form):
    """In whatever place, among however many, it has the same bits."""
    a, b = rng.normal(size=(n_rows, n_inputs)), rng.normal(size=(n_inputs, 1))
    x = batch_of(a) if form == "sparse" else torch.from_numpy(a.astype(form))
    column = torch.from_numpy(b if form == "sparse" else b.astype(form))
    alone = stable_product(x, column)
    assert_allclose(alone, a @ b, rtol=1e-4 if form == "float32" else 1e-10, atol=1e-4)
    for n in (2, 15, 16, 17, 40):
        product = stable_product(x, column.expand(n_inputs, n))
        assert product.shape == (n_rows, n)
        assert (product == alone).all()


def batch_of(a):
    """The whole of a matrix as a batch of sparse rows, with some elements in two parts."""
    X = sparse.csr_matrix(a)
    data = np.stack([X.data / 4, X.data * 3 / 4], axis=1).ravel()
    parts = sparse.csr_matrix((data, np.repeat(X.indices, 2), 2 * X.indptr), a.shape)
    return Rows(parts).inputs(torch.arange(len(a)))


def test_sparse_batches_square_and_fill(rng):
    a = rng.normal(size=(5, 7)) * (rng.uniform(size=(5, 7)) < 0.4)
    assert_allclose(dense(batch_of(a)), a, rtol=1e-15)
    assert_allclose(dense(batch_of(a).square()), a**2, rtol=1e-15)
    assert_allclose(dense(batch_of(a).T.square()), a.T**2, rtol=1e-15)


@pytest.mark.parametrize("columns", [1, 10, 11, 12, 40])
@pytest.mark.parametrize("n_rows", [3, 300])
@pytest.mark.parametrize("kind", ["dense", "turned", "sparse", "sparse turned", "no elements"])
def test_products_are_those_of_numpy(rng, kind, n_rows, columns):
    a, b = rng.normal(size=(n_rows, 100)), rng.normal(size=(100, columns))
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    if kind == "turned":
        x = torch.from_numpy(a.T.copy()).T
    elif kind != "dense":
        a *= 0 if kind == "no elements" else rng.uniform(size=a.shape) < 0.1
        x = batch_of(a.T).T if kind == "sparse turned" else batch_of(a)
    assert_allclose(product(x, y), a @ b, rtol=1e-10, atol=1e-12)
    for start in rng.normal(size=columns), rng.normal(size=(n_rows, columns)):
        out = torch.full((n_rows, columns), np.nan, dtype=y.dtype)
        result = add_product(torch.from_numpy(start), x, y, beta=0.3, out=out)
        assert result is out
        assert_allclose(out, 0.3 * start + a @ b, rtol=1e-10, atol=1e-12)
        assert_allclose(add_product(torch.from_numpy(start), x, y), start + a @ b, atol=1e-12)
