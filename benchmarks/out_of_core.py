"""Learn a task larger than memory, and let workers share the work.

Run with ``python benchmarks/out_of_core.py [PART] [--gigabytes 4]``; the part ``bounded`` writes
results/out_of_core.md, ``workers`` results/dask_workers.md, ``parallel``
results/data_parallel.md; without a part all three are run. Rows of 250 float32 features and
a label of ten classes are written to Parquet in a temporary folder, which goes at the end.

bounded: a process may hold 1.5 GB of memory of its own and learns all rows; others learn some
of them without a limit, from Parquet and in memory. RLIMIT_DATA sets the limit, by which the
system refuses more; RLIMIT_AS would count torch's code too. Arrow allocates by malloc, since
its own pool reserves a gigabyte in advance.
workers: one and two worker processes of one thread share the importance of a task, and a
search of eight candidates.
parallel: two processes compute the gradient of half a batch each, and add them up (gloo),
against one process that computes it of the whole batch.
"""

import argparse
import os
import resource
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter

import dask
import dask.dataframe as dd
import distributed
import joblib
import numpy as np
import pyarrow
import pyarrow.parquet
import torch
import torch.distributed
import torch.multiprocessing
from sklearn.model_selection import GridSearchCV
from streams import in_process, write

import skewc.dask
from skewc import EWCClassifier
from skewc._curvature import measure_importance
from skewc._network import Network
from skewc._objective import Objective
from skewc._rows import Rows
from skewc._validation import validated

FEATURES, CLASSES, BLOCK_ROWS = 250, 10, 50_000  # 50 MB a block
LIMIT = 1_500_000_000
BATCH = 200


def block(k, rows=BLOCK_ROWS):
    """Draw normal rows, and the label that a fixed linear teacher gives each."""
    rng = np.random.Generator(np.random.SFC64(k))
    X = rng.standard_normal((rows, FEATURES), dtype=np.float32)
    teacher = np.random.RandomState(0).normal(size=(FEATURES, CLASSES)).astype(np.float32)
    return X, (X @ teacher).argmax(axis=1)


def make(folder, n_blocks):
    """Write blocks as Parquet files, uncompressed; return their bytes."""
    for k in range(n_blocks):
        X, y = block(k)
        columns = {f"x{j}": np.ascontiguousarray(X[:, j]) for j in range(FEATURES)}
        table = pyarrow.table(columns | {"y": y})
        name = Path(folder) / f"{k:04}.parquet"
        pyarrow.parquet.write_table(table, name, compression="none", use_dictionary=False)
    return sum(path.stat().st_size for path in Path(folder).iterdir())


def classifier(epochs=1):
    """Return an estimator that never stops before its last epoch."""
    return EWCClassifier(
        (100,), batch_size=BATCH, max_iter=epochs, tol=0, n_iter_no_change=10**6, random_state=0
    )


def seconds(work):
    """Time of a call."""
    start = perf_counter()
    work()
    return perf_counter() - start


def peak():
    """Resident bytes at the peak of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def learn(learn_once):
    """Return seconds of an epoch, and of the importance, beyond that of a second epoch."""
    clf = classifier()
    times = [seconds(partial(learn_once, clf, consolidate=counts)) for counts in (False, True)]
    accuracy = clf.score(*block(10**6))
    return times[0], times[1] - times[0], accuracy, peak()


def learn_blocks(folder, limit, n_blocks=None):
    """Learn rows in Parquet."""
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(1)
    pyarrow.set_cpu_count(1)
    table = dd.read_parquet(folder).partitions[:n_blocks]
    X, y = table.drop(columns="y"), table["y"]
    with dask.config.set(scheduler="synchronous"):
        return learn(lambda clf, **options: skewc.dask.partial_fit(clf, X, y, "a", **options))


def learn_in_memory(n_blocks):
    """Learn the same rows in memory."""
    torch.set_num_threads(1)
    parts = [block(k) for k in range(n_blocks)]
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    del parts
    return learn(lambda clf, **options: clf.partial_fit(X, y, "a", **options))


def bounded(gigabytes):
    """Write the table of what fits and how fast it is."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # of the processes below
    n_blocks = round(gigabytes * 1e9 / (BLOCK_ROWS * FEATURES * 4))
    with tempfile.TemporaryDirectory() as folder:
        size = make(folder, n_blocks)
        lines = [
            f"{n_blocks * BLOCK_ROWS:,} rows of {FEATURES} float32 features, "
            f"{size / 1e9:.2f} GB of Parquet in {n_blocks} blocks; 250-100-10, Adam, "
            f"batches of {BATCH}, one thread.",
            "",
            "| rows | limit, GB | peak resident, GB | epoch, rows/s | importance, rows/s "
            "| accuracy |",
            "|---|---|---|---|---|---|",
        ]
        part = n_blocks // 8
        for name, n, function, arguments, limit in [
            ("Parquet", n_blocks, "learn_blocks", (folder, LIMIT), LIMIT / 1e9),
            ("Parquet", part, "learn_blocks", (folder, 0, part), "none"),
            ("memory", part, "learn_in_memory", (part,), "none"),
        ]:
            epoch, counted, accuracy, most = in_process("out_of_core", function, *arguments)
            rows = n * BLOCK_ROWS
            lines.append(
                f"| {n} blocks in {name} | {limit} | {most / 1e9:.2f} | {rows / epoch:,.0f} | "
                f"{rows / counted:,.0f} | {accuracy:.3f} |"
            )
            print(lines[-1], flush=True)
        lines += ["", refusal()]
    write("out_of_core", "\n".join(lines))


