"""Compare the ways out where tasks bring new classes, on split Fashion-MNIST.

Run with ``python benchmarks/scenarios.py [seeds]``; writes results/scenarios.md. Each run is
noted in results/scenarios.jsonl, so an interrupted measurement goes on where it was; delete
that file to measure anew. The images come from Debian's package (``apt-get install
dataset-fashion-mnist``).

Five tasks of two classes, 12,000 rows each, 10,000 rows to test on; one hidden layer of 256
units, three epochs a task of Adam at 1e-3 in batches of 128. The same network serves two
scenarios: the task is unknown when predicting (class-incremental), or known. In the
domain-incremental stream all tasks have the same two labels.
"""

import json
import sys
import warnings
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch
from forgetting import NETWORK, read, standard_error
from streams import RESULTS, fashion, write

from skewc import EWCClassifier
from skewc._losses import label_distributions
from skewc.datasets import make_split_tasks

SCENARIOS = ["class", "task known", "domain"]
KRONECKER = {"curvature": "kronecker"}


def methods():
    """Yield a name and parameters of the estimator."""
    yield "fine-tuning", {"ewc_lambda": 0}
    yield "joint training", {"ewc_lambda": 0}
    for value in (1, 10, 100):
        yield f"diagonal, λ = {value}", {"ewc_lambda": value}
        yield f"Kronecker, λ = {value}", {"ewc_lambda": value, **KRONECKER}
        reversal = f"Kronecker of reversed logits, λ = {value}"
        yield reversal, {"ewc_lambda": value, **KRONECKER, "fisher_smoothing": 0}
    yield "diagonal, λ = 10000", {"ewc_lambda": 10_000}
    for size in (200, 1000):
        for selection in ("random", "herding"):
            memory = {"memory_size": size, "memory_selection": selection}
            yield f"{size} rows, {selection}, no penalty", {"ewc_lambda": 0, **memory}
            yield f"{size} rows, {selection}, diagonal", memory
            yield f"{size} rows, {selection}, Kronecker", {**KRONECKER, **memory}
    for n in (500, 1000, 2000, 3000):
        yield f"discriminant, {n} features", {"readout": "discriminant", "readout_features": n}
    yield "discriminant, 2000 features, Kronecker", {"readout": "discriminant", **KRONECKER}


def reversed_logits():
    """Take the Fisher at the softmax of the negative logits, for a network sure of itself."""

    def reverse(logits, *options):
        return label_distributions(-logits, *options)

    return patch("skewc._curvature.label_distributions", reverse)


def learn(name, parameters, tasks, seed):
    """Return the estimator after the stream."""
    clf = EWCClassifier(**NETWORK, random_state=seed, **parameters)
    if name == "joint training":
        X, y = (
            np.concatenate([getattr(t, part) for t in tasks]) for part in ("X_train", "y_train")
        )
        return clf.fit(X, y)
    with reversed_logits() if "reversed" in name else nullcontext():
        for task in tasks:
            clf.partial_fit(task.X_train, task.y_train, task_id=task.id)
    return clf


def accuracies(clf, tasks, domain):
    """Yield a scenario and the average test accuracy over tasks."""
    if domain:
        yield "domain", np.mean([clf.score(t.X_test, t.y_test) for t in tasks])
        return
    yield "class", np.mean([clf.score(t.X_test, t.y_test) for t in tasks])
    if len(clf.task_ids_) == 1:  # joint training had no tasks
        hits = []
        for t in tasks:
            p = clf.predict_proba(t.X_test)[:, np.unique(t.y_train)]
            hits.append(np.mean(np.unique(t.y_train)[p.argmax(axis=1)] == t.y_test))
        yield "task known", np.mean(hits)
    else:
        known = [clf.score(t.X_test, t.y_test, task_id=t.id) for t in tasks]
        yield "task known", np.mean(known)


def measure(seeds, path):
    """Run what is not yet noted."""
    noted = read(path)
    X, y = fashion()
    for seed in range(seeds):
        options = {"test_size": 10_000, "random_state": seed}
        for domain in (False, True):
            tasks = make_split_tasks(X, y, scenario="domain" if domain else "class", **options)
            for name, parameters in methods():
                if (SCENARIOS[2 * domain], name, 0, seed) in noted:
                    continue
                clf = learn(name, parameters, tasks, seed)
                for scenario, score in accuracies(clf, tasks, domain):
                    line = [scenario, name, 0, seed, float(score)]
                    with path.open("a", encoding="utf-8") as notes:
                        notes.write(json.dumps(line) + "\n")
                    print(*line, flush=True)


def table(noted):
    """Mean and standard error over seeds."""
    lines = ["| method | new classes, task unknown | task known | domain |", "|---|---|---|---|"]
    for name, _ in methods():
        cells = []
        for scenario in SCENARIOS:
            found = [s for (where, n, _, _), s in noted.items() if (where, n) == (scenario, name)]
            cells.append(f"{np.mean(found):.3f} ± {standard_error(found):.3f}" if found else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(seeds=5):
    """Measure, print and write the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # the class-incremental stream is the point
    path = RESULTS / "scenarios.jsonl"
    measure(seeds, path)
    noted = read(path)
    n_seeds = max(key[3] for key in noted) + 1
    write("scenarios", f"{n_seeds} seeds; ± is the standard error.\n\n{table(noted)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
