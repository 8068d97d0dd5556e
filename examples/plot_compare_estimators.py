"""
Which estimator forgets least?
==============================

Digits are turned a little further with each task: 0, 25, 50, 75 and 100 degrees. Five
estimators learn the tasks one after another, never go back to an earlier one, and are not
told the task when predicting (domain-incremental). One call of
:func:`~skewc.model_selection.evaluate_stream` evaluates any estimator that has
`partial_fit`.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import FunctionTransformer

from skewc import EWCClassifier
from skewc.datasets import make_rotated_tasks
from skewc.model_selection import evaluate_stream
from skewc.pipeline import make_continual_pipeline

QUICK = "--quick" in sys.argv
EPOCHS = 5 if QUICK else 50
SCALE = FunctionTransformer(lambda pixels: pixels / 16)  # to [0, 1]

# %%
# Learning
# --------
# `epochs` repeats the single pass of scikit-learn's `partial_fit`; EWCClassifier makes
# `max_iter` passes itself. A ContinualPipeline scales the pixels for all of them.

tasks = make_rotated_tasks(
    *load_digits(return_X_y=True), angles=(0, 25, 50, 75, 100), random_state=0
)
network = {"batch_size": 32, "random_state": 0}
estimators = {
    "SGDClassifier": SGDClassifier(random_state=0),
    "GaussianNB": GaussianNB(var_smoothing=0.01),
    "MLPClassifier": MLPClassifier(**network),
    "EWCClassifier, diagonal": EWCClassifier(max_iter=EPOCHS, **network),
    "EWCClassifier, Kronecker": EWCClassifier(curvature="kronecker", max_iter=EPOCHS, **network),
}
results = []
for name, estimator in estimators.items():
    pipeline = make_continual_pipeline(SCALE, estimator)
    # Naive Bayes counts: a row seen again would count again.
    epochs = 1 if name == "GaussianNB" else EPOCHS
    results.append(evaluate_stream(pipeline, tasks, epochs=epochs, name=name, verbose=True))

# %%
# The summary of each result is a row of a table
# ----------------------------------------------

print(f"\n{'':24}  " + "  ".join(results[0].summary()))
for result in results:
    cells = (f"{value:{len(column)}.3f}" for column, value in result.summary().items())
    print(f"{result.name:24}  " + "  ".join(cells))

# %%
# What each knows of the tasks so far, and what is left of each task
# ------------------------------------------------------------------

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 3.8), layout="constrained", width_ratios=(1, 1.25)
)
T = len(tasks)
colors = ["0.75", "0.6", "0.4", "tab:orange", "tab:blue"]
for result, color, marker in zip(results, colors, "osD^v", strict=True):
    so_far = [result.matrix[i, : i + 1].mean() for i in range(T)]
    left.plot(range(1, T + 1), so_far, color=color, marker=marker, label=result.name)
left.set(xlabel="tasks learned", ylabel="average test accuracy on them", xticks=range(1, T + 1))
left.set(ylim=(0, 1.03))
left.grid(axis="y", alpha=0.3)
left.spines[["top", "right"]].set_visible(False)
left.legend(frameon=False, loc="lower left", fontsize=9)

final = np.array([result.matrix[-1] for result in results])
image = right.imshow(final, vmin=0, vmax=1, cmap="viridis", aspect="auto")
for (i, j), accuracy in np.ndenumerate(final):
    color = "black" if accuracy > 0.6 else "white"
    right.text(j, i, f"{accuracy:.2f}", ha="center", va="center", color=color)
right.set(xticks=range(T), xticklabels=["0°", "25°", "50°", "75°", "100°"], xlabel="task")
right.set(yticks=range(len(results)), yticklabels=[result.name for result in results])
right.spines[:].set_visible(False)
figure.colorbar(image, ax=right, label="test accuracy after the last task")
plt.show()
