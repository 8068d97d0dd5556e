"""What scikit-learn's callbacks are told while an estimator learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np


class Report:
    """One call, one task in it, or one epoch of that, as the callbacks are told of it.

    Where none are set, `context` is None and nothing is told. What is callable among the
    data told is called only for a callback that asks for it.
    """

    def __init__(self, context, estimator, **data):
        self._context = context
        self._told = {"estimator": estimator, **data}
        if context is not None:
            context.call_on_fit_task_begin(**self._told)

    @staticmethod
    def of_call(estimator, name: str, n_tasks: int, X, y, sample_weight) -> Report:
        """Set the callbacks up and tell them that `estimator` begins to learn."""
        if "_skl_callbacks" not in vars(estimator):
            return Report(None, estimator)
        context = estimator._init_callback_context(name, max_subtasks=n_tasks)
        metadata = {}
        if sample_weight is not None:
            metadata["sample_weight"] = np.broadcast_to(sample_weight, y.shape)
        return Report(context, estimator, X=X, y=y, metadata=metadata)

    def of_task(self, task_id, n_epochs: int, rows: np.ndarray) -> Report:
        """Tell that the task whose row numbers are `rows` begins."""
        if self._context is None:
            return self
        X, y, metadata = (self._told[name] for name in ("X", "y", "metadata"))
        name = "task" if task_id is None else f"task {task_id!r}"
        return Report(
            self._context.subcontext(name, max_subtasks=n_epochs),
            self._told["estimator"],
            X=lambda: X[rows],
            y=lambda: y[rows],
            metadata=lambda: {name: values[rows] for name, values in metadata.items()},
        )

    def epoch(self, fitted: Callable[[], dict]) -> bool:
        """Tell of an epoch that is over, L-BFGS knowing of none before; as `end`."""
        if self._context is None:
            return False
        return Report(self._context.subcontext("epoch"), **self._told).end(fitted)

    def end(self, fitted: Callable[[], dict] = dict) -> bool:
        """Tell that it is over; return whether a callback wants what is around it to stop.

        `fitted` gives the attributes by which the estimator, were it to stop here, would
        differ from what it is now.
        """
        if self._context is None:
            return False
        return self._context.call_on_fit_task_end(**self._told, reconstruction_attributes=fitted)


@contextmanager
def following(pipeline, final, **data) -> Iterator[None]:
    """Tell the callbacks of `pipeline` of its `partial_fit`, and let some follow to `final`.

    Those follow that scikit-learn's meta-estimators hand on, such as the ProgressBar.
    """
    if "_skl_callbacks" not in vars(pipeline):
        yield
        return
    told = {"estimator": pipeline, **data}
    context = pipeline._init_callback_context("partial_fit", max_subtasks=1)
    context.call_on_fit_task_begin(**told)
    step = context.subcontext("partial_fit-final-estimator")
    with step.propagate_callback_context(final):
        step.call_on_fit_task_begin(**told)
        yield
        step.call_on_fit_task_end(**told)
    context.call_on_fit_task_end(**told)
