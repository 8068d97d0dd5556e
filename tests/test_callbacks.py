"""scikit-learn's callbacks: who is told what, and that nothing of it stays."""

import copy
import pickle
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skewc import EWCClassifier
from skewc.pipeline import make_continual_pipeline

HAS_CALLBACKS = find_spec("sklearn.callback") is not None
needs_callbacks = pytest.mark.skipif(not HAS_CALLBACKS, reason="scikit-learn older than 1.9")
needs_progress_bar = pytest.mark.skipif(
    not (HAS_CALLBACKS and find_spec("rich")), reason="no rich, or scikit-learn older than 1.9"
)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y = load_iris(return_X_y=True)
IDS = np.resize(["a", "a", "b"], 150)
SOLVERS = ["adam", "sgd", "lbfgs"]


def small(**parameters):
    defaults = {"hidden_layer_sizes": (5,), "max_iter": 4, "learning_rate_init": 0.01}
    return EWCClassifier(**{**defaults, "n_iter_no_change": 100, "random_state": 0, **parameters})


class Recorder:
    """Note what is told; do `then` at the `n`-th call of `hook` for a task named `name`."""

    def __init__(self, hook=None, name="", then=None, n=1):
        self.told, self.data = [], []
        self._hook, self._name, self._then, self._left = hook, name, then, n

    def _note(self, hook, context, **data):
        self.told.append((hook, context.task_name))
        self.data.append(data)
        if hook == self._hook and context.task_name.startswith(self._name):
            self._left -= 1
            if self._left == 0 and self._then is not None:
                return self._then()

    def setup(self, estimator, context):
        return self._note("setup", context)

    def teardown(self, estimator, context):
        return self._note("teardown", context)

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None, metadata=None):
        return self._note("begin", context, X=X, y=y, metadata=metadata)

    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        return self._note("end", context, X=X, y=y, metadata=metadata, fitted=fitted_estimator)


def fail(error):
    raise error


def weights(clf):
    return np.concatenate([w.ravel() for w in [*clf.coefs_, *clf.intercepts_]])


def state(clf):
    """All but the callbacks, which change by being called."""
    return pickle.dumps({k: v for k, v in vars(clf).items() if k != "_skl_callbacks"})


def test_callbacks_can_be_set_where_scikit_learn_has_them():
    assert hasattr(EWCClassifier, "set_callbacks") == HAS_CALLBACKS


@needs_callbacks
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_call_its_tasks_and_their_epochs_are_told(solver, method):
    recorder, s = Recorder(), np.linspace(0, 1, 150) * (IDS != "b") + (IDS == "b")
    clf = small(solver=solver).set_callbacks(recorder)
    getattr(clf, method)(X, Y, task_id=IDS, sample_weight=s)
    epochs = [("begin", "epoch"), ("end", "epoch")] * 4
    assert recorder.told == [
        ("setup", method), ("begin", method),
        ("begin", "task 'a'"), *epochs, ("end", "task 'a'"),
        ("begin", "task 'b'"), *epochs, ("end", "task 'b'"),
        ("end", method), ("teardown", method),
    ]  # fmt: skip
    of_a = (IDS == "a") & (s > 0)
    for (_, name), data, rows in zip(
        recorder.told[1:-1], recorder.data[1:-1],
        [slice(None)] + [of_a] * 10 + [IDS == "b"] * 10 + [slice(None)], strict=True,
    ):  # fmt: skip
        assert_array_equal(data["X"], X[rows], err_msg=name)
        assert_array_equal(data["y"], Y[rows], err_msg=name)
        assert_array_equal(data["metadata"]["sample_weight"], s[rows], err_msg=name)


@needs_callbacks
def test_tasks_without_weight_or_without_an_id():
    recorder = Recorder()
    small(max_iter=1).set_callbacks(recorder).partial_fit(X, Y)
    assert recorder.told[2] == ("begin", "task")
    assert recorder.data[2]["metadata"] == {}
    recorder = Recorder()
    clf = small(max_iter=1).set_callbacks(recorder)
    clf.partial_fit(X, Y, task_id=IDS, sample_weight=(IDS == "b").astype(float))
    assert [name for hook, name in recorder.told if hook == "end"] == [
        "epoch", "task 'b'", "partial_fit",
    ]  # fmt: skip


