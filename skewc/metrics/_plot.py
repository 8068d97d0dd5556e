"""Displays: accuracy over a stream, importance of weights, and the force that holds them."""

from __future__ import annotations

from textwrap import fill

import numpy as np

from skewc.metrics._matrix import as_floats, check_matrix


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
        R = _check_accuracies(self.matrix)
        names = _task_names(self.task_ids, len(R))
        side, beside = 2.2 + 0.5 * min(len(R), 12), _room_for(names)
        self.figure_, self.ax_ = _axes(ax, (side + beside + colorbar, side + beside))
        self.im_ = self.ax_.imshow(R, cmap=cmap, vmin=0, vmax=1)
        _name_ticks(self.ax_, "xy", names)
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
                color=_text_color(self.im_.cmap(R[i, j])),
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
        R = _check_accuracies(self.matrix)
        names = _task_names(self.task_ids, len(R))
        beside = _room_for(names)
        inches = (np.clip(2 + 0.4 * len(R), 6.4, 9) + beside, 4 + beside / 2)
        self.figure_, self.ax_ = _axes(ax, inches)
        steps = np.arange(len(R))
        # Among many lines the average would drown; among few it would hide some.
        size, width, zorder = (4, 1.5, 1.9) if len(R) <= 12 else (2, 0.8, 3)
        style = {"marker": "o", "markersize": size, "linewidth": width}
        self.lines_ = [
            self.ax_.plot(steps[j:], R[j:, j], color=color, label=names[j], **style)[0]
            for j, color in enumerate(_colors(cmap, len(R)))
        ]
        self.average_ = None
        if average:
            seen = [R[i, : i + 1].mean() for i in steps]
            (self.average_,) = self.ax_.plot(
                steps, seen, color="black", lw=2 * width, marker="s", markersize=size + 1,
                label="average", zorder=zorder,
            )  # fmt: skip
        self.ax_.set(xlabel="after learning task", ylabel="test accuracy", ylim=(0, 1.03))
        _open_frame(self.ax_)
        shown = [self.lines_[k] for k in _some(len(R))] + [self.average_] * average
        _legend_beside(self.ax_, shown, title="task")
        _name_ticks(self.ax_, "x", names)
        if self.name is not None:
            self.ax_.set_title(fill(str(self.name), max(10, int(_inches(self.ax_)[0] / 0.1))))
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


