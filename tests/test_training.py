import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from torch.utils._python_dispatch import TorchDispatchMode

import skewc._solvers
import skewc._training
from skewc import EWCClassifier
from skewc._network import Network
from skewc._training import one_thread


@pytest.fixture
def blobs(rng):
    y = rng.randint(3, size=90)
    return rng.normal(size=(90, 4)) + 3 * np.eye(3, 4)[y], y


def test_fit_warns_when_epochs_run_out_and_partial_fit_does_not(blobs):
    X, y = blobs
    with pytest.warns(ConvergenceWarning, match=r"Maximum iterations \(2\) reached"):
        EWCClassifier(max_iter=2).fit(X, y)
    EWCClassifier(max_iter=20, tol=0).partial_fit(X, y)  # warnings are errors here
    EWCClassifier(solver="lbfgs", max_iter=3).partial_fit(X, y)


def test_lbfgs_warns_when_iterations_run_out(blobs):
    with pytest.warns(ConvergenceWarning, match="lbfgs failed to converge after 3 iteration"):
        EWCClassifier(solver="lbfgs", max_iter=3).fit(*blobs)


def test_large_batches_are_clipped_with_a_warning(blobs):
    X, y = blobs
    with pytest.warns(UserWarning, match="It is going to be clipped"):
        clf = EWCClassifier(batch_size=500, max_iter=1, random_state=0).partial_fit(X, y)
    whole = EWCClassifier(batch_size=90, max_iter=1, random_state=0).partial_fit(X, y)
    np.testing.assert_array_equal(clf.coefs_[0], whole.coefs_[0])


def test_training_stops_when_nothing_improves(blobs, capsys):
    X, y = blobs
    clf = EWCClassifier(learning_rate_init=0.05, tol=0.1, verbose=True, random_state=0).fit(X, y)
    assert clf.n_iter_ < 200
    assert len(clf.loss_curve_) == clf.n_iter_
    assert clf.best_loss_ == min(clf.loss_curve_)
    printed = capsys.readouterr().out
    assert f"Iteration {clf.n_iter_}, loss = {clf.loss_:.8f}" in printed
    assert "Stopping." in printed


def test_adaptive_rate_is_lowered_before_stopping(blobs, capsys):
    EWCClassifier(
        solver="sgd", learning_rate="adaptive", learning_rate_init=0.1, tol=0.05,
        n_iter_no_change=1, verbose=True, random_state=0,
    ).fit(*blobs)  # fmt: skip
    printed = capsys.readouterr().out
    assert "Setting learning rate to 0.020000" in printed
    assert "Stopping." in printed


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_early_stopping_keeps_the_best_weights(blobs, method, capsys):
    X, y = blobs
    y = np.where(np.random.RandomState(0).uniform(size=90) < 0.3, (y + 1) % 3, y)
    clf = EWCClassifier(
        early_stopping=True, learning_rate_init=0.1, random_state=0,
        validation_fraction=0.3, n_iter_no_change=20, verbose=True,
    )  # fmt: skip
    getattr(clf, method)(X, y)
    assert clf.best_loss_ is None
    assert clf.best_validation_score_ == max(clf.validation_scores_)
    assert clf.validation_scores_[-1] < clf.best_validation_score_
    # The rows held out, drawn again as training drew them.
    rng = np.random.RandomState(0)
    Network((4, 100, 3), "relu").initialise(rng, X.dtype)
    _, held_out = train_test_split(np.arange(90), test_size=0.3, random_state=rng, stratify=y)
    assert clf.score(X[held_out], y[held_out]) == clf.best_validation_score_
    assert "Validation score" in capsys.readouterr().out


def test_of_equal_scores_the_first_weights_are_kept(blobs):
    X, y = blobs
    parameters = {"early_stopping": True, "learning_rate_init": 0.01, "random_state": 0}
    clf = EWCClassifier(max_iter=30, n_iter_no_change=30, **parameters).partial_fit(3 * X, y)
    scores = clf.validation_scores_
    assert scores.count(max(scores)) > 1
    first = EWCClassifier(max_iter=1 + scores.index(max(scores)), **parameters)
    first.partial_fit(3 * X, y)
    np.testing.assert_array_equal(clf.coefs_[0], first.coefs_[0])


