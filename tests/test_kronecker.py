import json
import pickle

import numpy as np
import pytest
import reference
import scipy.optimize
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from state import bits

import skewc._curvature
import skewc._learning
import skewc._penalties
import skewc._rows
from skewc import EWCClassifier
from skewc._curvature import importance_floor, measure_importance
from skewc._losses import class_mask
from skewc._network import Network
from skewc._objective import Objective
from skewc._penalties import KroneckerPenalty
from skewc._rows import Rows

SIZES = (4, 6, 5, 3)
N_LAYERS = len(SIZES) - 1


@pytest.fixture(params=["tanh", "relu"])
def network(request):
    return Network(SIZES, request.param)


def draw(network, rng):
    return torch.from_numpy(network.initialise(rng, np.float64))


def factors(network, weights, X, y, s=None, mask=None, **options):
    options = {"fisher": "exact", "smoothing": 0.0, "n_samples": None, **options}
    return measure_importance(
        network, weights, Rows(X, y, s), mask,
        curvature="kronecker", rng=np.random.RandomState(0), **options,
    )  # fmt: skip


def blocks(arrays, n):
    """A⊗G of each layer, A the mean over rows of total weight n."""
    return [torch.kron(a / n, g) for a, g in zip(arrays[:N_LAYERS], arrays[N_LAYERS:], strict=True)]


# Factors


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
@pytest.mark.parametrize("active", [None, [True, False, True]])
def test_the_product_is_the_fisher_of_one_row(network, rng, fisher, active):
    weights, X, y, s = draw(network, rng), rng.normal(size=(1, 4)), np.array([2]), np.array([1.7])
    mask = None if active is None else class_mask(np.array(active), weights)
    whole = reference.full_fisher(
        fisher, weights, SIZES, network.activation, torch.from_numpy(X), y, s, active
    )
    arrays = factors(network, weights, X, y, s, mask, fisher=fisher)
    for index, block in zip(reference.layer_index(SIZES), blocks(arrays, 1.7), strict=True):
        assert_allclose(block, whole[index][:, index], rtol=1e-9, atol=1e-15)


