"""Measure which λ should be the default: average accuracy over a grid.

Run with ``python benchmarks/default_lambda.py``; writes results/default_lambda.md.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from streams import all_streams

from skewc import EWCClassifier
from skewc.datasets import stack_tasks
from skewc.metrics import average_accuracy
from skewc.model_selection import evaluate_stream

LAMBDAS = [0, 1, 10, 30, 100, 300, 1000, 3000, 10_000]


def joint(tasks, known, **parameters):
    """Train the same net on the rows of all tasks at once.

    Where the task is known, it trains and predicts among all classes, then answers
    among the task's own.
    """
    X, y, _ = stack_tasks(tasks)
    clf = EWCClassifier(**parameters).fit(X, y)
    scores = []
    for task in tasks:
        logits = clf.predict_log_proba(task.X_test)
        if known:
            logits = np.where(np.isin(clf.classes_, task.y_train), logits, -np.inf)
        scores.append(np.mean(clf.classes_[logits.argmax(axis=1)] == task.y_test))
    return np.mean(scores)


def main(seeds=3):
    """Print and write the table."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {}
    for seed in range(seeds):
        for name, tasks, parameters, known in all_streams(seed):
            parameters = {**parameters, "random_state": seed}
            together = joint(tasks, known, **parameters)
            results.setdefault((name, "joint"), {}).setdefault("joint", []).append(together)
            for penalty in ("running_sum", "per_task"):
                for value in LAMBDAS:
                    clf = EWCClassifier(ewc_lambda=value, penalty=penalty, **parameters)
                    accuracy = average_accuracy(
                        evaluate_stream(clf, tasks, known_task=known).matrix
                    )
                    results.setdefault((name, penalty), {}).setdefault(value, []).append(accuracy)
                row = [results[name, penalty][v][-1] for v in LAMBDAS]
                print(seed, name, penalty, *(f"{a:.3f}" for a in row), f"joint {together:.3f}")
                sys.stdout.flush()
    lines = [
        "| stream | penalty | " + " | ".join(f"λ = {v:g}" for v in LAMBDAS) + " | joint |",
        "|---" * (len(LAMBDAS) + 3) + "|",
    ]
    regret = {"running_sum": [], "per_task": []}
    for (name, penalty), by_value in results.items():
        if penalty == "joint":
            continue
        means = np.array([np.mean(by_value[v]) for v in LAMBDAS])
        regret[penalty].append(means.max() - means)
        cells = [f"**{m:.3f}**" if m == means.max() else f"{m:.3f}" for m in means]
        together = np.mean(results[name, "joint"]["joint"])
        lines.append(f"| {name} | {penalty} | " + " | ".join(cells) + f" | {together:.3f} |")
    for penalty, rows in regret.items():
        cells = [f"{r:.3f}" for r in np.mean(rows, axis=0)]
        lines.append(f"| mean loss against the best λ | {penalty} | " + " | ".join(cells) + " | |")
    text = "\n".join(lines)
    print(text)
    path = Path(__file__).parent / "results" / "default_lambda.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
