"""First-order solvers with the penalty's proximal step.

A solver knows a flat weight vector, its gradient and a penalty (None where nothing is
protected). It changes the weights in place. Following the step on the loss by the
penalty's proximal map has the same fixed points as descending on their sum, and no
precision can make it diverge, where a gradient step fails as soon as lr·λ·F > 2.
"""

from __future__ import annotations

import math

import torch


def _within(rate: float, limits) -> float:
    """Keep a learning rate and its inverse well among the numbers of the weights' type."""
    return min(max(rate, limits.tiny * 1e8), limits.max / 1e8)


class SGD:
    """Stochastic gradient descent with momentum and scikit-learn's schedules.

    The velocity is the distance really moved, proximal step included (accelerated
    proximal gradient; Beck & Teboulle 2009). Were it the gradients alone, momentum μ
    would let the loss outweigh the penalty by 1/(1 - μ) at the fixed point.
    """

    def __init__(
        self, weights, *, learning_rate_init, learning_rate, momentum, nesterovs_momentum, power_t
    ):
        self.velocity = torch.zeros_like(weights)
        self._limits = torch.finfo(weights.dtype)
        self._rate_init = learning_rate_init
        self._schedule = learning_rate
        self._factor = 1.0
        self._momentum = momentum
        self._nesterov = nesterovs_momentum
        self._power_t = power_t

    @property
    def rate(self) -> float:
        """The learning rate where the schedule has come to."""
        return _within(self._rate_init * self._factor, self._limits)

    def step(self, weights, gradient, penalty) -> None:
        """One step on the loss, then the penalty's proximal step."""
        start = weights.clone()
        if not self._nesterov:
            weights.add_(self.velocity, alpha=self._momentum)
        weights.add_(gradient, alpha=-self.rate)
        if penalty is not None:
            penalty.prox_(weights, 1 / self.rate)
        if self._nesterov:
            # `weights` holds the look-ahead point, from which the old momentum is taken
            # off and to which the new one is added, as scikit-learn does.
            self.velocity.mul_(self._momentum).add_(weights).sub_(start)
            weights.add_(self.velocity, alpha=self._momentum)
        else:
            torch.sub(weights, start, out=self.velocity)

    def end_epoch(self, n_rows_seen: int) -> None:
        """Let the learning rate follow its schedule."""
        if self._schedule == "invscaling":
            self._factor = math.exp(-self._power_t * math.log(n_rows_seen + 1))

    def slow_down(self) -> bool:
        """Whether a smaller learning rate is worth trying; takes it if so."""
        if self._schedule != "adaptive" or self.rate <= 1e-6:
            return False
        self._factor /= 5.0
        return True

    def state(self) -> dict:
        """Return what the next chunk of the same task goes on with."""
        return {"velocity": self.velocity.cpu().numpy(), "factor": self._factor}

    def restore(self, state: dict) -> None:
        """Go on from `state`."""
        self.velocity = torch.tensor(state["velocity"], device=self.velocity.device)
        if self._schedule != "constant":
            self._factor = state["factor"]


class Adam:
    """Adam (Kingma & Ba 2015); the proximal step uses its own step per coordinate."""

    def __init__(self, weights, *, learning_rate_init, beta_1, beta_2, epsilon):
        self.mean = torch.zeros_like(weights)
        self.variance = torch.zeros_like(weights)
        self._steps = torch.zeros((), dtype=torch.float32, device=weights.device)
        self._n_steps = 0
        self._rate = _within(learning_rate_init, torch.finfo(weights.dtype))
        self._beta_1, self._beta_2, self._epsilon = beta_1, beta_2, epsilon
        self._buffer = None

    def step(self, weights, gradient, penalty) -> None:
        """One step on the loss, then the penalty's proximal step."""
        self._n_steps += 1
        self._steps.fill_(self._n_steps)
        correction = (1 - self._beta_2**self._n_steps) ** 0.5
        torch._fused_adam_(
            [weights], [gradient], [self.mean], [self.variance], [], [self._steps],
            lr=self._rate, beta1=self._beta_1, beta2=self._beta_2,
            # torch adds eps to √v/correction, scikit-learn to √v.
            eps=self._epsilon / correction, weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip
        if penalty is not None:
            # 1/η of each coordinate, without the correction of the mean.
            self._buffer = torch.sqrt(self.variance, out=self._buffer).add_(self._epsilon)
            penalty.prox_(weights, self._buffer, 1 / (correction * self._rate), self._buffer)

    def end_epoch(self, n_rows_seen: int) -> None:
        """Adam's learning rate has no schedule."""

    def slow_down(self) -> bool:
        """Adam has no smaller learning rate to try."""
        return False

    def state(self) -> dict:
        """Return what the next chunk of the same task goes on with."""
        return {
            "mean": self.mean.cpu().numpy(),
            "variance": self.variance.cpu().numpy(),
            "n_steps": self._n_steps,
        }

    def restore(self, state: dict) -> None:
        """Go on from `state`."""
        self.mean = torch.tensor(state["mean"], device=self.mean.device)
        self.variance = torch.tensor(state["variance"], device=self.variance.device)
        self._n_steps = state["n_steps"]
