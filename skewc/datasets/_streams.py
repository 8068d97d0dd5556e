"""Makers of task streams, and Fashion-MNIST to make them from."""

from __future__ import annotations

import gzip
from importlib import import_module
from math import isqrt, prod
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage, sparse
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state, check_X_y
from sklearn.utils.multiclass import check_classification_targets

from skewc._compat import _safe_indexing
from skewc.metrics._matrix import as_floats

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


class Task(NamedTuple):
    """One task of a stream: its id, its training rows and its test rows.

    A tuple with names: what has these five fields is a task.

    Parameters
    ----------
    id : str or number
        What the `task_id` of :class:`~skewc.EWCClassifier` is to be.

    X_train : {ndarray, sparse matrix, DataFrame} of shape (n_samples, n_features)
        Training rows.

    y_train : array-like of shape (n_samples,)
        Their labels.

    X_test : {ndarray, sparse matrix, DataFrame} of shape (n_test_samples, n_features)
        Test rows.

    y_test : array-like of shape (n_test_samples,)
        Their labels.

    See Also
    --------
    skewc.model_selection.evaluate_stream : Learns a list of them.

    Examples
    --------
    >>> from skewc.datasets import Task
    >>> task = Task("spring", [[0.0], [1.0]], [0, 1], [[0.4]], [0])
    >>> task.id
    'spring'
    >>> task_id, X_train, y_train, X_test, y_test = task
    >>> X_test
    [[0.4]]
    """

    id: Any
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any


def stack_tasks(tasks, *, part="train"):
    """Stack the rows of all tasks, with the id of each row's task beside them.

    So ``GridSearchCV(clf, grid).fit(X, y, task_id=task_id)`` searches over a whole stream.
    The rows of different tasks alternate, in proportion to their numbers, because the
    default folds of a search are not shuffled: stacked task after task, each would hold
    out one task and judge by it alone.

    Parameters
    ----------
    tasks : iterable of Task
        The stream. :class:`~skewc.EWCClassifier` learns stacked tasks in the sorted order
        of their ids, so let the ids sort in the order of the stream.

    part : {'train', 'test'}, default='train'
        The rows to stack.

    Returns
    -------
    X : {ndarray, sparse matrix, DataFrame} of shape (n_samples, n_features)
        Rows of all tasks, of the kind they had. Those of one task keep their order.

    y : {ndarray, Series} of shape (n_samples,)
        Their labels.

    task_id : ndarray of shape (n_samples,)
        The id of each row's task.

    Raises
    ------
    ValueError
        If there is no task, `part` is unknown, X and y differ in length, or tasks in the
        kind of container or in their columns.

    See Also
    --------
    skewc.model_selection.TaskStratifiedKFold : Folds for rows in any order.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skewc.datasets import make_permuted_tasks, stack_tasks
    >>> tasks = make_permuted_tasks(*load_iris(return_X_y=True), n_tasks=2, random_state=0)
    >>> X, y, task_id = stack_tasks(tasks)
    >>> X.shape, task_id[:6]
    ((224, 4), array([0, 1, 0, 1, 0, 1]))
    """
    tasks = list(tasks)
    if not tasks:
        raise ValueError("stack_tasks needs at least one task; got none.")
    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test'; got {part!r}.")
    ids = [task.id for task in tasks]
    Xs = [getattr(task, f"X_{part}") for task in tasks]
    ys = [getattr(task, f"y_{part}") for task in tasks]
    for X, y in zip(Xs, ys, strict=True):
        check_consistent_length(X, y)
    # One array of numbers and strings would turn all ids into strings.
    ids = np.array(ids, dtype=None if len({*map(type, ids)}) == 1 else object)
    lengths = [X.shape[0] if hasattr(X, "shape") else len(X) for X in Xs]
    # Row r of n stands at the share (r + 1/2)/n of its task.
    shares = np.concatenate([(np.arange(n) + 0.5) / n for n in lengths])
    order = np.argsort(shares, kind="stable")
    return (
        _safe_indexing(_concatenate("X", Xs), order),
        _safe_indexing(_concatenate("y", ys), order),
        np.repeat(ids, lengths)[order],
    )


