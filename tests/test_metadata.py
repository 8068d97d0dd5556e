"""Where `task_id` goes in scikit-learn: one row for each way, with routing off and on.

The user guide shows this table. Each entry names the methods of the estimator that must
have been called with ids of the right length, and no id lost on the way.
"""

import numpy as np
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
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


def search(kind, **parameters):
    return lambda: kind(recorder(), GRID, cv=2, **parameters).fit(X, y, task_id=IDS)


# With routing off, and with routing on: what to do, and the methods that ids must reach.
OFF = {
    "Pipeline.fit": (lambda: pipeline().fit(X, y, recorder__task_id=IDS), {"fit"}),
    "Pipeline.predict": (
        lambda: pipeline().fit(X, y, recorder__task_id=IDS).predict(X, task_id=IDS),
        {"fit", "predict"},
    ),
    "GridSearchCV": (search(GridSearchCV), {"fit"}),
    "GridSearchCV of a Pipeline": (
        lambda: GridSearchCV(pipeline(), {"recorder__ewc_lambda": [0, 1]}, cv=2).fit(
            X, y, recorder__task_id=IDS
        ),
        {"fit"},
    ),
    "RandomizedSearchCV": (search(RandomizedSearchCV, n_iter=2, random_state=0), {"fit"}),
    "HalvingGridSearchCV": (search(HalvingGridSearchCV, min_resources=60, factor=2), {"fit"}),
    "cross_validate": (
        lambda: cross_validate(recorder(), X, y, cv=2, params={"task_id": IDS}),
        {"fit"},
    ),
    "cross_val_predict": (
        lambda: cross_val_predict(recorder(), X, y, cv=2, params={"task_id": IDS}),
        {"fit"},
    ),
    "learning_curve": (
        lambda: learning_curve(recorder(), X, y, cv=2, shuffle=True, random_state=0,
                               train_sizes=[0.5, 1.0], params={"task_id": IDS}),
        {"fit"},
    ),
    "learning_curve, incremental": (
        lambda: learning_curve(recorder(), X, y, cv=2, shuffle=True, random_state=0,
                               train_sizes=[0.5, 1.0], params={"task_id": IDS},
                               exploit_incremental_learning=True),
        {"partial_fit"},
    ),
    "validation_curve": (
        lambda: validation_curve(recorder(), X, y, param_name="ewc_lambda", param_range=[0, 1],
                                 cv=2, params={"task_id": IDS}),
        {"fit"},
    ),
    "CalibratedClassifierCV": (
        lambda: CalibratedClassifierCV(recorder(), cv=2).fit(X, y, task_id=IDS),
        {"fit"},
    ),
    "FrozenEstimator": (
        lambda: FrozenEstimator(recorder().fit(X, y, task_id=IDS)).predict(X, task_id=IDS),
        {"fit", "predict"},
    ),
}  # fmt: skip

ON = {
    "Pipeline.fit": (lambda: pipeline().fit(X, y, task_id=IDS), {"fit"}),
    "Pipeline.predict": (
        lambda: pipeline().fit(X, y, task_id=IDS).predict(X, task_id=IDS),
        {"fit", "predict"},
    ),
    "Pipeline.score": (
        lambda: pipeline().fit(X, y, task_id=IDS).score(X, y, task_id=IDS),
        {"fit", "score"},
    ),
    "GridSearchCV": (search(GridSearchCV), {"fit", "score"}),
    "GridSearchCV of a Pipeline": (
        lambda: GridSearchCV(pipeline(), {"recorder__ewc_lambda": [0, 1]}, cv=2).fit(
            X, y, task_id=IDS
        ),
        {"fit", "score"},
    ),
    "RandomizedSearchCV": (search(RandomizedSearchCV, n_iter=2, random_state=0), {"fit", "score"}),
    "HalvingGridSearchCV": (
        search(HalvingGridSearchCV, min_resources=60, factor=2),
        {"fit", "score"},
    ),
    "cross_validate": (
        lambda: cross_validate(recorder(), X, y, cv=2, params={"task_id": IDS}),
        {"fit", "score"},
    ),
    "cross_val_predict": (
        lambda: cross_val_predict(recorder(), X, y, cv=2, params={"task_id": IDS}),
        {"fit"},  # scikit-learn hands `params` to fit only
    ),
    "learning_curve": (
        lambda: learning_curve(recorder(), X, y, cv=2, shuffle=True, random_state=0,
                               train_sizes=[0.5, 1.0], params={"task_id": IDS}),
        {"fit", "score"},
    ),
    "learning_curve, incremental": (
        lambda: learning_curve(recorder(), X, y, cv=2, shuffle=True, random_state=0,
                               train_sizes=[0.5, 1.0], params={"task_id": IDS},
                               exploit_incremental_learning=True),
        {"partial_fit", "score"},
    ),
    "validation_curve": (
        lambda: validation_curve(recorder(), X, y, param_name="ewc_lambda", param_range=[0, 1],
                                 cv=2, params={"task_id": IDS}),
        {"fit", "score"},
    ),
    "CalibratedClassifierCV": (
        lambda: CalibratedClassifierCV(recorder(), cv=2).fit(X, y, task_id=IDS),
        {"fit"},
    ),
    "BaggingClassifier": (
        lambda: BaggingClassifier(recorder(), n_estimators=2, random_state=0).fit(
            X, y, task_id=IDS
        ),
        {"fit"},
    ),
    "VotingClassifier": (lambda: VotingClassifier(others()).fit(X, y, task_id=IDS), {"fit"}),
    "StackingClassifier": (
        lambda: StackingClassifier(others(), recorder(), cv=2).fit(X, y, task_id=IDS),
        {"fit"},  # scikit-learn hands the ids to the final estimator too, which must take them
    ),
    "OneVsRestClassifier": (
        lambda: OneVsRestClassifier(recorder()).fit(X, y, task_id=IDS),
        {"fit"},
    ),
    "FrozenEstimator": (
        lambda: FrozenEstimator(recorder().fit(X, y, task_id=IDS)).predict(X, task_id=IDS),
        {"fit", "predict"},
    ),
}  # fmt: skip

# Two epochs are few, and scikit-learn says of some of its own parts that they will change.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def check(action, reached):
    CALLS.clear()
    action()
    for method in reached:
        came = [with_ids for name, with_ids in CALLS if name == method]
        assert came, f"{method} was not called"
        assert all(came), f"{method} was called without ids for its rows"


@pytest.mark.parametrize("name", OFF)
def test_with_routing_off(name):
    check(*OFF[name])


@pytest.mark.parametrize("name", ON)
def test_with_routing_on(name):
    with sklearn.config_context(enable_metadata_routing=True):
        check(*ON[name])
