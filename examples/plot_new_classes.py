"""
What if new tasks bring new classes?
====================================

Two digits at a time, and nobody says which two when a digit must be told from all ten
(class-incremental). The penalty alone falls far behind: outputs of different tasks
were never trained side by side. A memory of a few rows helps, and so does a
read-out that keeps no row at all.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skewc import EWCClassifier
from skewc.datasets import make_split_tasks, stack_tasks
from skewc.metrics import AccuracyMatrixDisplay
from skewc.model_selection import evaluate_stream

# A fixed number of epochs is the budget here, not a failure to converge. And the first way below
# warns of what this page is about.
warnings.simplefilter("ignore", ConvergenceWarning)
warnings.filterwarnings("ignore", "The tasks have different classes", UserWarning)

# %%
# Four ways
# ---------

X, y = load_digits(return_X_y=True)
tasks = make_split_tasks(X / 16, y, random_state=0)
ids = ["0, 1", "2, 3", "4, 5", "6, 7", "8, 9"]
tasks = [task._replace(id=name) for task, name in zip(tasks, ids, strict=True)]
ways = {
    "no penalty": {"ewc_lambda": 0},
    "penalty": {"curvature": "kronecker"},
    "penalty and 200 rows": {"curvature": "kronecker", "memory_size": 200},
    "discriminant, no row": {"readout": "discriminant"},
}
results = {}
for name, parameters in ways.items():
    clf = EWCClassifier(**parameters, max_iter=30, batch_size=32, random_state=0)
    results[name] = evaluate_stream(clf, tasks, name=name)

joint = EWCClassifier(max_iter=30, batch_size=32, random_state=0)
joint.fit(*stack_tasks(tasks)[:2])
test_rows, test_labels, _ = stack_tasks(tasks, part="test")
print(f"{'joint training':24}{joint.score(test_rows, test_labels):.3f}")
for name, result in results.items():
    print(f"{name:24}{result.summary()['average_accuracy']:.3f}")

# %%
# The whole picture
# -----------------
# Each cell is the test accuracy on the digits of its column after the digits of its row were
# learned, where all digits seen so far are possible answers.

figure, axes = plt.subplots(2, 2, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
for ax, (name, result) in zip(axes.flat, results.items(), strict=True):
    AccuracyMatrixDisplay.from_result(result, ax=ax, colorbar=False)
    average = result.summary()["average_accuracy"]
    ax.set_title(f"{name}: {average:.2f} in the end")
    ax.label_outer()
plt.show()

# %%
# Where the task *is* known when predicting, none of this is needed: `predict(X, task_id=ids)`
# chooses among the classes of the task, and the penalty alone keeps what it knows.