def make_permuted_tasks(X, y, n_tasks=5, *, n_samples=None, test_size=0.25, random_state=None):
    """Make tasks that each shuffle the features in a way of their own.

    The classes stay the same: a domain-incremental stream, as in permuted MNIST [1]_.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Numeric rows. Their dtype is kept, and the column names of a data frame.

    y : array-like of shape (n_samples,)
        Class labels.

    n_tasks : int, default=5
        Number of tasks. The first keeps the order of the features.

    n_samples : int, default=None
        Number of training rows, drawn without replacement for each task. None: all.

    test_size : float or int, default=0.25
        Share or number of rows for testing. The rows are split once, stratified by class,
        so no test row of one task is a training row of another.

    random_state : int, RandomState instance or None, default=None
        Drives the split, the draws and the permutations.

    Returns
    -------
    list of Task
        Tasks with ids 0 to ``n_tasks - 1``.

    Raises
    ------
    ValueError
        If a count is out of range, or the rows cannot be split.

    See Also
    --------
    make_rotated_tasks : Turn images instead.
    make_split_tasks : New classes instead.

    References
    ----------
    .. [1] Kirkpatrick et al. (2017). Overcoming catastrophic forgetting in neural networks.
       PNAS 114(13). :arxiv:`1612.00796`

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skewc.datasets import make_permuted_tasks
    >>> tasks = make_permuted_tasks(*load_digits(return_X_y=True), n_samples=500, random_state=0)
    >>> [task.id for task in tasks], tasks[1].X_train.shape, tasks[1].X_test.shape
    ([0, 1, 2, 3, 4], (500, 64), (450, 64))
    """
    frame, (X, y) = X, _check_rows(X, y, accept_sparse="csr", dtype="numeric")
    check_count("n_tasks", n_tasks)
    rng = check_random_state(random_state)
    train, test = _split(y, test_size, rng)
    tasks = []
    for k in range(n_tasks):
        order = np.arange(X.shape[1]) if k == 0 else rng.permutation(X.shape[1])
        rows = _draw(train, n_samples, rng)
        tasks.append(Task(k, X[rows][:, order], y[rows], X[test][:, order], y[test]))
    return _named_like(frame, tasks)


def make_rotated_tasks(
    X,
    y,
    angles=(0, 20, 40, 60, 80),
    *,
    image_shape=None,
    n_samples=None,
    test_size=0.25,
    random_state=None,
):
    """Make tasks that each turn the images by an angle of their own.

    The classes stay the same: a domain-incremental stream, as in rotated MNIST [1]_. Pixels
    are interpolated linearly; corners turned out of the image are lost, those turned in
    are 0.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Images, a row of pixels each. float32 stays float32, other numbers become float64.
        The column names of a data frame are kept.

    y : array-like of shape (n_samples,)
        Class labels.

    angles : array-like of shape (n_tasks,), default=(0, 20, 40, 60, 80)
        Angle of each task in degrees, counter-clockwise.

    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) of an image. None: square.

    n_samples : int, default=None
        Number of training rows, drawn without replacement for each task. None: all.

    test_size : float or int, default=0.25
        Share or number of rows for testing. The rows are split once, stratified by class,
        so no test row of one task is a training row of another.

    random_state : int, RandomState instance or None, default=None
        Drives the split and the draws.

    Returns
    -------
    list of Task
        Tasks with ids 0 to ``n_tasks - 1``.

    Raises
    ------
    ValueError
        If an angle is not finite, the images do not have `image_shape` or are not square,
        a count is out of range, or the rows cannot be split.

    See Also
    --------
    make_permuted_tasks : Shuffle the features instead.

    References
    ----------
    .. [1] Lopez-Paz & Ranzato (2017). Gradient episodic memory for continual learning.
       NeurIPS. :arxiv:`1706.08840`

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skewc.datasets import make_rotated_tasks
    >>> X, y = load_digits(return_X_y=True)
    >>> tasks = make_rotated_tasks(X, y, angles=(0, 45, 90), random_state=0)
    >>> len(tasks), tasks[1].X_train.shape
    (3, (1347, 64))
    """
    frame, (X, y) = X, _check_rows(X, y, dtype=[np.float64, np.float32])
    shape = check_image_shape(image_shape, X.shape[1])
    message = "angles must be finite numbers, one for each task"
    angles = as_floats(message, angles)
    if angles.ndim != 1 or not angles.size or not np.isfinite(angles).all():
        raise ValueError(f"{message}; got {angles}.")
    rng = check_random_state(random_state)
    train, test = _split(y, test_size, rng)
    tasks = []
    for k, angle in enumerate(angles):
        rows = _draw(train, n_samples, rng)
        turned = (_rotate(X[part], angle, shape) for part in (rows, test))
        tasks.append(Task(k, next(turned), y[rows], next(turned), y[test]))
    return _named_like(frame, tasks)


