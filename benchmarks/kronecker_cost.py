"""Measure what the Kronecker penalty costs beside the diagonal one, in the same run.

Run with ``python benchmarks/kronecker_cost.py``; writes results/kronecker_cost.md. A second
task of 10,000 images of Fashion-MNIST (``apt-get install dataset-fashion-mnist``), network
784-256-10, batches of 128; medians of interleaved repeats. An epoch is the difference
between calls of eleven epochs and of one. The consolidation is all that a call does beyond
its epochs: importance, eigenvectors, the rotation of the rows, validation.
"""

import sys
from time import perf_counter

import numpy as np
import torch
from streams import fashion, write

from skewc import EWCClassifier

CURVATURES = ("diagonal", "kronecker")


def seconds(X, y, **parameters):
    """Time of learning a second task."""
    clf = EWCClassifier((256,), batch_size=128, n_iter_no_change=1000, random_state=0, **parameters)
    clf.set_params(max_iter=1).partial_fit(X, y, task_id=0)
    clf.set_params(max_iter=parameters["max_iter"])
    start = perf_counter()
    clf.partial_fit(X[:, ::-1], y, task_id=1)
    return perf_counter() - start


def main(repeats=7):
    """Print and write the table."""
    X, y = (part[:10_000] for part in fashion())
    lines = [
        "| threads | epoch, diagonal | epoch, Kronecker | ratio | consolidation, Kronecker "
        "| in epochs |",
        "|---|---|---|---|---|---|",
    ]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        epochs = {curvature: [] for curvature in CURVATURES}
        around = {curvature: [] for curvature in CURVATURES}
        for _ in range(repeats):
            for curvature in CURVATURES:
                one, eleven = (seconds(X, y, curvature=curvature, max_iter=n) for n in (1, 11))
                epochs[curvature].append((eleven - one) / 10)
                around[curvature].append(one - (eleven - one) / 10)
        diagonal, kronecker = (np.median(epochs[curvature]) for curvature in CURVATURES)
        beyond = np.median(around["kronecker"])
        lines.append(
            f"| {threads} | {diagonal:.3f} s | {kronecker:.3f} s | {kronecker / diagonal:.2f} "
            f"| {beyond:.3f} s | {beyond / kronecker:.2f} |"
        )
    text = "\n".join(lines)
    write("kronecker_cost", text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
