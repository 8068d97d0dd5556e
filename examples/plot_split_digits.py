"""
Keeping the first tasks of a stream
===================================

A network learns five tasks one after another and never sees a task's data again. Plain
fine-tuning loses the first tasks; Elastic Weight Consolidation keeps them. Two streams of
handwritten digits:

* **permuted**: each task shows all ten digits, with its pixels shuffled its own way. The
  task is not known when predicting (domain-incremental).
* **split**: each task shows two of the digits, and the task is known when predicting
  (task-incremental).

The strength λ is found by a grid search over the whole stream, inside a pipeline.
"""

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
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skewc import EWCClassifier

# A fixed number of epochs is the budget here, not a failure to converge.
warnings.simplefilter("ignore", ConvergenceWarning)
# With routing on, `task_id` finds its way through searches and pipelines by itself.
sklearn.set_config(enable_metadata_routing=True)

QUICK = "--quick" in sys.argv
N_TASKS, EPOCHS = 5, 5 if QUICK else 25
LAMBDAS = [0, 10] if QUICK else [0, 10, 30, 100]
FIGURES = Path(__file__).parent / "figures"

# %%
# The streams
# -----------
# A stream is stacked into one X and y, with the id of each row's task beside them.

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=1 / 3, stratify=y, random_state=0
)
rng = np.random.RandomState(0)
orders = [np.arange(64)] + [rng.permutation(64) for _ in range(N_TASKS - 1)]


def permuted(X, y):
    """Stack the images under each order of pixels."""
    rows = np.vstack([X[:, order] for order in orders])
    return rows, np.tile(y, N_TASKS), np.repeat(np.arange(N_TASKS), len(y))


def split(X, y):
    """Give each pair of digits a task of its own."""
    return X, y, y // 2


STREAMS = {
    "permuted digits": (permuted(X_train, y_train), permuted(X_test, y_test)),
    "split digits, task known": (split(X_train, y_train), split(X_test, y_test)),
}

# %%
# Learning
# --------


def network(**parameters):
    """Make a pipeline that scales pixels and learns."""
    parameters = {"max_iter": EPOCHS, "batch_size": 32, "random_state": 0, **parameters}
    return make_pipeline(MinMaxScaler(), EWCClassifier(**parameters))


def search(penalty, train):
    """Find λ by cross-validation over the stream, with the epochs of the real run."""
    rows, labels, ids = train
    grid = GridSearchCV(
        network(penalty=penalty),
        {"ewcclassifier__ewc_lambda": LAMBDAS},
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
        refit=False,
    )
    grid.fit(rows, labels, task_id=ids)
    return grid.best_params_["ewcclassifier__ewc_lambda"]


def learn_in_turn(train, test, **parameters):
    """Return R, with R[i, j] the accuracy on task j after learning task i."""
    rows, labels, ids = train
    scaler, clf = network(**parameters)
    scaler = scaler.fit(rows[ids == 0])  # the first task's scale stays
    R = np.zeros((N_TASKS, N_TASKS))
    for i in range(N_TASKS):
        clf.partial_fit(scaler.transform(rows[ids == i]), labels[ids == i], task_id=i)
        R[i] = scores(clf, scaler, test, known=i)
    return R


def learn_jointly(train, test, per_task_classes):
    """Train on the rows of all tasks at once; repeat the accuracies as if for each task."""
    rows, labels, _ = train
    scaler, clf = network()
    clf.fit(scaler.fit_transform(rows), labels)
    return np.tile(scores(clf, scaler, test, per_task_classes), (N_TASKS, 1))


def scores(clf, scaler, test, per_task_classes=None, known=None):
    """Return the accuracy on each task, among its own classes where it is known."""
    rows, labels, ids = test
    result = []
    for j in range(N_TASKS):
        X_j, y_j = scaler.transform(rows[ids == j]), labels[ids == j]
        if per_task_classes is not None:  # joint training knows no tasks: mask by hand
            log_proba = clf.predict_log_proba(X_j)
            log_proba[:, ~np.isin(clf.classes_, per_task_classes[j])] = -np.inf
            result.append(np.mean(clf.classes_[log_proba.argmax(axis=1)] == y_j))
        elif j > known:  # not learned yet
            result.append(np.mean(clf.predict(X_j) == y_j))
        else:
            result.append(clf.score(X_j, y_j, task_id=j))
    return result


results = {}
for stream, (train, test) in STREAMS.items():
    print(f"{stream}:", flush=True)
    classes = [np.unique(train[1][train[2] == j]) for j in range(N_TASKS)]
    results[stream, "fine-tuning"] = learn_in_turn(train, test, ewc_lambda=0)
    print("  fine-tuning learned", flush=True)
    for penalty in ("running_sum", "per_task"):
        ewc_lambda = search(penalty, train)
        name = f"EWC {penalty}, λ = {ewc_lambda:g}"
        results[stream, name] = learn_in_turn(train, test, penalty=penalty, ewc_lambda=ewc_lambda)
        print(f"  {name} found and learned", flush=True)
    results[stream, "joint training"] = learn_jointly(train, test, classes)
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
    forgetting = np.mean(R.max(axis=0)[:-1] - R[-1, :-1])
    cells = " ".join(f"{accuracy:6.3f}" for accuracy in R[-1])
    print(f"  {method:34}{cells} {R[-1].mean():8.3f} {forgetting:11.3f}")

# %%
# Each task over time
# -------------------

FIGURES.mkdir(exist_ok=True)
stream = "permuted digits"
methods = [m for s, m in results if s == stream and m != "joint training"]
figure, axes = plt.subplots(1, len(methods), figsize=(10, 3.4), sharey=True, layout="constrained")
colors = plt.colormaps["viridis"](np.linspace(0, 0.9, N_TASKS))
for ax, method in zip(axes, methods, strict=True):
    for j in range(N_TASKS):
        learned = np.arange(j, N_TASKS)
        ax.plot(
            learned + 1,
            results[stream, method][j:, j],
            "o-",
            color=colors[j],
            label=f"task {j + 1}",
        )
    ax.set(title=method, xlabel="tasks learned", xticks=range(1, N_TASKS + 1), ylim=(0, 1.02))
    ax.grid(alpha=0.3)
axes[0].set_ylabel("test accuracy")
axes[-1].legend(loc="lower left", fontsize="small")
figure.suptitle("Permuted digits: accuracy of each task as more are learned")
figure.savefig(FIGURES / "accuracy_over_time.png", dpi=150)

# %%
# The restoring force
# -------------------
# The penalty pulls a weight back like a spring whose stiffness is λ times its Fisher
# information: a weight that no earlier task needs moves freely.

figure, ax = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
displacement = np.linspace(-1, 1, 101)
for color, fisher in zip(
    plt.colormaps["plasma"]([0.0, 0.3, 0.6, 0.8]), (0.05, 0.5, 2, 5), strict=True
):
    ax.plot(displacement, -fisher * displacement, color=color, label=f"F = {fisher:g}")
ax.axhline(0, color="0.8", zorder=0)
ax.axvline(0, color="0.8", zorder=0)
ax.set(xlabel="displacement from the anchor, w - w*", ylabel="restoring force / λ")
ax.set_title("An important weight is pulled back harder")
ax.legend(title="Fisher information")
figure.savefig(FIGURES / "restoring_force.png", dpi=150)
print(f"\nPictures: {FIGURES / 'accuracy_over_time.png'}, {FIGURES / 'restoring_force.png'}")
