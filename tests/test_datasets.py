"""Streams of tasks against plain restatements of what each maker promises."""

import gzip
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import ndimage, sparse
from sklearn.datasets import load_digits

from skewc import EWCClassifier
from skewc.datasets import (
    Task,
    load_fashion_mnist,
    make_drift_tasks,
    make_permuted_tasks,
    make_rotated_tasks,
    make_split_tasks,
    stack_tasks,
)
from skewc.datasets._streams import FASHION_MNIST

MAKERS = [make_permuted_tasks, make_rotated_tasks, make_split_tasks, make_drift_tasks]


def marked(n=240, n_features=16, n_classes=4, dtype=np.float64, seed=0):
    """Rows whose first feature is the row's number, and balanced labels."""
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(n, n_features)).astype(dtype)
    X[:, 0] = np.arange(n)
    return X, rng.permutation(n) % n_classes


def numbers(X):
    """Row numbers of permuted `marked` rows: the only entries above 5, but for few rows."""
    return {int(x) for x in np.max(X, axis=1) if x > 5}


# What all makers promise


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_type_ids_and_lengths(make, dtype):
    X, y = marked(dtype=dtype)
    tasks = make(X, y, random_state=0)
    assert [task.id for task in tasks] == list(range(len(tasks)))
    for task in tasks:
        assert task.X_train.dtype == task.X_test.dtype == dtype
        assert len(task.X_train) == len(task.y_train) > len(task.X_test) == len(task.y_test) > 0


@pytest.mark.parametrize("make", MAKERS)
def test_random_state_decides_and_the_global_generator_is_not_touched(make, seed):
    X, y = marked()
    before = np.random.get_state()[1].copy()
    first, same, other = (stack_tasks(make(X, y, random_state=s)) for s in (seed, seed, seed + 7))
    for a, b in zip(first, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], other[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize("make", MAKERS)
def test_makers_leave_their_input_and_each_other_alone(make):
    X, y = marked()
    given = X.copy(), y.copy()
    tasks = make(X, y, random_state=0)
    kept = [array.copy() for task in tasks[1:] for array in task[1:]]
    for array in tasks[0][1:]:
        array[:] = -1
    np.testing.assert_array_equal(X, given[0])
    np.testing.assert_array_equal(y, given[1])
    for array, copy in zip((a for t in tasks[1:] for a in t[1:]), kept, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("make", MAKERS)
def test_continuous_targets_are_refused(make):
    X, _ = marked()
    with pytest.raises(ValueError, match="continuous"):
        make(X, X[:, 1])


def test_string_labels():
    X, y = marked()
    names = np.array(["a", "b", "c", "d"])[y]
    for make in (make_permuted_tasks, make_rotated_tasks, make_split_tasks, make_drift_tasks):
        for by_name, by_code in zip(
            make(X, names, random_state=0), make(X, y, random_state=0), strict=True
        ):
            np.testing.assert_array_equal(by_name.X_train, by_code.X_train)
            assert {*by_name.y_train} <= {*"abcd"}


# Permuted


def test_permuted_tasks_permute_the_same_rows(seed):
    X, y = marked()
    tasks = make_permuted_tasks(X, y, 3, random_state=seed)
    plain = tasks[0]
    np.testing.assert_array_equal(plain.X_train, X[plain.X_train[:, 0].astype(int)])
    np.testing.assert_array_equal(plain.y_train, y[plain.X_train[:, 0].astype(int)])
    orders = set()
    for task in tasks:
        order = [int(np.flatnonzero((plain.X_train == column[:, None]).all(axis=0))[0])
                 for column in task.X_train.T]  # fmt: skip
        assert sorted(order) == list(range(16))
        np.testing.assert_array_equal(task.X_train, plain.X_train[:, order])
        np.testing.assert_array_equal(task.X_test, plain.X_test[:, order])
        orders.add(tuple(order))
    assert len(orders) == 3
    # Stratified: 240 rows of 4 classes, a quarter of each for testing.
    assert np.bincount(plain.y_test).tolist() == [15] * 4


@pytest.mark.parametrize("make", [make_permuted_tasks, make_rotated_tasks])
def test_n_samples_draws_training_rows_without_replacement(make):
    X, y = marked()
    angles = {"angles": (0, 0, 0)} if make is make_rotated_tasks else {}
    tasks = make(X, y, n_samples=50, random_state=0, **angles)
    drawn = [numbers(task.X_train) for task in tasks]
    tested = set.union(*(numbers(task.X_test) for task in tasks))
    assert all(len(task.X_train) == 50 and len(task.X_test) == 60 for task in tasks)
    assert all(len(rows) >= 44 for rows in drawn)  # all but the rows numbered 0 to 5
    assert drawn[0] != drawn[1]
    assert not set.union(*drawn) & tested


def test_permuted_and_split_keep_sparse_rows():
    X, y = marked()
    for make in (make_permuted_tasks, make_split_tasks):
        pairs = zip(
            make(X, y, random_state=0), make(sparse.csr_array(X), y, random_state=0), strict=True
        )
        for dense, compressed in pairs:
            assert compressed.X_train.format == "csr"
            np.testing.assert_array_equal(compressed.X_train.toarray(), dense.X_train)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_tasks": 0}, "n_tasks must be a whole number >= 1; got 0"),
        ({"n_tasks": 2.5}, "n_tasks must be a whole number >= 1; got 2.5"),
        ({"n_tasks": True}, "n_tasks must be a whole number >= 1; got True"),
        ({"n_samples": 0}, "n_samples must be a whole number >= 1; got 0"),
        ({"n_samples": 181}, "n_samples=181 is more than the 180 training rows"),
        ({"test_size": 1.5}, "test_size"),
    ],
)
def test_permuted_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_permuted_tasks(*marked(), random_state=0, **parameters)


