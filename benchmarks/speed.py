r"""Measure skewc beside what a user would pick instead, in one process and one run.

Run with ``python benchmarks/speed.py``; writes results/speed.md. Peers that are not
installed are named as skipped. For all of them, in an environment of its own:

    python -m venv .venv-peers
    .venv-peers/bin/pip install torch==2.14.1 torchvision==0.29.1 avalanche-lib skorch \
        backpack-for-pytorch curvlinops-for-pytorch laplace-torch
    PYTHONPATH=. .venv-peers/bin/python benchmarks/speed.py [repeats]

Ours and the peers take turns; a row shows medians and quartiles over the repeats, after one
call that is not counted. Data, float type, network, batches, epochs, learning rate and
threads are the same for all. An epoch is a whole call of several epochs, by their number,
without what skewc does once for a task (``consolidate=False``). Every Fisher is compared
with ours before it is timed. The ratio is the peer's time by ours.
"""

import importlib.util
import os
import platform
import sys
import warnings
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from time import perf_counter

import numpy as np
import torch
from peers import (
    avalanche_importance,
    avalanche_stream,
    backpack_diagonal,
    curvlinops_diagonal,
    laplace_diagonal,
    rows_one_by_one,
    skorch_epochs,
    torch_loop,
)
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from streams import in_process, peak_memory, permuted_digits, write
from threadpoolctl import threadpool_limits

from skewc import EWCClassifier
from skewc._curvature import measure_importance
from skewc._rows import Rows

PEERS = {
    "skorch": "skorch",
    "avalanche": "avalanche-lib",
    "backpack": "backpack-for-pytorch",
    "curvlinops": "curvlinops-for-pytorch",
    "laplace": "laplace-torch",
}
_SHORT = 0.3  # seconds
# Never stop before the last epoch.
ENDLESS = {"tol": 0, "n_iter_no_change": 10**6, "random_state": 0}


@contextmanager
def threads(n):
    """Let torch, and the BLAS of numpy and scipy, run on n threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    with threadpool_limits(n):
        yield
    torch.set_num_threads(before)


def seconds(work, times=1):
    """Time of one of several calls."""
    start = perf_counter()
    for _ in range(times):
        work()
    return (perf_counter() - start) / times


def race(runners, repeats):
    """Let runners, which return seconds, take turns; return their times.

    Of what is short the second of two runs counts: by then the caches are its own, and threads
    of the other's BLAS no longer keep a core busy waiting for work.
    """
    times = {name: [] for name in runners}
    for k in range(repeats + 1):
        for name, runner in runners.items():
            taken = runner()
            if taken < _SHORT:
                taken = runner()
            if k:
                times[name].append(taken)
    return times


def spread(times):
    """Median and quartiles in milliseconds."""
    low, middle, high = np.quantile(np.array(times) * 1e3, [0.25, 0.5, 0.75])
    low, middle, high = (f"{t:.3g}" if t < 1000 else f"{t:,.0f}" for t in (low, middle, high))
    return f"{middle} ({low} to {high})"


class Table:
    """Lines of the result, printed as they come."""

    def __init__(self, repeats):
        self.repeats = repeats
        self.lines = []
        self.add("work", "threads", "against", "ratio", "target", "", "ours, ms", "theirs, ms")
        self.add(*["---"] * 8)

    def add(self, *cells):
        """Add a line."""
        self.lines.append(f"| {' | '.join(map(str, cells))} |")
        print(self.lines[-1], flush=True)

    def race(self, work, n_threads, ours, peers):
        """Add a line for each of `peers`, (name, module or None, target, runner)."""
        here = [p for p in peers if p[1] is None or importlib.util.find_spec(p[1])]
        for name, module, target, _ in peers:
            if module is not None and not importlib.util.find_spec(module):
                self.add(work, n_threads, name, "", target, "skipped: not installed", "", "")
        if not here:
            return
        with threads(n_threads):
            times = race({"": ours, **{p[0]: p[3] for p in here}}, self.repeats)
        mine = times[""]
        for name, _, target, _ in here:
            ratio = np.median(times[name]) / np.median(mine)
            met = "met" if ratio >= target else "MISSED"
            cells = (name, f"{ratio:.2f}", target, met, spread(mine), spread(times[name]))
            self.add(work, n_threads, *cells)


def fit_epochs(X, y, hidden, batch, epochs):
    """Return runners of ours and of scikit-learn's for the time of an epoch."""
    parameters = {"hidden_layer_sizes": hidden, "batch_size": batch, "max_iter": epochs, **ENDLESS}

    def ours():
        clf = EWCClassifier(**parameters)
        return seconds(lambda: clf.partial_fit(X, y, consolidate=False)) / epochs

    def theirs():
        clf = MLPClassifier(**parameters)
        return seconds(lambda: clf.fit(X, y)) / epochs

    return ours, theirs


