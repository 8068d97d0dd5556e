"""What the displays share: axes, colours, names of tasks, boxes."""

from __future__ import annotations

import numpy as np

from skewc.metrics._matrix import check_matrix


def axes_to_draw_on(ax, size: tuple[float, float]):
    """Return figure and axes to draw on; a new figure of that size in inches for None."""
    if ax is not None:
        return ax.figure, ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Displays need matplotlib: pip install 'skewc[plot]'.") from error
    return plt.subplots(figsize=size, layout="constrained")


def line_colors(cmap, n: int) -> np.ndarray:
    """Colours of n lines, none so light that it fades on white."""
    from matplotlib import colormaps

    return colormaps.get_cmap(cmap)(np.linspace(0, 0.88, n))


def text_color(background) -> str:
    """Black or white, whichever is seen better on a colour."""
    return "black" if np.dot(background[:3], [0.299, 0.587, 0.114]) > 0.5 else "white"


def check_accuracies(matrix) -> np.ndarray:
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


def task_names(task_ids, n_tasks: int) -> list[str]:
    """Return the names of the tasks, counted from 1 for None; the middle of long ones goes."""
    names = [*map(str, range(1, n_tasks + 1) if task_ids is None else task_ids)]
    names = [name if len(name) <= 40 else f"{name[:19]}…{name[-20:]}" for name in names]
    if len(names) != n_tasks:
        raise ValueError(
            f"task_ids must name each of the {n_tasks} tasks of the matrix; got {len(names)}."
        )
    return [name or "''" for name in names]


def some(n: int, at_most: int = 15) -> range:
    """At most so many of n positions, evenly spaced from the first on."""
    return range(0, n, max(1, -(-n // at_most)))


def room_for(names) -> float:
    """Inches to add to a figure for names of that length."""
    return min(0.07 * max(0, max(map(len, names)) - 5), 2.5)


def size_in_inches(ax) -> np.ndarray:
    """Width and height of the axes."""
    return ax.get_window_extent().size / ax.figure.dpi


def name_ticks(ax, axes: str, names) -> None:
    """Name positions on the axes, not too many, and turned where they would not fit."""
    shown = some(len(names))
    for axis in axes:
        getattr(ax, f"set_{axis}ticks")(shown, [names[k] for k in shown])
    longest = max(len(names[k]) for k in shown)
    # A letter takes some 0.085 inches. Of a square's two sides, the shorter counts.
    if len(shown) * (longest + 2) * 0.085 > size_in_inches(ax)[: len(axes)].min():
        ax.tick_params(axis="x", labelrotation=45)
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def legend_beside(ax, handles, **options) -> None:
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


def classifier_and_importances(estimator):
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


def open_frame(ax) -> None:
    """Leave only the left and the lower line, and a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)


def draw_boxes(ax, positions, blocks, color, label) -> dict:
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