# Rotated


def test_rotation_by_quarter_turns_is_exact_and_counter_clockwise():
    X, y = load_digits(return_X_y=True)
    tasks = make_rotated_tasks(X, y, angles=(0, 90, 180), random_state=0)
    plain = tasks[0].X_train.reshape(-1, 8, 8)
    for quarters, task in enumerate(tasks):
        expected = np.rot90(plain, quarters, axes=(1, 2)).reshape(len(plain), -1)
        np.testing.assert_allclose(task.X_train, expected, atol=1e-12)
        np.testing.assert_array_equal(task.y_train, tasks[0].y_train)


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 3)])
def test_rotation_is_that_of_each_image_alone(shape):
    X, y = marked(n_features=24, dtype=np.float32)
    upright, turned = make_rotated_tasks(X, y, (0, 30), image_shape=shape, random_state=0)
    for row, result in zip(upright.X_test, turned.X_test, strict=True):
        image = row.reshape(shape)
        channels = [image] if image.ndim == 2 else np.moveaxis(image, 2, 0)
        alone = [ndimage.rotate(channel, 30, reshape=False, order=1) for channel in channels]
        expected = alone[0] if image.ndim == 2 else np.stack(alone, axis=2)
        np.testing.assert_allclose(result, expected.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "12 features do not form a square image; give its image_shape"),
        ({"image_shape": (3, 5)}, r"images with 12 features; got \(3, 5\)"),
        ({"image_shape": (12,)}, r"images with 12 features; got \(12,\)"),
        ({"image_shape": (-3, -4)}, r"images with 12 features; got \(-3, -4\)"),
        ({"image_shape": 12}, "images with 12 features; got 12"),
        ({"image_shape": "34"}, "images with 12 features; got '34'"),
        ({"image_shape": (3, 4.0)}, r"images with 12 features; got \(3, 4.0\)"),
        ({"image_shape": (3, 4), "angles": ["a"]}, r"angles must be finite .*; got \['a'\]"),
        ({"image_shape": (3, 4), "angles": 30}, "angles must be finite numbers"),
        ({"image_shape": (3, 4), "angles": ()}, "angles must be finite numbers"),
        ({"image_shape": (3, 4), "angles": (0, np.nan)}, "angles must be finite numbers"),
    ],
)
def test_rotated_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_rotated_tasks(*marked(n_features=12), random_state=0, **parameters)


# Split


