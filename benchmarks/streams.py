"""Streams of tasks that the benchmarks share.

Fashion-MNIST is read from the files of Debian's package (``apt-get install
dataset-fashion-mnist``); streams that need it are left out, and named as left out, where it
is missing.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from skewc.datasets import Task, load_fashion_mnist, make_permuted_tasks, make_split_tasks

RESULTS = Path(__file__).parent / "results"


def accuracy(clf, tasks, known):
    """Average over tasks; where the task is known, among the task's classes only."""
    scores = []
    for task in tasks:
        log_p = clf.predict_log_proba(task.X_test)
        if known:
            log_p = np.where(np.isin(clf.classes_, task.y_train), log_p, -np.inf)
        scores.append(np.mean(clf.classes_[log_p.argmax(axis=1)] == task.y_test))
    return float(np.mean(scores))


def of_seeds(seeds):
    """Say of how many seeds a table holds the means."""
    return "One seed." if seeds == 1 else f"Means of {seeds} seeds."


def write(name, text):
    """Print a result and keep it in results/."""
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text + "\n", encoding="utf-8")


def peak_memory(work, repeats=7):
    """Bytes by which a call raises the resident memory at its peak (Linux, glibc).

    The least of several calls: pages that the system had taken away, and gives back during
    a call, only add.
    """

    def status(field):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

    peaks = []
    for _ in range(repeats):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed must not serve the call unseen
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
        before = status("VmRSS")
        work()
        peaks.append(status("VmHWM") - before)
    return min(peaks)


def in_process(module, function, *arguments):
    """Return what a benchmark's function returns in a process of its own."""
    code = f"import json, {module}; print(json.dumps({module}.{function}(*{arguments})))"
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    return json.loads(found.stdout.splitlines()[-1])


def permuted_digits(n_tasks, seed):
    """Each task permutes the pixels of 1797 images of 8x8 its own way."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32) / 16
    return make_permuted_tasks(X, y, n_tasks, test_size=1 / 3, random_state=seed)


def split_digits(seed):
    """Task k holds digits 2k and 2k+1."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32) / 16
    return make_split_tasks(X, y, test_size=1 / 3, random_state=seed)


def sites(n_tasks, seed):
    """Breast cancer from sites whose instruments have scales, signs and offsets of their own.

    Unlike the tasks of `make_drift_tasks`, all sites see all rows, and none is near another.
    """
    rng = np.random.RandomState(seed)
    X, y = load_breast_cancer(return_X_y=True)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, random_state=seed, stratify=y)
    tasks = []
    for k in range(n_tasks):
        scale = np.exp(rng.normal(0, 1, X.shape[1])).astype(np.float32)
        scale *= rng.choice([-1, 1], X.shape[1])
        offset = rng.normal(0, 1, X.shape[1]).astype(np.float32)
        tasks.append(Task(k, X * scale + offset, y, X_test * scale + offset, y_test))
    return tasks


def fashion():
    """All 70,000 images of Fashion-MNIST, of 28x28, in [0, 1]."""
    X, y, X_test, y_test = load_fashion_mnist()
    return np.vstack([X, X_test]), np.concatenate([y, y_test])


def all_streams(seed):
    """Yield (name, tasks, parameters of the estimator, whether the task is known)."""
    small = {"hidden_layer_sizes": (100,), "batch_size": 32, "max_iter": 50}
    large = {"hidden_layer_sizes": (256,), "batch_size": 128, "max_iter": 3}
    yield "permuted digits", permuted_digits(5, seed), small, False
    yield "split digits, task known", split_digits(seed), small, True
    yield "breast cancer, 5 sites", sites(5, seed), small, False
    try:
        X, y = fashion()
    except FileNotFoundError as error:
        print(f"skipped: the streams of Fashion-MNIST. {error}")
        return
    options = {"test_size": 10_000, "random_state": seed}
    tasks = make_permuted_tasks(X, y, 5, n_samples=10_000, **options)
    yield "permuted Fashion", tasks, large, False
    yield "split Fashion, task known", make_split_tasks(X, y, **options), large, True
    tasks = make_split_tasks(X, y, scenario="domain", **options)
    yield "split Fashion, domain", tasks, large, False
