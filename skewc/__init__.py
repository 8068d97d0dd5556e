"""Continual learning for scikit-learn by Elastic Weight Consolidation."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skewc._classifier import EWCClassifier

__version__ = "0.1.0"
__all__ = ["EWCClassifier", "__version__"]


def __getattr__(name):
    """Import the estimator when it is first asked for."""
    # Late, so that skewc.datasets and skewc.metrics do without torch.
    if name == "EWCClassifier":
        from skewc._classifier import EWCClassifier

        return EWCClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