@needs_callbacks
@pytest.mark.parametrize(
    "parameters",
    [
        *[{"solver": name} for name in SOLVERS],
        {"early_stopping": True, "max_iter": 10},
        {"curvature": "kronecker"},
        {"memory_selection": "herding", "memory_size": 6},
    ],
    ids=lambda parameters: [*parameters.values()][0],
)
def test_scores_are_those_of_stopping_there(parameters):
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring=["accuracy", "neg_log_loss"])
    clf = small(**parameters).set_callbacks(monitor).fit(X, Y, task_id=IDS)
    log = {row["task_id_path"]: row for row in monitor.get_logs().data}
    n = clf.max_iter
    assert {*log} == {(0,), (0, 0), (0, 1), *((0, t, e) for t in (0, 1) for e in range(n))}

    def expect(path, stopped, rows):
        assert log[path]["accuracy"] == accuracy_score(Y[rows], stopped.predict(X[rows])), path
        expected = -log_loss(Y[rows], stopped.predict_proba(X[rows]))
        assert log[path]["neg_log_loss"] == expected, path

    in_a, in_b = IDS == "a", IDS == "b"
    first = small(**parameters).partial_fit(X[in_a], Y[in_a], "a")
    expect((0, 0), first, in_a)
    for epoch in range(n):
        stopped = small(**{**parameters, "max_iter": epoch + 1})
        expect((0, 0, epoch), stopped.partial_fit(X[in_a], Y[in_a], "a"), in_a)
        stopped = copy.deepcopy(first).set_params(max_iter=epoch + 1)
        expect((0, 1, epoch), stopped.partial_fit(X[in_b], Y[in_b], "b"), in_b)
    expect((0, 1), clf, in_b)
    expect((0,), clf, slice(None))


@needs_callbacks
@pytest.mark.parametrize("solver", SOLVERS)
def test_what_is_handed_over_is_as_if_training_had_stopped(solver):
    recorder = Recorder()
    small(solver=solver).set_callbacks(recorder).fit(X, Y)
    fitted = [data["fitted"] for told, data in zip(recorder.told, recorder.data, strict=True)
              if told == ("end", "epoch")]  # fmt: skip
    for epoch, clf in enumerate(fitted):
        stopped = small(solver=solver, max_iter=epoch + 1).partial_fit(X, Y)
        assert_array_equal(weights(clf), weights(stopped))
        assert clf.loss_curve_ == stopped.loss_curve_
        assert (clf.loss_, clf.best_loss_) == (stopped.loss_, stopped.best_loss_)
        assert clf.n_iter_ == stopped.n_iter_ == epoch + 1


