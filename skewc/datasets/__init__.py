"""Streams of tasks, made from any labelled data, for the three scenarios of [1]_.

.. [1] van de Ven & Tolias (2019). Three scenarios for continual learning.
   :arxiv:`1904.07734`
"""

from skewc.datasets._streams import (
    Task,
    load_fashion_mnist,
    make_drift_tasks,
    make_permuted_tasks,
    make_rotated_tasks,
    make_split_tasks,
    stack_tasks,
)

__all__ = [
    "Task",
    "load_fashion_mnist",
    "make_drift_tasks",
    "make_permuted_tasks",
    "make_rotated_tasks",
    "make_split_tasks",
    "stack_tasks",
]
