"""A saved estimator is the estimator: to the last bit, in another process, for ever."""

import copy
import itertools
import json
import pickle
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest
import skops.io
import torch
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from state import bits, leaves

import skewc
from skewc import EWCClassifier
from skewc._layout import LAYOUT
from skewc.pipeline import make_continual_pipeline

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests/data"
ESTIMATOR = ["skewc._classifier.EWCClassifier", "skewc._network.Network", "skewc._stream.Stream"]
PARTS = {"memory_size": "skewc._memory.Memory", "readout": "skewc._readout.Discriminant"}
TYPES = sorted([*ESTIMATOR, *PARTS.values()])
KEPT = {"memory_size": 7, "readout": "discriminant", "readout_features": 9}
CASES = {
    "-".join(case): case
    for case in itertools.product(
        ["adam", "sgd", "lbfgs"],
        ["diagonal", "kronecker"],
        ["nothing", "dense memory", "sparse memory"],
    )
}


def rows(seed, sort=np.asarray):
    X = np.random.RandomState(seed).normal(size=(24, 4))
    return sort(np.where(np.abs(X) < 0.3, 0, X)), np.resize([0, 1], 24)


def saved_in_mid_task(solver, curvature, keeps):
    """Learn a task and the first chunk of a second one."""
    sort = sparse.csr_matrix if keeps == "sparse memory" else np.asarray
    clf = EWCClassifier(
        (6,), solver=solver, curvature=curvature, fisher="sample", max_iter=3, random_state=0,
        **({} if keeps == "nothing" else KEPT),
    )  # fmt: skip
    return clf.partial_fit(*rows(0, sort), "a").partial_fit(*rows(1, sort), "b")


def gone_on(clf):
    """Learn a second chunk and a task with a new class; return all there is to see."""
    X, y = rows(2)
    clf.partial_fit(X, y, "b").partial_fit(-X, y + 1, "c")
    seen = [clf.decision_function(X, task_id=i).tobytes() for i in ("a", "c")]
    if clf.readout == "discriminant":
        seen.append(clf.predict_proba(X).tobytes())
    return bits(clf), seen


def write_skops(clf, path):
    Path(path).write_bytes(skops.io.dumps(clf))


def read_skops(path):
    return skops.io.load(path, trusted=TYPES)


FORMATS = {
    "pickle": (
        lambda clf, path: Path(path).write_bytes(pickle.dumps(clf)),
        lambda path: pickle.loads(Path(path).read_bytes()),
    ),
    "joblib": (joblib.dump, joblib.load),
    "joblib, read-only maps": (joblib.dump, lambda path: joblib.load(path, mmap_mode="r")),
    "skops": (write_skops, read_skops),
}


def go_on_in(folder, n_threads):
    """What the fresh process does."""
    warnings.simplefilter("error")
    torch.set_num_threads(n_threads)
    found = {}
    for case, name in itertools.product(CASES, FORMATS):
        clf = FORMATS[name][1](Path(folder) / f"{case}.{name}")
        found[case, name] = gone_on(clf)
    (Path(folder) / "found").write_bytes(pickle.dumps(found))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """What estimators become that are saved here and go on in a fresh process."""
    folder = tmp_path_factory.mktemp("saved")
    for case, name in itertools.product(CASES, FORMATS):
        FORMATS[name][0](saved_in_mid_task(*CASES[case]), str(folder / f"{case}.{name}"))
    script = "import sys; sys.path[:0] = sys.argv[3:]\nimport test_persistence as t\n"
    script += "t.go_on_in(sys.argv[1], int(sys.argv[2]))"
    threads = str(torch.get_num_threads())
    where = [str(ROOT), str(ROOT / "tests")]
    subprocess.run([sys.executable, "-c", script, folder, threads, *where], check=True)
    return pickle.loads((folder / "found").read_bytes())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_a_fresh_process_goes_on_bit_for_bit(fresh, case, name):
    state, seen = gone_on(saved_in_mid_task(*CASES[case]))
    assert fresh[case, name][0] == state
    assert fresh[case, name][1] == seen


