"""The contract of scikit-learn, with nothing excused."""

import os
import subprocess
import sys

import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

from skewc import EWCClassifier

# The checks fit toy data for the default number of epochs; scikit-learn's own tests of
# MLPClassifier pass over this warning too.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ESTIMATORS = [
    EWCClassifier(solver=solver, fisher=fisher, curvature=curvature)
    for solver in ("adam", "sgd", "lbfgs")
    for fisher in ("exact", "sample", "empirical")
    for curvature in ("diagonal", "kronecker")
    if curvature == "diagonal" or fisher == "exact"
]


@parametrize_with_checks(ESTIMATORS)
def test_checks(estimator, check):
    check(estimator)


@parametrize_with_checks([EWCClassifier()])
def test_checks_with_routing(estimator, check):
    with sklearn.config_context(enable_metadata_routing=True):
        check(estimator)


@pytest.mark.parametrize(
    "check", [check_param_validation, check_dataframe_column_names_consistency]
)
def test_further_checks(check):
    check("EWCClassifier", EWCClassifier())


@pytest.mark.parametrize("skip", [False, True])
def test_each_call_validates_once_unless_told_to_skip(skip, monkeypatch):
    X, y = load_iris(return_X_y=True)
    calls, original = [], EWCClassifier._validate_params
    monkeypatch.setattr(
        EWCClassifier, "_validate_params", lambda self: calls.append(1) or original(self)
    )
    clf = EWCClassifier(max_iter=1, random_state=0)
    with sklearn.config_context(skip_parameter_validation=skip):
        for n, learn in enumerate((clf.partial_fit, clf.partial_fit, clf.fit), start=1):
            learn(X, y)
            assert len(calls) == (0 if skip else n)
        clf.set_params(tol=-1.0)  # not allowed, but nothing breaks
        for learn in (clf.partial_fit, clf.fit):
            if skip:
                learn(X, y)
            else:
                with pytest.raises(ValueError, match="The 'tol' parameter of EWCClassifier must"):
                    learn(X, y)


def test_no_tag_is_lenient():
    tags = EWCClassifier().__sklearn_tags__()
    assert not tags.classifier_tags.poor_score
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert tags.input_tags.sparse
    assert not tags.input_tags.allow_nan


def test_checks_with_array_api():
    """In a process of its own, since scipy reads the variable when it is imported."""
    code = (
        "import warnings\n"
        "from sklearn.exceptions import ConvergenceWarning\n"
        "from sklearn.utils.estimator_checks import check_estimator\n"
        "from skewc import EWCClassifier\n"
        "warnings.simplefilter('ignore', ConvergenceWarning)\n"
        "results = check_estimator(EWCClassifier(), on_skip=None)\n"
        "skipped = [r['check_name'] for r in results if r['status'] != 'passed']\n"
        "assert not skipped, skipped\n"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
