"""Metrics of a stream: by hand, and by loops over the definitions."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

from skewc.metrics import (
    average_accuracy,
    average_task_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
)

NAN = float("nan")
# Task 0 falls, recovers in part and falls; task 1 gains; tasks 2 and 3 are learned later.
R = np.array(
    [
        [0.9, 0.3, 0.2, 0.1],
        [0.5, 0.6, 0.4, 0.2],
        [0.8, 0.7, 1.0, 0.5],
        [0.6, 0.8, 0.4, 0.7],
    ]
)
LOWER = np.where(np.tri(4), R, np.nan)
BASELINE = [0.5, 0.1, 0.2, 0.3]


def test_by_hand():
    # The best before the end is 0.9, 0.7 and 1.0; the end is 0.6, 0.8 and 0.4.
    assert average_accuracy(R) == pytest.approx((0.6 + 0.8 + 0.4 + 0.7) / 4)
    assert backward_transfer(R) == pytest.approx((-0.3 + 0.2 - 0.6) / 3)
    assert forgetting(R) == pytest.approx((0.3 - 0.1 + 0.6) / 3)
    assert forward_transfer(R, BASELINE) == pytest.approx((0.2 + 0.2 + 0.2) / 3)


@pytest.mark.parametrize("n_tasks", [2, 3, 7])
def test_by_the_definitions(n_tasks, rng):
    R, b, T = rng.uniform(size=(n_tasks, n_tasks)), rng.uniform(size=n_tasks), n_tasks
    total = fall = change = ahead = 0.0
    for j in range(T):
        total += R[T - 1][j]
        if j < T - 1:
            fall += max(R[i][j] for i in range(T - 1)) - R[T - 1][j]
            change += R[T - 1][j] - R[j][j]
        if j > 0:
            ahead += R[j - 1][j] - b[j]
    assert average_accuracy(R) == pytest.approx(total / T)
    assert forgetting(R) == pytest.approx(fall / (T - 1))
    assert backward_transfer(R) == pytest.approx(change / (T - 1))
    assert forward_transfer(R, b) == pytest.approx(ahead / (T - 1))


@pytest.mark.parametrize("metric", [average_accuracy, backward_transfer, forgetting])
def test_entries_above_the_diagonal_may_be_unknown(metric):
    given = LOWER.copy()
    assert metric(LOWER) == pytest.approx(metric(R))
    assert isinstance(metric(LOWER.tolist()), float)
    np.testing.assert_array_equal(LOWER, given)


def test_forgetting_counts_what_was_known_before_a_task_was_learned():
    ahead = LOWER.copy()
    ahead[0, 1] = 0.95  # better before learning task 1 than ever after
    assert forgetting(ahead) == pytest.approx((0.3 + 0.15 + 0.6) / 3)


def test_one_task():
    assert average_accuracy([[0.9]]) == 0.9
    for value in (backward_transfer([[0.9]]), forgetting([[0.9]]), forward_transfer([[0.9]], [0])):
        assert np.isnan(value)


@pytest.mark.parametrize(
    "metric",
    [average_accuracy, backward_transfer, forgetting, lambda R: forward_transfer(R, BASELINE)],
)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (R[:3], r"square matrix.* got shape \(3, 4\)"),
        (R[0], r"square matrix.* got shape \(4,\)"),
        (np.empty((0, 0)), r"square matrix.* got shape \(0, 0\)"),
        (np.where(R == 0.5, np.inf, R), "got infinity in"),
        ([[1.0, 0.0], [0.5]], "square matrix of numbers, .*; got"),
        ([["a", "b"], ["c", "d"]], "square matrix of numbers, .*; got"),
        ("R", "square matrix of numbers, .*; got 'R'"),
        (np.full((4, 4), NAN), "In R, the .* must be known; got NaN in"),
    ],
)
def test_bad_matrices(metric, bad, message):
    with pytest.raises(ValueError, match=message):
        metric(bad)


@pytest.mark.parametrize(
    ("metric", "hole", "used"),
    [
        (average_accuracy, (3, 1), True),
        (average_accuracy, (2, 2), False),
        (backward_transfer, (1, 1), True),
        (backward_transfer, (2, 1), False),
        (forgetting, (2, 1), True),
        (forgetting, (0, 2), False),
    ],
)
def test_only_entries_in_use_must_be_known(metric, hole, used):
    holed = R.copy()
    holed[hole] = NAN
    if used:
        with pytest.raises(ValueError, match="must be known; got NaN in"):
            metric(holed)
    else:
        assert np.isfinite(metric(holed))


def test_forward_transfer_needs_tests_ahead_and_a_baseline():
    with pytest.raises(ValueError, match="each task tested before it is learned"):
        forward_transfer(LOWER, BASELINE)
    with pytest.raises(ValueError, match=r"each of 4 tasks; got shape \(3,\)"):
        forward_transfer(R, BASELINE[1:])
    with pytest.raises(ValueError, match="each of 4 tasks; got .*'a'"):
        forward_transfer(R, ["a", 1, 1, 1])
    with pytest.raises(ValueError, match="baseline must be finite"):
        forward_transfer(R, [0, NAN, 0, 0])
    assert forward_transfer(R, [NAN, *BASELINE[1:]]) == forward_transfer(R, BASELINE)


# average_task_accuracy


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("names", [[0, 1, 2], ["x", "y", "z"], [0.5, 1.5, 2.5]])
def test_average_task_accuracy_is_that_of_each_task_alone(rng, weighted, names):
    y_true, y_pred = rng.randint(3, size=(2, 200))
    codes = rng.choice(3, size=200, p=[0.7, 0.2, 0.1])
    weight = rng.uniform(size=200) if weighted else None
    alone = [
        accuracy_score(
            y_true[codes == k],
            y_pred[codes == k],
            sample_weight=weight[codes == k] if weighted else None,
        )
        for k in range(3)
    ]
    for ids in (np.array(names)[codes], [names[k] for k in codes], pd.Series(names)[codes]):
        result = average_task_accuracy(y_true, y_pred, task_id=ids, sample_weight=weight)
        assert isinstance(result, float)
        assert result == pytest.approx(np.mean(alone))
    assert abs(np.mean(alone) - accuracy_score(y_true, y_pred)) > 1e-3


def test_average_task_accuracy_by_hand():
    y_true, y_pred, ids = ["a", "a", "b", "b"], ["a", "b", "b", "a"], [1, 1, 1, 2]
    assert average_task_accuracy(y_true, y_pred, task_id=ids) == pytest.approx(1 / 3)
    # Weights: task 1 has 3 of 4 right, and task 2 is left out.
    result = average_task_accuracy(y_true, y_pred, task_id=ids, sample_weight=[2, 1, 1, 0])
    assert result == pytest.approx(3 / 4)


def test_average_task_accuracy_needs_a_task_for_each_row():
    with pytest.raises(TypeError, match="task_id"):
        average_task_accuracy([0], [0])
    with pytest.raises(TypeError, match="needs task_id, one id for each row; got None"):
        average_task_accuracy([0], [0], task_id=None)


@pytest.mark.parametrize("text", [["0", "1"], np.array(["0", "1"]), pd.Series(["0", "1"])])
@pytest.mark.parametrize("numbers", [[0, 1], np.array([0, 1]), pd.Series([0, 1], dtype=object)])
def test_labels_that_are_strings_are_not_compared_with_numbers(text, numbers):
    for y_true, y_pred in [(text, numbers), (numbers, text)]:
        with pytest.raises(ValueError, match="both be strings or both numbers; got"):
            average_task_accuracy(y_true, y_pred, task_id=[0, 1])
    for same in (text, numbers):
        assert average_task_accuracy(list(same), same, task_id=[0, 1]) == 1


@pytest.mark.parametrize("mixed", [[1, "1"], pd.Series([1, "1"]), np.array([1, "1"], object)])
@pytest.mark.parametrize("name", ["y_true", "y_pred", "task_id"])
def test_strings_among_numbers_are_refused(name, mixed):
    columns = {"y_true": ["a", "b"], "y_pred": ["a", "b"], "task_id": [0, 1], name: mixed}
    with pytest.raises(TypeError, match=f"{name} mixes strings and numbers"):
        average_task_accuracy(**columns)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_id": np.ma.array([0, 1], mask=[0, 1])}, "task_id has masked entries"),
        ({"y_true": np.ma.array([0, 1], mask=[0, 1])}, "y_true has masked entries"),
        ({"task_id": ["a", NAN]}, "task_id holds NaN"),
        ({"task_id": [0]}, r"task_id must .* shape \(2,\), got \(1,\)"),
        ({"task_id": "a"}, r"task_id must .* shape \(2,\), got \(\)"),
        ({"task_id": [0, NAN]}, "task_id holds NaN"),
        ({"y_pred": [[0, 1]]}, r"y_pred must .* shape \(2,\), got \(1, 2\)"),
        ({"y_true": [[0], [1]]}, r"y_true must .* shape \(2,\), got \(2, 1\)"),
        ({"y_true": 0}, r"y_true must .* shape \(n_samples,\), got \(\)"),
        ({"y_true": [], "y_pred": [], "task_id": []}, r"y_true must .* at least one"),
        ({"sample_weight": [1]}, r"sample_weight must .* shape \(2,\), got \(1,\)"),
        ({"sample_weight": [1, -1]}, "sample_weight must be finite and >= 0"),
        ({"sample_weight": [1, NAN]}, "sample_weight must be finite and >= 0"),
        ({"sample_weight": [0, 0]}, "at least one row a positive weight"),
    ],
)
def test_average_task_accuracy_errors(arguments, message):
    good = {"y_true": [0, 1], "y_pred": [0, 1], "task_id": [0, 1]}
    with pytest.raises(ValueError, match=message):
        average_task_accuracy(**{**good, **arguments})