def test_the_product_is_the_fisher_where_all_predictions_are_alike(network, rng):
    weights, X, y = draw(network, rng), rng.normal(size=(9, 4)), rng.randint(3, size=9)
    s = rng.uniform(1, 2, size=9)
    n_in, n_out = SIZES[-2:]
    weights[network.n_coefs - n_in * n_out : network.n_coefs] = 0  # the last layer's coefficients
    whole = reference.full_fisher(
        "exact", weights, SIZES, network.activation, torch.from_numpy(X), y, s
    )
    block = blocks(factors(network, weights, X, y, s), s.sum())[-1]
    index = reference.layer_index(SIZES)[-1]
    assert_allclose(block, whole[index][:, index], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("fisher", ["exact", "empirical", "sample"])
def test_factors_do_not_depend_on_chunks(network, rng, fisher, monkeypatch):
    weights, X, y = draw(network, rng), rng.normal(size=(12, 4)), rng.randint(3, size=12)
    s = rng.uniform(size=12)
    whole = factors(network, weights, X, y, s, fisher=fisher)
    for n in range(N_LAYERS):
        assert_array_equal(whole[n], whole[n].T)
    monkeypatch.setattr(skewc._rows, "_CHUNK_ELEMENTS", 60)
    for a, b in zip(whole, factors(network, weights, X, y, s, fisher=fisher), strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_a_row_of_weight_three_is_three_rows(network, rng):
    weights, X, y = draw(network, rng), rng.normal(size=(9, 4)), rng.randint(3, size=9)
    counts = rng.randint(4, size=9)
    weighted = factors(network, weights, X, y, counts.astype(float))
    repeated = factors(network, weights, X.repeat(counts, 0), y.repeat(counts))
    for a, b in zip(weighted, repeated, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_gram_of_many_columns(rng):
    a = torch.from_numpy(rng.normal(size=(20, 700)))
    s = torch.from_numpy(rng.uniform(size=(20, 1)))
    total = torch.zeros(700, 700, dtype=torch.float64)
    skewc._curvature.add_gram(total, a, s)
    assert_allclose(total.triu(), (a.T @ (s * a)).triu(), rtol=1e-12, atol=1e-14)
    assert total.count_nonzero() < 0.6 * total.numel()  # the rest was never computed


# The penalty


def learned(network, rng, n_tasks, same_inputs=False):
    """Factors, total weights and final weights of tasks on random rows."""
    tasks, X = [], rng.normal(size=(12, 4))
    for k in range(n_tasks):
        X = X if same_inputs else rng.normal(size=(12 + k, 4))
        s, w = rng.uniform(1, 2, size=len(X)), draw(network, rng)
        tasks.append((factors(network, w, X, rng.randint(3, size=len(X)), s), s.sum(), w))
    return tasks


def absorb_all(network, tasks, kind, decay=1.0, scale="sum", scales=None):
    penalty = KroneckerPenalty.restore(KroneckerPenalty.zero(network, np.float64), network, "cpu")
    for k, (arrays, n, w) in enumerate(tasks):
        share = 1.0 if scales is None else scales[k]
        penalty = penalty.absorb(
            w, kind=kind, importance=arrays, rows_weight=n,
            scale=share if scale == "sum" else share / n, decay=decay,
        )  # fmt: skip
        penalty = KroneckerPenalty.restore(penalty.state(), network, "cpu")
    return penalty


def averaged(tasks, decay, scale, scales):
    """A averaged and G summed by their definitions, without recursion."""
    last, N = len(tasks) - 1, len(SIZES) - 1
    omega = [decay ** (last - k) * scales[k] for k in range(len(tasks))]
    shares = [o * (n if scale == "sum" else 1.0) for o, (_, n, _) in zip(omega, tasks, strict=True)]
    A = [
        sum(c * t[0][layer] / t[1] for c, t in zip(shares, tasks, strict=True)) / sum(shares)
        for layer in range(N)
    ]
    per = [o / (1.0 if scale == "sum" else t[1]) for o, t in zip(omega, tasks, strict=True)]
    G = [sum(c * t[0][N + layer] for c, t in zip(per, tasks, strict=True)) for layer in range(N)]
    return A, G


def assert_same_quadratic(network, penalty, terms, rng, **tolerance):
    rotated, diagonal = penalty.diagonal_in(network)
    for _ in range(3):
        point = draw(network, rng).requires_grad_()
        expected = 0.5 * reference.kronecker(point, terms, SIZES)
        (gradient,) = torch.autograd.grad(expected, point)
        point = point.detach()
        x = rotated.coordinates(point)
        assert_allclose(diagonal.value(x), float(expected.detach()), **tolerance)
        expected = rotated.coordinates(gradient)
        assert_allclose(diagonal.gradient(x), expected, atol=1e-9 * expected.abs().max())


@pytest.mark.parametrize("decay", [1.0, 0.6])
@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_running_sum_against_autograd(network, rng, decay, scale):
    tasks, scales = learned(network, rng, 3), [1.0, 0.5, 2.0]
    penalty = absorb_all(network, tasks, "running_sum", decay, scale, scales)
    A, G = averaged(tasks, decay, scale, scales)
    assert_same_quadratic(network, penalty, [(A, G, tasks[-1][2])], rng, rtol=1e-9)


def term(task, share=1.0):
    arrays, n, w = task
    return [a / n for a in arrays[:N_LAYERS]], [share * g for g in arrays[N_LAYERS:]], w


@pytest.mark.parametrize("decay", [1.0, 0.6])
def test_per_task_is_the_list_of_terms_where_factors_differ_by_scale(network, rng, decay):
    tasks = learned(network, rng, 3)
    arrays, n, _ = tasks[0]
    scaled = [
        ([a * k for a in arrays[:N_LAYERS]] + [g * k**2 for g in arrays[N_LAYERS:]], n * k, w)
        for k, (_, _, w) in enumerate(tasks, start=1)
    ]
    penalty = absorb_all(network, scaled, "per_task", decay)
    terms = [term(t, decay ** (2 - k)) for k, t in enumerate(scaled)]
    assert_same_quadratic(network, penalty, terms, rng, rtol=1e-8)


def test_per_task_pulls_back_but_never_beyond_the_old_anchor(network, rng):
    """Averaged with a task of much weight, A may be far weaker than the old one was."""
    (first, n, w), (second, _, v) = learned(network, rng, 2)
    heavy = [1000 * a for a in second[:N_LAYERS]] + [g / 1000 for g in second[N_LAYERS:]]
    point = v.clone().requires_grad_()
    value = 0.5 * reference.kronecker(point, [term((first, n, w))], SIZES)
    (gradient,) = torch.autograd.grad(value, point)
    for task in ((second, n, v), (heavy, 1000 * n, v)):
        penalty = absorb_all(network, [(first, n, w), task], "per_task")
        rotated, diagonal = penalty.diagonal_in(network)
        latest, old = rotated.coordinates(v), rotated.coordinates(w)
        step, whole = latest - diagonal.anchor, latest - old
        assert (step * whole >= -1e-12).all() and (step.abs() <= whole.abs() + 1e-12).all()
        assert penalty.constant >= 0
        # Between the two, the pull at the latest weights is that of the older task alone.
        between = (step.abs() > 1e-9) & (step.abs() < whole.abs() - 1e-9)
        assert between.sum() > 3
        expected = rotated.coordinates(gradient)
        actual = diagonal.gradient(latest)
        assert_allclose(actual[between], expected[between], atol=1e-9 * expected.abs().max())


def test_the_merger_of_two_tasks_multiplied_out(rng):
    """Coordinate by coordinate, in the eigenvectors of the whole product."""
    constants = []
    for _ in range(300):
        a_old, a_new, g_old, g_new = (np.cov(rng.normal(size=(n, n + 1))) for n in (3, 3, 2, 2))
        (a, u), (g, v) = np.linalg.eigh((a_old + a_new) / 2), np.linalg.eigh(g_old + g_new / 10)
        a[0] = 0  # a direction that nothing holds
        distance = rng.normal(size=(3, 2))
        old, vectors, d = np.kron(a_old, g_old), np.kron(u, v), distance.ravel()
        pull, whole, precision = vectors.T @ old @ d, vectors.T @ d, np.kron(a, g)
        step = np.zeros(6)
        for i in range(2, 6):
            step[i] = np.clip(pull[i] / precision[i], min(whole[i], 0), max(whole[i], 0))
        left = d @ old @ d - precision @ step**2
        arrays = (torch.from_numpy(array) for array in (distance, a_old, g_old, u, a, v, g))
        found, constant = skewc._penalties._pull(*arrays)
        assert_allclose(found.ravel(), vectors @ step, rtol=1e-9, atol=1e-12)
        assert_allclose(constant, max(left, 0), rtol=1e-9, atol=1e-12)
        constants.append(constant)
    assert min(constants) == 0  # there, `left` was negative


def test_per_task_stays_where_a_task_adds_nothing(network, rng):
    tasks = learned(network, rng, 2)
    nothing = [torch.zeros_like(a) for a in tasks[0][0]], 0.0, draw(network, rng)
    penalty = absorb_all(network, tasks, "per_task")
    again = absorb_all(network, [*tasks, nothing, nothing], "per_task")
    before, after = penalty.diagonal_in(network), again.diagonal_in(network)
    for _ in range(3):
        point = draw(network, rng)
        values = [diagonal.value(net.coordinates(point)) for net, diagonal in (before, after)]
        assert_allclose(values[1], values[0], rtol=1e-9)


def test_per_task_keeps_small_tasks_beside_a_large_one():
    """A large task that is learned with certainty must not void what held a small one."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(3, 2000, 15))
    used = [slice(0, 5), slice(3, 8), slice(10, 15)]
    rows, accuracy = [60, 2000, 60], {}
    for penalty in ("running_sum", "per_task"):
        model = clf(
            hidden_layer_sizes=(), penalty=penalty, ewc_lambda=1, solver="lbfgs", max_iter=500
        )
        for task in range(3):
            only = np.zeros(15)
            only[used[task]] = 1
            Z = X[task, : rows[task]] * only
            labels = (Z[:, used[task]].sum(axis=1) > 0).astype(int)
            model.partial_fit(Z, labels, task_id=task)
            if task == 0:
                first = Z, labels
            assert model.penalty_value() >= 0
        accuracy[penalty] = model.score(*first)
    assert accuracy["per_task"] > accuracy["running_sum"] - 0.05


def test_prox_against_a_dense_solve(network, rng):
    tasks = learned(network, rng, 2)
    penalty = absorb_all(network, tasks, "running_sum")
    rotated, diagonal = penalty.diagonal_in(network)
    A, G = averaged(tasks, 1.0, "sum", [1.0, 1.0])
    point, anchor, step = draw(network, rng), tasks[-1][2], 0.3
    x = rotated.coordinates(point)
    start = x.clone()
    diagonal.prox_(x, 1 / step)
    moved = rotated.displaced(point, start, x)
    for index, a, g in zip(reference.layer_index(SIZES), A, G, strict=True):
        system = torch.kron(a, g) + torch.eye(len(index), dtype=a.dtype) / step
        right = torch.kron(a, g) @ anchor[index] + point[index] / step
        assert_allclose(moved[index], torch.linalg.solve(system, right), rtol=1e-9, atol=1e-11)


def test_importances_are_the_products_diagonal(network, rng):
    tasks = learned(network, rng, 2)
    first = absorb_all(network, tasks[:1], "running_sum")
    arrays, n, _ = tasks[1]
    actual = first.importances(arrays, scale=1.0, decay=0.5, rows_weight=n)
    A, G = averaged(tasks, 0.5, "sum", [1.0, 1.0])
    for index, a, g in zip(reference.layer_index(SIZES), A, G, strict=True):
        assert_allclose(actual[index], torch.kron(a, g).diagonal(), rtol=1e-9)


def held_directions(network, X, rng, dtype):
    """How many eigenvectors of the first layer's inputs, and of the logits, are held."""
    weights = torch.from_numpy(network.initialise(rng, dtype))
    arrays = factors(network, weights, X.astype(dtype), rng.randint(3, size=len(X)))
    penalty = KroneckerPenalty.restore(KroneckerPenalty.zero(network, dtype), network, "cpu")
    penalty = penalty.absorb(
        weights, kind="running_sum", importance=arrays,
        rows_weight=float(len(X)), scale=1.0, decay=1.0,
    )  # fmt: skip
    return [int((penalty.inputs[0][1] > 0).sum()), int((penalty.outputs[-1][1] > 0).sum())]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [4, 300])
def test_directions_without_importance_are_free(rng, dtype, n_features):
    """Rounding must not hold them: λ may be 1e12."""
    network = Network((n_features, 6, 3), "tanh")
    X = rng.normal(size=(1000, n_features))
    X[:, 1] = X[:, 0] + X[:, 2]
    # Of n_features + 1, the trailing 1 included; and logits may all rise together.
    assert held_directions(network, X, rng, dtype) == [n_features, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_feature_of_large_scale_leaves_the_others_held(rng, dtype):
    X = rng.normal(size=(1000, 4))
    X[:, 2] = 3000 + 10 * X[:, 2]
    assert held_directions(Network((4, 6, 3), "tanh"), X / 3000, rng, dtype)[0] == 5
    assert held_directions(Network((4, 6, 3), "tanh"), X, rng, dtype)[0] == 5


def test_rows_drawn_stand_for_all(network, rng):
    weights, X, y = draw(network, rng), rng.normal(size=(30, 4)), rng.randint(3, size=30)
    s = np.where(np.arange(30) % 5, 1.0, 100.0)
    drawn = np.sort(np.random.RandomState(0).permutation(30)[:7])
    part = factors(network, weights, X, y, s, n_samples=7)
    expected = factors(network, weights, X[drawn], y[drawn], s[drawn])
    for a, b in zip(part, expected, strict=True):
        assert_allclose(a, b * 30 / 7, rtol=1e-12)
    penalty = absorb_all(network, [(part, s.sum(), weights)], "running_sum")
    (u, a), _ = penalty.inputs[0], None
    assert_allclose(((u * a) @ u.T)[-1, -1], 1.0)  # a mean of ones


def test_hidden_units_are_held_a_little_along_every_held_input(network, rng):
    penalty = absorb_all(network, learned(network, rng, 2), "running_sum")
    rotated, diagonal = penalty.diagonal_in(network)
    floors = rotated.split(importance_floor(rotated, diagonal.precision))[0]
    for (_, a), (_, g), floor in zip(penalty.inputs, penalty.outputs, floors, strict=True):
        share = 0 if floor is floors[-1] else 1e-3
        assert_allclose(floor, torch.outer(a, torch.full_like(g, share * g.mean())), rtol=1e-12)


# The network in rotated coordinates


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n", [3, 7])  # fewer rows than outputs of a layer, or more
def test_rotated_network_is_the_same_function(network, rng, make, n):
    weights, X, y = draw(network, rng), rng.normal(size=(n, 4)), rng.randint(3, size=n)
    s = rng.uniform(1, 2, size=n)
    rotated, _ = absorb_all(network, learned(network, rng, 1), "running_sum").diagonal_in(network)
    rows, order, x = Rows(make(X), y, s), np.arange(n), rotated.coordinates(weights)
    results = []
    for net, w in ((network, weights), (rotated, x)):
        objective = Objective(net, w, net.prepared(rows), order, mask=None, alpha=3.0)
        results.append((objective.full(), objective.gradient, objective.accuracy(order)))
    (value, gradient, accuracy), (value_, gradient_, accuracy_) = results
    assert_allclose(value_, value, rtol=1e-12)
    assert accuracy_ == accuracy
    assert_allclose(gradient_, rotated.coordinates(gradient), rtol=1e-10, atol=1e-12)
    assert_array_equal(rotated.displaced(weights, x, x), weights)
    other = draw(network, rng)
    assert_allclose(rotated.displaced(weights, x, rotated.coordinates(other)), other, atol=1e-12)


@pytest.mark.parametrize("n", [3, 4, 6, 7])
def test_what_is_rotated_is_the_inputs_or_the_weights_whichever_are_fewer(network, rng, n):
    rotated, _ = absorb_all(network, learned(network, rng, 1), "running_sum").diagonal_in(network)
    x = rotated.prepared(Rows(rng.normal(size=(n, 4)))).inputs(slice(None))
    blocks = rotated.split(rotated.coordinates(draw(network, rng)))[0]
    _, *kept, _ = rotated.forward(blocks, x)
    made = [
        [part.numel() for part in (inputs, turned) if part is not None]
        for _, inputs, turned in kept
    ]
    assert made == [[min(n, 5) * 7], [min(n, 3) * 6]]


# The estimator


def blobs(rng, n=60, k=3, dtype=np.float64):
    y = np.arange(n) % k
    return (np.eye(5)[y] * 3 + rng.normal(size=(n, 5))).astype(dtype), y


def clf(**parameters):
    defaults = {
        "hidden_layer_sizes": (8,), "curvature": "kronecker", "ewc_lambda": 1.0,
        "fisher_smoothing": 0.0, "max_iter": 5, "n_iter_no_change": 10_000,
        "batch_size": 20, "random_state": 0,
    }  # fmt: skip
    return EWCClassifier(**{**defaults, **parameters})


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_all_solvers_reach_the_minimiser_of_j(rng, solver):
    """Logistic regression, where J is convex: scipy on the quadratic multiplied out."""
    X, y = blobs(rng)
    lam, alpha, sizes = 2.0, 5.0, (5, 3)
    model = clf(
        hidden_layer_sizes=(), solver=solver, ewc_lambda=lam, alpha=alpha, batch_size=60,
        max_iter=1500, tol=1e-9, learning_rate_init=0.3 if solver == "sgd" else 0.01,
    )  # fmt: skip
    model.partial_fit(X, y, task_id=0)
    anchor = np.concatenate([model.coefs_[0].ravel(), model.intercepts_[0]])
    inputs = np.hstack([X, np.ones((60, 1))])
    p = model.predict_proba(X)
    A = torch.from_numpy(inputs.T @ inputs / 60)
    G = torch.from_numpy(np.diag(p.sum(axis=0)) - p.T @ p)
    other = rng.permutation(y)
    model.partial_fit(X[::-1] * 0.7, other, task_id=1)

    def j(w):
        w = torch.tensor(w).requires_grad_()
        data = reference.nll(
            w, sizes, "relu", torch.from_numpy(X[::-1] * 0.7), other, torch.ones(60)
        )
        penalty = reference.kronecker(w, [([A], [G], torch.from_numpy(anchor))], sizes)
        value = (data + lam / 2 * penalty + alpha / 2 * (w[:15] ** 2).sum()) / 60
        (gradient,) = torch.autograd.grad(value, w)
        return value.item(), gradient.numpy()

    best = scipy.optimize.minimize(j, anchor, jac=True, options={"gtol": 1e-10}).fun
    found = j(np.concatenate([model.coefs_[0].ravel(), model.intercepts_[0]]))[0]
    assert best * (1 - 1e-9) <= found < best + 1e-6
    assert j(anchor)[0] > best + 0.1


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("fisher", ["exact", "sample", "empirical"])
@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
def test_options_may_be_read_from_a_file(rng, curvature, fisher, penalty):
    """They are then other objects than the equal strings in the code."""
    X, y = blobs(rng)
    written = {"curvature": curvature, "fisher": fisher, "penalty": penalty}
    read = json.loads(json.dumps({**written, "activation": "logistic"}))
    here, there = clf(activation="logistic", **written), clf(**read)
    for task in range(2):
        here.partial_fit(X + task, y, task_id=task)
        there.partial_fit(X + task, y, task_id=task)
    assert bits(there) == bits(here)


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_old_predictions_are_kept_at_any_lambda(rng, penalty, solver, dtype):
    X, y = blobs(rng, dtype=dtype)
    for lam in (1e6, 1e12):
        model = clf(penalty=penalty, solver=solver, ewc_lambda=lam, max_iter=40)
        model.partial_fit(X, y, task_id=0)
        before = model.predict(X)
        for task in (1, 2):
            model.partial_fit(-X * task, y[::-1], task_id=task)
            assert_array_equal(model.predict(X), before)
        assert all(w.dtype == dtype for w in [*model.coefs_, *model.coef_importances_])


def test_new_classes_join_without_a_change_of_what_is_held(rng):
    X, y = blobs(rng)
    labels = np.array(["b", "d", "f"])[y]
    model = clf().partial_fit(X, labels, task_id=0).partial_fit(-X, labels, task_id=1)
    model.partial_fit(X * 2, labels, task_id=1)  # moments in rotated coordinates
    before = model.decision_function(X), model.coef_importances_, model.penalty_value()
    grown = pickle.loads(pickle.dumps(model))
    grown._stream = grown._stream.grow(np.array(list("abcdef")), np.random.RandomState(0))
    old = [1, 3, 5]
    assert_array_equal(grown.decision_function(X)[:, old], before[0])
    assert_array_equal(grown.coef_importances_[0], before[1][0])
    assert_allclose(grown.coef_importances_[1][:, old], before[1][1], rtol=1e-12)
    assert_allclose(grown.coef_importances_[1][:, [0, 2, 4]], 0)
    assert_allclose(grown.penalty_value(), before[2], rtol=1e-12)
    network, penalty = grown._stream.protection().diagonal_in(grown._stream.network)
    _, kept = model._stream.protection().diagonal_in(model._stream.network)
    last, old_last = penalty.precision[6 * 8 :].reshape(9, 6), kept.precision[6 * 8 :].reshape(9, 3)
    assert_array_equal(last[:, :3], old_last)
    assert not last[:, 3:].any()
    for name in ("mean", "variance"):
        moved, kept = grown._stream.moments[name], model._stream.moments[name]
        n_first = 6 * 8
        assert_array_equal(moved[:n_first], kept[:n_first])
        assert_array_equal(moved[n_first:].reshape(9, 6)[:, :3], kept[n_first:].reshape(9, 3))
        assert not moved[n_first:].reshape(9, 6)[:, 3:].any()
    more = np.array(["a", "c", "e"])[y]
    assert set(model.partial_fit(X, more, task_id=1).classes_) == set("abcdef")
    assert set(model.partial_fit(X, more, task_id=2).predict(X)) <= set("abcdef")


def test_chunks_of_a_task_are_the_task(rng):
    """With weights that stand still: importance adds up over the chunks, as do moments."""
    X, y = blobs(rng)
    start = clf(max_iter=3).partial_fit(-X, y, task_id=0)
    still = {"max_iter": 1, "shuffle": False, "learning_rate_init": 1e-30}
    results = []
    for size in (60, 20):
        model = pickle.loads(pickle.dumps(start)).set_params(**still)
        for begin in range(0, 60, size):
            rows = slice(begin, begin + size)
            model.partial_fit(X[rows], y[rows], task_id=1)
        assert model._stream.moments["n_steps"] == 3
        assert model._stream.moments["rotated"]
        expected = model.coef_importances_
        model.partial_fit(X, y, task_id=2)
        results.append((expected, model._stream.penalty["inputs"], model.penalty_value()))
    (whole, inputs, value), (parts, inputs_, value_) = results
    for a, b in zip(whole, parts, strict=True):
        assert_allclose(b, a, rtol=1e-9)
    for (_, a), (_, b) in zip(inputs, inputs_, strict=True):
        assert_allclose(b, a, rtol=1e-9, atol=1e-12)
    assert_allclose(value_, value, atol=1e-20)


@pytest.mark.parametrize("penalty", ["running_sum", "per_task"])
@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_tasks_that_weigh_nothing_leave_no_penalty(rng, penalty, scale):
    X, y = blobs(rng)
    free = clf(ewc_lambda=0).partial_fit(X, y, task_id=0).partial_fit(-X, y, task_id=1)
    for options, how in (
        ({"task_weights": {0: 0}}, {}),
        ({}, {"consolidate": False}),
    ):
        model = clf(penalty=penalty, fisher_scale=scale, **options)
        model.partial_fit(X, y, task_id=0, **how).partial_fit(-X, y, task_id=1, **how)
        assert model.penalty_value() == 0
        for a, b in zip(model.coefs_, free.coefs_, strict=True):
            assert_array_equal(a, b)


def test_importance_that_overflows_is_an_error(rng):
    X, y = blobs(rng, dtype=np.float32)
    model = clf(task_weights={0: 3e38}, learning_rate_init=1e-30)
    model.partial_fit(X, y, task_id=0)
    before = pickle.dumps(vars(model))
    with pytest.raises(ValueError, match="importance of the tasks overflows float32"):
        model.partial_fit(X, y, task_id=1)
    assert pickle.dumps(vars(model)) == before


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_penalty_is_held_against_the_rows_trained_on(
    rng, monkeypatch, curvature, early_stopping
):
    """Scaled by λ/N, and where it holds too little, floored at the weights of the start."""
    monkeypatch.setattr(skewc._curvature, "_SILENT_SHARE", 1.0)  # so that some weights are low
    X, y = blobs(rng)
    model = clf(curvature=curvature, ewc_lambda=6.0, penalty="per_task", max_iter=2)
    for task in range(2):
        model.partial_fit(X + task, y, task_id=task)
    held, original = [], skewc._learning._held

    def spy(settings, stream, weights, total_weight):
        held.append((stream, weights, original(settings, stream, weights, total_weight)))
        return held[0][2]

    monkeypatch.setattr(skewc._learning, "_held", spy)
    model.set_params(early_stopping=early_stopping, validation_fraction=0.5)
    model.partial_fit(-X, y, task_id=2)
    stream, weights, (network, actual) = held[0]
    _, penalty = stream.protection().diagonal_in(stream.network)
    floor = importance_floor(network, penalty.precision)
    low = penalty.precision < floor
    strength = 6.0 / (30 if early_stopping else 60)
    assert low.any()
    assert_allclose(actual.precision, strength * torch.maximum(penalty.precision, floor))
    assert_array_equal(actual.anchor[low], network.coordinates(weights)[low])
    assert_array_equal(actual.anchor[~low], penalty.anchor[~low])


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
def test_smoothing_mixes_in_uniform_labels(rng, curvature):
    """The Fisher is linear in the labels' distribution."""
    X, y = blobs(rng)
    model = clf(curvature=curvature, fisher_smoothing=0.3).partial_fit(X, y, task_id=0)
    weights = torch.from_numpy(model._stream.weights)
    sizes = (5, 8, 3)
    if curvature == "kronecker":
        expected = [
            0.7 * a + 0.1 * sum(each)
            for a, *each in zip(
                full_factors("exact", weights, sizes, X, y),
                *(full_factors("empirical", weights, sizes, X, np.full(60, c)) for c in range(3)),
                strict=True,
            )
        ]
        actual = model._stream.importance[2:]
    else:
        options = (weights, sizes, "relu", torch.from_numpy(X))
        ones = np.ones(60)
        exact = reference.fisher_by_rows("exact", *options, y, ones)
        uniform = sum(
            reference.fisher_by_rows("empirical", *options, np.full(60, c), ones) for c in range(3)
        )
        expected, actual = [0.7 * exact + 0.1 * uniform], model._stream.importance
    for a, b in zip(actual, expected, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def full_factors(kind, weights, sizes, X, y):
    """Σ δδᵀ of each layer, read off the whole Fisher: its intercepts' blocks."""
    whole = reference.full_fisher(
        kind, weights, sizes, "relu", torch.from_numpy(X), y, np.ones(len(X))
    )
    blocks = []
    for index, (_, n_out) in zip(reference.layer_index(sizes), reference.pairs(sizes), strict=True):
        last = index[-n_out:]
        blocks.append(whole[last][:, last])
    return blocks


def test_state_does_not_grow_with_tasks(rng):
    X, y = blobs(rng)
    for penalty in ("running_sum", "per_task"):
        model, sizes = clf(penalty=penalty, max_iter=1), {}
        for task in range(12):
            model.partial_fit(X + task, y, task_id=task)
            state = {**vars(model._stream), "task_ids": 0, "task_classes": 0, "open_task": 0}
            sizes[task] = len(pickle.dumps(state))
        assert abs(sizes[11] - sizes[2]) < 50


def test_curvature_cannot_change_and_must_fit_in_memory(rng, monkeypatch):
    X, y = blobs(rng)
    model = clf().partial_fit(X, y, task_id=0)
    before = pickle.dumps(vars(model))
    with pytest.raises(ValueError, match="curvature, readout cannot change"):
        model.set_params(curvature="diagonal").partial_fit(X, y, task_id=1)
    model.set_params(curvature="kronecker")
    assert pickle.dumps(vars(model)) == before
    model.set_params(curvature="diagonal", warm_start=True, solver="lbfgs", max_iter=500)
    model.fit(X, y)  # a new start may change it
    wide, refused = sparse.csr_array((3, 20_000)), clf()
    with pytest.raises(ValueError, match=r"6\.0 GiB.*curvature='diagonal'.*PCA"):
        refused.fit(wide, [0, 1, 2])
    assert not hasattr(refused, "_stream")


def test_smoothing_protects_rows_the_network_is_sure_of(rng):
    """At the logits, against the expectation over the smoothed labels."""
    from skewc._losses import ExactVectors, label_distributions, label_vectors

    logits = torch.from_numpy(rng.normal(size=(5, 4)) * 8)
    active = np.array([True, True, False, True])
    mask = class_mask(active, logits)
    p = torch.softmax(logits + mask, dim=1)
    for row in range(5):
        q = 0.7 * p[row] + 0.3 * torch.from_numpy(active / 3)
        expected = sum(
            q[c] * torch.outer(p[row] - torch.eye(4)[c], p[row] - torch.eye(4)[c]) for c in range(4)
        )
        vectors = ExactVectors(*label_distributions(logits[row, None], mask, 0.3))
        assert_allclose(vectors.gram(None), expected, rtol=1e-12, atol=1e-15)
    many = logits[:1].expand(60_000, 4)
    uniforms = torch.from_numpy(rng.uniform(size=(60_000, 1)))
    drawn = label_vectors("sample", many, None, mask, uniforms, 0.3)
    q = 0.7 * p[0] + 0.3 * torch.from_numpy(active / 3)
    shares = (drawn - p[0]).lt(-0.5).double().mean(dim=0)  # p - e_c is below at the drawn class
    assert_allclose(shares, q, atol=0.01)


def test_protects_better_than_fine_tuning_and_the_diagonal(digits):
    X, y, X_test, y_test = digits
    orders = [np.random.RandomState(k).permutation(64) for k in range(5)]
    means = {}
    for curvature, lam in (("diagonal", 0), ("diagonal", 30), ("kronecker", 1)):
        model = clf(
            hidden_layer_sizes=(100,),
            curvature=curvature,
            ewc_lambda=lam,
            batch_size=32,
            max_iter=20,
        )
        for k, order in enumerate(orders):
            model.partial_fit(X[:, order], y, task_id=k)
        means[curvature, lam] = np.mean([model.score(X_test[:, o], y_test) for o in orders])
    assert means["kronecker", 1] > means["diagonal", 30] + 0.05
    assert means["diagonal", 30] > means["diagonal", 0]
