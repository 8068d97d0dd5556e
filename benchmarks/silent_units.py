"""Measure what the least hold on weights into hidden units is worth.

For shares of the mean importance from none up: how many of the first task's predictions
stay the same at λ = 1e12, the fewest and the median of nine runs on two permuted-digits
tasks; and the average accuracy after five such tasks at common λ, mean of three seeds.
Run with ``python benchmarks/silent_units.py``; writes results/silent_units.md.
"""

import numpy as np
from streams import permuted_digits, write

import skewc._curvature
from skewc import EWCClassifier
from skewc.metrics import average_accuracy
from skewc.model_selection import evaluate_stream

SHARES = [0, 1e-6, 1e-3, 1e-2, 1e-1]
LAMBDAS = [10, 30, 100]


def unchanged(seed, **parameters):
    """Share of the first task's predictions that the second task leaves alone."""
    first, second = permuted_digits(2, seed)
    clf = EWCClassifier(
        ewc_lambda=1e12, max_iter=20, batch_size=32, random_state=seed, **parameters
    )
    before = clf.partial_fit(first.X_train, first.y_train).predict(first.X_train)
    after = clf.partial_fit(second.X_train, second.y_train).predict(first.X_train)
    return np.mean(after == before)


def average(seed, ewc_lambda):
    """Average accuracy after five tasks."""
    clf = EWCClassifier(ewc_lambda=ewc_lambda, max_iter=50, batch_size=32, random_state=seed)
    return average_accuracy(evaluate_stream(clf, permuted_digits(5, seed)).matrix)


def main():
    """Print and write the table."""
    solvers = [{}, {"solver": "sgd", "learning_rate_init": 0.01}]
    solvers.append({"solver": "sgd", "learning_rate_init": 0.1})
    lines = [
        "| share | fewest unchanged | median | " + " | ".join(f"λ = {v}" for v in LAMBDAS) + " |",
        "|---" * (len(LAMBDAS) + 3) + "|",
    ]
    for share in SHARES:
        skewc._curvature._SILENT_SHARE = share
        kept = [unchanged(seed, **solver) for solver in solvers for seed in range(3)]
        means = [np.mean([average(seed, value) for seed in range(3)]) for value in LAMBDAS]
        cells = " | ".join(f"{mean:.3f}" for mean in means)
        lines.append(f"| {share:g} | {min(kept):.1%} | {np.median(kept):.1%} | {cells} |")
        print(lines[-1], flush=True)
    write("silent_units", "\n".join(lines))


if __name__ == "__main__":
    main()
