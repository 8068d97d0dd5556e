"""Metrics of a stream of tasks, and displays of what was learned and kept.

``R[i, j]`` is the test accuracy on task j after learning task i. Nothing here needs torch;
matplotlib is imported when a display is drawn.
"""

from skewc.metrics._matrix import (
    average_accuracy,
    average_task_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
)
from skewc.metrics._stream_displays import AccuracyMatrixDisplay, TaskAccuracyDisplay
from skewc.metrics._weight_displays import ImportanceDisplay, RestoringForceDisplay

__all__ = [
    "AccuracyMatrixDisplay",
    "ImportanceDisplay",
    "RestoringForceDisplay",
    "TaskAccuracyDisplay",
    "average_accuracy",
    "average_task_accuracy",
    "backward_transfer",
    "forgetting",
    "forward_transfer",
]
