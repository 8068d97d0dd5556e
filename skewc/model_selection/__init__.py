"""Splitting, scoring and evaluating over streams of tasks."""

from skewc.model_selection._evaluate import StreamResult, evaluate_stream
from skewc.model_selection._score import TaskScorer
from skewc.model_selection._split import TaskStratifiedKFold

__all__ = ["StreamResult", "TaskScorer", "TaskStratifiedKFold", "evaluate_stream"]
