"""Measure how cost grows, how far it is from what the machine can do, and memory.

Run with ``python benchmarks/growth.py [repeats]``; writes results/growth.md. One thread;
medians of repeats that take turns over the sizes. What is doubled four times grows from
512 rows of 256 inputs, 128 hidden units, 8 classes and 1 task; float32, batches of 128.
"""

import subprocess
import sys
from time import perf_counter

import numpy as np
import torch
from streams import in_process, peak_memory, write

from skewc import EWCClassifier
from skewc._curvature import measure_importance
from skewc._network import Network
from skewc._rows import Rows

START = {"rows": 512, "features": 256, "hidden": 128, "classes": 8, "tasks": 1}
BATCH = 128


def data(rows, features, classes):
    """Uniform rows, and labels in turn."""
    X = np.random.RandomState(0).uniform(size=(rows, features)).astype(np.float32)
    return X, np.arange(rows) % classes


def classifier(hidden, epochs):
    """Return an estimator that never stops before its last epoch."""
    return EWCClassifier(
        hidden, batch_size=BATCH, max_iter=epochs, tol=0, n_iter_no_change=10**6, random_state=0
    )


def seconds(work):
    """Time of a call."""
    start = perf_counter()
    work()
    return perf_counter() - start


def costs(rows, features, hidden, classes, tasks, epochs=4):
    """Seconds of an epoch of the last of several tasks, and of its consolidation."""
    X, y = data(rows, features, classes)
    clf = classifier((hidden,), 1)
    for task in range(tasks):
        clf.partial_fit(X, y, task_id=task)
    clf.set_params(max_iter=epochs)
    epoch = seconds(lambda: clf.partial_fit(X, y, task_id=tasks, consolidate=False)) / epochs
    return epoch, exact_fisher((features, hidden, classes), X, y)


def exact_fisher(sizes, X, y, kind="exact"):
    """Seconds of the diagonal Fisher of fresh weights."""
    network, rng = Network(sizes, "relu"), np.random.RandomState(0)
    weights = torch.from_numpy(network.initialise(rng, X.dtype))
    options = {"curvature": "diagonal", "fisher": kind, "smoothing": 0.0, "n_samples": None}
    return seconds(
        lambda: measure_importance(network, weights, Rows(X, y), None, **options, rng=rng)
    )


