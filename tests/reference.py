"""Oracles: slow, plain, and written without skewc's own mathematics.

Gradients come from torch's autograd, one row at a time; quadratics are lists of terms.
"""

import numpy as np
import torch

ACTIVATIONS = {
    "identity": lambda z: z,
    "logistic": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
}


def split(flat, sizes):
    """Coefficients of all layers, then intercepts of all layers, out of a flat tensor."""
    shapes = [*pairs(sizes), *[(n,) for n in sizes[1:]]]
    parts = torch.split(flat, [int(np.prod(shape)) for shape in shapes])
    parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    return parts[: len(sizes) - 1], parts[len(sizes) - 1 :]


def log_proba(flat, sizes, activation, X, active=None):
    """Log-probabilities over the active classes only, -inf elsewhere."""
    coefs, intercepts = split(flat, sizes)
    h = X
    for layer, (W, b) in enumerate(zip(coefs, intercepts, strict=True)):
        h = h @ W + b
        if layer < len(coefs) - 1:
            h = ACTIVATIONS[activation](h)
    if active is not None:
        h = h.masked_fill(~torch.as_tensor(active), -torch.inf)
    return torch.log_softmax(h, dim=-1)


def nll(flat, sizes, activation, X, y, weights, active=None):
    """Weighted sum of negative log-likelihoods."""
    log_p = log_proba(flat, sizes, activation, X, active)
    return -(weights * log_p[torch.arange(len(y)), y]).sum()


def fisher_by_rows(kind, flat, sizes, activation, X, y, weights, active=None):
    """Diagonal of the exact or empirical Fisher: a loop over rows and labels."""
    total = torch.zeros_like(flat)
    for x, label, weight in zip(X, y, weights, strict=True):
        flat = flat.detach().requires_grad_()
        log_p = log_proba(flat, sizes, activation, x, active)
        if kind == "exact":
            labels = [c for c in range(len(log_p)) if log_p[c] > -torch.inf]
            shares = [log_p[c].exp().detach() for c in labels]
        else:
            labels, shares = [int(label)], [1.0]
        for c, share in zip(labels, shares, strict=True):
            (gradient,) = torch.autograd.grad(log_p[c], flat, retain_graph=True)
            total += weight * share * gradient**2
    return total.detach()


def exact_vectors(p, q):
    """The vectors √q_c·(p - e_c) at the logits, (K, n, K), of p and q, both (n, K)."""
    one_hot = torch.eye(p.shape[1], dtype=p.dtype)
    return torch.stack([q[:, c, None].sqrt() * (p - one_hot[c]) for c in range(p.shape[1])])


def quadratic(w, terms):
    """Value of Σ_k (w - a_k)ᵀ diag(F_k) (w - a_k) for a list of (F, a)."""
    return sum(((w - a) ** 2 * F).sum() for F, a in terms)


def full_fisher(kind, flat, sizes, activation, X, y, weights, active=None):
    """The whole exact or empirical Fisher matrix: a loop over rows and labels."""
    total = torch.zeros(len(flat), len(flat), dtype=flat.dtype)
    for x, label, weight in zip(X, y, weights, strict=True):
        flat = flat.detach().requires_grad_()
        log_p = log_proba(flat, sizes, activation, x, active)
        shares = log_p.exp().detach()
        if kind == "empirical":
            shares = torch.zeros_like(shares)
            shares[int(label)] = 1
        for c in torch.nonzero(shares).ravel().tolist():
            (gradient,) = torch.autograd.grad(log_p[c], flat, retain_graph=True)
            total += weight * shares[c] * torch.outer(gradient, gradient)
    return total.detach()


def layer_index(sizes):
    """For each layer, where the entries of its matrix (in + 1, out) lie in the flat vector."""
    coefs, intercepts = split(torch.arange(sum((i + 1) * o for i, o in pairs(sizes))), sizes)
    return [torch.cat([w, b[None]]).ravel() for w, b in zip(coefs, intercepts, strict=True)]


def pairs(sizes):
    """Inputs and outputs of each layer."""
    return list(zip(sizes, sizes[1:], strict=False))


def kronecker(w, terms, sizes):
    """Value of Σ_k Σ_layers (w - a_k)ᵀ (A_k ⊗ G_k) (w - a_k), the matrices multiplied out.

    `terms` are (A of each layer, G of each layer, anchor).
    """
    total = 0.0
    for A, G, anchor in terms:
        for index, a, g in zip(layer_index(sizes), A, G, strict=True):
            d = (w - anchor)[index]
            total = total + d @ torch.kron(a, g) @ d
    return total