class ImportanceDisplay:
    """Importance of the weights for the tasks learned: by layer, or by input.

    Create it with `from_estimator`. All parameters are stored as attributes.

    Parameters
    ----------
    coef_importances : list of ndarray of shape (n_units, n_units of the next layer)
        Importance >= 0 of the coefficients of each layer.

    intercept_importances : list of ndarray of shape (n_units,)
        Importance >= 0 of the intercepts of each layer.

    image_shape : tuple of int, default=None
        (height, width) or (height, width, channels) of the inputs, for ``kind='image'``.
        None: square.

    Attributes
    ----------
    boxes_ : list of dict
        ``kind='layers'``: what `matplotlib.axes.Axes.bxp` returns for the coefficients and
        for the intercepts.

    im_ : matplotlib AxesImage
        ``kind='image'``: the image.

    ax_ : matplotlib Axes
        Axes of the picture.

    figure_ : matplotlib Figure
        Figure of the picture.

    See Also
    --------
    RestoringForceDisplay : The force that importance exerts.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skewc import EWCClassifier
    >>> from skewc.metrics import ImportanceDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X / 16, y)
    >>> display = ImportanceDisplay.from_estimator(clf, kind="image")
    >>> display.im_.get_array().shape
    (8, 8)
    """

    def __init__(self, coef_importances, intercept_importances, *, image_shape=None):
        self.coef_importances = coef_importances
        self.intercept_importances = intercept_importances
        self.image_shape = image_shape

    def plot(self, ax=None, *, kind="layers"):
        """Draw the importance.

        Importance is the Fisher information, summed over rows and tasks, before λ.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        kind : {'layers', 'image'}, default='layers'
            'layers': a box for the coefficients and for the intercepts of each layer, from
            the lower to the upper quartile with the median, and whiskers from the 5th to
            the 95th percentile, of the importances above 0; the share at 0 stands below.
            'image': the importance of each input, summed over the units of the first
            layer (and over channels).

        Returns
        -------
        ImportanceDisplay
            This display.

        Raises
        ------
        ValueError
            If `kind` is unknown, or the inputs do not form an image.

        See Also
        --------
        from_estimator : Store and draw in one call.

        Examples
        --------
        >>> import numpy as np
        >>> from skewc.metrics import ImportanceDisplay
        >>> display = ImportanceDisplay([np.ones((4, 3))], [np.ones(3)])
        >>> display.plot(kind="image").im_.get_array().shape
        (2, 2)
        """
        if kind not in ("layers", "image"):
            raise ValueError(f"kind must be 'layers' or 'image'; got {kind!r}.")
        if kind == "layers":
            self._plot_layers(ax)
        else:
            self._plot_image(ax)
        return self

    def _plot_layers(self, ax):
        coefs = [np.asarray(F) for F in self.coef_importances]
        self.figure_, self.ax_ = _axes(ax, (1.6 + 1.9 * len(coefs), 4))
        layers = np.arange(len(coefs))
        self.boxes_ = [
            _draw_boxes(self.ax_, layers + shift, blocks, color, label)
            for shift, blocks, (color, label) in zip(
                (-0.2, 0.2),
                (coefs, self.intercept_importances),
                (("tab:blue", "coefficients"), ("tab:orange", "intercepts")),
                strict=True,
            )
        ]
        names = [f"layer {k + 1}\n{F.shape[0]} → {F.shape[1]}" for k, F in enumerate(coefs)]
        self.ax_.set(xticks=layers, xticklabels=names, xlim=(-0.5, len(coefs) - 0.5))
        self.ax_.set(ylabel="importance (Fisher information)")
        if any((np.asarray(F) > 0).any() for F in [*coefs, *self.intercept_importances]):
            self.ax_.set_yscale("log")
        self.ax_.tick_params(axis="x", length=0)
        self.ax_.margins(y=0.18)  # room for the share of zeros
        _open_frame(self.ax_)
        self.ax_.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)

    def _plot_image(self, ax):
        from skewc.datasets._streams import check_image_shape

        inputs = np.asarray(self.coef_importances[0]).sum(axis=1)
        image = inputs.reshape(check_image_shape(self.image_shape, len(inputs)))
        if image.ndim == 3:
            image = image.sum(axis=2)
        self.figure_, self.ax_ = _axes(ax, (4.4, 3.6))
        self.im_ = self.ax_.imshow(image, cmap="magma", vmin=0)
        self.ax_.set(xticks=[], yticks=[])
        self.figure_.colorbar(self.im_, ax=self.ax_, label="importance, summed over units")

    @classmethod
    def from_estimator(cls, estimator, *, image_shape=None, ax=None, kind="layers"):
        """Draw the importance of a fitted estimator's weights.

        It draws at once.

        Parameters
        ----------
        estimator : EWCClassifier, or Pipeline that ends in one
            Fitted; its `coef_importances_` and `intercept_importances_` are drawn. Behind
            a pipeline's transformers, its inputs are what these make of the features.

        image_shape : tuple of int, default=None
            (height, width) or (height, width, channels) of the inputs, for
            ``kind='image'``. None: square.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        kind : {'layers', 'image'}, default='layers'
            Importance by layer, or by input; see `plot`.

        Returns
        -------
        ImportanceDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator is of another kind.

        See Also
        --------
        plot : Draw what is stored.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> from skewc.metrics import ImportanceDisplay
        >>> ImportanceDisplay.from_estimator(clf).ax_.get_ylabel()
        'importance (Fisher information)'
        """
        _, *importances = _classifier_and_importances(estimator)
        return cls(*importances, image_shape=image_shape).plot(ax, kind=kind)