def images(n, dtype=np.float32):
    """Rows of 784 inputs in [0, 1] with ten labels; no time depends on what they show."""
    rng = np.random.RandomState(0)
    X, centres = rng.uniform(size=(n, 784)), rng.uniform(size=(10, 784))
    y = np.arange(n) % 10
    return (0.7 * X + 0.3 * centres[y]).astype(dtype), y


def epochs(table):
    """Time training epochs without earlier tasks."""
    digits, labels = load_digits(return_X_y=True)
    for n_threads in (1, 2):
        for dtype in (np.float32, np.float64):
            X = (digits / 16).astype(dtype)
            for batch in (32, 200):
                target = 1.8 if dtype is np.float32 and batch == 32 else 1.3
                ours, theirs = fit_epochs(X, labels, (100,), batch, 10)
                work = f"epoch, digits 64-100-10, batch {batch}, {np.dtype(dtype)}"
                table.race(work, n_threads, ours, [("MLPClassifier", None, target, theirs)])
    X, y = images(5120)
    for n_threads, target in ((1, 1.2), (2, 1.5)):
        for hidden in ((256,), (400, 400)):
            ours, theirs = fit_epochs(X, y, hidden, 128, 2)
            peers = [
                ("MLPClassifier", None, target, theirs),
                ("skorch", "skorch", 2, lambda h=hidden: skorch_epochs(X, y, h, 128, 2)),
                ("torch loop", None, 1.1, lambda h=hidden: torch_loop(X, y, h, 128, 2)),
            ]
            name = "-".join(map(str, (784, *hidden, 10)))
            table.race(f"epoch, {name}, batch 128, float32", n_threads, ours, peers)


def penalties(table):
    """Time epochs of a second task with the penalty on and off."""
    digits, labels = load_digits(return_X_y=True)
    cases = [
        ("64-100-10, batch 32", (digits / 16).astype(np.float32), labels, (100,), 32, 20),
        ("784-256-10, batch 128", *images(5120), (256,), 128, 5),
    ]
    for n_threads in (1, 2):
        for name, X, y, hidden, batch, n_epochs in cases:

            def second(ewc_lambda, X=X, y=y, hidden=hidden, batch=batch, n=n_epochs):
                clf = EWCClassifier(
                    hidden, batch_size=batch, max_iter=1, ewc_lambda=ewc_lambda, **ENDLESS
                ).partial_fit(X, y, task_id=0)
                clf.set_params(max_iter=n)
                Z = np.ascontiguousarray(X[:, ::-1])
                return seconds(lambda: clf.partial_fit(Z, y, task_id=1, consolidate=False)) / n

            peers = [("ourselves, λ = 0", None, 0.8, lambda s=second: s(0.0))]
            work = f"epoch of a second task, {name}, float32, λ = 1"
            table.race(work, n_threads, lambda s=second: s(1.0), peers)


def fishers(table, n=2000):
    """Time diagonal Fishers of 784-256-256-10, after comparing them with ours."""
    X, y = images(n)
    clf = EWCClassifier((256, 256), max_iter=1, random_state=0).partial_fit(X, y)
    network, weights = clf._stream.network, torch.from_numpy(clf._stream.weights)
    model, rows = clf.to_torch(), Rows(X, y)
    x, labels = torch.from_numpy(X), torch.from_numpy(y)

    def ours(kind, of=rows):
        rng = np.random.RandomState(0)
        options = {"curvature": "diagonal", "fisher": kind, "smoothing": 0.0, "n_samples": None}
        return measure_importance(network, weights, of, None, **options, rng=rng)[0]

    def peer(kind, name, module, target, diagonal, part=n, exact=True):
        def runner():
            return seconds(lambda: diagonal(kind, model, x[:part], labels[:part])) * (n / part)

        if module is None or importlib.util.find_spec(module):
            parts = [p.detach() for p in diagonal(kind, model, x[:part], labels[:part])]
            theirs = network.join([w.T.numpy() for w in parts[::2]], parts[1::2])
            mine = ours(kind, Rows(X[:part], y[:part])).numpy()
            error = np.linalg.norm(theirs - mine) / np.linalg.norm(mine)
            if exact and error > 1e-4:
                raise AssertionError(f"{name}: {kind} Fisher is {error:.1e} away from ours")
            name += "" if exact else f", {error:.0%} away from the diagonal"
        return name, module, target, runner

    for kind in ("exact", "empirical"):
        if kind == "exact":
            peers = [
                ("BackPACK DiagGGNExact", "backpack", 1.5, backpack_diagonal),
                ("autograd, row by row (20 rows timed)", None, 30, rows_one_by_one, 20),
                (
                    "curvlinops hutchinson_diag of GGNLinearOperator, 10 products",
                    *("curvlinops", 1.5, curvlinops_diagonal, n, False),
                ),
                ("laplace-torch DiagLaplace, BackPackGGN", "laplace", 1.5, laplace_diagonal),
                (
                    "laplace-torch DiagLaplace, AsdlGGN",
                    *("asdl", 1.5, partial(laplace_diagonal, backend="asdl.AsdlGGN")),
                ),
            ]
        else:
            peers = [
                ("BackPACK SumGradSquared", "backpack", 1.5, backpack_diagonal),
                ("autograd, row by row (200 rows timed)", None, 10, rows_one_by_one, 200),
                ("Avalanche, batch size 1", "avalanche", 20, avalanche_importance),
            ]
        peers = [peer(kind, *p) for p in peers]
        for n_threads in (1, 2):
            work = f"{kind} Fisher diagonal, 784-256-256-10, {n} rows, float32"
            table.race(work, n_threads, lambda kind=kind: seconds(lambda: ours(kind)), peers)


