"""Minimise J on one task: epochs, early stopping and convergence, or L-BFGS."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import scipy.optimize
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from skewc._objective import Objective

_MULTIPLICATIONS_WORTH_A_THREAD = 2**22
# What holds torch at one thread, and the number that it returns to.
_lock, _holders, _n_threads = threading.Lock(), set(), 1

NON_FINITE = (
    "Solver produced non-finite parameter weights. The input data may contain large values "
    "and need to be preprocessed (StandardScaler), or sample_weight or learning_rate_init is too "
    "large. The estimator is as it was before this call."
)


@dataclass
class History:
    """What one training run leaves behind, under the names scikit-learn gives it."""

    loss_: float = math.inf
    best_loss_: float | None = math.inf
    loss_curve_: list[float] = field(default_factory=list)
    validation_scores_: list[float] | None = None
    best_validation_score_: float | None = None
    n_iter_: int = 0
    t_: int = 0


@dataclass(frozen=True)
class Epochs:
    """How a stochastic solver passes over the rows, and when it stops.

    The fields mean what they mean in scikit-learn's MLPClassifier. `warn` says whether
    running out of epochs is worth a ConvergenceWarning. `after_epoch` is given the weights
    with which training would end now, and says whether it should.
    """

    batch_size: int | str
    max_iter: int
    shuffle: bool
    tol: float
    n_iter_no_change: float
    verbose: bool | int
    warn: bool
    after_epoch: Callable[[torch.Tensor], bool]

    def minimise(self, objective: Objective, penalty, solver, history, rng, validation) -> None:
        """Change `objective.weights` in place until convergence.

        `penalty` is scaled to stand beside the mean loss, or None. `validation` are the
        rows held out for early stopping, or None. `history` is written.
        """
        kept, parts = objective.weights, objective.parts
        if validation is not None:
            history.best_loss_, history.validation_scores_ = None, []
            history.best_validation_score_ = -math.inf
            kept = kept.clone()
        n, batch_size = len(objective.order), self._batch_size(len(parts[0]))
        stalled = 0
        while history.n_iter_ < self.max_iter:
            if self.shuffle:
                parts = [objective.rows.shuffled(part, rng) for part in parts]
            order = _evenly_mixed(parts)
            with _threads_worth_their_while(objective, batch_size):
                loss = _epoch(objective, penalty, solver, objective.rows.index(order), batch_size)
            history.n_iter_ += 1
            history.t_ += n
            self._record(history, loss)
            if validation is None:
                improved = history.loss_ <= history.best_loss_ - self.tol
                history.best_loss_ = min(history.best_loss_, history.loss_)
            else:
                improved = self._validate(history, objective, validation, kept)
            solver.end_epoch(history.t_)
            if self.after_epoch(kept):
                break
            stalled = 0 if improved else stalled + 1
            if stalled > self.n_iter_no_change:
                watched = "Training loss" if validation is None else "Validation score"
                message = (
                    f"{watched} did not improve more than tol={self.tol:f} for "
                    f"{self.n_iter_no_change:.0f} consecutive epochs."
                )
                if not solver.slow_down():
                    self._say(f"{message} Stopping.")
                    break
                self._say(f"{message} Setting learning rate to {solver.rate:f}")
                stalled = 0
        else:
            self._warn_not_converged()
        objective.weights.copy_(kept)

    def _batch_size(self, n: int) -> int:
        if self.batch_size == "auto":
            return min(200, n)
        if self.batch_size > n:
            warnings.warn(
                "Got `batch_size` less than 1 or larger than sample size. "
                "It is going to be clipped",
                stacklevel=2,
            )
        return min(self.batch_size, n)

    def _record(self, history: History, loss: float) -> None:
        if not math.isfinite(loss):
            raise ValueError(NON_FINITE)
        history.loss_ = loss
        history.loss_curve_.append(loss)
        self._say(f"Iteration {history.n_iter_}, loss = {loss:.8f}")

    def _validate(self, history, objective, validation, best_weights) -> bool:
        """Score the held-out rows; keep the weights if they are the best so far."""
        score = objective.accuracy(validation)
        history.validation_scores_.append(score)
        self._say(f"Validation score: {score:f}")
        improved = score >= history.best_validation_score_ + self.tol
        if score > history.best_validation_score_:
            history.best_validation_score_ = score
            best_weights.copy_(objective.weights)
        return improved

    def _warn_not_converged(self) -> None:
        if self.warn:
            warnings.warn(
                f"Stochastic Optimizer: Maximum iterations ({self.max_iter}) reached and "
                "the optimization hasn't converged yet.",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _say(self, message: str) -> None:
        if self.verbose:
            print(message)


def _threads_worth_their_while(objective: Objective, batch_size: int):
    """Keep small batches on one thread; waking a second costs more than it does.

    Where other processes compete for the cores, it costs ten times as much.
    """
    if batch_size * objective.network.n_coefs < _MULTIPLICATIONS_WORTH_A_THREAD:
        return one_thread()
    return nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold torch at one thread, also while other Python threads train.

    torch keeps a number of threads for each Python thread, and one that new ones start
    from. So the number to return to is what the first to enter found, and each puts it
    back: a thread born in between knows of one thread only.
    """
    holder = object()
    try:
        try:
            _hold(holder)
            yield
        finally:
            _let_go(holder)
    finally:  # an interrupt may have stopped the first
        _let_go(holder)