@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_split_tasks_hold_every_row_once_with_its_label(scenario):
    X, y = marked(n_classes=6)
    y = 10 * y + 5  # labels that are not their own codes
    tasks = make_split_tasks(X, y, classes_per_task=3, scenario=scenario, random_state=0)
    rows = []
    for k, task in enumerate(tasks):
        for X_part, y_part in [(task.X_train, task.y_train), (task.X_test, task.y_test)]:
            index = X_part[:, 0].astype(int)
            rows += index.tolist()
            code = y[index] // 10
            assert (code // 3 == k).all()
            np.testing.assert_array_equal(y_part, code % 3 if scenario == "domain" else y[index])
    assert sorted(rows) == list(range(240))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"classes_per_task": 3}, "y has 4 classes, .* classes_per_task=3"),
        ({"classes_per_task": 0}, "classes_per_task must be a whole number >= 1; got 0"),
        (
            {"classes_per_task": 1, "scenario": "domain"},
            "classes_per_task must be a whole number >= 2; got 1",
        ),
        ({"scenario": "task"}, "scenario must be 'class' or 'domain'; got 'task'"),
    ],
)
def test_split_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_split_tasks(*marked(), random_state=0, **parameters)


# Drift


def test_no_drift_only_deals_the_rows_out():
    X, y = marked(n=203)
    tasks = make_drift_tasks(X, y, 4, drift=0, random_state=0)
    rows = []
    for task in tasks:
        for X_part, y_part in [(task.X_train, task.y_train), (task.X_test, task.y_test)]:
            index = X_part[:, 0].astype(int)
            np.testing.assert_array_equal(X_part, X[index])
            np.testing.assert_array_equal(y_part, y[index])
            rows += index.tolist()
    assert sorted(rows) == list(range(203))
    counts = np.array([np.bincount(task.y_train) for task in tasks])
    assert np.ptp(counts, axis=0).max() <= 1
    # In random order, not sorted by row or class.
    assert (np.diff(tasks[0].X_train[:, 0]) < 0).any()
    assert (np.diff(tasks[0].y_train) < 0).any()


def test_drift_is_the_documented_walk(seed):
    """Each task is affine in the rows of drift=0; its logs and offsets make N(0, drift) steps."""
    X, y = marked(n=1600, n_features=400)
    X = 3 + X * np.linspace(0.1, 10, 400)
    X[:, 7] = 1.0
    mean, std = X.mean(axis=0), X.std(axis=0)
    still = make_drift_tasks(X, y, 4, drift=0, random_state=seed)
    moved = make_drift_tasks(X, y, 4, drift=0.5, random_state=seed)
    walk = []
    varies = std > 0
    for before, after in zip(still, moved, strict=True):
        np.testing.assert_array_equal(before.y_train, after.y_train)
        x, z = before.X_train, after.X_train
        scale = z[:, varies].std(axis=0) / x[:, varies].std(axis=0)
        offset = (z - mean)[0, varies] - scale * (x - mean)[0, varies]
        full = np.ones(400)
        full[varies] = scale
        shift = np.zeros(400)
        shift[varies] = offset
        np.testing.assert_allclose(z, mean + full * (x - mean) + shift, atol=1e-8)
        np.testing.assert_allclose(
            after.X_test, mean + full * (before.X_test - mean) + shift, atol=1e-8
        )
        walk.append([np.log(scale), offset / std[varies]])
    walk = np.array(walk)
    np.testing.assert_allclose(walk[0], 0, atol=1e-12)
    steps = np.diff(walk, axis=0)  # (3 steps, 2 kinds, 399 features)
    assert abs(steps.std(axis=2) / 0.5 - 1).max() < 0.15
    assert abs(steps.mean(axis=2)).max() < 0.1
    # Steps are drawn anew, for each task, kind and feature.
    assert abs(np.corrcoef(steps.reshape(6, -1)) - np.eye(6)).max() < 0.2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"drift": -1}, "drift must be a finite number >= 0; got -1"),
        ({"drift": np.inf}, "drift must be a finite number >= 0; got inf"),
        ({"drift": "1"}, "drift must be a finite number >= 0; got '1'"),
        ({"drift": 1e3}, "Features overflow float64 in task \\d: drift=1000.0 is too large"),
        ({"n_tasks": 61}, "n_tasks=61 tasks need .* got 180 and 60 rows"),
    ],
)
def test_drift_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_drift_tasks(*marked(), random_state=0, **parameters)


# Stacking