def streams(table, n_epochs=5):
    """Time a whole stream of five tasks, exact Fisher and all."""
    tasks = permuted_digits(5, 0)

    def ours():
        clf = EWCClassifier((100,), batch_size=32, max_iter=n_epochs, **ENDLESS)

        def learn():
            for task in tasks:
                clf.partial_fit(task.X_train, task.y_train, task_id=task.id)

        return seconds(learn)

    for n_threads in (1, 2):
        peers = [("Avalanche EWC, online", "avalanche", 2.5, lambda: avalanche_stream(tasks, 5))]
        table.race("five permuted tasks, digits, 64-100-10, batch 32", n_threads, ours, peers)


def predictions(table):
    """Time predict_proba."""
    X, y = images(10_000)
    parameters = {"hidden_layer_sizes": (256,), "max_iter": 1, "random_state": 0}
    clf = EWCClassifier(**parameters).partial_fit(X[:1000], y[:1000])
    mlp = MLPClassifier(**parameters).fit(X[:1000], y[:1000])
    for n_threads in (1, 2):
        for n, target, times in ((10_000, 1.0, 3), (1, 0.7, 200)):

            def runner(model, n=n, times=times):
                return lambda: seconds(lambda: model.predict_proba(X[:n]), times)

            peers = [("MLPClassifier", None, target, runner(mlp))]
            table.race(f"predict_proba, 784-256-10, rows: {n}", n_threads, runner(clf), peers)


def csr():
    """Return 20,000 sparse rows of 5,000 inputs, 1 % of which are not zero."""
    X = sparse.random(20_000, 5000, 0.01, "csr", np.float32, random_state=0)
    return X, np.arange(20_000) % 10


def train_on_csr():
    """Train for one epoch on sparse rows; return the peak of memory beyond the data's."""
    X, y = csr()
    clf = EWCClassifier((100,), max_iter=1, **ENDLESS)
    clf.partial_fit(X[:400], y[:400])  # loads libraries and kernels
    clf = EWCClassifier((100,), max_iter=1, **ENDLESS)
    peak = peak_memory(lambda: clf.partial_fit(X, y, consolidate=False))
    allowed = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + clf._stream.weights.nbytes
    return peak, allowed


def sparse_rows(table):
    """Time epochs over CSR, and measure their memory."""
    X, y = csr()
    for n_threads in (1, 2):
        ours, theirs = fit_epochs(X, y, (100,), 200, 2)
        peers = [("MLPClassifier", None, 1.0, theirs)]
        work = "epoch, CSR 20,000 x 5,000 at 1 %, hidden 100, batch 200, float32"
        table.race(work, n_threads, ours, peers)


def sparse_memory():
    """Return a line about the memory of training on CSR."""
    peak, allowed = in_process("speed", "train_on_csr")
    ratio = peak / allowed
    return (
        f"Training on this CSR takes {peak / 1e6:.1f} MB at its peak beyond the data, "
        f"{ratio:.2f} times the matrix and the weights ({allowed / 1e6:.1f} MB); "
        f"target below 1.5: {'met' if ratio < 1.5 else 'MISSED'}."
    )


def machine():
    """Name the machine and the versions."""
    names = ["torch", "scikit-learn", "numpy", *PEERS.values()]
    found = [m for m, d in PEERS.items() if importlib.util.find_spec(m)]
    names = [d for d in names if d not in PEERS.values() or d in [PEERS[m] for m in found]]
    skipped = [d for m, d in PEERS.items() if m not in found]
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} at the start; Python {platform.python_version()}, "
        f"{versions}. Not installed: {', '.join(skipped) or 'none'}."
    )


def main(repeats=5, *only):
    """Print and write the table."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # the epochs are few on purpose
    for module in ("torch", "avalanche", "laplace", "skorch", "curvlinops", "qpsolvers"):
        warnings.filterwarnings("ignore", module=module)
    described, table = machine(), Table(int(repeats))
    parts = [epochs, penalties, fishers, streams, predictions, sparse_rows]
    for part in parts:
        if not only or part.__name__ in only:
            part(table)
    text = "\n".join([described, "", *table.lines, "", sparse_memory()])
    if only:
        print(text)
    else:
        write("speed", text)


if __name__ == "__main__":
    main(*sys.argv[1:])
