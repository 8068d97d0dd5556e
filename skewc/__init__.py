"""Continual learning for scikit-learn by Elastic Weight Consolidation."""

from skewc._classifier import EWCClassifier

__version__ = "0.1.0"
__all__ = ["EWCClassifier", "__version__"]
