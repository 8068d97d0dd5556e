"""Write the stored files of a new layout: ``python tests/data/make.py``.

They are made once, by the oldest versions supported, and never again: every later version
must load them.
"""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import skops.io
from scipy import sparse

from skewc import EWCClassifier
from skewc._layout import LAYOUT

HERE = Path(__file__).parent
ROWS = np.random.RandomState(0).normal(size=(30, 3))


def learned(curvature):
    """Return an estimator that keeps all it can, saved in the middle of its second task."""
    clf = EWCClassifier(
        hidden_layer_sizes=(4,), curvature=curvature, memory_size=4, readout="discriminant",
        readout_features=6, max_iter=5, task_weights={"b": 2.0}, random_state=0,
    )  # fmt: skip
    clf.partial_fit(ROWS, np.resize(["one", "two"], 30), task_id="a")
    more = sparse.csr_matrix(ROWS) if curvature == "kronecker" else ROWS
    return clf.partial_fit(more, np.resize(["two", "three"], 30), task_id="b")


def answers(clf):
    """Return what it predicts, by either read-out."""
    return {
        "predict": clf.predict(ROWS).tolist(),
        "predict_proba": clf.predict_proba(ROWS).tolist(),
        "predict_proba, a": clf.predict_proba(ROWS, task_id="a").tolist(),
        "penalty_value": clf.penalty_value(),
    }


if __name__ == "__main__":
    for curvature in ("diagonal", "kronecker"):
        clf, path = learned(curvature), HERE / f"layout{LAYOUT}-{curvature}"
        with open(path.with_suffix(".pickle"), "xb") as file:
            pickle.dump(clf, file, protocol=4)
        with open(path.with_suffix(".skops"), "xb") as file:
            file.write(skops.io.dumps(clf, compression=zipfile.ZIP_DEFLATED))
        with open(path.with_suffix(".json"), "x") as file:
            json.dump(answers(clf), file)
