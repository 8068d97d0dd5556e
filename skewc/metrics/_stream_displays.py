"""Displays of accuracy over a stream."""

from __future__ import annotations

from textwrap import fill

import numpy as np

from skewc.metrics._drawing import (
    axes_to_draw_on,
    check_accuracies,
    legend_beside,
    line_colors,
    name_ticks,
    open_frame,
    room_for,
    size_in_inches,
    some,
    task_names,
    text_color,
)


class AccuracyMatrixDisplay:
    """Heat map of the accuracy on each task after learning each task.

    Create it with `from_matrix` or `from_result`. All parameters are stored as attributes.

    Parameters
    ----------
    matrix : array-like of shape (n_tasks, n_tasks)
        R[i, j] is the test accuracy, in [0, 1], on task j after learning task i. NaN, as
        on tasks not learned yet, stays blank.

    task_ids : array-like of shape (n_tasks,), default=None
        Names of the tasks in the order learned. None counts from 1.

    Attributes
    ----------
    im_ : matplotlib AxesImage
        The heat map.

    text_ : ndarray of shape (n_tasks, n_tasks), dtype=matplotlib Text
        The text in each cell; None where blank, or where cells are too small for text.

    ax_ : matplotlib Axes
        Axes of the heat map.

    figure_ : matplotlib Figure
        Figure of the heat map.

    See Also
    --------
    TaskAccuracyDisplay : The same numbers as lines.

    Examples
    --------
    >>> from skewc.metrics import AccuracyMatrixDisplay
    >>> R = [[0.9, float("nan")], [0.7, 0.8]]
    >>> display = AccuracyMatrixDisplay.from_matrix(R, task_ids=["spring", "autumn"])
    >>> display.text_[1, 0].get_text()
    '0.70'
    """

    def __init__(self, matrix, *, task_ids=None):
        self.matrix = matrix
        self.task_ids = task_ids

    def plot(self, ax=None, *, cmap="viridis", colorbar=True):
        """Draw the heat map.

        Cells are labelled where they are large enough for text.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        cmap : str or matplotlib Colormap, default='viridis'
            Colours of accuracies from 0 to 1.

        colorbar : bool, default=True
            Whether to add a colour bar.

        Returns
        -------
        AccuracyMatrixDisplay
            This display.

        Raises
        ------
        ValueError
            If the matrix is not square, holds no accuracy or one outside [0, 1], or
            `task_ids` does not name each task.

        See Also
        --------
        from_matrix : Store and draw in one call.

        Examples
        --------
        >>> from skewc.metrics import AccuracyMatrixDisplay
        >>> R = [[0.9, 0.1], [0.7, 0.8]]
        >>> AccuracyMatrixDisplay(R).plot(colorbar=False).ax_.get_xlabel()
        'accuracy on task'
        """
        R = check_accuracies(self.matrix)
        names = task_names(self.task_ids, len(R))
        side, beside = 2.2 + 0.5 * min(len(R), 12), room_for(names)
        self.figure_, self.ax_ = axes_to_draw_on(ax, (side + beside + colorbar, side + beside))
        self.im_ = self.ax_.imshow(R, cmap=cmap, vmin=0, vmax=1)
        name_ticks(self.ax_, "xy", names)
        self.ax_.set(xlabel="accuracy on task", ylabel="after learning task")
        self.ax_.spines[:].set_visible(False)
        if colorbar:
            self.figure_.colorbar(self.im_, ax=self.ax_, label="test accuracy", shrink=0.8)
        self._write_cells(R)
        return self

    def _write_cells(self, R):
        self.text_ = np.full(R.shape, None)
        self.figure_.draw_without_rendering()  # settles how large a cell is
        cell = self.ax_.get_window_extent().width * 72 / self.figure_.dpi / len(R)  # points
        fontsize = min(10, cell / 3)
        if fontsize < 6:
            return
        for i, j in np.argwhere(~np.isnan(R)):
            self.text_[i, j] = self.ax_.text(
                j, i, f"{R[i, j]:.2f}", ha="center", va="center", fontsize=fontsize,
                color=text_color(self.im_.cmap(R[i, j])),
            )  # fmt: skip

    @classmethod
    def from_matrix(cls, R, *, task_ids=None, ax=None, cmap="viridis", colorbar=True):
        """Draw the heat map of a matrix of accuracies.

        It draws at once.

        Parameters
        ----------
        R : array-like of shape (n_tasks, n_tasks)
            R[i, j] is the test accuracy, in [0, 1], on task j after learning task i.

        task_ids : array-like of shape (n_tasks,), default=None
            Names of the tasks in the order learned. None counts from 1.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        cmap : str or matplotlib Colormap, default='viridis'
            Colours of accuracies from 0 to 1.

        colorbar : bool, default=True
            Whether to add a colour bar.

        Returns
        -------
        AccuracyMatrixDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the matrix is not square, holds no accuracy or one outside [0, 1], or
            `task_ids` does not name each task.

        See Also
        --------
        from_result : From what evaluate_stream returns.

        Examples
        --------
        >>> from skewc.metrics import AccuracyMatrixDisplay
        >>> R = [[0.9, 0.1], [0.7, 0.8]]
        >>> AccuracyMatrixDisplay.from_matrix(R).text_[1, 0].get_text()
        '0.70'
        """
        return cls(R, task_ids=task_ids).plot(ax, cmap=cmap, colorbar=colorbar)

    @classmethod
    def from_result(cls, result, *, ax=None, cmap="viridis", colorbar=True):
        """Draw the heat map of an evaluated stream.

        It draws at once.

        Parameters
        ----------
        result : object
            Has the attributes `matrix` and `task_ids`.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        cmap : str or matplotlib Colormap, default='viridis'
            Colours of accuracies from 0 to 1.

        colorbar : bool, default=True
            Whether to add a colour bar.

        Returns
        -------
        AccuracyMatrixDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the matrix is not square, holds no accuracy or one outside [0, 1], or
            `task_ids` does not name each task.

        See Also
        --------
        from_matrix : From a matrix of your own.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> from skewc.metrics import AccuracyMatrixDisplay
        >>> result = SimpleNamespace(matrix=[[0.9, 0.1], [0.7, 0.8]], task_ids=["a", "b"])
        >>> display = AccuracyMatrixDisplay.from_result(result)
        >>> [label.get_text() for label in display.ax_.get_xticklabels()]
        ['a', 'b']
        """
        display = cls(result.matrix, task_ids=result.task_ids)
        return display.plot(ax, cmap=cmap, colorbar=colorbar)