def test_stack_keeps_rows_labels_and_ids_together():
    X, y = marked()
    tasks = make_split_tasks(X, y, random_state=0)
    for part in ("train", "test"):
        rows, labels, task_id = stack_tasks(iter(tasks), part=part)
        index = rows[:, 0].astype(int)
        np.testing.assert_array_equal(labels, y[index])
        np.testing.assert_array_equal(task_id, y[index] // 2)
        assert len(rows) == (180 if part == "train" else 60)


def test_stack_keeps_the_kind():
    frames = [
        Task(k, pd.DataFrame({"a": [k, 1], "b": ["x", "y"]}), pd.Series([0, 1], name="y"), [], [])
        for k in range(2)
    ]
    X, y, task_id = stack_tasks(frames)
    pd.testing.assert_frame_equal(
        X.reset_index(drop=True), pd.DataFrame({"a": [0, 1, 1, 1], "b": ["x", "x", "y", "y"]})
    )
    assert isinstance(y, pd.Series)
    assert task_id.tolist() == [0, 1, 0, 1]
    blocks = [sparse.csc_array(np.eye(2) * k) for k in (1, 2)]
    X, _, _ = stack_tasks([Task(k, block, [0, 1], [], []) for k, block in enumerate(blocks)])
    assert X.format == "csr"
    np.testing.assert_array_equal(X.toarray(), [[1, 0], [2, 0], [0, 1], [0, 2]])


@pytest.mark.parametrize("ids", [["b", "a"], [3, 1], [0.5, 1.5], [0, "a"]])
def test_stacked_ids_stay_what_they_were(ids):
    tasks = [Task(i, [[0.0]] * (k + 1), [0] * (k + 1), [], []) for k, i in enumerate(ids)]
    _, _, task_id = stack_tasks(tasks)
    assert task_id.tolist() == [ids[1], ids[0], ids[1]]


@pytest.mark.parametrize("sizes", [(100, 100, 100), (10, 200, 55), (1, 1), (7,)])
def test_any_run_of_stacked_rows_holds_every_task_in_proportion(sizes):
    tasks = [
        Task(k, np.c_[np.full(n, k), np.arange(n)], np.zeros(n), [], [])
        for k, n in enumerate(sizes)
    ]
    X, _, task_id = stack_tasks(tasks)
    for k, n in enumerate(sizes):
        np.testing.assert_array_equal(X[task_id == k], tasks[k].X_train)  # in their own order
        for share in (0.2, 0.4, 0.6, 0.8):
            before = task_id[: round(share * len(X))]
            assert abs(np.sum(before == k) - share * n) <= 1.5


def test_stack_errors():
    with pytest.raises(ValueError, match="at least one task"):
        stack_tasks([])
    with pytest.raises(ValueError, match="part must be 'train' or 'test'; got 'all'"):
        stack_tasks([Task(0, [[0.0]], [0], [[0.0]], [0])], part="all")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        stack_tasks([Task(0, [[0.0]], [0, 1], [[0.0]], [0])])


TABLE = pd.DataFrame({"a": [0.0], "b": [1.0]})


@pytest.mark.parametrize(
    ("rows", "others", "message"),
    [
        ([[0.0]], np.zeros((1, 2)), r"shapes of a row of X must .* got \(1,\) and \(2,\)"),
        ([[0.0]], [0.0], r"shapes of a row of X must .* got \(1,\) and \(\)"),
        (sparse.eye_array(1), sparse.csr_array((1, 2)), r"a row of X .* got \(1,\) and \(2,\)"),
        (TABLE, np.zeros((1, 2)), "containers of X must be the same in all tasks; got .*pandas"),
        (np.zeros((1, 2)), TABLE, "containers of X must be the same in all tasks; got .*array"),
        (sparse.csr_array((1, 2)), np.zeros((1, 2)), "containers of X must .* got .*sparse"),
        (TABLE, pl.DataFrame(TABLE.to_dict("list")), "containers of X .*pandas.* and .*polars"),
        (TABLE, TABLE[["b", "a"]], "columns of X must be the same .*'a', 'b'.* and .*'b', 'a'"),
    ],
)
def test_tasks_that_are_not_alike_are_not_stacked(rows, others, message):
    with pytest.raises(ValueError, match=message):
        stack_tasks([Task(0, rows, [0], [], []), Task(1, others, [0], [], [])])


def test_labels_that_are_not_alike_are_not_stacked():
    with pytest.raises(ValueError, match="containers of y must be the same in all tasks"):
        stack_tasks([Task(0, [[0.0]], [0], [], []), Task(1, [[0.0]], pd.Series([0]), [], [])])
    X, y, _ = stack_tasks([Task(0, [[0.0]], [0], [], []), Task(1, np.ones((1, 1)), (1,), [], [])])
    assert (X.tolist(), y.tolist()) == ([[0], [1]], [0, 1])


def test_the_estimator_learns_a_stacked_stream(digits):
    X, y = digits[:2]
    X, y, task_id = stack_tasks(make_split_tasks(X, y, random_state=0))
    clf = EWCClassifier(solver="lbfgs", max_iter=1000, random_state=0).fit(X, y, task_id=task_id)
    assert clf.task_ids_ == [0, 1, 2, 3, 4]
    assert [c.tolist() for c in clf.task_classes_] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


# Fashion-MNIST


def write_idx(folder, *, compressed, n_labels=3):
    """Four small IDX files, with known pixels and labels."""
    for part, n in (("train", n_labels), ("t10k", 2)):
        images = np.arange(3 * 4 if part == "train" else 2 * 4, dtype=np.uint8) * 20
        contents = {
            "images-idx3": struct.pack(">4B3I", 0, 0, 8, 3, images.size // 4, 2, 2)
            + images.tobytes(),
            "labels-idx1": struct.pack(">4BI", 0, 0, 8, 1, n) + bytes(range(n)),
        }
        for name, content in contents.items():
            file = folder / f"{part}-{name}-ubyte{'.gz' if compressed else ''}"
            file.write_bytes(gzip.compress(content) if compressed else content)


@pytest.mark.parametrize("compressed", [True, False])
def test_idx_files_are_read(tmp_path, compressed):
    write_idx(tmp_path, compressed=compressed)
    X_train, y_train, X_test, y_test = load_fashion_mnist(tmp_path)
    np.testing.assert_allclose(X_train, np.arange(12).reshape(3, 4) * 20 / 255, rtol=1e-6)
    np.testing.assert_allclose(X_test, np.arange(8).reshape(2, 4) * 20 / 255, rtol=1e-6)
    assert y_train.tolist() == [0, 1, 2]
    assert y_test.tolist() == [0, 1]
    assert X_train.dtype == X_test.dtype == np.float32
    assert y_train.dtype == y_test.dtype == np.int64


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:2],
        lambda content: b"\0\0\x0d" + content[3:],  # floats
        lambda content: b"\0\0\x08\x02" + content[4:],  # rank 2
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, damage):
    write_idx(tmp_path, compressed=False)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match="train-images-idx3-ubyte is not a whole IDX file"):
        load_fashion_mnist(tmp_path)


