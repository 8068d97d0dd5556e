"""Draw the picture of README and of the first page: ``python docs/draw_picture.py``."""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from skewc import EWCClassifier
from skewc.datasets import make_permuted_tasks
from skewc.metrics import TaskAccuracyDisplay
from skewc.model_selection import evaluate_stream

warnings.simplefilter("ignore", ConvergenceWarning)
plt.rcParams |= {"svg.hashsalt": "skewc", "font.size": 11, "axes.titlesize": "medium"}
WAYS = {
    "without protection": {"ewc_lambda": 0},
    "EWC, Kronecker factors": {"curvature": "kronecker"},
}

X, y = load_digits(return_X_y=True)
tasks = make_permuted_tasks(X / 16, y, n_tasks=5, random_state=0)
figure, axes = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for ax, (name, parameters) in zip(axes, WAYS.items(), strict=True):
    clf = EWCClassifier(**parameters, max_iter=25, batch_size=32, random_state=0)
    R = evaluate_stream(clf, tasks).matrix
    print(f"{name}: {R[-1].mean():.3f}")
    TaskAccuracyDisplay.from_matrix(R, ax=ax).ax_.set_title(f"{name}: {R[-1].mean():.2f}")
axes[0].get_legend().remove()
axes[1].set_ylabel("")
path = Path(__file__).parent / "_static" / "forgetting.svg"
figure.savefig(path, metadata={"Date": None})
