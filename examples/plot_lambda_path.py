"""
What does λ trade away?
=======================

The strength λ of the penalty buys memory of old tasks with freedom to learn new ones. Three
tasks of permuted digits are learned at every λ from next to nothing to far too much, by the
diagonal of the Fisher information and by its Kronecker factors.
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

X, y = load_digits(return_X_y=True)
tasks = make_permuted_tasks(X / 16, y, n_tasks=3, random_state=0)
LAMBDAS = 10.0 ** np.arange(-1, 5)

# %%
# The path
# --------
# `matrix[i, j]` is the test accuracy on task j after learning task i. Old tasks are those
# before the last, at the end; new tasks are each tested when it has just been learned.


def path(curvature):
    """Return the accuracy on old tasks, on new ones and on all, for each λ."""
    points = []
    for ewc_lambda in LAMBDAS:
        clf = EWCClassifier(
            curvature=curvature, ewc_lambda=ewc_lambda, max_iter=20, batch_size=32, random_state=0
        )
        R = evaluate_stream(clf, tasks).matrix
        points.append((R[-1, :-1].mean(), np.diag(R)[1:].mean(), R[-1].mean()))
    return np.transpose(points)


paths = {"diagonal": path("diagonal"), "Kronecker": path("kronecker")}
for name, (old, new, average) in paths.items():
    print(f"\n{name}\n{'λ':>8}{'old tasks':>11}{'new tasks':>11}{'average':>9}")
    for row in zip(LAMBDAS, old, new, average, strict=True):
        print("{:8g}{:11.3f}{:11.3f}{:9.3f}".format(*row))

# %%
# Both curvatures lose the old tasks at one end and the new ones at the other. What differs is
# the height at which the curves cross, and how wide the plateau of the average is.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
for ax, (name, (old, new, average)) in zip(axes, paths.items(), strict=True):
    ax.plot(LAMBDAS, average, color="black", lw=2.5, marker="s", label="all tasks")
    ax.plot(LAMBDAS, old, color="tab:blue", marker="o", label="old tasks")
    ax.plot(LAMBDAS, new, color="tab:orange", ls="--", marker="^", label="tasks just learned")
    ax.axvline(10, color="0.6", ls=":", zorder=0)
    ax.text(11, 0.03, "default", color="0.4")
    ax.set(xscale="log", ylim=(0, 1.03), title=name, xlabel="strength of the penalty, λ")
    ax.grid(axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("test accuracy")
axes[1].legend(frameon=False, loc="lower left")
plt.show()
