"""Where `task_id` goes in scikit-learn: one row for each way, with routing off and on.

The user guide shows this table. Each cell names the methods of the estimator that were
called, and always with an id for each of their rows; "refused" says that scikit-learn does
not take the ids.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skewc import EWCClassifier
from skewc.pipeline import make_continual_pipeline

CALLS = []


class Recorder(EWCClassifier):
    """Notes for each call whether ids came, one for each row."""

    def _note(self, method, X, task_id):
        CALLS.append((method, task_id is not None and len(task_id) == len(X)))

    def fit(self, X, y, sample_weight=None, task_id=None):
        self._note("fit", X, task_id)
        return super().fit(X, y, sample_weight=sample_weight, task_id=task_id)

    def partial_fit(self, X, y, task_id=None, *, classes=None, sample_weight=None):
        self._note("partial_fit", X, task_id)
        return super().partial_fit(X, y, task_id, classes=classes, sample_weight=sample_weight)

    def predict(self, X, task_id=None):
        self._note("predict", X, task_id)
        return super().predict(X, task_id=task_id)

    def score(self, X, y, sample_weight=None, task_id=None):
        CALLS.append(("score", task_id is not None and len(task_id) == len(X)))
        return np.mean(EWCClassifier.predict(self, X, task_id=task_id) == y)


X, y = load_iris(return_X_y=True)
IDS = np.where(X[:, 1] > 3, "high", "low")
GRID = {"ewc_lambda": [0, 1]}


def recorder():
    return Recorder((4,), max_iter=2, random_state=0)


def pipeline():
    return make_pipeline(StandardScaler(), recorder())


def others():
    return [("a", recorder()), ("b", recorder())]


def use_pipeline(**ids_for_fit):
    fitted = pipeline().fit(X, y, **ids_for_fit)
    fitted.predict(X, task_id=IDS)
    fitted.score(X, y, task_id=IDS)


def use_continual_pipeline(**ids_for_fit):
    fitted = make_continual_pipeline(StandardScaler(), recorder()).fit(X, y, **ids_for_fit)
    fitted.partial_fit(X, y, task_id=IDS)
    fitted.predict(X, task_id=IDS)
    fitted.score(X, y, task_id=IDS)


def use_frozen():
    frozen = FrozenEstimator(recorder().fit(X, y, task_id=IDS))
    CALLS.clear()
    frozen.fit(X, y)
    frozen.predict(X, task_id=IDS)
    frozen.score(X, y, task_id=IDS)


def curve(**parameters):
    return learning_curve(
        recorder(), X, y, cv=2, shuffle=True, random_state=0, train_sizes=[0.5, 1.0],
        params={"task_id": IDS}, error_score="raise", **parameters,
    )  # fmt: skip


def search(kind, **parameters):
    return kind(recorder(), GRID, cv=2, error_score="raise", **parameters).fit(X, y, task_id=IDS)


def search_pipeline(make=make_pipeline, **ids):
    grid, steps = {"recorder__ewc_lambda": [0, 1]}, make(StandardScaler(), recorder())
    GridSearchCV(steps, grid, cv=2, error_score="raise").fit(X, y, **ids)


BY_STEP, BARE = {"recorder__task_id": IDS}, {"task_id": IDS}
ROWS = {"params": BARE, "cv": 2}
# What is used, with routing off and with routing on; the methods that ids reach in each.
TABLE = {
    "Pipeline": (
        lambda: use_pipeline(**BY_STEP),
        "fit, predict",
        lambda: use_pipeline(**BARE),
        "fit, predict, score",
    ),
    "ContinualPipeline": (
        lambda: use_continual_pipeline(**BY_STEP),
        "fit, partial_fit, predict, score",
        lambda: use_continual_pipeline(**BARE),
        "fit, partial_fit, predict, score",
    ),
    "GridSearchCV": (lambda: search(GridSearchCV), "fit", None, "fit, score"),
    "GridSearchCV of a Pipeline": (
        lambda: search_pipeline(**BY_STEP),
        "fit",
        lambda: search_pipeline(**BARE),
        "fit, score",
    ),
    "GridSearchCV of a ContinualPipeline": (
        lambda: search_pipeline(make_continual_pipeline, **BARE),
        "fit",
        None,
        "fit, score",
    ),
    "RandomizedSearchCV": (
        lambda: search(RandomizedSearchCV, n_iter=2, random_state=0),
        "fit",
        None,
        "fit, score",
    ),
    "HalvingGridSearchCV": (
        lambda: search(HalvingGridSearchCV, min_resources=60, factor=2),
        "fit",
        None,
        "fit, score",
    ),
    "cross_validate": (lambda: cross_validate(recorder(), X, y, **ROWS), "fit", None, "fit, score"),
    "cross_val_predict": (
        lambda: cross_val_predict(recorder(), X, y, **ROWS),
        "fit",
        None,
        "fit",
    ),
    "learning_curve": (curve, "fit", None, "fit, score"),
    "learning_curve, incremental": (
        lambda: curve(exploit_incremental_learning=True),
        "partial_fit",
        None,
        "partial_fit, score",
    ),
    "validation_curve": (
        lambda: validation_curve(
            recorder(), X, y, param_name="ewc_lambda", param_range=[0, 1], **ROWS
        ),
        "fit",
        None,
        "fit, score",
    ),
    "permutation_importance": (
        lambda: permutation_importance(recorder().fit(X, y), X, y, task_id=IDS),
        "refused",
        None,
        "refused",
    ),
    "CalibratedClassifierCV": (
        lambda: CalibratedClassifierCV(recorder(), cv=2).fit(X, y, task_id=IDS),
        "fit",
        None,
        "fit",
    ),
    "BaggingClassifier": (
        lambda: BaggingClassifier(recorder(), n_estimators=2, random_state=0).fit(
            X, y, task_id=IDS
        ),
        "refused",
        None,
        "fit",
    ),
    "VotingClassifier": (
        lambda: VotingClassifier(others()).fit(X, y, task_id=IDS),
        "refused",
        None,
        "fit",
    ),
    "StackingClassifier": (
        lambda: StackingClassifier(others(), recorder(), cv=2).fit(X, y, task_id=IDS),
        "refused",
        None,
        "fit",
    ),
    "OneVsRestClassifier": (
        lambda: OneVsRestClassifier(recorder()).fit(X, y, task_id=IDS),
        "refused",
        None,
        "fit",
    ),
    "FrozenEstimator": (use_frozen, "predict, score", None, "predict, score"),
}

# Two epochs are few, and scikit-learn says of some of its own parts that they will change.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # Where the ids get lost, some predictions are asked of all classes.
    pytest.mark.filterwarnings("ignore:The tasks have different classes"),
]


def reached(action):
    """Name the methods that were called, and always with ids for their rows."""
    CALLS.clear()
    try:
        action()
    except (TypeError, ValueError) as error:
        assert re.search("task_id|metadata routing|fit_params", str(error)), error
        return "refused"
    return ", ".join(
        method
        for method in ("fit", "partial_fit", "predict", "score")
        if (came := [with_ids for name, with_ids in CALLS if name == method]) and all(came)
    )


@pytest.mark.parametrize("name", TABLE)
def test_with_routing_off(name):
    action, expected, _, _ = TABLE[name]
    assert reached(action) == expected


@pytest.mark.parametrize("name", TABLE)
def test_with_routing_on(name):
    action, _, other_action, expected = TABLE[name]
    with sklearn.config_context(enable_metadata_routing=True):
        assert reached(other_action or action) == expected


def test_the_guide_shows_this_table():
    guide = (Path(__file__).parent.parent / "docs/tasks.rst").read_text(encoding="utf-8")
    section = guide.partition("\nTasks in scikit-learn\n")[2].partition("\nWhere scores")[0]
    rows = re.findall(r"   \* - (.*)\n     - (.*)\n     - (.*)\n", section)
    shown = {name: cells for name, *cells in rows[1:]}
    assert shown == {name: [off, on] for name, (_, off, _, on) in TABLE.items()}


def test_a_stack_wants_a_final_estimator_that_may_be_given_ids():
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(TypeError, match="unexpected keyword argument 'task_id'"):
            StackingClassifier(others(), cv=2).fit(X, y, task_id=IDS)
        final = make_continual_pipeline(LogisticRegression())
        stack = StackingClassifier(others(), final, cv=2).fit(X, y, task_id=IDS)
    assert stack.final_estimator_[-1].coef_.shape[0] == 3


# The idioms that the guide gives where scikit-learn passes no ids.


def test_permutation_importance_by_a_scoring_that_holds_the_ids():
    clf = recorder().fit(X, y, task_id=IDS)
    CALLS.clear()
    permutation_importance(
        clf, X, y, n_repeats=2, random_state=0,
        scoring=lambda clf, X, y: clf.score(X, y, task_id=IDS),
    )  # fmt: skip
    assert CALLS == [("score", True)] * (1 + 2 * X.shape[1])


def test_the_best_estimator_of_a_search_knows_tasks():
    best = search(GridSearchCV).best_estimator_
    CALLS.clear()
    best.predict(X, task_id=IDS)
    assert CALLS == [("predict", True)]


def test_predictions_across_folds_with_known_tasks():
    early = IDS == "low"
    fitted = cross_validate(recorder(), X, y, **ROWS, return_estimator=True, return_indices=True)
    predicted = np.empty_like(y)
    for clf, rows in zip(fitted["estimator"], fitted["indices"]["test"], strict=True):
        predicted[rows] = clf.predict(X[rows], task_id=IDS[rows])
    assert {*predicted[early]} <= {*y[early]}
    assert CALLS[-1] == ("predict", True)