@pytest.mark.parametrize("case", CASES)
def test_copies_are_equal_and_apart(case):
    clf = saved_in_mid_task(*CASES[case])
    before, twin, shallow = bits(clf), copy.deepcopy(clf), copy.copy(clf)
    assert bits(twin) == bits(shallow) == before
    assert vars(shallow)["_stream"] is vars(clf)["_stream"]
    assert vars(twin)["_stream"] is not vars(clf)["_stream"]
    expected = gone_on(twin)
    assert bits(clf) == before
    assert gone_on(clf) == expected
    unfitted = clone(clf)
    assert unfitted.get_params() == clf.get_params()
    assert not unfitted.__sklearn_is_fitted__()


def test_a_shared_generator_stays_shared():
    """`fit` begins with `random_state`, which `partial_fit` has moved on where it is an object."""
    X, y = rows(0)
    generator = np.random.RandomState(0)
    clf = EWCClassifier((6,), random_state=generator, tol=1e9, n_iter_no_change=1)
    clf.partial_fit(X, y)
    for twin in (
        copy.deepcopy(clf),
        pickle.loads(pickle.dumps(clf)),
        skops.io.loads(skops.io.dumps(clf), trusted=ESTIMATOR),
    ):
        assert bits(twin.partial_fit(X, y).fit(X, y)) == bits(
            copy.deepcopy(clf).partial_fit(X, y).fit(X, y)
        )


# skops


@pytest.mark.parametrize("curvature", ["diagonal", "kronecker"])
@pytest.mark.parametrize("sort", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("keeps", [(), ("memory_size",), ("readout",), ("memory_size", "readout")])
def test_skops_asks_to_trust_these_types_only(curvature, sort, keeps):
    clf = EWCClassifier(
        (6,), curvature=curvature, readout_features=9, max_iter=2, random_state=0,
        **{name: KEPT[name] for name in keeps},
    )  # fmt: skip
    clf.partial_fit(*rows(0, sort), "a").partial_fit(*rows(1), "b")
    data = skops.io.dumps(clf)
    expected = sorted([*ESTIMATOR, *(PARTS[name] for name in keeps)])
    assert skops.io.get_untrusted_types(data=data) == expected
    assert bits(skops.io.loads(data, trusted=expected)) == bits(clf)


def test_the_guide_names_the_types_to_trust():
    guide = (ROOT / "docs/saving.rst").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r'"(skewc\.[\w.]+)"', guide))) == [
        *TYPES, "skewc.pipeline.ContinualPipeline",
    ]  # fmt: skip


def test_a_pipeline_goes_on():
    clf = EWCClassifier((6,), max_iter=2, random_state=0)
    pipeline = make_continual_pipeline(StandardScaler(), clf).partial_fit(*rows(0), "a")
    trusted = [*ESTIMATOR, "skewc.pipeline.ContinualPipeline"]
    data = skops.io.dumps(pipeline)
    assert skops.io.get_untrusted_types(data=data) == trusted
    twins = pickle.loads(pickle.dumps(pipeline)), skops.io.loads(data, trusted=trusted)
    pipeline.partial_fit(*rows(1), "b")
    for twin in twins:
        assert bits(twin.partial_fit(*rows(1), "b")) == bits(pipeline)


@pytest.mark.parametrize("keeps", ["dense memory", "sparse memory"])
def test_what_was_read_from_maps_can_be_saved_in_any_format(tmp_path, keeps):
    clf = saved_in_mid_task("adam", "kronecker", keeps)
    joblib.dump(clf, tmp_path / "first")
    mapped = joblib.load(tmp_path / "first", mmap_mode="r")
    assert not mapped._stream.weights.flags.writeable
    assert not mapped._stream.penalty["anchor"].flags.writeable
    for name, (write, read) in FORMATS.items():
        write(mapped, str(tmp_path / name))
        assert bits(read(tmp_path / name)) == bits(clf)


# The stamp


