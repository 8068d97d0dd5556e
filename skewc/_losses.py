"""Softmax cross-entropy over the active classes, and the Fisher's vectors.

With p the softmax of the logits over the active classes (0 elsewhere), the negative
log-likelihood of a row with label y is -log p_y and its gradient at the logits is p - e_y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

_FEW_CLASSES = 32


def class_mask(active: np.ndarray, like: torch.Tensor) -> torch.Tensor | None:
    """Logits to add so that inactive classes get probability 0; None if all are active.

    `active` is boolean of shape (K,) or, for a choice per row, (n, K).
    """
    if active.all():
        return None
    mask = np.where(active, 0.0, -np.inf)
    return torch.from_numpy(mask).to(like)


def log_softmax(logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Logarithms of the probabilities, of shape (n, K)."""
    return _over_classes(torch.log_softmax, logits if mask is None else logits + mask)


def softmax(logits: torch.Tensor) -> torch.Tensor:
    """Probabilities, of shape (n, K)."""
    return _over_classes(torch.softmax, logits)


def _over_classes(function, logits):
    # Over few classes torch is several times quicker where rows lie side by side.
    if logits.shape[1] <= _FEW_CLASSES:
        return function(logits.T, dim=0).T
    return function(logits, dim=1)


def nll_and_delta(logits, labels, weights, mask) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ s·NLL, a 0-d tensor, and its gradient s·(p - e_y) at the logits (n, K)."""
    log_p = log_softmax(logits, mask)
    nll = log_p.gather(1, labels)
    delta = log_p.exp_()
    delta.scatter_(1, labels, -1.0, reduce="add")
    if weights is not None:
        nll *= weights
        delta *= weights
    return nll.sum().neg_(), delta


def label_distributions(logits, mask, smoothing) -> tuple[torch.Tensor, torch.Tensor]:
    """Return p, and (1 - smoothing)·p + smoothing·(uniform over the active), both (n, K).

    The exact and the sampled Fisher take the labels from the second.
    """
    p = log_softmax(logits, mask).exp_()
    active = p.new_ones(p.shape[1]) if mask is None else mask.isfinite().to(p)
    return p, torch.lerp(p, active / active.sum(), smoothing)


@dataclass(frozen=True)
class ExactVectors:
    """Vectors δ_c = √q_c·(p - e_c), whose outer products add up to a row's exact Fisher.

    They lie at the logits, one for each class c that may be the label, and are formed only
    where no closed form of their sum over c will do. p and q are (n, K), of
    `label_distributions`.
    """

    p: torch.Tensor
    q: torch.Tensor

    def squares(self) -> torch.Tensor:
        """Σ_c δ_c², of shape (n, K)."""
        p, q = self.p, self.q
        # 1 - q would cancel for the likeliest class, where the network is sure of itself.
        likeliest = q.argmax(dim=1, keepdim=True)
        others = q.scatter(1, likeliest, 0.0).sum(dim=1, keepdim=True)
        others = (1 - q).scatter_(1, likeliest, others)
        return q * (1 - p).square() + others * p.square()

    def gram(self, row_weights: torch.Tensor | None) -> torch.Tensor:
        """Σ s·Σ_c δ_c·δ_cᵀ over the rows, of shape (K, K)."""
        s = 1.0 if row_weights is None else row_weights
        r = self.p - self.q
        total = (s * r).T @ r - (s * self.q).T @ self.q
        total.diagonal().copy_((s * self.squares()).sum(dim=0))  # here the above would cancel
        return total

    def through(self, coef: torch.Tensor, active) -> torch.Tensor:
        """δ_c·Wᵀ of the active c, of shape (C, n, H), for W of shape (H, K)."""
        w = coef.T[active].contiguous()
        d = self.p @ coef.T - w[:, None, :]
        return d.mul_(self.q[:, active].sqrt().T.contiguous()[:, :, None])

    def squares_through(self, coef: torch.Tensor) -> torch.Tensor:
        """Σ_c (δ_c·Wᵀ)², of shape (n, H), for W of shape (H, K), without a loop over c.

        In each row that is the mean over c of (u - w_c)², u = Σ p_c·w_c. Multiplied out, it
        would cancel where the network is sure of itself. So all w are first taken relative to
        that of the row's likeliest class, m: no term is then more than about 1/p_m <= K times
        the result.
        """
        p, q = self.p, self.q
        squares, likeliest = p.new_empty(len(p), len(coef)), p.argmax(dim=1)
        for m in likeliest.unique():
            rows = (likeliest == m).nonzero().ravel()
            w, p_m, q_m = coef - coef[:, m, None], p[rows], q[rows]
            u = p_m @ w.T
            squares[rows] = q_m @ w.square().T - u * (2 * (q_m @ w.T) - u)
        return squares


def label_vectors(kind: str, logits, labels, mask, uniforms, smoothing) -> torch.Tensor:
    """Return p - e_c for one class c of each row, of shape (n, K).

    The row's own label for ``"empirical"``; for ``"sample"`` one drawn by inverting the
    distribution function at `uniforms`, of shape (n, 1).
    """
    p, q = label_distributions(logits, mask, smoothing)
    if kind == "sample":
        labels = _draw(q, uniforms)
    return p.scatter_(1, labels, -1.0, reduce="add")


def _draw(p: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """One class per row, of shape (n, 1); never one of probability 0."""
    cumulative = p.cumsum(dim=1)
    drawn = (cumulative <= uniforms).sum(dim=1, keepdim=True)
    # The total may round to less than 1, which must not lead past the last possible class.
    last_possible = p.shape[1] - 1 - p.flip(1).sign().argmax(1, keepdim=True)
    return torch.minimum(drawn, last_possible)
