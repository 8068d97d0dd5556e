"""Measure a long stream: thirty permuted tasks, and whether time or state grow with them.

Run with ``python benchmarks/thirty_tasks.py``; writes results/thirty_tasks.md. Tasks of
Fashion-MNIST (``apt-get install dataset-fashion-mnist``) have 4,000 rows, learned by a
784-256-10 network in three epochs of Adam at batches of 128; those of the digits have 1,197
rows, learned by 64-100-10 in at most fifty epochs at batches of 32. Times are those of a
task, consolidation of the one before included, divided by its epochs.
"""

import pickle
import sys
import warnings
from time import perf_counter

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from streams import fashion, of_seeds, write

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks, stack_tasks

METHODS = {"fine-tuning": {"ewc_lambda": 0}}
for curvature, strengths in {"diagonal": (1, 10), "kronecker": (1, 10, 30)}.items():
    for strength in strengths:
        METHODS[f"{curvature}, λ = {strength}"] = {"curvature": curvature, "ewc_lambda": strength}


def learn(tasks, parameters):
    """Average accuracy after the last task, seconds an epoch for each task, size of state."""
    clf, seconds, sizes = EWCClassifier(**parameters), [], []
    for task in tasks:
        start = perf_counter()
        clf.partial_fit(task.X_train, task.y_train, task_id=task.id)
        seconds.append((perf_counter() - start) / clf.n_iter_)
        sizes.append(len(pickle.dumps(clf)))
    return np.mean([clf.score(t.X_test, t.y_test) for t in tasks]), np.array(seconds), sizes


def streams(seed):
    """Yield name, tasks and parameters."""
    X, y = load_digits(return_X_y=True)
    options = {"test_size": 600, "random_state": seed}
    tasks = make_permuted_tasks(X.astype(np.float32) / 16, y, 30, **options)
    yield "digits", tasks, {"hidden_layer_sizes": (100,), "batch_size": 32, "max_iter": 50}
    tasks = make_permuted_tasks(*fashion(), 30, n_samples=4000, test_size=10_000, random_state=seed)
    yield "Fashion-MNIST", tasks, {"hidden_layer_sizes": (256,), "batch_size": 128, "max_iter": 3}


def main(seeds=3):
    """Print and write the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = {}
    for seed in range(seeds):
        for name, tasks, parameters in streams(seed):
            parameters = {**parameters, "random_state": seed}
            X, y, _ = stack_tasks(tasks)
            clf = EWCClassifier(**parameters).fit(X, y)
            joint = np.mean([clf.score(t.X_test, t.y_test) for t in tasks])
            found.setdefault((name, "joint"), []).append((joint, np.nan, np.nan))
            for method, more in METHODS.items():
                accuracy, seconds, sizes = learn(tasks, {**parameters, **more})
                slower = np.median(seconds[-5:]) / np.median(seconds[1:6])
                result = (accuracy, slower, sizes[-1] / sizes[1])
                found.setdefault((name, method), []).append(result)
                print(seed, name, method, *(f"{x:.3f}" for x in result), flush=True)
    lines = [
        of_seeds(seeds),
        "",
        "| stream | method | accuracy | gap closed | time of the last five tasks / of tasks 2 to 6 "
        "| state after 30 / after 2 |",
        "|---|---|---|---|---|---|",
    ]
    for (name, method), rows in found.items():
        accuracy, slower, larger = np.mean(rows, axis=0)
        low, high = (np.mean(found[name, m], axis=0)[0] for m in ("fine-tuning", "joint"))
        lines.append(
            f"| {name} | {method} | {accuracy:.3f} | {(accuracy - low) / (high - low):.0%} "
            f"| {slower:.2f} | {larger:.3f} |"
        )
    text = "\n".join(lines).replace("nan", "")
    write("thirty_tasks", text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
