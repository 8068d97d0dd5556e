"""
Which weights are held, and how hard?
=====================================

The penalty holds each weight like a spring: moved by d from where the old task left it, a weight of
importance F is pulled back by λ·F·d. A weight that no old task needs moves freely.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skewc import EWCClassifier
from skewc.metrics import RestoringForceDisplay

# A fixed number of epochs is the budget here, not a failure to converge.
warnings.simplefilter("ignore", ConvergenceWarning)

# %%
# Springs
# -------
# Four weights of a network that has learned digits: the median of those with any importance, the
# upper tenth, the upper hundredth, and the most important. Most weights are all but free.

X, y = load_digits(return_X_y=True)
X = X / 16
first = EWCClassifier(max_iter=30, batch_size=32, random_state=0)
first.partial_fit(X, y, task_id="plain")
RestoringForceDisplay.from_estimator(first)
plt.show()

# %%
# How far weights move
# --------------------
# A second task, the same digits with their pixels shuffled, is learned from there. Weights are
# sorted by their importance for the first task, into ten groups of equal size.

importance = first.coef_importances_[0].ravel()
start = first.coefs_[0].ravel()
permuted = X[:, np.random.RandomState(0).permutation(64)]
used = importance > 0  # some pixels are blank in all digits
order = np.argsort(importance[used])
groups = np.array_split(order, 10)

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
colors = plt.colormaps["plasma"](np.linspace(0, 0.85, 4))
for ewc_lambda, color, marker in zip([0, 1, 10, 100], colors, "os^D", strict=True):
    clf = EWCClassifier(ewc_lambda=ewc_lambda, max_iter=30, batch_size=32, random_state=0)
    clf.partial_fit(X, y, task_id="plain").partial_fit(permuted, y, task_id="permuted")
    moved = np.abs(clf.coefs_[0].ravel() - start)[used]
    medians = [np.median(moved[group]) for group in groups]
    kept = clf.score(X, y)
    distances = " ".join(f"{median:.3f}" for median in medians)
    print(f"λ = {ewc_lambda:3}: {kept:.3f} on the first task, moved {distances}")
    ax.plot(range(1, 11), medians, color=color, marker=marker, label=f"{ewc_lambda}: {kept:.2f}")
ax.set(xticks=range(1, 11), ylim=(0, None))
ax.set(xlabel="tenth of the first layer's weights, least important first")
ax.set(ylabel="median distance moved, |w − w*|")
ax.legend(title="λ: accuracy left\non the first task", frameon=False)
ax.grid(axis="y", alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Without a penalty, weights move alike, whatever the first task needs. With it, the important
# ones stay, and the others do the learning.
