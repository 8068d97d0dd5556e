"""Learn one task: minimise J on its rows, then add up what later tasks need of it.

`settings` is the estimator; its parameters are read here, nothing of it is written.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch

from skewc._curvature import importance_floor, measure_importance
from skewc._inputs import to_tensor
from skewc._losses import class_mask
from skewc._memory import herding_ranks
from skewc._network import Network, RotatedNetwork
from skewc._objective import Objective
from skewc._penalties import DiagonalPenalty
from skewc._rows import Rows
from skewc._solvers import SGD, Adam
from skewc._stream import Consolidation, Stream
from skewc._training import NON_FINITE, Epochs, History, hold_out, minimise_lbfgs
from skewc._validation import check_task_weights


def consolidation(settings) -> Consolidation:
    """Return how a task's importance joins the penalty."""
    return Consolidation(
        settings.penalty,
        settings.fisher_scale,
        settings.fisher_decay,
        check_task_weights(settings.task_weights),
    )


def learn_task(
    settings,
    stream: Stream,
    history: History,
    rows: Rows,
    codes: np.ndarray,
    *,
    rng: np.random.RandomState,
    consolidate: bool,
    warn: bool,
    report,
) -> Stream:
    """Return the stream after rows, with classes `codes`, of its open task; write `history`."""
    stream = stream.limited(settings.memory_size)
    like = to_tensor(stream.weights, settings.device)
    mask = class_mask(stream.active(settings.active_classes), like)
    weights, moments = _train(settings, stream, history, rows, codes, mask, rng, warn, report)
    if consolidate:
        stream = _consolidated(settings, stream, weights, rows, mask, rng)
    weights = weights.cpu().numpy()
    if not all(np.isfinite(array).all() for array in [weights, *stream.importance]):
        raise ValueError(NON_FINITE)
    return replace(stream, weights=weights, moments=moments)


def _consolidated(settings, stream: Stream, weights: torch.Tensor, rows: Rows, mask, rng):
    """Count rows, learned by `weights`, into all that is kept of them."""
    added = measure_importance(
        stream.network, weights, rows, mask,
        curvature=settings.curvature, fisher=settings.fisher,
        smoothing=float(settings.fisher_smoothing), n_samples=settings.fisher_samples, rng=rng,
    )  # fmt: skip
    if settings.memory_size:
        if settings.memory_selection == "herding":
            ranks = herding_ranks(stream.network, weights, rows, settings.memory_size)
        else:
            ranks = rng.uniform(size=rows.n)
        stream = stream.remember(rows, ranks, settings.memory_size)
    importance = [array.cpu().numpy() for array in added]
    if stream.importance:
        importance = [a + b for a, b in zip(stream.importance, importance, strict=True)]
    return replace(
        stream,
        importance=importance,
        importance_weight=stream.importance_weight + rows.total_weight(np.arange(rows.n)),
        readout=stream.readout and stream.readout.add(rows),
    )


def _train(settings, stream: Stream, history: History, rows: Rows, codes, mask, rng, warn, report):
    """Minimise J; return the weights and the moments of the solver."""
    order, validation = np.arange(rows.n), None
    if settings.early_stopping and settings.solver != "lbfgs":
        order, validation = hold_out(codes, settings.validation_fraction, rng)
    began = to_tensor(stream.weights, settings.device)
    network, penalty = _held(settings, stream, began, rows.total_weight(order))
    start, replay = network.coordinates(began), None
    if stream.memory is not None:
        each_once = settings.solver == "lbfgs"
        rows, replay = stream.memory.beside(rows, order, stream.open_task, each_once=each_once)
    objective = Objective(
        network, start.clone(), network.prepared(rows), order,
        mask=mask, alpha=float(settings.alpha), replay=replay,
    )  # fmt: skip

    def weights_at(coordinates):
        return network.displaced(began, start, coordinates)

    def after_epoch(kept):
        return report.epoch(
            lambda: {
                "_stream": replace(stream, weights=weights_at(kept.clone()).cpu().numpy()),
                **copy.deepcopy(vars(history)),
            }
        )

    if settings.solver == "lbfgs":
        minimise_lbfgs(
            objective, penalty, history, after_epoch,
            max_iter=settings.max_iter, max_fun=settings.max_fun, tol=settings.tol, warn=warn,
        )  # fmt: skip
        return weights_at(objective.weights), {}
    solver = _solver(settings, objective.weights)
    kind = {"solver": settings.solver, "rotated": network is not stream.network}
    if kind.items() <= stream.moments.items():
        solver.restore(stream.moments)
    epochs = _epochs(settings, warn, after_epoch)
    epochs.minimise(objective, penalty, solver, history, rng, validation)
    return weights_at(objective.weights), {**kind, **solver.state()}


def _held(
    settings, stream: Stream, weights: torch.Tensor, total_weight: float
) -> tuple[Network | RotatedNetwork, DiagonalPenalty | None]:
    """Return the network in coordinates where (λ/N)·Ω is diagonal, and that penalty.

    It stands beside the mean loss, and is None where it would not pull.
    """
    if not stream.penalty or settings.ewc_lambda == 0:
        return stream.network, None
    penalty = stream.protection(settings.device)
    if penalty.is_zero:
        return stream.network, None
    network, penalty = penalty.diagonal_in(stream.network)
    floor = importance_floor(network, penalty.precision)
    strength = float(settings.ewc_lambda)
    if settings.fisher_scale == "sum":
        strength /= total_weight
    return network, penalty.floored(floor, network.coordinates(weights)).scaled(strength)


def _solver(settings, weights: torch.Tensor) -> SGD | Adam:
    if settings.solver == "sgd":
        return SGD(
            weights,
            learning_rate_init=float(settings.learning_rate_init),
            learning_rate=settings.learning_rate,
            momentum=float(settings.momentum),
            nesterovs_momentum=settings.nesterovs_momentum,
            power_t=float(settings.power_t),
        )
    return Adam(
        weights,
        learning_rate_init=float(settings.learning_rate_init),
        beta_1=float(settings.beta_1),
        beta_2=float(settings.beta_2),
        epsilon=float(settings.epsilon),
    )


def _epochs(settings, warn: bool, after_epoch) -> Epochs:
    return Epochs(
        batch_size=settings.batch_size,
        max_iter=settings.max_iter,
        shuffle=settings.shuffle,
        tol=settings.tol,
        n_iter_no_change=settings.n_iter_no_change,
        verbose=settings.verbose,
        warn=warn,
        after_epoch=after_epoch,
    )
