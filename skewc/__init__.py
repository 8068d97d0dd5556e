"""Continual learning for scikit-learn by Elastic Weight Consolidation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skewc import datasets, metrics, model_selection, pipeline
    from skewc._classifier import EWCClassifier

__version__ = "0.1.0"
__all__ = [
    "EWCClassifier", "__version__", "datasets", "metrics", "model_selection", "pipeline",
]  # fmt: skip


def __getattr__(name):
    """Import the estimator, or a subpackage, when it is first asked for."""
    # Late, so that skewc.datasets and skewc.metrics do without torch.
    if name == "EWCClassifier":
        from skewc._classifier import EWCClassifier

        return EWCClassifier
    if name in __all__:
        return import_module(f"skewc.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