def refusal():
    """Say what becomes of a process that holds more than the limit."""
    found = in_process("out_of_core", "hold_too_much")
    return f"A process so limited that asks for all of its rows at once: {found}."


def hold_too_much():
    """Name the error that the limit raises."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    try:
        np.ones(LIMIT // 4, np.float32)
    except MemoryError as error:
        return type(error).__name__
    return "no error"


def importance(clf, X, labels, curvature):
    """Add up the exact importance of blocks, by the workers."""
    stream = clf._stream
    blocks = skewc.dask._blocks(X)
    rows = Rows(validated(clf, blocks, dtype=np.float32, reset=False), labels)
    measure_importance(
        stream.network, torch.tensor(stream.weights), rows, None, curvature=curvature,
        fisher="exact", smoothing=0.1, n_samples=None, rng=np.random.RandomState(0),
    )  # fmt: skip


def workers(n_blocks=10):
    """Write the table of one and two workers."""
    lines = [
        f"{n_blocks * BLOCK_ROWS:,} rows of Parquet in {n_blocks} blocks, 250-100-10, for the "
        "importance; 8,000 rows in memory, 8 candidates of 3 folds of 5 epochs, for the search.",
        "",
        "| workers | importance, diagonal | importance, Kronecker | search |",
        "|---|---|---|---|",
    ]
    few = block(0, 8_000)
    clf = classifier(1).fit(*few)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, n_blocks)
        for n_workers in (1, 2):
            with (
                distributed.LocalCluster(
                    n_workers=n_workers, threads_per_worker=1, dashboard_address="localhost:0"
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                client.run(__import__, "skewc")
                X, labels = table_of(folder)
                work = [
                    partial(importance, clf, X, labels, "diagonal"),
                    partial(importance, clf, X, labels, "kronecker"),
                    partial(search, *few),
                    partial(empty_tasks, client, 1_000),
                ]
                *times, empty = (np.median([seconds(w) for _ in range(4)][1:]) for w in work)
                with distributed.get_task_stream(client) as stream:
                    importance(clf, X, labels, "diagonal")
            lines.append(f"| {n_workers} | " + " | ".join(f"{t:.2f} s" for t in times) + " |")
            print(lines[-1], flush=True)
    lines += [
        "",
        f"The importance is {len(stream.data) / n_blocks:.1f} tasks a block; an empty task takes "
        f"the scheduler {empty:.2f} ms.",
    ]
    write("dask_workers", "\n".join(lines))


def table_of(folder):
    """Return rows in Parquet, and their labels in memory."""
    table = dd.read_parquet(folder)
    return table.drop(columns="y"), table["y"].compute().to_numpy()


def empty_tasks(client, n):
    """Let the scheduler hand out tasks in which there is nothing to do."""
    client.gather(client.map(abs, range(n), pure=False))


def search(X, y):
    """Search under Dask."""
    grid = GridSearchCV(classifier(5), {"alpha": np.logspace(-5, 2, 8)}, cv=3, refit=False)
    with joblib.parallel_config("dask", scatter=[X, y]):
        grid.fit(X, y)


def parallel(repeats=15):
    """Write the table of steps on one process and on two."""
    lines = [
        "| network | weights | batch | step, one process | half a batch | adding up | step, two "
        "| gain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for sizes in ((250, 100, 10), (784, 1000, 1000, 10)):
        network = Network(sizes, "relu")
        for batch in (200, 2_000, 20_000):
            whole = steps(1, sizes, batch, repeats)
            half = steps(2, sizes, batch // 2, repeats)
            alone, (own, added) = whole[0], half
            two = own + added
            lines.append(
                f"| {'-'.join(map(str, sizes))} | {network.n_weights:,} | {batch:,} | "
                f"{alone * 1e3:.2f} ms | {own * 1e3:.2f} ms | {added * 1e3:.2f} ms | "
                f"{two * 1e3:.2f} ms | {alone / two:.2f} |"
            )
            print(lines[-1], flush=True)
    write("data_parallel", "\n".join(lines))


def steps(n_processes, sizes, batch, repeats):
    """Median seconds of a gradient, and of adding up those of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (n_processes, folder, sizes, batch, repeats)
        torch.multiprocessing.spawn(_steps, arguments, n_processes)
        return np.load(f"{folder}/times.npy").tolist()


def _steps(rank, n_processes, folder, sizes, batch, repeats):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", f"file://{folder}/meet", rank=rank, world_size=n_processes
    )
    network, rng = Network(sizes, "relu"), np.random.RandomState(rank)
    X = rng.normal(size=(batch, sizes[0])).astype(np.float32)
    weights = torch.from_numpy(network.initialise(rng, X.dtype))
    rows = Rows(X, rng.randint(0, sizes[-1], batch))
    order = np.arange(batch)
    objective = Objective(network, weights, rows, order, mask=None, alpha=1e-4)
    index, times = rows.index(order), []
    for _ in range(repeats + 3):
        torch.distributed.barrier()
        start = perf_counter()
        objective.batch(index)
        computed = perf_counter()
        torch.distributed.all_reduce(objective.gradient)
        times.append((computed - start, perf_counter() - computed))
    if rank == 0:
        np.save(f"{folder}/times.npy", np.median(times[3:], axis=0))
    torch.distributed.destroy_process_group()


PARTS = {"bounded": bounded, "workers": workers, "parallel": parallel}


def main():
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--gigabytes", type=float, default=4)
    asked = parser.parse_args()
    for name in PARTS if asked.part is None else [asked.part]:
        bounded(asked.gigabytes) if name == "bounded" else PARTS[name]()


if __name__ == "__main__":
    main()
