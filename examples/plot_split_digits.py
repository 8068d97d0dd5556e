"""
What is forgotten, and what is kept?
====================================

A network learns five tasks one after another and never sees a task's data again. Plain
fine-tuning loses the first tasks; Elastic Weight Consolidation keeps them. Two streams of
handwritten digits:

* **permuted**: each task shows all ten digits, with its pixels shuffled its own way. The
  task is not known when predicting (domain-incremental).
* **split**: each task shows two of the digits, and the task is known when predicting
  (task-incremental).

EWC keeps the diagonal of the Fisher information or, better, its Kronecker factors. Its
strength λ is found by a grid search over the whole stream, inside a pipeline.
"""

import os
import sys
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import FunctionTransformer

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks, make_split_tasks, stack_tasks
from skewc.metrics import RestoringForceDisplay, TaskAccuracyDisplay, average_accuracy, forgetting
from skewc.model_selection import TaskStratifiedKFold, evaluate_stream
from skewc.pipeline import make_continual_pipeline

# A fixed number of epochs is the budget here, not a failure to converge.
warnings.simplefilter("ignore", ConvergenceWarning)
# With routing on, `task_id` finds its way through searches and pipelines by itself.
sklearn.set_config(enable_metadata_routing=True)

QUICK = "--quick" in sys.argv
N_TASKS, EPOCHS = 5, 3 if QUICK else 25
LAMBDAS = [0, 10] if QUICK else [0, 1, 10, 100]
SCALE = FunctionTransformer(lambda pixels: pixels / 16)  # to [0, 1]
FIGURES = Path(os.path.relpath(Path(sys.argv[0]).parent / "figures"))

# %%
# The streams
# -----------
# Each is a list of tasks with rows for training and for testing.

X, y = load_digits(return_X_y=True)
STREAMS = {
    "permuted digits": make_permuted_tasks(X, y, N_TASKS, test_size=1 / 3, random_state=0),
    "split digits, task known": make_split_tasks(X, y, test_size=1 / 3, random_state=0),
}

# %%
# Learning
# --------


def network(**parameters):
    """Make a pipeline that scales pixels and learns."""
    parameters = {"max_iter": EPOCHS, "batch_size": 32, "random_state": 0, **parameters}
    return make_continual_pipeline(SCALE, EWCClassifier(**parameters))


def search(curvature, tasks):
    """Find λ by cross-validation over the stream, with the epochs of the real run."""
    rows, labels, task_id = stack_tasks(tasks)
    grid = GridSearchCV(
        network(curvature=curvature),
        {"ewcclassifier__ewc_lambda": LAMBDAS},
        cv=TaskStratifiedKFold(2, shuffle=True, random_state=0),
        refit=False,
    )
    grid.fit(rows, labels, task_id=task_id)
    return grid.best_params_["ewcclassifier__ewc_lambda"]


def learn_jointly(tasks, known):
    """Train on the rows of all tasks at once; repeat the accuracies as if for each task."""
    rows, labels, _ = stack_tasks(tasks)
    pipeline = network().fit(rows, labels)
    accuracies = []
    for task in tasks:
        log_proba = pipeline.predict_log_proba(task.X_test)
        if known:  # joint training knows no tasks: leave out other tasks' classes by hand
            log_proba[:, ~np.isin(pipeline.classes_, task.y_train)] = -np.inf
        likeliest = pipeline.classes_[log_proba.argmax(axis=1)]
        accuracies.append(np.mean(likeliest == task.y_test))
    return np.tile(accuracies, (N_TASKS, 1))


results = {}
for stream, tasks in STREAMS.items():
    known = stream.endswith("known")
    print(f"{stream}:", flush=True)
    pipeline = network(ewc_lambda=0)
    result = evaluate_stream(pipeline, tasks, known_task=known)
    results[stream, "fine-tuning"] = result.matrix
    print("  fine-tuning learned", flush=True)
    for curvature in ("diagonal", "kronecker"):
        ewc_lambda = search(curvature, tasks)
        name = f"EWC {curvature}, λ = {ewc_lambda:g}"
        pipeline = network(curvature=curvature, ewc_lambda=ewc_lambda)
        result = evaluate_stream(pipeline, tasks, known_task=known)
        results[stream, name] = result.matrix
        print(f"  {name} found and learned", flush=True)
    results[stream, "joint training"] = learn_jointly(tasks, known)
    print("  joint training learned", flush=True)

# %%
# What is left of each task
# -------------------------
# Forgetting is the fall from a task's best accuracy to its accuracy at the end, averaged
# over all tasks but the last.

header = " ".join(f"task {j + 1}" for j in range(N_TASKS))
print(f"\nTest accuracy after the last task\n{'':36}{header}  average  forgetting")
for (stream, method), R in results.items():
    if method == "fine-tuning":
        print(stream)
    cells = " ".join(f"{accuracy:6.3f}" for accuracy in R[-1])
    print(f"  {method:34}{cells} {average_accuracy(R):8.3f} {forgetting(R):11.3f}")

# %%
# Each task over time
# -------------------

FIGURES.mkdir(exist_ok=True)
stream = "permuted digits"
methods = [m for s, m in results if s == stream and m != "joint training"]
figure, axes = plt.subplots(1, len(methods), figsize=(11, 3.6), sharey=True, layout="constrained")
for ax, method in zip(axes, methods, strict=True):
    TaskAccuracyDisplay.from_matrix(results[stream, method], name=method, ax=ax)
for ax in axes[:-1]:
    ax.get_legend().remove()
for ax in axes[1:]:
    ax.set_ylabel("")
figure.suptitle("Permuted digits: accuracy of each task as more are learned")
figure.savefig(FIGURES / "accuracy_over_time.png", dpi=150)

# %%
# The restoring force
# -------------------
# The penalty pulls a weight back like a spring whose stiffness is λ times its Fisher
# information: a weight that no earlier task needs moves freely.

display = RestoringForceDisplay([0.05, 0.5, 2, 5]).plot()
display.ax_.set_title("An important weight is pulled back harder")
display.figure_.savefig(FIGURES / "restoring_force.png", dpi=150)
print(f"\nPictures: {FIGURES / 'accuracy_over_time.png'}, {FIGURES / 'restoring_force.png'}")
