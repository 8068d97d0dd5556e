"""Measure what the defaults of λ and `fisher_smoothing` should be.

Average accuracy over a grid of both, for each curvature and penalty, on six streams. Run
with ``python benchmarks/default_lambda.py [seeds]``; writes results/default_lambda.md.
"""

import sys
import warnings
from itertools import product

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from streams import accuracy, all_streams, of_seeds, write

from skewc import EWCClassifier
from skewc.datasets import stack_tasks

LAMBDAS = [1, 10, 30, 100, 300]
# Curvature, penalty and smoothing.
METHODS = [
    ("diagonal", "running_sum", 0.0),
    ("diagonal", "running_sum", 0.1),
    ("diagonal", "per_task", 0.1),
    ("kronecker", "running_sum", 0.0),
    ("kronecker", "running_sum", 0.1),
    ("kronecker", "running_sum", 0.3),
    ("kronecker", "per_task", 0.1),
]


def learn(tasks, known, **parameters):
    """Average accuracy after learning the tasks in turn."""
    clf = EWCClassifier(**parameters)
    for task in tasks:
        clf.partial_fit(task.X_train, task.y_train, task_id=task.id)
    return accuracy(clf, tasks, known)


def measure(seed, results):
    """Add one seed to {(stream, method): {λ: accuracies}}."""
    for name, tasks, parameters, known in all_streams(seed):
        parameters = {**parameters, "random_state": seed}
        X, y, _ = stack_tasks(tasks)
        rows = {
            "fine-tuning": {0: learn(tasks, known, ewc_lambda=0, **parameters)},
            "joint": {0: accuracy(EWCClassifier(**parameters).fit(X, y), tasks, known)},
        }
        for method, value in product(METHODS, LAMBDAS):
            curvature, penalty, smoothing = method
            rows.setdefault(method, {})[value] = learn(
                tasks, known, ewc_lambda=value, curvature=curvature, penalty=penalty,
                fisher_smoothing=smoothing, **parameters,
            )  # fmt: skip
        for method, row in rows.items():
            print(seed, name, method, *(f"{value:g}: {a:.3f}" for value, a in row.items()))
            for value, a in row.items():
                results.setdefault((name, method), {}).setdefault(value, []).append(a)
        sys.stdout.flush()


def table(results):
    """One line for each stream and method, then what each λ gives away on average."""
    streams = dict.fromkeys(name for name, _ in results)
    lines = [
        "| stream | curvature | penalty | ε | " + " | ".join(f"λ = {v:g}" for v in LAMBDAS) + " |",
        "|---" * (len(LAMBDAS) + 4) + "|",
    ]
    best, means = {}, {}
    for name in streams:
        low, high = (np.mean(results[name, m][0]) for m in ("fine-tuning", "joint"))
        name_and_bounds = f"{name} (fine-tuning {low:.3f}, joint {high:.3f})"
        for method in METHODS:
            row = np.array([np.mean(results[name, method][v]) for v in LAMBDAS])
            means[name, method] = row
            best[name, method[0]] = max(best.get((name, method[0]), 0), row.max())
            cells = [f"**{m:.3f}**" if m == row.max() else f"{m:.3f}" for m in row]
            curvature, penalty, smoothing = method
            lines.append(
                f"| {name_and_bounds} | {curvature} | {penalty} | {smoothing:g} | "
                + " | ".join(cells)
                + " |"
            )
            name_and_bounds = ""
    for method in METHODS:
        curvature, penalty, smoothing = method
        lost = np.mean([best[name, curvature] - means[name, method] for name in streams], axis=0)
        lines.append(
            f"| mean loss against the best of its curvature | {curvature} | {penalty} | "
            f"{smoothing:g} | " + " | ".join(f"{x:.3f}" for x in lost) + " |"
        )
    return "\n".join(lines)


def main(seeds=3):
    """Measure, print and write the table."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {}
    for seed in range(seeds):
        measure(seed, results)
        write("default_lambda", f"{of_seeds(seed + 1)}\n\n{table(results)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
