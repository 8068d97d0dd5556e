"""Measure what the Kronecker penalty costs beside the diagonal one, in the same run.

Run with ``python benchmarks/kronecker_cost.py``; writes results/kronecker_cost.md. A second
task of 10,000 images of Fashion-MNIST (``apt-get install dataset-fashion-mnist``), network
784-256-10, batches of 128; medians of interleaved repeats. An epoch is the difference
between calls of eleven epochs and of one. Of what a call does beyond its epochs, the parts
are timed where they are called: the importance of the task, its joining the penalty
(eigenvectors), and the rotation of the rows. What each way keeps is the accuracy over ten
permuted tasks at λ = 1, learned as ``forgetting.py`` does, three seeds.
"""

import sys
import warnings
from contextlib import ExitStack
from time import perf_counter
from unittest.mock import patch

import numpy as np
import torch
from forgetting import learn, standard_error, streams
from sklearn.exceptions import ConvergenceWarning
from streams import fashion, write

from skewc import EWCClassifier
from skewc._curvature import measure_importance
from skewc._network import RotatedNetwork
from skewc._stream import Stream

METHODS = {
    "diagonal": {},
    "Kronecker": {"curvature": "kronecker"},
    "Kronecker, sampled": {"curvature": "kronecker", "fisher": "sample"},
    "Kronecker, 1,000 rows": {"curvature": "kronecker", "fisher_samples": 1000},
}
PARTS = {
    "importance": ("skewc._learning.measure_importance", measure_importance),
    "joining": ("skewc._stream.Stream.open", Stream.open),
    "rotation": ("skewc._network.RotatedNetwork.prepared", RotatedNetwork.prepared),
}


def timed(function, took):
    """Add the seconds that calls take to `took`."""

    def call(*args, **options):
        start = perf_counter()
        try:
            return function(*args, **options)
        finally:
            took[-1] += perf_counter() - start

    return call


def seconds(X, y, max_iter, took, **parameters):
    """Time of learning a second task; the parts' are appended to `took`."""
    clf = EWCClassifier((256,), batch_size=128, n_iter_no_change=1000, random_state=0, **parameters)
    clf.set_params(max_iter=1).partial_fit(X, y, task_id=0)
    with ExitStack() as stack:
        for name, (place, function) in PARTS.items():
            took[name].append(0.0)
            stack.enter_context(patch(place, timed(function, took[name])))
        start = perf_counter()
        clf.set_params(max_iter=max_iter).partial_fit(X[:, ::-1], y, task_id=1)
        return perf_counter() - start


def kept(parameters, seeds=3):
    """Accuracy over ten permuted tasks, and its standard error."""
    scores = []
    for seed in range(seeds):
        (scenario,), tasks = next(streams(seed))
        scores.append(learn("", 1, parameters, tasks, [scenario], seed)[scenario])
    return f"{np.mean(scores):.3f} ± {standard_error(scores):.3f}"


def main(repeats=7):
    """Print and write the table."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = (part[:10_000] for part in fashion())
    columns = ["threads", "penalty", "epoch", "beside the diagonal", *PARTS]
    lines = [
        f"| {' | '.join(columns)} | importance and joining, in epochs | kept |",
        "|---" * (len(columns) + 2) + "|",
    ]
    score = {name: kept(parameters) for name, parameters in METHODS.items()}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        epochs = {name: [] for name in METHODS}
        took = {name: {part: [] for part in PARTS} for name in METHODS}
        for _ in range(repeats):
            for name, parameters in METHODS.items():
                one, eleven = (seconds(X, y, n, took[name], **parameters) for n in (1, 11))
                epochs[name].append((eleven - one) / 10)
        epoch = {name: np.median(found) for name, found in epochs.items()}
        for name in METHODS:
            parts = {part: np.median(found) for part, found in took[name].items()}
            share = (parts["importance"] + parts["joining"]) / epoch[name]
            cells = [f"{epoch[name]:.3f} s", f"{epoch[name] / epoch['diagonal']:.2f}"]
            cells += [f"{part:.3f} s" for part in parts.values()]
            lines.append(
                f"| {threads} | {name} | {' | '.join(cells)} | {share:.2f} | {score[name]} |"
            )
    write("kronecker_cost", "\n".join(lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