def growth(repeats):
    """Return lines of times and slopes of their log-log fits."""
    lines = [
        "| doubled four times | epoch, ms | slope | exact Fisher, ms | slope |",
        "|---|---|---|---|---|",
    ]
    for name, start in START.items():
        sizes = [start * 2**k for k in range(5)]
        runs = [[costs(**{**START, name: size}) for size in sizes] for _ in range(repeats + 1)]
        medians = np.median(runs[1:], axis=0)
        cells = [f"{name}, {sizes[0]} to {sizes[-1]}"]
        for times in medians.T:
            slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
            cells += [" ".join(f"{1e3 * t:.3g}" for t in times), f"{slope:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def many_classes(repeats):
    """Return lines of the Fisher's cost by classes, with one and with two hidden layers."""
    lines = [
        "| classes | hidden layers | exact Fisher, ms | sampled Fisher, ms | ratio |",
        "|---|---|---|---|---|",
    ]
    for hidden, rows in (((256,), 2000), ((256, 256), 200)):
        for classes in (10, 100, 1000):
            X, y = data(rows, 784, classes)
            sizes = (784, *hidden, classes)
            kinds = ("exact", "sample")
            runs = [[exact_fisher(sizes, X, y, kind) for kind in kinds] for _ in range(repeats + 1)]
            exact, sample = np.median(runs[1:], axis=0) * 1e3
            cells = f"{classes} | {hidden}, {rows} rows | {exact:.3g} | {sample:.3g}"
            lines.append(f"| {cells} | {exact / sample:.1f} |")
            print(lines[-1], flush=True)
    return lines


def products(sizes, rows, vectors):
    """Shapes (m, k, n) of the matrix products of a pass: forward, back, and reduction.

    `vectors` are sent back from each row's logits; the reduction takes them added up.
    """
    layers = list(zip(sizes, sizes[1:], strict=False))
    forward = [(rows, i, o) for i, o in layers]
    back = [(rows * vectors, o, i) for i, o in layers[1:]]
    return [*forward, *back, *[(i, rows, o) for i, o in layers]]


def product_time(shapes, repeats):
    """Return the sum over shapes of the median time of a bare product, and of operations."""
    total = operations = 0
    for m, k, n in shapes:
        a, b, out = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
        runs = [seconds(lambda a=a, b=b, out=out: torch.mm(a, b, out=out)) for _ in range(5)]
        for _ in range(repeats * 5):
            runs.append(seconds(lambda a=a, b=b, out=out: torch.mm(a, b, out=out)))
        total += np.median(runs[5:])
        operations += 2 * m * k * n
    return total, operations


def limits(repeats, rows=2048):
    """Return lines of our times beside those of the bare matrix products."""
    lines = [
        "| work | ours, ms | bare products, ms | their speed, GFLOP/s | ours / bare |",
        "|---|---|---|---|---|",
    ]

    def add(work, ours, shapes, times):
        bare, operations = product_time(shapes, repeats)
        bare, operations = bare * times, operations * times
        speed = operations / bare / 1e9
        cells = f"{1e3 * ours:.3g} | {1e3 * bare:.3g} | {speed:.0f} | {ours / bare:.2f}"
        lines.append(f"| {work} | {cells} |")
        print(lines[-1], flush=True)

    for sizes in ((64, 100, 10), (784, 256, 10), (784, 400, 400, 10)):
        X, y = data(rows, sizes[0], 10)
        name = "-".join(map(str, sizes))

        def epoch(X=X, y=y, hidden=sizes[1:-1]):
            clf = classifier(hidden, 4)
            return seconds(lambda: clf.partial_fit(X, y, consolidate=False)) / 4

        ours = np.median([epoch() for _ in range(repeats + 1)][1:])
        add(f"epoch, {name}", ours, products(sizes, BATCH, 1), rows / BATCH)
    for sizes in ((784, 256, 10), (784, 256, 256, 10)):
        X, y = data(rows, 784, 10)
        name = "-".join(map(str, sizes))
        for kind, vectors in (("exact", 10), ("empirical", 1)):
            times = [exact_fisher(sizes, X, y, kind) for _ in range(repeats + 1)][1:]
            shapes = products(sizes, rows, vectors)
            add(f"{kind} Fisher, {name}", np.median(times), shapes, 1)
    return lines


def memory(part):
    """Bytes beyond the data at the peak of training, or of consolidation, and the data's."""
    X, y = data(40_000, 784, 10)
    small = classifier((256,), 1).partial_fit(X[:400], y[:400])  # loads libraries and kernels
    if part == "training":
        peak = peak_memory(lambda: classifier((256,), 1).partial_fit(X, y, consolidate=False))
    else:
        network, weights = small._stream.network, torch.from_numpy(small._stream.weights)
        rows, rng = Rows(X, y), np.random.RandomState(0)
        options = {"curvature": part, "fisher": "exact", "smoothing": 0.0, "n_samples": None}
        peak = peak_memory(
            lambda: measure_importance(network, weights, rows, None, **options, rng=rng)
        )
    return peak, X.nbytes, small._stream.weights.nbytes


def memories():
    """Return lines of memory."""
    lines = [
        "| 40,000 rows, 784-256-10, float32 | peak beyond the data, MB | data, MB | ratio "
        "| weights, MB |",
        "|---|---|---|---|---|",
    ]
    for part in ("training", "diagonal", "kronecker"):
        peak, size, weights = (n / 1e6 for n in in_process("growth", "memory", part))
        work = part if part == "training" else f"exact Fisher, {part}"
        lines.append(f"| {work} | {peak:.1f} | {size:.1f} | {peak / size:.2f} | {weights:.2f} |")
    return lines


def imports(repeats):
    """Return a line about the time of importing, each in a process of its own."""
    statements = [
        "from skewc import EWCClassifier",
        "import torch",
        "import torch, sklearn.neural_network",
    ]
    times = {statement: [] for statement in statements}
    for _ in range(repeats + 1):
        for statement in statements:
            code = f"import time; t = time.perf_counter(); {statement}"
            code += "; print(time.perf_counter() - t)"
            run = [sys.executable, "-c", code]
            found = subprocess.run(run, capture_output=True, check=True, text=True)
            times[statement].append(float(found.stdout))
    return "; ".join(f"`{s}`: {np.median(t[1:]):.2f} s" for s, t in times.items()) + "."


def main(repeats=5):
    """Print and write all tables."""
    torch.set_num_threads(1)
    tables = [growth(repeats), many_classes(repeats), limits(repeats), memories()]
    text = "\n\n".join("\n".join(lines) for lines in tables)
    write("growth", f"{text}\n\n{imports(repeats)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