def _hold(holder: object) -> None:
    global _n_threads
    with _lock:
        if not _holders:
            _n_threads = torch.get_num_threads()
        _holders.add(holder)
        torch.set_num_threads(1)


def _let_go(holder: object) -> None:
    with _lock:
        if holder in _holders:
            torch.set_num_threads(_n_threads)
            _holders.discard(holder)


def _evenly_mixed(parts: list[np.ndarray]) -> np.ndarray:
    """Merge sequences so that every stretch has of each its share."""
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate([(np.arange(len(part)) + 0.5) / len(part) for part in parts])
    return np.concatenate(parts)[np.argsort(places, kind="stable")]


def _epoch(objective, penalty, solver, index: torch.Tensor, batch_size: int) -> float:
    """Pass once over the rows; return J.

    Its mean of s·NLL is over the rows as they were met, its quadratic terms are those at the
    end. Only here does the host wait for the device.
    """
    nll = []
    for batch in index.split(batch_size):
        nll.append(objective.batch(batch))
        solver.step(objective.weights, objective.gradient, penalty)
    loss = torch.stack(nll).sum(dtype=torch.float64) / objective.total_weight
    loss += objective.l2_value()
    return float(loss if penalty is None else loss + penalty.value(objective.weights))


def hold_out(labels: np.ndarray, fraction: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """Split row numbers into training and validation rows, stratified by label."""
    try:
        train, validation = train_test_split(
            np.arange(len(labels)), test_size=fraction, random_state=rng, stratify=labels
        )
    except ValueError as error:
        raise ValueError(
            f"early_stopping cannot hold out validation_fraction={fraction} of the {len(labels)} "
            f"rows of a task, stratified by class: {error}"
        ) from error
    if len(validation) < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' "
            "or the size of your dataset."
        )
    return train, validation


def minimise_lbfgs(
    objective: Objective, penalty, history, after_epoch, *, max_iter, max_fun, tol, warn
) -> None:
    """Minimise the whole of J, penalty included, by scipy's L-BFGS-B; an iteration is an epoch."""
    weights, stopped = objective.weights, False

    def value_and_gradient(point: np.ndarray):
        weights.copy_(torch.from_numpy(point))
        value = objective.full()
        gradient = objective.gradient
        if penalty is not None:
            value += float(penalty.value(weights))
            gradient = gradient + penalty.gradient(weights)
        return value, gradient.cpu().numpy().astype(np.float64)

    def after_iteration(intermediate_result):
        nonlocal stopped
        history.loss_ = history.best_loss_ = float(intermediate_result.fun)
        history.loss_curve_.append(history.loss_)
        history.n_iter_ += 1
        weights.copy_(torch.from_numpy(intermediate_result.x))
        try:
            stopped = after_epoch(weights)
        except StopIteration as error:  # scipy would end well with it
            raise RuntimeError("StopIteration was raised after an iteration of lbfgs.") from error
        if stopped:
            raise StopIteration

    result = scipy.optimize.minimize(
        value_and_gradient,
        weights.cpu().numpy().astype(np.float64),
        method="L-BFGS-B",
        jac=True,
        options={"maxfun": max_fun, "maxiter": max_iter, "gtol": tol},
        callback=after_iteration,
    )
    weights.copy_(torch.from_numpy(result.x))
    if not math.isfinite(result.fun):
        raise ValueError(NON_FINITE)
    if warn and not stopped and result.status != 0:
        warnings.warn(
            f"lbfgs failed to converge after {result.nit} iteration(s) (status={result.status}): "
            f"{result.message}. Increase max_iter or max_fun, or scale the data.",
            ConvergenceWarning,
            stacklevel=2,
        )
    history.loss_ = history.best_loss_ = float(result.fun)
    history.n_iter_ = result.nit
    history.t_ += result.nfev * len(objective.order)
