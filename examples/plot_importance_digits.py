"""
Where does importance sit?
==========================

The Fisher information says which weights a task needs. Summed over the units that a pixel feeds, it
says which pixels. Here it is for networks that tell two digits apart, beside what tells them
apart: the difference of the mean images.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from skewc import EWCClassifier
from skewc.metrics import ImportanceDisplay

X, y = load_digits(return_X_y=True)
X = X / 16
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]

# %%
# Pixels
# ------
# Blank pixels have no importance at all: their weights stay free for later tasks. Much of the
# rest goes to pixels that are bright in *both* digits: a gradient is large where its input is,
# whether or not it tells the classes apart.

figure, axes = plt.subplots(2, 5, figsize=(10, 4.4), layout="constrained")
for (a, b), column in zip(PAIRS, axes.T, strict=True):
    rows = np.isin(y, (a, b))
    clf = EWCClassifier(solver="lbfgs", alpha=1, random_state=0).fit(X[rows], y[rows])
    difference = (X[y == a].mean(axis=0) - X[y == b].mean(axis=0)).reshape(8, 8)
    column[0].imshow(difference, cmap="RdBu", vmin=-1, vmax=1)
    column[0].set(title=f"{a} or {b}", xticks=[], yticks=[])
    importance = ImportanceDisplay(clf.coef_importances_, clf.intercept_importances_)
    column[1].imshow(importance.coef_importances[0].sum(axis=1).reshape(8, 8), cmap="magma", vmin=0)
    column[1].set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("difference of\nmean images")
axes[1, 0].set_ylabel("importance")
plt.show()

# %%
# All ten digits
# --------------

clf = EWCClassifier((40, 20), solver="lbfgs", alpha=1, max_iter=2000, random_state=0).fit(X, y)
display = ImportanceDisplay.from_estimator(clf, kind="image")
display.ax_.set_title("Pixels that ten digits need")
plt.show()

# %%
# Layers
# ------
# Importance spans many powers of ten within every layer, which is why a few weights can hold a task
# and leave the others free.

ImportanceDisplay.from_estimator(clf)
plt.show()

for layer, importance in enumerate(clf.coef_importances_):
    largest = np.sort(importance.ravel())[::-1]
    share = largest[: len(largest) // 10].sum() / largest.sum()
    print(f"layer {layer + 1}: the upper tenth of the weights holds {share:.0%} of the importance")