def test_lbfgs_records_the_objective_after_each_iteration(blobs):
    X, y = blobs
    parameters = {"hidden_layer_sizes": (4,), "solver": "lbfgs", "alpha": 1.0, "random_state": 0}
    clf = EWCClassifier(max_iter=6, **parameters).partial_fit(X, y)
    assert len(clf.loss_curve_) == clf.n_iter_ == 6
    for k in range(6):
        part = EWCClassifier(max_iter=k + 1, **parameters).partial_fit(X, y)
        nll = -np.mean(part.predict_log_proba(X)[np.arange(90), y])
        l2 = sum((coef**2).sum() for coef in part.coefs_) / 2 / 90
        np.testing.assert_allclose(clf.loss_curve_[k], nll + l2, rtol=1e-10)


def test_lbfgs_stops_at_max_fun(blobs):
    few = EWCClassifier(solver="lbfgs", max_fun=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"(?i)evaluations exceeds limit"):
        few.fit(*blobs)
    whole = EWCClassifier(solver="lbfgs", random_state=0).fit(*blobs)
    assert 3 * 90 <= few.t_ < whole.t_


def test_too_few_rows_to_hold_out(blobs):
    X, y = blobs[0][:6], [0, 0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="validation set is too small"):
        EWCClassifier(early_stopping=True, validation_fraction=0.1).fit(X, y)


@pytest.mark.parametrize("parameters", [{"solver": "sgd", "learning_rate_init": 1e30}])
def test_divergence_is_an_error(blobs, parameters):
    X, y = blobs
    with pytest.raises(ValueError, match="non-finite.*StandardScaler"):
        EWCClassifier(max_iter=5, **parameters).fit(X * 1e30, y)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("first_out", ["first in", "last in"])
def test_trainings_in_two_threads_leave_torch_its_threads(three_threads, first_out):
    """The second thread is born while the first trains, and so knows of one thread only."""
    may_leave = {name: threading.Event() for name in ("first in", "last in")}
    has_entered = {name: threading.Event() for name in may_leave}

    def train(name):
        with pytest.raises(KeyboardInterrupt), one_thread():  # failing, too
            inside = torch.get_num_threads()
            has_entered[name].set()
            assert may_leave[name].wait(10)
            raise KeyboardInterrupt
        return inside, torch.get_num_threads()

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        found = {}
        for pool, name in ((one, "first in"), (two, "last in")):
            found[name] = pool.submit(train, name)
            assert has_entered[name].wait(10)
        for name in sorted(may_leave, key=lambda name: name != first_out):
            may_leave[name].set()
            assert found[name].result(10) == (1, 3)
    with ThreadPoolExecutor(1) as later:
        assert later.submit(torch.get_num_threads).result(10) == 3
    assert torch.get_num_threads() == 3


def test_small_batches_train_onone_thread(three_threads, blobs, monkeypatch):
    used = []
    step = skewc._solvers.Adam.step

    def count(self, *args):
        used.append(torch.get_num_threads())
        step(self, *args)

    monkeypatch.setattr(skewc._solvers.Adam, "step", count)
    EWCClassifier(max_iter=1, random_state=0).partial_fit(*blobs)
    monkeypatch.setattr(skewc._training, "_MULTIPLICATIONS_WORTH_A_THREAD", 1)
    EWCClassifier(max_iter=1, random_state=0).partial_fit(*blobs)
    assert used == [1, 3]
    assert torch.get_num_threads() == 3


class Waits(TorchDispatchMode):
    """Count what makes the host wait for a device: numbers read, and sizes that depend on them."""

    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique")
        self.n += any(name in str(function) for name in waits)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("solver", ["adam", "sgd"])
@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_host_waits_for_the_device_once_an_epoch(blobs, solver, curvature, early_stopping):
    X, y = blobs
    waits = {}
    for epochs in (1, 4):
        clf = EWCClassifier(
            (5,), solver=solver, curvature=curvature, early_stopping=early_stopping,
            max_iter=epochs, batch_size=8, n_iter_no_change=100, random_state=0,
        ).partial_fit(X, y, task_id="a")  # fmt: skip
        with Waits() as counted:
            clf.partial_fit(
                X, y, task_id="b", sample_weight=np.linspace(1, 2, 90), consolidate=False
            )
        waits[epochs] = counted.n
    assert waits[4] - waits[1] == 3 * (1 + early_stopping)