class RestoringForceDisplay:
    """Force -λ·F·d that pulls a weight back when it is moved by d from its anchor.

    It is minus the gradient of the penalty (λ/2)·F·d²: the penalty holds each weight like a
    spring, as stiff as the weight is important. Create it with `from_estimator`, or from
    values of F. All parameters are stored as attributes.

    Parameters
    ----------
    importances : array-like of shape (n_lines,)
        Values F >= 0 of the Fisher information.

    ewc_lambda : float, default=1.0
        Strength λ of the penalty.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The line of each of `importances`.

    ax_ : matplotlib Axes
        Axes of the lines.

    figure_ : matplotlib Figure
        Figure of the lines.

    See Also
    --------
    ImportanceDisplay : Where importance sits.

    Examples
    --------
    A weight with F = 5, moved by 1, is pulled back by 5·λ.

    >>> from skewc.metrics import RestoringForceDisplay
    >>> display = RestoringForceDisplay([0.05, 5], ewc_lambda=2).plot()
    >>> displacement, force = display.lines_[1].get_data()
    >>> float(force[displacement == 1][0])
    -10.0
    """

    def __init__(self, importances, *, ewc_lambda=1.0):
        self.importances = importances
        self.ewc_lambda = ewc_lambda

    def plot(self, ax=None, *, cmap="plasma"):
        """Draw the force against displacements from -1 to 1.

        The lines are straight: the penalty is a quadratic.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        cmap : str or matplotlib Colormap, default='plasma'
            Colours of the lines, in their order.

        Returns
        -------
        RestoringForceDisplay
            This display.

        Raises
        ------
        ValueError
            If an importance is negative or not finite.

        See Also
        --------
        from_estimator : Take the importances of an estimator.

        Examples
        --------
        >>> from skewc.metrics import RestoringForceDisplay
        >>> [line.get_label() for line in RestoringForceDisplay([0.05, 5]).plot().lines_]
        ['0.05', '5']
        """
        importances = as_floats("importances must be a list of numbers >= 0", self.importances)
        if importances.ndim != 1 or not (np.isfinite(importances) & (importances >= 0)).all():
            raise ValueError(f"importances must be a list of numbers >= 0; got {importances}.")
        shown = _some(len(importances), at_most=24)
        many = len(shown) > 6
        self.figure_, self.ax_ = _axes(ax, (5.4 + 2 * many, 3.8))
        displacement = np.linspace(-1, 1, 5)
        self.lines_ = [
            self.ax_.plot(
                displacement, -self.ewc_lambda * F * displacement,
                color=color, linewidth=2, label=f"{float(f'{F:.3g}'):g}",
            )[0]
            for F, color in zip(importances, _colors(cmap, len(importances)), strict=True)
        ]  # fmt: skip
        for draw in (self.ax_.axhline, self.ax_.axvline):
            draw(0, color="0.8", linewidth=1, zorder=0)
        self.ax_.set(xlabel="displacement from the anchor, d = w − w*", xticks=displacement)
        self.ax_.set(ylabel=f"restoring force −λ·F·d, λ = {self.ewc_lambda:g}")
        self.ax_.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
        _open_frame(self.ax_)
        if many:
            lines, columns = [self.lines_[k] for k in shown], 1 + (len(shown) > 12)
            _legend_beside(self.ax_, lines, title="importance F", ncols=columns)
        else:
            self.ax_.legend(title="importance F", frameon=False)
        return self

    @classmethod
    def from_estimator(cls, estimator, *, quantiles=(0.5, 0.9, 0.99, 1.0), ax=None, cmap="plasma"):
        """Draw the force on weights of a fitted estimator.

        It draws at once.

        Parameters
        ----------
        estimator : EWCClassifier, or Pipeline that ends in one
            Fitted; its importances and its `ewc_lambda` are taken.

        quantiles : array-like of shape (n_lines,), default=(0.5, 0.9, 0.99, 1.0)
            Which of its importances above 0 to draw, in [0, 1]. Of many, only some are
            named.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        cmap : str or matplotlib Colormap, default='plasma'
            Colours of the lines, in their order.

        Returns
        -------
        RestoringForceDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator is of another kind.

        ValueError
            If no importance is above 0, or `quantiles` are not such a list.

        See Also
        --------
        plot : Draw what is stored.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skewc import EWCClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = EWCClassifier(solver="lbfgs", random_state=0).fit(X, y)
        >>> from skewc.metrics import RestoringForceDisplay
        >>> len(RestoringForceDisplay.from_estimator(clf, quantiles=[0.5, 1]).lines_)
        2
        """
        message = "quantiles must be a list of numbers in [0, 1]"
        levels = as_floats(message, quantiles)
        if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"{message}; got {quantiles!r}.")
        classifier, coefs, intercepts = _classifier_and_importances(estimator)
        importances = np.concatenate([np.ravel(F) for F in [*coefs, *intercepts]])
        if not (importances > 0).any():
            raise ValueError("No weight of the estimator has an importance above 0.")
        chosen = np.quantile(importances[importances > 0], levels)
        return cls(chosen, ewc_lambda=classifier.ewc_lambda).plot(ax, cmap=cmap)


def _axes(ax, size: tuple[float, float]):
    """Return figure and axes to draw on; a new figure of that size in inches for None."""
    if ax is not None:
        return ax.figure, ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Displays need matplotlib: pip install 'skewc[plot]'.") from error
    return plt.subplots(figsize=size, layout="constrained")


def _colors(cmap, n: int) -> np.ndarray:
    """Colours of n lines, none so light that it fades on white."""
    from matplotlib import colormaps

    return colormaps.get_cmap(cmap)(np.linspace(0, 0.88, n))


def _text_color(background) -> str:
    """Black or white, whichever is seen better on a colour."""
    return "black" if np.dot(background[:3], [0.299, 0.587, 0.114]) > 0.5 else "white"