def test_images_without_labels_are_refused(tmp_path):
    write_idx(tmp_path, compressed=True, n_labels=2)
    with pytest.raises(ValueError, match="3 images but 2 labels of part 'train'"):
        load_fashion_mnist(tmp_path)


def test_missing_files_say_where_to_get_them(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        load_fashion_mnist(tmp_path)


@pytest.mark.skipif(not FASHION_MNIST.exists(), reason="dataset-fashion-mnist is not installed")
def test_fashion_mnist():
    X_train, y_train, X_test, y_test = load_fashion_mnist()
    assert (X_train.shape, X_test.shape) == ((60_000, 784), (10_000, 784))
    assert np.bincount(y_train).tolist() == [6000] * 10
    assert np.bincount(y_test).tolist() == [1000] * 10
    assert (X_train.min(), X_train.max()) == (0, 1)
    assert y_train[:5].tolist() == [9, 0, 0, 3, 0]  # as in the paper's repository


# The package


@pytest.mark.parametrize("module", ["skewc", "skewc.datasets", "skewc.metrics"])
def test_importing_needs_neither_torch_nor_matplotlib(module):
    code = f"import sys, {module}; print({{'torch', 'matplotlib'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_subpackages_are_names_of_the_package_and_need_no_torch_either():
    code = (
        "import sys, skewc\n"
        "assert skewc.metrics.average_accuracy([[1.0]]) == 1\n"
        "assert skewc.pipeline.make_continual_pipeline and skewc.model_selection.TaskScorer\n"
        "assert skewc.datasets.Task and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_estimator_is_a_name_of_the_package():
    import skewc

    assert skewc.EWCClassifier is EWCClassifier
    assert {"EWCClassifier", "__version__"} <= {*dir(skewc)}
    with pytest.raises(AttributeError, match="module 'skewc' has no attribute 'Nothing'"):
        skewc.Nothing  # noqa: B018