def make_split_tasks(
    X, y, *, classes_per_task=2, scenario="class", test_size=0.25, random_state=None
):
    """Make tasks that each hold a few of the classes, in sorted order.

    As in split MNIST. Tasks are numbered from 0 in the order of their classes.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Numeric rows. Their dtype is kept, and the column names of a data frame.

    y : array-like of shape (n_samples,)
        Class labels.

    classes_per_task : int, default=2
        Number of classes of each task; the number of all classes is a multiple of it.

    scenario : {'class', 'domain'}, default='class'
        'class' keeps the labels: class-incremental, or task-incremental where the task is
        told in `predict`. 'domain' numbers each task's classes 0 to
        ``classes_per_task - 1``: domain-incremental.

    test_size : float or int, default=0.25
        Share or number of rows for testing. The rows are split once, stratified by class.

    random_state : int, RandomState instance or None, default=None
        Drives the split.

    Returns
    -------
    list of Task
        Tasks with ids 0 to ``n_classes // classes_per_task - 1``.

    Raises
    ------
    ValueError
        If the classes cannot be shared out evenly, a task would have a single label
        (``scenario='domain'``), or the rows cannot be split.

    See Also
    --------
    make_permuted_tasks : Other inputs instead of other classes.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skewc.datasets import make_split_tasks
    >>> X, y = load_digits(return_X_y=True)
    >>> [sorted({*task.y_train.tolist()}) for task in make_split_tasks(X, y, random_state=0)]
    [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    >>> tasks = make_split_tasks(X, y, classes_per_task=5, scenario="domain", random_state=0)
    >>> [sorted({*task.y_train.tolist()}) for task in tasks]
    [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    """
    frame, (X, y) = X, _check_rows(X, y, accept_sparse="csr", dtype="numeric")
    if scenario not in ("class", "domain"):
        raise ValueError(f"scenario must be 'class' or 'domain'; got {scenario!r}.")
    check_count("classes_per_task", classes_per_task, at_least=2 if scenario == "domain" else 1)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) % classes_per_task:
        raise ValueError(
            f"y has {len(classes)} classes, which cannot be shared out in tasks of "
            f"classes_per_task={classes_per_task}; it must divide the number of classes."
        )
    labels = codes % classes_per_task if scenario == "domain" else y
    tasks = []
    train, test = _split(y, test_size, check_random_state(random_state))
    for k in range(len(classes) // classes_per_task):
        of_task, of_test = (part[codes[part] // classes_per_task == k] for part in (train, test))
        tasks.append(Task(k, X[of_task], labels[of_task], X[of_test], labels[of_test]))
    return _named_like(frame, tasks)


def make_drift_tasks(X, y, n_tasks=5, *, drift=1.0, test_size=0.25, random_state=None):
    """Make tasks of tabular data whose features drift from task to task.

    The classes stay the same: a domain-incremental stream. Each row belongs to one task
    only; the rows of every class are dealt out evenly. With m_j and σ_j the mean and the
    standard deviation of feature j over all rows, task k shows ::

        x_j + (exp(s_kj) - 1)·(x_j - m_j) + σ_j·o_kj

    where the offset o and the logarithm s of the scale walk at random, from 0 in the first
    task: o_kj = o_(k-1)j + drift·ε and s_kj = s_(k-1)j + drift·η, with ε and η drawn from
    N(0, 1) for each task and feature.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Numeric rows. float32 stays float32, other numbers become float64. The column names
        of a data frame are kept.

    y : array-like of shape (n_samples,)
        Class labels.

    n_tasks : int, default=5
        Number of tasks. The first shows the rows as they are.

    drift : float, default=1.0
        Standard deviation >= 0 of a step of the walk. 0 only deals the rows out. The walk
        never changes which rows a task has.

    test_size : float or int, default=0.25
        Share or number of all rows for testing, stratified by class.

    random_state : int, RandomState instance or None, default=None
        Drives the split, the dealing and the walk.

    Returns
    -------
    list of Task
        Tasks with ids 0 to ``n_tasks - 1``.

    Raises
    ------
    ValueError
        If `drift` is negative, not finite or so large that features overflow, there are
        fewer training or test rows than tasks, or the rows cannot be split.

    See Also
    --------
    make_permuted_tasks : A change that leaves nothing where it was.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skewc.datasets import make_drift_tasks
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> tasks = make_drift_tasks(X, y, n_tasks=3, random_state=0)
    >>> [task.X_train.shape for task in tasks]
    [(142, 30), (142, 30), (142, 30)]
    >>> [round(float(task.X_train[:, 0].mean()), 1) for task in tasks]
    [14.6, 18.2, 19.8]
    """
    frame, (X, y) = X, _check_rows(X, y, dtype=[np.float64, np.float32])
    check_count("n_tasks", n_tasks)
    if not isinstance(drift, Real) or not 0 <= drift < float("inf"):
        raise ValueError(f"drift must be a finite number >= 0; got {drift!r}.")
    rng = check_random_state(random_state)
    train, test = _split(y, test_size, rng)
    if min(len(train), len(test)) < n_tasks:
        raise ValueError(
            f"n_tasks={n_tasks} tasks need a training and a test row each; got {len(train)} "
            f"and {len(test)} rows."
        )
    mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    offset, log_scale = np.zeros((2, X.shape[1]))
    of_task, of_test = _deal(y[train], n_tasks), _deal(y[test], n_tasks)
    tasks = []
    for k in range(n_tasks):
        if k:
            offset = offset + drift * rng.standard_normal(X.shape[1])
            log_scale = log_scale + drift * rng.standard_normal(X.shape[1])
        rows, test_rows = train[of_task == k], test[of_test == k]
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            moved, test_moved = (
                (X[part] + np.expm1(log_scale) * (X[part] - mean) + std * offset).astype(X.dtype)
                for part in (rows, test_rows)
            )
        if not (np.isfinite(moved).all() and np.isfinite(test_moved).all()):
            raise ValueError(
                f"Features overflow {X.dtype} in task {k}: drift={drift} is too large."
            )
        tasks.append(Task(k, moved, y[rows], test_moved, y[test_rows]))
    return _named_like(frame, tasks)


def load_fashion_mnist(path=None):
    """Load Fashion-MNIST [1]_: 70,000 images of 28x28 pixels in ten classes of clothing.

    Nothing is downloaded.

    Parameters
    ----------
    path : str or path-like, default=None
        Folder of the four IDX files, compressed by gzip or not. None is where Debian's
        package ``dataset-fashion-mnist`` puts them, /usr/share/datasets/fashion-mnist.

    Returns
    -------
    X_train : ndarray of shape (60000, 784)
        Training images, float32 in [0, 1].

    y_train : ndarray of shape (60000,)
        Their classes 0 to 9, int64.

    X_test : ndarray of shape (10000, 784)
        Test images.

    y_test : ndarray of shape (10000,)
        Their classes.

    Raises
    ------
    FileNotFoundError
        If a file is missing.

    ValueError
        If a file is not in the IDX format, or images and labels differ in number.

    See Also
    --------
    make_split_tasks : Make a stream of its classes.
    make_permuted_tasks : Make a stream of its pixels.

    References
    ----------
    .. [1] Xiao, Rasul & Vollgraf (2017). Fashion-MNIST: a novel image dataset for
       benchmarking machine learning algorithms. :arxiv:`1708.07747`

    Examples
    --------
    >>> from skewc.datasets import load_fashion_mnist
    >>> X_train, y_train, X_test, y_test = load_fashion_mnist()  # doctest: +SKIP
    >>> load_fashion_mnist("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: ...apt-get install dataset-fashion-mnist...
    """
    folder = FASHION_MNIST if path is None else Path(path)
    data = []
    for part in ("train", "t10k"):
        images = _read_idx(folder, f"{part}-images-idx3-ubyte", n_dims=3)
        labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", n_dims=1)
        if len(images) != len(labels):
            raise ValueError(
                f"{folder} has {len(images)} images but {len(labels)} labels of part {part!r}."
            )
        X = images.reshape(len(images), -1).astype(np.float32)
        X /= 255
        data += [X, labels.astype(np.int64)]
    return tuple(data)


def check_image_shape(image_shape, n_features: int) -> tuple[int, ...]:
    """Return (height, width) or (height, width, channels); None is a square."""
    if image_shape is None:
        side = isqrt(n_features)
        if side * side != n_features:
            raise ValueError(
                f"{n_features} features do not form a square image; give its image_shape, "
                "(height, width) or (height, width, channels)."
            )
        return side, side
    shape = tuple(image_shape) if np.ndim(image_shape) else ()
    counts = all(isinstance(n, Integral) and n > 0 for n in shape)
    if len(shape) not in (2, 3) or not counts or prod(shape) != n_features:
        raise ValueError(
            "image_shape must be (height, width) or (height, width, channels) of images with "
            f"{n_features} features; got {image_shape!r}."
        )
    return shape


def _check_rows(X, y, **options):
    """X and y as arrays, with class labels in y."""
    X, y = check_X_y(X, y, **options)
    check_classification_targets(y)
    return X, y


def check_count(name: str, value, at_least: int = 1) -> None:
    """Refuse all but whole numbers from `at_least` on."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} must be a whole number >= {at_least}; got {value!r}.")


def _split(y, test_size, rng) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers for training and for testing, in random order."""
    return train_test_split(np.arange(len(y)), test_size=test_size, stratify=y, random_state=rng)


def _draw(rows, n_samples, rng) -> np.ndarray:
    """`n_samples` of the rows, without replacement; all of them for None."""
    if n_samples is None:
        return rows
    check_count("n_samples", n_samples)
    if n_samples > len(rows):
        raise ValueError(f"n_samples={n_samples} is more than the {len(rows)} training rows.")
    return rng.choice(rows, n_samples, replace=False)


def _deal(y, n_tasks: int) -> np.ndarray:
    """Task of each row, dealt out class by class; the rows come in random order."""
    task = np.empty(len(y), dtype=int)
    task[np.argsort(y, kind="stable")] = np.arange(len(y)) % n_tasks
    return task


def _rotate(X, angle: float, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of images turned counter-clockwise."""
    images = X.reshape(-1, *shape)
    return ndimage.rotate(images, angle, axes=(1, 2), reshape=False, order=1).reshape(X.shape)


def _concatenate(name: str, blocks):
    """Stack rows, whatever kind of container holds them."""
    _check_alike(f"The containers of {name}", map(_container, blocks))
    _check_alike(f"The shapes of a row of {name}", (np.shape(block)[1:] for block in blocks))
    library, kind = _container(blocks[0])
    if kind == "sparse":
        return sparse.vstack(blocks, format="csr")
    if not library:
        return np.concatenate(blocks)
    if kind == "DataFrame":
        _check_alike(f"The columns of {name}", (tuple(block.columns) for block in blocks))
    return import_module(library).concat(blocks)


def _container(X) -> tuple[str, str]:
    """Name what holds rows, with the library where that has its own way to stack."""
    if sparse.issparse(X):
        return "scipy", "sparse"
    kind = type(X).__name__
    return (_library(X), kind) if _library(X) and kind in ("DataFrame", "Series") else ("", "array")


def _check_alike(what: str, values) -> None:
    """Refuse tasks that differ in a property."""
    found = list(dict.fromkeys(values))
    if len(found) > 1:
        raise ValueError(f"{what} must be the same in all tasks; got {found[0]} and {found[1]}.")


def _library(X) -> str | None:
    """Name of the data frame library that X comes from."""
    library = type(X).__module__.partition(".")[0]
    return library if library in ("pandas", "polars") else None


def _named_like(X, tasks: list[Task]) -> list[Task]:
    """Tasks whose rows have the column names of X, where it is a data frame."""
    library, columns = _library(X), getattr(X, "columns", None)
    if library is None:
        return tasks
    frame = import_module(library).DataFrame
    names = {"columns" if library == "pandas" else "schema": columns}
    return [
        task._replace(X_train=frame(task.X_train, **names), X_test=frame(task.X_test, **names))
        for task in tasks
    ]


def _read_idx(folder: Path, name: str, n_dims: int) -> np.ndarray:
    """Array of unsigned bytes in an IDX file: two zeros, type, rank, sizes, data."""
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.exists()), None)
    if path is None:
        raise FileNotFoundError(
            f"{folder / name}.gz is missing. Fashion-MNIST comes with Debian's package "
            "dataset-fashion-mnist (apt-get install dataset-fashion-mnist); or give as `path` a "
            "folder with the four files of https://github.com/zalandoresearch/fashion-mnist."
        )
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    header = 4 + 4 * n_dims
    shape = tuple(np.frombuffer(content[4:header], dtype=">u4").tolist())
    if content[:4] != bytes([0, 0, 8, n_dims]) or len(content) != header + prod(shape):
        raise ValueError(f"{path} is not a whole IDX file of unsigned bytes of rank {n_dims}.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
