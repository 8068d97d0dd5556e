"""
How do I protect a table that drifts?
=====================================

Tumours are to be told apart, benign from malignant, by the Wisconsin table of breast cancer.
Its rows come from five clinics, one after another. Each clinic's instruments have a scale
and an offset of their own, which drift from clinic to clinic; some of the findings are
noted in words; a tenth of all entries is missing. A clinic's table is gone once it is
learned.

A ContinualPipeline fills, encodes and scales the columns by what the first clinic showed,
and stays with it: were the scaler to move on, the weights that the penalty protects would
come to mean something else.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skewc import EWCClassifier
from skewc.datasets import make_drift_tasks
from skewc.metrics import TaskAccuracyDisplay
from skewc.model_selection import evaluate_stream
from skewc.pipeline import make_continual_pipeline

QUICK = "--quick" in sys.argv
N_SEEDS, EPOCHS = (1, 20) if QUICK else (5, 100)
CLINICS = ["Aarau", "Bern", "Chur", "Davos", "Egg"]
WORDS = ["low", "middle", "high"]

# %%
# The tables
# ----------
# :func:`~skewc.datasets.make_drift_tasks` deals the rows out to the clinics and lets the
# columns drift; a data frame stays one. What is noted in words is noted before the drift,
# so the words mean the same everywhere.

data = load_breast_cancer(as_frame=True)
y = data.target_names[data.target]
NOTED = ["mean smoothness", "mean symmetry", "mean texture"]


def blur(table, rng):
    """Put words for the noted columns, and leave gaps."""
    for column in NOTED:
        edges = [-np.inf, *data.data[column].quantile([1 / 3, 2 / 3]), np.inf]
        words = pd.cut(table[f"true {column}"], edges, labels=WORDS)
        table = table.drop(columns=f"true {column}").assign(**{column: words.astype(object)})
    return table.mask(rng.uniform(size=table.shape) < 0.1, np.nan)


def clinics(seed):
    """Return a task for each clinic."""
    rng = np.random.RandomState(seed)
    tasks = []
    options = {"n_tasks": len(CLINICS), "test_size": 0.4, "random_state": seed}
    drifting = make_drift_tasks(data.data, y, drift=1.5, **options)
    steady = make_drift_tasks(data.data, y, drift=0, **options)  # the same rows
    for name, task, still in zip(CLINICS, drifting, steady, strict=True):
        tables = {}
        for part in ("X_train", "X_test"):
            truth = getattr(still, part)[NOTED].add_prefix("true ")
            tables[part] = blur(getattr(task, part).drop(columns=NOTED).join(truth), rng)
        tasks.append(task._replace(id=name, **tables))
    return tasks


print(clinics(0)[0].X_train.iloc[:4, [0, 1, -3, -2, -1]].to_string(float_format="%.1f"))

# %%
# Learning with and without protection
# ------------------------------------
# Words that a clinic is the first to use are ignored.


def pipeline(ewc_lambda, seed):
    """Fill, encode, scale, learn."""
    columns = make_column_transformer(
        (
            make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
            make_column_selector(dtype_include=np.number),
        ),
        (
            make_pipeline(
                SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
            ),
            make_column_selector(dtype_exclude=np.number),
        ),
    )
    clf = EWCClassifier(
        curvature="kronecker", ewc_lambda=ewc_lambda, max_iter=EPOCHS, batch_size=16,
        random_state=seed,
    )  # fmt: skip
    return make_continual_pipeline(columns, clf)


matrices = {}
for name, ewc_lambda in [("without protection, λ = 0", 0), ("protected, λ = 10 (default)", 10)]:
    results = [
        evaluate_stream(pipeline(ewc_lambda, seed), clinics(seed), name=name, verbose=seed == 0)
        for seed in range(N_SEEDS)
    ]
    matrices[name] = np.mean([result.matrix for result in results], axis=0)

# %%
# What is left of each clinic
# ---------------------------
# Fine-tuning loses part of the clinics in the middle, whose instruments were the last to
# differ; protection keeps more of them.

print(f"\nTest accuracy after the last clinic, mean of {N_SEEDS} seed{'s' * (N_SEEDS > 1)}")
print(f"{'':28}" + "".join(f"{name:>8}" for name in CLINICS) + f"{'average':>10}")
for name, R in matrices.items():
    cells = "".join(f"{accuracy:8.3f}" for accuracy in R[-1])
    print(f"{name:28}{cells}{R[-1].mean():10.3f}")

figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for ax, (name, R) in zip(axes, matrices.items(), strict=True):
    TaskAccuracyDisplay.from_matrix(R, task_ids=CLINICS, name=name, ax=ax)
    ax.set(ylim=(0.6, 1.01), xlabel="after learning clinic")
axes[0].get_legend().remove()
axes[1].get_legend().set_title("clinic")
axes[1].set_ylabel("")
plt.show()