def _check_accuracies(matrix) -> np.ndarray:
    """Return the matrix, which must hold accuracies that can be drawn."""
    R = check_matrix(matrix)
    known = R[~np.isnan(R)]
    if not len(known):
        raise ValueError("There is nothing to draw: the matrix holds nothing but NaN.")
    if known.min() < -1e-9 or known.max() > 1 + 1e-9:
        raise ValueError(
            f"Accuracies must be in [0, 1]; got {known.min():g} to {known.max():g}. Divide "
            "percentages by 100."
        )
    return R


def _task_names(task_ids, n_tasks: int) -> list[str]:
    """Return the names of the tasks, counted from 1 for None; the middle of long ones goes."""
    names = [*map(str, range(1, n_tasks + 1) if task_ids is None else task_ids)]
    names = [name if len(name) <= 40 else f"{name[:19]}…{name[-20:]}" for name in names]
    if len(names) != n_tasks:
        raise ValueError(
            f"task_ids must name each of the {n_tasks} tasks of the matrix; got {len(names)}."
        )
    return [name or "''" for name in names]


def _some(n: int, at_most: int = 15) -> range:
    """At most so many of n positions, evenly spaced from the first on."""
    return range(0, n, max(1, -(-n // at_most)))


def _room_for(names) -> float:
    """Inches to add to a figure for names of that length."""
    return min(0.07 * max(0, max(map(len, names)) - 5), 2.5)


def _inches(ax) -> np.ndarray:
    """Width and height of the axes."""
    return ax.get_window_extent().size / ax.figure.dpi


def _name_ticks(ax, axes: str, names) -> None:
    """Name positions on the axes, not too many, and turned where they would not fit."""
    shown = _some(len(names))
    for axis in axes:
        getattr(ax, f"set_{axis}ticks")(shown, [names[k] for k in shown])
    longest = max(len(names[k]) for k in shown)
    # A letter takes some 0.085 inches. Of a square's two sides, the shorter counts.
    if len(shown) * (longest + 2) * 0.085 > _inches(ax)[: len(axes)].min():
        ax.tick_params(axis="x", labelrotation=45)
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def _legend_beside(ax, handles, **options) -> None:
    """Draw a legend to the right, for which axes that nothing lays out make room."""
    legend = ax.legend(
        handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1, 1), **options
    )
    if ax.figure.get_layout_engine() is None:
        box = ax.get_position()
        beyond = legend.get_window_extent().x1 - ax.get_window_extent().x1
        width = beyond / ax.figure.bbox.width
        ax.set_position([box.x0, box.y0, max(box.width - width, 0.3 * box.width), box.height])
        ax.set_in_layout(True)  # of a layout that comes later


def _classifier_and_importances(estimator):
    """Return the classifier at the end of a pipeline, and its importances."""
    from sklearn.exceptions import NotFittedError

    from skewc.pipeline import final_step

    classifier = final_step(estimator)
    try:
        if isinstance(classifier, type):
            raise AttributeError("a class is not fitted")
        return classifier, classifier.coef_importances_, classifier.intercept_importances_
    except NotFittedError:
        raise
    except AttributeError as error:
        raise TypeError(
            "Importance is that of a fitted EWCClassifier, or of a Pipeline that ends in one "
            f"(of a search, give its best_estimator_); got {estimator!r}."
        ) from error


def _open_frame(ax) -> None:
    """Leave only the left and the lower line, and a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)


def _draw_boxes(ax, positions, blocks, color, label) -> dict:
    """Draw a box for the positive values of each block, and the share of zeros below."""
    stats = []
    for x, F in zip(positions, map(np.ravel, blocks), strict=True):
        positive = F[F > 0]
        zeros = 1 - len(positive) / len(F)
        keys = ("whislo", "q1", "med", "q3", "whishi")
        values = np.quantile(positive, [0.05, 0.25, 0.5, 0.75, 0.95]) if len(positive) else np.nan
        stats.append(dict(zip(keys, np.broadcast_to(values, 5), strict=True)))
        if zeros:
            ax.text(
                x, 0.01, f"{zeros:.1%}\nat 0", transform=ax.get_xaxis_transform(),
                ha="center", va="bottom", fontsize="small", color="0.3",
            )  # fmt: skip
    boxes = ax.bxp(
        stats, positions=positions, widths=0.3, showfliers=False, patch_artist=True,
        boxprops={"facecolor": color, "alpha": 0.6}, medianprops={"color": "black"},
    )  # fmt: skip
    boxes["boxes"][0].set_label(label)
    return boxes
