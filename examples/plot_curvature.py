"""
What does the diagonal lose?
============================

EWC replaces the loss of an old task by a quadratic. The diagonal of the Fisher information is a
quadratic whose axes are the weights themselves; Kronecker factors can turn it.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks
from skewc.model_selection import evaluate_stream

# A fixed number of epochs is the budget here, not a failure to converge.
warnings.simplefilter("ignore", ConvergenceWarning)

# %%
# Two weights
# -----------
# A logistic regression on two features that go together. What the rows determine well is the sum
# of the two weights; their difference is all but free. How much of the old loss is lost when both
# are moved? At left as it is, then by each quadratic.

rng = np.random.RandomState(0)
common = rng.normal(size=(300, 1))
X = common + 0.35 * rng.normal(size=(300, 2))
y = (rng.uniform(size=300) < 1 / (1 + np.exp(-X @ [1.0, 1.0]))).astype(int)
clf = EWCClassifier((), solver="lbfgs", alpha=1.0, random_state=0).fit(X, y)
(coef,), (intercept,) = clf.coefs_, clf.intercepts_
optimum, bias = coef[:, 1] - coef[:, 0], intercept[1] - intercept[0]


def loss(w):
    """Return the summed negative log-likelihood at weights of shape (..., 2)."""
    z = w @ X.T + bias
    return (np.logaddexp(0, z) - y * z).sum(axis=-1)


p = 1 / (1 + np.exp(-(X @ optimum + bias)))
doubt = p * (1 - p)
fisher = (X.T * doubt) @ X
quadratics = {
    "diagonal": np.diag(np.diag(fisher)),
    "Kronecker": X.T @ X / len(X) * doubt.sum(),
}

grid = np.linspace(-1, 1, 101)
d = np.stack(np.meshgrid(grid, grid), axis=-1)
surfaces = {"the old task's loss": loss(optimum + d) - loss(optimum)}
for name, F in quadratics.items():
    surfaces[name] = 0.5 * np.einsum("...i,ij,...j", d, F, d)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.7), sharey=True, layout="constrained")
for ax, (name, surface) in zip(axes, surfaces.items(), strict=True):
    levels = [1, 2, 5, 10, 20, 40]
    lines = ax.contour(grid, grid, surface, levels, cmap="viridis", vmin=-5, vmax=50)
    ax.clabel(lines, fontsize=8)
    ax.plot(0, 0, "k+", markersize=10)
    ax.set(title=name, xlabel="weight 1, moved by", aspect="equal")
axes[0].set_ylabel("weight 2, moved by")
figure.suptitle("Loss above the optimum, in nats")
plt.show()

# %%
# Five tasks
# ----------
# What that is worth when five permutations of digits are learned one after another:

digits, labels = load_digits(return_X_y=True)
tasks = make_permuted_tasks(digits / 16, labels, n_tasks=5, random_state=0)
STYLES = {
    "no penalty": ({"ewc_lambda": 0}, {"color": "0.55", "marker": "v"}),
    "diagonal": ({}, {"color": "tab:orange", "marker": "o"}),
    "Kronecker": ({"curvature": "kronecker"}, {"color": "tab:blue", "marker": "s"}),
}
figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for name, (parameters, style) in STYLES.items():
    clf = EWCClassifier(**parameters, max_iter=25, batch_size=32, random_state=0)
    result = evaluate_stream(clf, tasks, name=name)
    so_far = [result.matrix[i, : i + 1].mean() for i in range(len(tasks))]
    print(f"{name:12} {so_far[-1]:.3f}")
    ax.plot(range(1, 6), so_far, label=name, **style)
ax.set(xlabel="tasks learned", ylabel="average test accuracy on them", xticks=range(1, 6))
ax.set(ylim=(0, 1.03))
ax.grid(axis="y", alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower left")
plt.show()