@needs_callbacks
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_stops_the_epochs_or_the_tasks(solver):
    stop = Recorder("end", "epoch", lambda: True, n=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told to stop, it does not warn of it
        clf = small(solver=solver, max_iter=2).set_callbacks(stop).fit(X, Y)
        clf = small(solver=solver).set_callbacks(Recorder("end", "epoch", lambda: True, n=2))
        clf.partial_fit(X, Y)
    assert clf.n_iter_ == 2
    assert_array_equal(weights(clf), weights(small(solver=solver, max_iter=2).partial_fit(X, Y)))
    clf = small(solver=solver).set_callbacks(Recorder("end", "task", lambda: True))
    assert clf.fit(X, Y, task_id=IDS).task_ids_ == ["a"]


@needs_callbacks
@pytest.mark.parametrize(
    "where", [("setup", ""), ("begin", ""), ("begin", "task"), ("begin", "epoch"),
              ("end", "epoch"), ("end", "task"), ("end", "fit"), ("teardown", "")],
)  # fmt: skip
@pytest.mark.parametrize("error", [ValueError, StopIteration, KeyboardInterrupt])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_an_error_in_a_callback_leaves_the_estimator_as_it_was(where, error, solver):
    if where == ("end", "fit"):
        where = ("end", "partial_fit")
    old = small(solver=solver, random_state=np.random.RandomState(0)).partial_fit(-X, Y, "z")
    for clf in (old, small(solver=solver, random_state=np.random.RandomState(0))):
        undisturbed = copy.deepcopy(clf)
        clf.set_callbacks(Recorder(*where, lambda: fail(error)))
        before = state(clf)
        with pytest.raises((error, RuntimeError)):
            clf.partial_fit(X, Y, task_id=IDS)
        assert state(clf) == before
        for estimator in (clf.set_callbacks(), undisturbed):
            estimator.partial_fit(X, Y, task_id=IDS)
        assert state(clf) == state(undisturbed)


@needs_callbacks
def test_the_estimator_does_not_change_before_the_call_is_over():
    states = []
    recorder = Recorder()
    recorder._note = lambda hook, context, **data: states.append(state(clf))
    clf = small().partial_fit(X, Y, task_id=IDS).set_callbacks(recorder)
    before = state(clf)
    clf.partial_fit(-X, Y, task_id=IDS)
    assert {*states} == {before}
    assert state(clf) != before


@needs_callbacks
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_callbacks_change_nothing_and_leave_nothing(method):
    watched, plain = small().set_callbacks(Recorder()), small()
    sizes = []
    for k in range(4):
        for clf in (watched, plain):
            getattr(clf, method)(X, np.roll(Y, k), task_id=IDS)
        assert state(watched) == state(plain)
        assert {*vars(watched)} == {*vars(plain), "_skl_callbacks"}
        sizes.append(len(state(watched)))
    before = state(watched)
    watched.predict(X), watched.score(X, Y)
    assert state(watched) == before


@needs_callbacks
def test_clones_and_pickles_keep_their_callbacks():
    from sklearn.callback import ScoringMonitor

    clf = small().set_callbacks(ScoringMonitor(scoring="accuracy")).fit(X, Y)
    for twin in (clone(clf), pickle.loads(pickle.dumps(clf)), copy.deepcopy(clf)):
        twin.fit(X, Y)
        (monitor,) = twin._skl_callbacks
        assert len(monitor.get_logs().data) == 4 + 2
        assert_array_equal(weights(twin), weights(clf))


@needs_callbacks
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_scores_come_back_from_a_search(n_jobs):
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    search = GridSearchCV(
        small(max_iter=2).set_callbacks(monitor), {"ewc_lambda": [0, 30]}, cv=2, n_jobs=n_jobs
    ).fit(X, Y, task_id=IDS)
    data = monitor.get_logs().data
    assert len(data) == (2 * 2 + 1) * (1 + 2 + 2 * 2)
    assert data[-1]["accuracy"] > 0
    best = small(max_iter=2, **search.best_params_).fit(X, Y, task_id=IDS)
    assert_array_equal(weights(search.best_estimator_), weights(best))


class Following(Recorder):
    """Follows from pipelines to their steps."""

    max_propagation_depth = None


@needs_callbacks
@pytest.mark.parametrize("nested", [False, True])
def test_callbacks_follow_from_a_pipeline_that_learns_in_parts(nested):
    clf, recorder = small(max_iter=1), Following()
    final = make_continual_pipeline(clf) if nested else clf
    pipeline = make_continual_pipeline(StandardScaler(), final).set_callbacks(recorder)
    pipeline.partial_fit(X, Y, task_id=IDS)
    plain = make_continual_pipeline(StandardScaler(), small(max_iter=1))
    plain.partial_fit(X, Y, task_id=IDS)
    assert_array_equal(weights(clf), weights(plain[-1]))
    names = [name for hook, name in recorder.told if hook == "end"]
    assert names == [
        "epoch", "task 'a'", "epoch", "task 'b'", *["partial_fit"] * (2 + nested),
    ]  # fmt: skip
    assert recorder.told[0] == ("setup", "partial_fit")
    assert recorder.told[-1] == ("teardown", "partial_fit")
    assert [hook for hook, _ in recorder.told].count("setup") == 1
    left = {*vars(pipeline), *vars(final), *vars(clf)} - {*vars(plain), *vars(plain[-1])}
    assert left == {"_skl_callbacks"}
    before = state(clf)
    pipeline.set_callbacks(Following("end", "epoch", lambda: fail(ValueError)))
    with pytest.raises(ValueError):
        pipeline.partial_fit(X, Y, task_id=IDS)
    assert state(clf) == before
    assert "_skl_callbacks" not in vars(clf)


@needs_progress_bar
@pytest.mark.parametrize("n_jobs", [None, 1, 2])
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_progress_bars(n_jobs, in_pipeline, capsys, monkeypatch):
    from sklearn.callback import ProgressBar

    monkeypatch.setenv("COLUMNS", "150")
    clf, ids = small(), {"task_id": IDS}
    if in_pipeline:
        clf = make_pipeline(StandardScaler(), clf)
        ids = {"ewcclassifier__task_id": IDS}
    if n_jobs is not None:
        name = "ewcclassifier__ewc_lambda" if in_pipeline else "ewc_lambda"
        clf = GridSearchCV(clf, {name: [0, 30]}, cv=2, n_jobs=n_jobs)
    clf.set_callbacks(ProgressBar(max_propagation_depth=2)).fit(X, Y, **ids)
    out = capsys.readouterr().out
    runs = 1 if n_jobs is None else 5  # four in the search, and one with the best
    for name in ("EWCClassifier - fit", "EWCClassifier - task 'a'", "EWCClassifier - task 'b'"):
        assert out.count(name) == runs
    assert out.count("100%") == len(out.splitlines()) >= 3 * runs
    clf.predict(X)
