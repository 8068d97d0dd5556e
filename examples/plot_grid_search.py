"""
How do I search λ over a stream?
================================

How strongly should earlier tasks be protected? Too little and they are forgotten, too much
and new tasks are not learned. A grid search inside a pipeline finds out by
cross-validation over the whole stream: here five tasks that each show the same digits with
their pixels shuffled in a way of their own.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import FunctionTransformer

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks, stack_tasks
from skewc.model_selection import TaskScorer, TaskStratifiedKFold, evaluate_stream
from skewc.pipeline import make_continual_pipeline

# A fixed number of epochs is the budget here, not a failure to converge.
warnings.simplefilter("ignore", ConvergenceWarning)
# With routing on, `task_id` finds its way to folds, estimator and scorer by itself.
sklearn.set_config(enable_metadata_routing=True)

QUICK = "--quick" in sys.argv
LAMBDAS = [0, 10] if QUICK else [0, 1, 10, 30, 100, 1000]
EPOCHS = 3 if QUICK else 20
SCALE = FunctionTransformer(lambda pixels: pixels / 16)  # to [0, 1]

# %%
# The search
# ----------
# The stream is stacked into one X and y, with the id of each row's task beside them. Each
# fold holds every task; each task counts alike in the score.

tasks = make_permuted_tasks(*load_digits(return_X_y=True), n_tasks=5, random_state=0)
X, y, task_id = stack_tasks(tasks)
pipeline = make_continual_pipeline(
    SCALE, EWCClassifier(max_iter=EPOCHS, batch_size=32, random_state=0)
)
search = GridSearchCV(
    pipeline,
    {"ewcclassifier__ewc_lambda": LAMBDAS},
    cv=TaskStratifiedKFold(2),
    scoring=TaskScorer(),
    refit=False,
)
search.fit(X, y, task_id=task_id)
best = search.best_params_["ewcclassifier__ewc_lambda"]
print(f"λ = {best:g} is best of {LAMBDAS}")

# %%
# What the search did not see
# ---------------------------
# Each λ learns the stream task by task, and is tested on rows held out from the search.

results = [
    evaluate_stream(pipeline.set_params(ewcclassifier__ewc_lambda=value), tasks)
    for value in LAMBDAS
]
summaries = [result.summary() for result in results]
scores, spread = (search.cv_results_[f"{part}_test_score"] for part in ("mean", "std"))
average = [summary["average_accuracy"] for summary in summaries]
forgotten = [summary["forgetting"] for summary in summaries]
new = [np.diag(result.matrix).mean() for result in results]
print(f"\n{'λ':>6} {'cross-validated':>17} {'held out':>10} {'forgetting':>12} {'new task':>10}")
for k, value in enumerate(LAMBDAS):
    print(
        f"{value:6g} {scores[k]:9.3f} ± {spread[k]:.3f} {average[k]:10.3f} "
        f"{forgotten[k]:12.3f} {new[k]:10.3f}" + "  best" * (value == best)
    )

# %%
# Score and forgetting over λ
# ---------------------------
# Forgetting falls with λ all the way. So does the accuracy on a task just learned: the
# best λ lies between.

figure, ax = plt.subplots(figsize=(7.4, 4), layout="constrained")
ax.errorbar(
    LAMBDAS, scores, spread, color="black", marker="s", capsize=3, lw=2.5,
    label="accuracy, cross-validated",
)  # fmt: skip
ax.plot(LAMBDAS, average, color="tab:blue", marker="o", label="accuracy, held-out rows")
ax.plot(
    LAMBDAS, new, color="tab:blue", ls="--", marker="^", label="accuracy on the task just learned"
)
ax.plot(LAMBDAS, forgotten, color="tab:orange", marker="v", label="forgetting, held-out rows")
ax.axvline(best, color="0.6", ls=":", zorder=0)
ax.annotate(f"best λ = {best:g}", (best, 1.04), ha="center", annotation_clip=False)
ax.set_xscale("symlog", linthresh=1)
ax.set(xticks=LAMBDAS, xticklabels=LAMBDAS, xlim=(-0.15, 1.5 * max(LAMBDAS)), ylim=(0, 1.02))
ax.set(xlabel="strength of the penalty, λ", ylabel="accuracy, forgetting")
ax.grid(axis="y", alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
