"""Measure how much is kept: every way of protecting, on four streams of Fashion-MNIST.

Run with ``python benchmarks/forgetting.py [seeds]``; writes results/forgetting.md. The first
seed runs the whole grid of λ; the others run, for each method and stream, the λ that was
best there, and 1 and 10 for the Kronecker penalty. Each run is noted in
results/forgetting.jsonl, so an interrupted measurement goes on where it was; delete that
file to measure anew.
``python benchmarks/avalanche_ewc.py``, in an environment of its own, adds Avalanche's rows.
The images come from Debian's package (``apt-get install dataset-fashion-mnist``).

Ten permuted tasks have 10,000 rows each; the five split tasks, two classes each, have
12,000. The network is 784-256-10 (784-256-2 in the domain-incremental stream), learned
for three epochs of Adam at 1e-3 in batches of 128, each task from where the last ended.
"""

import json
import sys
import warnings
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from streams import RESULTS, accuracy, write

from skewc import EWCClassifier
from skewc.datasets import load_fashion_mnist, make_permuted_tasks, make_split_tasks

NETWORK = {"hidden_layer_sizes": (256,), "batch_size": 128, "max_iter": 3}
DIAGONAL = [1, 10, 30, 100, 1000, 10_000]
KRONECKER = [0.3, 1, 3, 10, 30, 100, 300, 1000]
SCENARIOS = ["permuted", "split, domain", "split, task known", "split, class"]


def streams(seed):
    """Yield the scenarios that one stream serves, and its tasks."""
    X, y, X_test, y_test = load_fashion_mnist()
    X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test])
    common = {"test_size": len(y_test), "random_state": seed}
    yield SCENARIOS[:1], make_permuted_tasks(X, y, 10, n_samples=10_000, **common)
    yield SCENARIOS[1:2], make_split_tasks(X, y, scenario="domain", **common)
    yield SCENARIOS[2:], make_split_tasks(X, y, **common)


def methods():
    """Yield a name, λ and parameters of the estimator."""
    yield "fine-tuning", 0, {}
    yield "joint", 0, {}
    for penalty, smoothing in (("running_sum", 0.1), ("per_task", 0.1), ("running_sum", 0.0)):
        for value in KRONECKER:
            parameters = {"curvature": "kronecker", "penalty": penalty}
            name = f"Kronecker, {penalty}" + (", no smoothing" if smoothing == 0 else "")
            yield name, value, {**parameters, "fisher_smoothing": smoothing}
    for penalty in ("running_sum", "per_task"):
        for fisher in ("exact", "sample", "empirical"):
            for value in DIAGONAL:
                name = f"diagonal, {penalty}, {fisher}"
                yield name, value, {"penalty": penalty, "fisher": fisher}
    for value in (0.001, 0.01, 0.1, 1):
        yield "L2 to the old weights", value, {}


def learn(name, value, parameters, tasks, scenarios, seed):
    """Average test accuracy over all tasks, in each of the scenarios."""
    clf = EWCClassifier(ewc_lambda=value, random_state=seed, **NETWORK, **parameters)
    if name == "joint":
        clf.fit(
            *(np.concatenate([getattr(t, part) for t in tasks]) for part in ("X_train", "y_train"))
        )
    with uniform_importance() if name.startswith("L2") else nullcontext():
        for task in tasks if name != "joint" else ():
            clf.partial_fit(task.X_train, task.y_train, task_id=task.id)
    return {
        scenario: accuracy(clf, tasks, scenario == "split, task known") for scenario in scenarios
    }


def uniform_importance():
    """Hold all weights alike: (λ/2)·‖w - w*‖² beside the mean loss, for each old task."""

    def alike(network, weights, rows, mask, **options):
        return [torch.full_like(weights, rows.n)]

    return patch("skewc._learning.measure_importance", alike)


def measure(seeds):
    """Run what is not yet noted."""
    path = RESULTS / "forgetting.jsonl"
    noted = read(path)
    for seed in range(seeds):
        for scenarios, tasks in streams(seed):
            for name, value, parameters in methods():
                if not wanted(noted, scenarios, name, value, seed):
                    continue
                found = learn(name, value, parameters, tasks, scenarios, seed)
                with path.open("a", encoding="utf-8") as notes:
                    for scenario, score in found.items():
                        line = [scenario, name, value, seed, score]
                        noted[*line[:4]] = score
                        notes.write(json.dumps(line) + "\n")
                        print(*line, flush=True)


def wanted(noted, scenarios, name, value, seed):
    """Whether a run is missing: any at the first seed, those that won there at the others."""
    if (scenarios[0], name, value, seed) in noted:
        return False
    if seed == 0 or (name.startswith("Kronecker") and value in (1, 10)):
        return True
    for scenario in scenarios:
        path = {
            v: s for (where, n, v, k), s in noted.items() if (where, n, k) == (scenario, name, 0)
        }
        if value == max(path, key=path.get):
            return True
    return False


def read(path):
    """Return {(scenario, name, λ, seed): accuracy}."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {tuple(line[:4]): line[4] for line in lines}


def table(noted):
    """One line for each method: its best λ and the whole path, in each scenario."""
    names = dict.fromkeys(name for _, name, _, _ in noted)
    lines = []
    for scenario in SCENARIOS:
        mean = {}
        for (where, name, value, _), score in noted.items():
            if where == scenario:
                mean.setdefault((name, value), []).append(score)
        if not mean:
            continue
        low, high = (np.mean(mean[name, 0]) for name in ("fine-tuning", "joint"))
        lines += ["", f"## {scenario}", ""]
        lines += ["| method | best λ | accuracy | gap closed | accuracy for each λ, first seed |"]
        lines += ["|---|---|---|---|---|"]
        for name in names:
            path = {v: scores for (n, v), scores in mean.items() if n == name}
            if path:
                most = max(map(len, path.values()))
                best = max(
                    (v for v in path if len(path[v]) == most), key=lambda v: np.mean(path[v])
                )
                score, error = np.mean(path[best]), standard_error(path[best])
                share = (score - low) / (high - low)
                each = ", ".join(f"{v:g}: {s[0]:.3f}" for v, s in sorted(path.items()))
                lines.append(
                    f"| {name} | {best:g} | {score:.3f} ± {error:.3f} | {share:.0%} | {each} |"
                )
    return "\n".join(lines)


def standard_error(scores):
    """Return the standard error of the mean over seeds."""
    return np.std(scores, ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else np.nan


def main(seeds=5):
    """Measure, print and write the tables."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    measure(seeds)
    noted = read(RESULTS / "forgetting.jsonl")
    text = f"{max(key[3] for key in noted) + 1} seeds; ± is the standard error.\n{table(noted)}"
    write("forgetting", text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
