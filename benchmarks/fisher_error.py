"""Measure how far the diagonal and the Kronecker factors are from the Fisher information.

For each layer of a 64-30-10 network learned on digits to the end: the distance, in the
Frobenius norm and relative to the layer's whole Fisher matrix, of what each curvature keeps of
it; and the share of the matrix's quadratic form that is left of 1000 random directions' and
of the displacement by a second task, learned without a penalty. Run with
``python benchmarks/fisher_error.py``; writes results/fisher_error.md.
"""

import numpy as np
import torch
from streams import permuted_digits, write

from skewc import EWCClassifier


def layer_gradients(clf, X):
    """Yield inputs with a trailing 1, and weighted output vectors (n, K, out), of each layer.

    Their outer products, summed, are the layer's Fisher information.
    """
    coefs, intercepts = clf.coefs_, clf.intercepts_
    hidden = np.maximum(X @ coefs[0] + intercepts[0], 0)
    p = clf.predict_proba(X)
    out = np.sqrt(p)[:, :, None] * (p[:, None, :] - np.eye(p.shape[1]))
    inside = (out @ coefs[1].T) * (hidden > 0)[:, None, :]
    for a, d in ((X, inside), (hidden, out)):
        yield np.hstack([a, np.ones((len(a), 1))]), d


def whole(a, d):
    """Return the layer's Fisher matrix, of side (in + 1)·out."""
    gradients = np.einsum("ni,nko->nkio", a, d).reshape(-1, a.shape[1] * d.shape[2])
    return gradients.T @ gradients


def displacement(before, after, layer):
    """Return what the layer's weights moved by, flat."""
    parts = [
        np.vstack([clf.coefs_[layer], clf.intercepts_[layer]]).ravel() for clf in (before, after)
    ]
    return parts[1] - parts[0]


def main():
    """Print and write the table."""
    torch.set_num_threads(1)
    first, second = permuted_digits(2, 0)
    options = {"ewc_lambda": 0, "batch_size": 32, "random_state": 0}
    clf = EWCClassifier((30,), **options).partial_fit(first.X_train, first.y_train)
    moved = EWCClassifier((30,), **options).partial_fit(first.X_train, first.y_train)
    moved.partial_fit(second.X_train, second.y_train)
    lines = [
        "| layer | kept | error | quadratic form of random directions | of the second task's |",
        "|---|---|---|---|---|",
    ]
    random = np.random.RandomState(0)
    for layer, (a, d) in enumerate(layer_gradients(clf, first.X_train.astype(float))):
        F = whole(a, d)
        G = np.einsum("nko,nkp->op", d, d)
        kept = {"diagonal": np.diag(np.diag(F)), "kronecker": np.kron(a.T @ a / len(a), G)}
        directions = random.normal(size=(1000, len(F)))
        step = displacement(clf, moved, layer)
        for name, K in kept.items():
            error = np.linalg.norm(F - K) / np.linalg.norm(F)
            forms = [np.einsum("ni,ij,nj->n", directions, M, directions).mean() for M in (K, F)]
            share = (step @ K @ step) / (step @ F @ step)
            lines.append(
                f"| {layer + 1} | {name} | {error:.2f} | {forms[0] / forms[1]:.2f} | {share:.2f} |"
            )
    write("fisher_error", "\n".join(lines))


if __name__ == "__main__":
    main()
