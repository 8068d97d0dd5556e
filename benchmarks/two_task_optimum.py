"""Measure how far EWC is from the optimum of both tasks, where that can be computed.

Without a hidden layer, with λ = 1 and α = 0, the loss is convex, so the minimiser of both
tasks' loss is known. Run with ``python benchmarks/two_task_optimum.py``; writes
results/two_task_optimum.md.

"full Fisher" is the same quadratic with the whole matrix instead of its diagonal, which
tells the share of the error that is due to the diagonal from the share that is due to
replacing the first task's loss by a quadratic.
"""

import numpy as np
import scipy.optimize
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from streams import write

from skewc import EWCClassifier


def nll(w, X, y, k):
    """Sum of the negative log-likelihood and its gradient; w is (features + 1, k) flat."""
    logits = X @ w.reshape(-1, k)
    residual = softmax(logits, axis=1) - np.eye(k)[y]
    return -log_softmax(logits, axis=1)[np.arange(len(y)), y].sum(), (X.T @ residual).ravel()


def fisher(w, X, k):
    """Whole Fisher information, a sum over rows."""
    p = softmax(X @ w.reshape(-1, k), axis=1)
    covariance = np.einsum("nc,cd->ncd", p, np.eye(k)) - np.einsum("nc,nd->ncd", p, p)
    size = X.shape[1] * k
    return np.einsum("ni,nj,ncd->icjd", X, X, covariance).reshape(size, size)


def minimise(function, start):
    """Minimise a smooth convex function to high accuracy."""
    options = {"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-15, "gtol": 1e-9}
    return scipy.optimize.minimize(function, start, jac=True, method="L-BFGS-B", options=options).x


def compare(X, y, order):
    """Excess of both tasks' loss over its optimum, for each way of learning the second."""
    k = len(np.unique(y))
    ones = np.c_[X, np.ones(len(X))]
    halves = order[: len(y) // 2], order[len(y) // 2 :]
    tasks = [(ones[h], y[h], k) for h in halves]

    def both(w):
        values = [nll(w, *task) for task in tasks]
        return sum(v for v, _ in values), sum(g for _, g in values)

    start = np.zeros(ones.shape[1] * k)
    joint = minimise(both, start)
    first = minimise(lambda w: nll(w, *tasks[0]), start)
    found = {"fine-tuning": minimise(lambda w: nll(w, *tasks[1]), first)}
    F = fisher(first, tasks[0][0], k)

    def laplace(w):
        value, gradient = nll(w, *tasks[1])
        pull = F @ (w - first)
        return value + 0.5 * (w - first) @ pull, gradient + pull

    found["full Fisher"] = minimise(laplace, first)
    for curvature in ("diagonal", "kronecker"):
        clf = EWCClassifier(
            (), solver="lbfgs", curvature=curvature, ewc_lambda=1, fisher_smoothing=0, alpha=0,
            tol=1e-9, max_iter=100_000, random_state=0,
        )  # fmt: skip
        for half in halves:
            clf.partial_fit(X[half], y[half])
        found[f"EWC, {curvature}"] = np.vstack([clf.coefs_[0], clf.intercepts_[0]]).ravel()
    best = both(joint)[0]
    return best, {name: both(w)[0] - best for name, w in found.items()}


def problems():
    """Yield name, X, y and the order of rows: alike halves, then halves that differ."""
    data = {
        "iris, sepals": (*load_iris(return_X_y=True), [0, 1]),
        "wine, 3 features": (*load_wine(return_X_y=True), [1, 2, 3]),
        "breast cancer, 3 features": (*load_breast_cancer(return_X_y=True), [1, 4, 8]),
    }
    for name, (X, y, features) in data.items():
        X = X[:, features]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        yield f"{name}; halves alike", X, y, np.random.RandomState(0).permutation(len(y))
        yield f"{name}; halves by first feature", X, y, np.argsort(X[:, 0], kind="stable")


def main():
    """Print and write the table."""
    names = ["fine-tuning", "EWC, diagonal", "EWC, kronecker", "full Fisher"]
    lines = [
        "| data | joint optimum | " + " | ".join(names) + " | gap closed: diagonal, Kronecker |",
        "|---" * (len(names) + 3) + "|",
    ]
    for name, X, y, order in problems():
        best, excess = compare(X, y, order)
        gap = excess["fine-tuning"]
        closed = ", ".join(f"{1 - excess[n] / gap:.0%}" for n in names[1:3])
        cells = " | ".join(f"+{excess[n]:.2f}" for n in names)
        lines.append(f"| {name} | {best:.2f} | {cells} | {closed} |")
    text = "\n".join(lines)
    write("two_task_optimum", text)


if __name__ == "__main__":
    main()