class TaskAccuracyDisplay:
    """Accuracy on each task as more tasks are learned.

    Create it with `from_matrix` or `from_result`. All parameters are stored as attributes.

    Parameters
    ----------
    matrix : array-like of shape (n_tasks, n_tasks)
        R[i, j] is the test accuracy, in [0, 1], on task j after learning task i. A task's
        line starts at i = j.

    task_ids : array-like of shape (n_tasks,), default=None
        Names of the tasks in the order learned. None counts from 1.

    name : str, default=None
        Title, such as the name of the method.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The line of each task.

    average_ : matplotlib Line2D or None
        The line of the average over the tasks learned so far.

    ax_ : matplotlib Axes
        Axes of the lines.

    figure_ : matplotlib Figure
        Figure of the lines.

    See Also
    --------
    AccuracyMatrixDisplay : The same numbers as a heat map.

    Examples
    --------
    >>> from skewc.metrics import TaskAccuracyDisplay
    >>> display = TaskAccuracyDisplay.from_matrix([[0.9, 0.1], [0.7, 0.8]], name="EWC")
    >>> display.average_.get_ydata()
    array([0.9 , 0.75])
    """

    def __init__(self, matrix, *, task_ids=None, name=None):
        self.matrix = matrix
        self.task_ids = task_ids
        self.name = name

    def plot(self, ax=None, *, average=True, cmap="viridis"):
        """Draw a line for each task.

        A task's line begins where it has been learned.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        average : bool, default=True
            Whether to add the average over the tasks learned so far.

        cmap : str or matplotlib Colormap, default='viridis'
            Colours of the tasks, from the first to the last. Of many tasks, only some are
            named.

        Returns
        -------
        TaskAccuracyDisplay
            This display.

        Raises
        ------
        ValueError
            If the matrix is not square, holds no accuracy or one outside [0, 1], or
            `task_ids` does not name each task.

        See Also
        --------
        from_matrix : Store and draw in one call.

        Examples
        --------
        >>> from skewc.metrics import TaskAccuracyDisplay
        >>> R = [[0.9, 0.1], [0.7, 0.8]]
        >>> [len(line.get_ydata()) for line in TaskAccuracyDisplay(R).plot().lines_]
        [2, 1]
        """
        R = check_accuracies(self.matrix)
        names = task_names(self.task_ids, len(R))
        beside = room_for(names)
        inches = (np.clip(2 + 0.4 * len(R), 6.4, 9) + beside, 4 + beside / 2)
        self.figure_, self.ax_ = axes_to_draw_on(ax, inches)
        steps = np.arange(len(R))
        # Among many lines the average would drown; among few it would hide some.
        size, width, zorder = (4, 1.5, 1.9) if len(R) <= 12 else (2, 0.8, 3)
        style = {"marker": "o", "markersize": size, "linewidth": width}
        self.lines_ = [
            self.ax_.plot(steps[j:], R[j:, j], color=color, label=names[j], **style)[0]
            for j, color in enumerate(line_colors(cmap, len(R)))
        ]
        self.average_ = None
        if average:
            seen = [R[i, : i + 1].mean() for i in steps]
            (self.average_,) = self.ax_.plot(
                steps, seen, color="black", lw=2 * width, marker="s", markersize=size + 1,
                label="average", zorder=zorder,
            )  # fmt: skip
        self.ax_.set(xlabel="after learning task", ylabel="test accuracy", ylim=(0, 1.03))
        open_frame(self.ax_)
        shown = [self.lines_[k] for k in some(len(R))] + [self.average_] * average
        legend_beside(self.ax_, shown, title="task")
        name_ticks(self.ax_, "x", names)
        if self.name is not None:
            self.ax_.set_title(
                fill(str(self.name), max(10, int(size_in_inches(self.ax_)[0] / 0.1)))
            )
        return self

    @classmethod
    def from_matrix(cls, R, *, task_ids=None, name=None, ax=None, average=True, cmap="viridis"):
        """Draw the lines of a matrix of accuracies.

        It draws at once.

        Parameters
        ----------
        R : array-like of shape (n_tasks, n_tasks)
            R[i, j] is the test accuracy, in [0, 1], on task j after learning task i.

        task_ids : array-like of shape (n_tasks,), default=None
            Names of the tasks in the order learned. None counts from 1.

        name : str, default=None
            Title, such as the name of the method.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        average : bool, default=True
            Whether to add the average over the tasks learned so far.

        cmap : str or matplotlib Colormap, default='viridis'
            Colours of the tasks, from the first to the last.

        Returns
        -------
        TaskAccuracyDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the matrix is not square, holds no accuracy or one outside [0, 1], or
            `task_ids` does not name each task.

        See Also
        --------
        from_result : From what evaluate_stream returns.

        Examples
        --------
        >>> from skewc.metrics import TaskAccuracyDisplay
        >>> R = [[0.9, 0.1], [0.7, 0.8]]
        >>> TaskAccuracyDisplay.from_matrix(R).average_.get_ydata()
        array([0.9 , 0.75])
        """
        return cls(R, task_ids=task_ids, name=name).plot(ax, average=average, cmap=cmap)

    @classmethod
    def from_result(cls, result, *, ax=None, average=True, cmap="viridis"):
        """Draw the lines of an evaluated stream.

        It draws at once.

        Parameters
        ----------
        result : object
            Has the attributes `matrix` and `task_ids`; its `name`, if any, is the title.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        average : bool, default=True
            Whether to add the average over the tasks learned so far.

        cmap : str or matplotlib Colormap, default='viridis'
            Colours of the tasks, from the first to the last.

        Returns
        -------
        TaskAccuracyDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the matrix is not square, holds no accuracy or one outside [0, 1], or
            `task_ids` does not name each task.

        See Also
        --------
        from_matrix : From a matrix of your own.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> from skewc.metrics import TaskAccuracyDisplay
        >>> R = [[0.9, 0.1], [0.7, 0.8]]
        >>> result = SimpleNamespace(matrix=R, task_ids=["a", "b"], name="EWC")
        >>> TaskAccuracyDisplay.from_result(result).ax_.get_title()
        'EWC'
        """
        name = getattr(result, "name", None)
        display = cls(result.matrix, task_ids=result.task_ids, name=name)
        return display.plot(ax, average=average, cmap=cmap)
