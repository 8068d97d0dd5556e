"""Displays of the weights: their importance, and the force that holds them."""

from __future__ import annotations

import numpy as np

from skewc.metrics._drawing import (
    axes_to_draw_on,
    classifier_and_importances,
    draw_boxes,
    legend_beside,
    line_colors,
    open_frame,
    some,
)
from skewc.metrics._matrix import as_floats


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
        self.figure_, self.ax_ = axes_to_draw_on(ax, (1.6 + 1.9 * len(coefs), 4))
        layers = np.arange(len(coefs))
        self.boxes_ = [
            draw_boxes(self.ax_, layers + shift, blocks, color, label)
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
        open_frame(self.ax_)
        self.ax_.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)

    def _plot_image(self, ax):
        from skewc.datasets._streams import check_image_shape

        inputs = np.asarray(self.coef_importances[0]).sum(axis=1)
        image = inputs.reshape(check_image_shape(self.image_shape, len(inputs)))
        if image.ndim == 3:
            image = image.sum(axis=2)
        self.figure_, self.ax_ = axes_to_draw_on(ax, (4.4, 3.6))
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
        _, *importances = classifier_and_importances(estimator)
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
        shown = some(len(importances), at_most=24)
        many = len(shown) > 6
        self.figure_, self.ax_ = axes_to_draw_on(ax, (5.4 + 2 * many, 3.8))
        displacement = np.linspace(-1, 1, 5)
        self.lines_ = [
            self.ax_.plot(
                displacement, -self.ewc_lambda * F * displacement,
                color=color, linewidth=2, label=f"{float(f'{F:.3g}'):g}",
            )[0]
            for F, color in zip(importances, line_colors(cmap, len(importances)), strict=True)
        ]  # fmt: skip
        for draw in (self.ax_.axhline, self.ax_.axvline):
            draw(0, color="0.8", linewidth=1, zorder=0)
        self.ax_.set(xlabel="displacement from the anchor, d = w − w*", xticks=displacement)
        self.ax_.set(ylabel=f"restoring force −λ·F·d, λ = {self.ewc_lambda:g}")
        self.ax_.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
        open_frame(self.ax_)
        if many:
            lines, columns = [self.lines_[k] for k in shown], 1 + (len(shown) > 12)
            legend_beside(self.ax_, lines, title="importance F", ncols=columns)
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
        classifier, coefs, intercepts = classifier_and_importances(estimator)
        importances = np.concatenate([np.ravel(F) for F in [*coefs, *intercepts]])
        if not (importances > 0).any():
            raise ValueError("No weight of the estimator has an importance above 0.")
        chosen = np.quantile(importances[importances > 0], levels)
        return cls(chosen, ewc_lambda=classifier.ewc_lambda).plot(ax, cmap=cmap)