def stamp(layout, version):
    """Return the saved state of an estimator, with the given stamp; None for none."""
    state = EWCClassifier().__getstate__()
    assert state.pop("_skewc_layout") == LAYOUT
    assert state.pop("_skewc_version") == skewc.__version__
    if layout is not None:
        state |= {"_skewc_layout": layout, "_skewc_version": version}
    return state


@pytest.mark.parametrize("layout", [LAYOUT + 1, LAYOUT - 1, "1"])
def test_another_layout_is_refused_by_name(layout):
    message = rf"skewc 9\.9\.9 in layout {layout};.*skewc {re.escape(skewc.__version__)}.*"
    message += rf"layout {LAYOUT}\. Load it with.*pip install 'skewc==9\.9\.9'"
    with pytest.raises(ValueError, match=message):
        EWCClassifier().__setstate__(stamp(layout, "9.9.9"))


def test_a_state_without_a_stamp_is_refused():
    message = rf"without a version stamp.*skewc {re.escape(skewc.__version__)}.*learn the tasks"
    with pytest.raises(ValueError, match=message):
        EWCClassifier().__setstate__(stamp(None, None))


def test_another_version_of_this_layout_is_read():
    clf = EWCClassifier()
    clf.__setstate__(stamp(LAYOUT, "9.9.9"))
    assert bits(clf) == bits(EWCClassifier())


@pytest.mark.parametrize("name", ["pickle", "joblib", "skops"])
def test_files_of_another_layout_are_refused(tmp_path, name, monkeypatch):
    write, read = FORMATS[name]
    monkeypatch.setattr("skewc._layout.LAYOUT", LAYOUT + 1)
    monkeypatch.setattr("skewc._layout.__version__", "9.9.9")
    write(saved_in_mid_task(*CASES["adam-diagonal-nothing"]), str(tmp_path / "newer"))
    monkeypatch.undo()
    with pytest.raises(ValueError, match="saved by skewc 9.9.9"):
        read(tmp_path / "newer")


# Files of earlier versions


STORED = sorted(path for path in DATA.glob("layout*") if path.suffix != ".json")
MAKE = runpy.run_path(str(DATA / "make.py"))


def stored(path):
    return FORMATS[path.suffix[1:]][1](path)


def test_each_layout_has_its_files():
    names = {path.name for path in STORED}
    assert names == {
        f"layout{n}-{curvature}.{kind}"
        for n in range(1, LAYOUT + 1)
        for curvature in ("diagonal", "kronecker")
        for kind in ("pickle", "skops")
    }


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_stored_files_predict_as_they_did_and_go_on(path):
    clf = stored(path)
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    found = MAKE["answers"](clf)
    assert found.keys() == expected.keys()
    assert found.pop("predict") == expected.pop("predict")
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=1e-9, err_msg=name)
    X, y = MAKE["ROWS"], np.resize(["one", "four"], 30)
    moved = []
    for ewc_lambda in (0, 1e12):
        twin = copy.deepcopy(clf).set_params(ewc_lambda=ewc_lambda, max_iter=30)
        twin.partial_fit(-X, y, task_id="c")
        assert twin.task_ids_ == ["a", "b", "c"]
        assert twin.classes_.tolist() == ["four", "one", "three", "two"]
        known = twin.predict_proba(X, task_id="a")[:, [1, 2, 3]]
        moved.append(np.abs(known - expected["predict_proba, a"]).max())
    assert moved[0] > 0.01 > 1e-3 > moved[1]  # what was saved protects


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_a_change_of_the_state_is_a_new_layout(path):
    """Where this fails, raise LAYOUT, read the older ones in `unstamped`, and run make.py."""

    def kinds(clf):
        return {
            (
                re.sub(r"\[\d+\]", "[]", where),
                type(value).__name__,
                str(getattr(value, "dtype", "")),
            )
            for where, value in leaves(clf)
        }

    clf = stored(path)
    assert kinds(clf) == kinds(MAKE["learned"](clf.curvature))
