"""Streams of tasks that the benchmarks share.

Every stream is a list of tasks (X_train, y_train, X_test, y_test) with whether the task
is known at prediction time. Fashion-MNIST is read from the files of Debian's package
(``apt-get install dataset-fashion-mnist``); streams that need it are left out, and named
as left out, where it is missing.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from skewc.datasets import load_fashion_mnist


def digits():
    """1797 images of 8x8, in [0, 1]; a third of the rows for testing."""
    X, y = load_digits(return_X_y=True)
    return train_test_split(X.astype(np.float32) / 16, y, test_size=1 / 3, random_state=0)


def fashion():
    """Fashion-MNIST: 60,000 training and 10,000 test images of 28x28, in [0, 1]."""
    X, y, X_test, y_test = load_fashion_mnist()
    return X, X_test, y, y_test


def permuted(data, n_tasks, n_rows, rng):
    """Each task permutes the pixels its own way (domain-incremental)."""
    X, X_test, y, y_test = data
    tasks = []
    for k in range(n_tasks):
        order = np.arange(X.shape[1]) if k == 0 else rng.permutation(X.shape[1])
        rows = rng.permutation(len(X))[:n_rows]
        tasks.append((X[rows][:, order], y[rows], X_test[:, order], y_test))
    return tasks


def split(data, *, domain):
    """Task k holds classes 2k and 2k+1, told apart as such or as even against odd."""
    X, X_test, y, y_test = data
    tasks = []
    for k in range(5):
        of_task, of_test = y // 2 == k, y_test // 2 == k
        labels, test_labels = y[of_task], y_test[of_test]
        if domain:
            labels, test_labels = labels % 2, test_labels % 2
        tasks.append((X[of_task], labels, X_test[of_test], test_labels))
    return tasks


def sites(n_tasks, rng):
    """Breast cancer from sites whose instruments have scales and offsets of their own."""
    X, y = load_breast_cancer(return_X_y=True)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, random_state=0, stratify=y)
    tasks = []
    for _ in range(n_tasks):
        scale = np.exp(rng.normal(0, 1, X.shape[1])).astype(np.float32)
        scale *= rng.choice([-1, 1], X.shape[1])
        offset = rng.normal(0, 1, X.shape[1]).astype(np.float32)
        tasks.append((X * scale + offset, y, X_test * scale + offset, y_test))
    return tasks


def all_streams(seed):
    """Yield (name, tasks, parameters of the estimator, whether the task is known)."""
    small = {"hidden_layer_sizes": (100,), "batch_size": 32, "max_iter": 50}
    large = {"hidden_layer_sizes": (256,), "batch_size": 128, "max_iter": 3}
    rng = np.random.RandomState(seed)
    yield "permuted digits", permuted(digits(), 5, None, rng), small, False
    yield "split digits, task known", split(digits(), domain=False), small, True
    yield "breast cancer, 5 sites", sites(5, rng), small, False
    try:
        images = fashion()
    except FileNotFoundError as error:
        print(f"skipped: the streams of Fashion-MNIST. {error}")
        return
    yield "permuted Fashion", permuted(images, 5, 10_000, rng), large, False
    yield "split Fashion, task known", split(images, domain=False), large, True
    yield "split Fashion, domain", split(images, domain=True), large, False
