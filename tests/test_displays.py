"""Displays draw what they say: artists carry the data, and pixels change."""

from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skewc import EWCClassifier
from skewc.metrics import (
    AccuracyMatrixDisplay,
    ImportanceDisplay,
    RestoringForceDisplay,
    TaskAccuracyDisplay,
)
from skewc.pipeline import make_continual_pipeline

matplotlib.use("Agg")
NAN = np.nan
R = np.array([[0.9, NAN, NAN], [0.5, 0.8, NAN], [0.25, 0.6, 0.95]])
IDS = ["spring", "summer", "autumn"]
COEFS = [np.array([[1.0, 0.0], [4.0, 4.0], [0.0, 2.0], [3.0, 3.0]]), np.array([[10.0], [1000.0]])]
INTERCEPTS = [np.array([0.0, 0.0]), np.array([7.0])]
DISPLAYS = {
    "matrix": lambda ax: AccuracyMatrixDisplay.from_matrix(R, ax=ax),
    "lines": lambda ax: TaskAccuracyDisplay.from_matrix(R, ax=ax),
    "layers": lambda ax: ImportanceDisplay(COEFS, INTERCEPTS).plot(ax),
    "image": lambda ax: ImportanceDisplay(COEFS, INTERCEPTS).plot(ax, kind="image"),
    "force": lambda ax: RestoringForceDisplay([1.0, 5.0]).plot(ax),
}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def clf():
    X = np.random.RandomState(0).normal(size=(60, 16))
    X[:, 3] = 0  # an input that no weight needs
    return EWCClassifier((5,), solver="lbfgs", random_state=0).fit(X, X[:, 0] > 0)


def inner_pixels(ax):
    """Pixels inside the frame of the axes."""
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    box = ax.get_window_extent()
    height = canvas.get_width_height()[1]
    rows = slice(int(height - box.y1) + 3, int(height - box.y0) - 2)
    return np.asarray(canvas.buffer_rgba())[rows, int(box.x0) + 3 : int(box.x1) - 2, :3]


def share_of_ink(pixels):
    return (pixels < 250).any(axis=2).mean()


@pytest.mark.parametrize("name", DISPLAYS)
def test_something_is_drawn(name):
    empty = Figure().subplots()
    empty.set(xticks=[], yticks=[])
    assert share_of_ink(inner_pixels(empty)) == 0
    ax = Figure().subplots()
    display = DISPLAYS[name](ax)
    assert (display.ax_, display.figure_) == (ax, ax.figure)
    with_data = inner_pixels(ax)
    # More than the grid and the zero lines: it all goes when the data's artists do.
    for artist in [*ax.lines, *ax.patches, *ax.images, *ax.texts]:
        artist.remove()
    without = inner_pixels(ax)
    assert share_of_ink(with_data) > share_of_ink(without) + 0.005


@pytest.mark.parametrize("name", DISPLAYS)
def test_a_new_figure_is_made_where_no_axes_are_given(name):
    display = DISPLAYS[name](None)
    assert display.ax_.figure is display.figure_
    assert DISPLAYS[name](None).figure_ is not display.figure_


def test_init_only_stores():
    result, given = object(), object()
    assert vars(AccuracyMatrixDisplay(result, task_ids=given)) == {
        "matrix": result,
        "task_ids": given,
    }
    assert TaskAccuracyDisplay(result, name=given).name is given
    assert ImportanceDisplay(result, given).coef_importances is result
    assert RestoringForceDisplay(result).importances is result


# AccuracyMatrixDisplay


@pytest.mark.parametrize("source", ["matrix", "result"])
def test_heat_map(source):
    if source == "matrix":
        display = AccuracyMatrixDisplay.from_matrix(R.tolist(), task_ids=IDS)
    else:
        display = AccuracyMatrixDisplay.from_result(SimpleNamespace(matrix=R, task_ids=IDS))
    np.testing.assert_array_equal(np.ma.filled(display.im_.get_array(), NAN), R)
    assert display.im_.get_clim() == (0, 1)
    for i in range(3):
        for j in range(3):
            if j > i:
                assert display.text_[i, j] is None
            else:
                assert display.text_[i, j].get_text() == f"{R[i, j]:.2f}"
                assert display.text_[i, j].get_position() == (j, i)
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == IDS
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == IDS


def test_heat_map_is_blank_where_not_known_and_coloured_elsewhere():
    ax = Figure().subplots()
    display = AccuracyMatrixDisplay.from_matrix(R, ax=ax, colorbar=False)
    pixels = inner_pixels(ax)
    third = np.array(pixels.shape[:2]) // 3
    for i in range(3):
        for j in range(3):
            corner = pixels[int((i + 0.1) * third[0]), int((j + 0.1) * third[1])]
            expected = np.array(display.im_.cmap(R[i, j])[:3]) * 255
            if j > i:
                expected = [255, 255, 255]
            np.testing.assert_allclose(corner, expected, atol=2)


def test_cell_texts_can_be_read():
    display = AccuracyMatrixDisplay.from_matrix([[1.0, 0.0], [0.0, 1.0]])
    assert display.text_[0, 0].get_color() == "black"  # on yellow
    assert display.text_[0, 1].get_color() == "white"  # on dark violet
    large = AccuracyMatrixDisplay.from_matrix(np.ones((14, 14)), ax=Figure().subplots())
    large.figure_.canvas.draw()
    cell = large.ax_.get_window_extent().width / 14
    assert 0.5 * cell < large.text_[0, 0].get_window_extent().width < cell
    huge = AccuracyMatrixDisplay.from_matrix(np.ones((40, 40)))
    assert (huge.text_ == None).all()  # noqa: E711
    assert max(huge.figure_.get_size_inches()) < 10


@pytest.mark.parametrize("display", [AccuracyMatrixDisplay, TaskAccuracyDisplay])
@pytest.mark.parametrize("n_tasks", [1, 5, 30])
@pytest.mark.parametrize("name", ["{}", "hospital in the northern region {}"])
def test_names_neither_overlap_nor_leave_the_figure(display, n_tasks, name):
    rng = np.random.RandomState(0)
    names = [name.format(k) for k in range(n_tasks)]
    shown = display.from_matrix(rng.uniform(size=(n_tasks, n_tasks)), task_ids=names)
    shown.figure_.canvas.draw()
    ticks = shown.ax_.get_xticklabels()
    assert len(ticks) == min(n_tasks, 15)
    assert [t.get_text() for t in ticks] == names[:: 2 if n_tasks == 30 else 1]
    figure = shown.figure_.bbox
    for label in [*ticks, *shown.ax_.get_yticklabels()]:
        box = label.get_window_extent()
        assert figure.x0 <= box.x0 and figure.y0 <= box.y0 and box.x1 <= figure.x1
    # Where the labels end, one beside the other, there is room for a line of text.
    ends = [t.get_window_extent().x1 for t in ticks]
    if name == "{}":
        starts = [t.get_window_extent().x0 for t in ticks]
        assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
    else:
        assert all(t.get_rotation() == (45 if n_tasks > 1 else 0) for t in ticks)
        height = 10 / 72 * shown.figure_.dpi
        assert (np.diff(ends) > height).all()
    assert shown.ax_.get_window_extent().width > 0.3 * figure.width


def test_colour_bar_is_optional():
    assert len(AccuracyMatrixDisplay.from_matrix(R).figure_.axes) == 2
    assert len(AccuracyMatrixDisplay.from_matrix(R, colorbar=False).figure_.axes) == 1


@pytest.mark.parametrize("display", [AccuracyMatrixDisplay, TaskAccuracyDisplay])
def test_bad_matrix_or_names(display):
    with pytest.raises(ValueError, match=r"square matrix.* got shape \(2, 3\)"):
        display.from_matrix(R[:2])
    with pytest.raises(ValueError, match="each of the 3 tasks of the matrix; got 2"):
        display.from_matrix(R, task_ids=IDS[:2])
    for bad in (100 * R, -R, np.where(R == 0.6, 1.01, R)):
        with pytest.raises(ValueError, match=r"Accuracies must be in \[0, 1\]; got .* by 100"):
            display.from_matrix(bad)
    with pytest.raises(ValueError, match="holds nothing but NaN"):
        display.from_matrix(np.full((2, 2), NAN))
    display.from_matrix(np.where(R == 0.9, 1 + 1e-12, R))  # rounding


@pytest.mark.parametrize("display", [AccuracyMatrixDisplay, TaskAccuracyDisplay])
@pytest.mark.parametrize("width", [None, 4.8, 14])
def test_names_are_turned_where_all_of_them_do_not_fit(display, width):
    names = [f"day{k:02}" for k in range(15)]
    ax = None if width is None else Figure((width, width)).subplots()
    shown = display.from_matrix(np.ones((15, 15)), task_ids=names, ax=ax)
    shown.figure_.draw_without_rendering()
    ticks = shown.ax_.get_xticklabels()
    assert {t.get_rotation() for t in ticks} == {0 if width == 14 else 45}
    if width == 14:
        boxes = [t.get_window_extent() for t in ticks]
        assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))


@pytest.mark.parametrize("display", [AccuracyMatrixDisplay, TaskAccuracyDisplay])
def test_long_names_keep_their_ends(display):
    names = [f"hospital in the {'very ' * 20}north, ward {k}" for k in range(3)]
    shown = display.from_matrix(R, task_ids=names)
    ticks = [t.get_text() for t in shown.ax_.get_xticklabels()]
    assert ticks == [f"hospital in the ver…y very north, ward {k}" for k in range(3)]
    assert {*map(len, ticks)} == {40}
    shown.figure_.draw_without_rendering()
    assert shown.ax_.get_window_extent().width > 0.3 * shown.figure_.bbox.width


# TaskAccuracyDisplay


def test_a_line_for_each_task_from_its_own_step_on():
    result = SimpleNamespace(matrix=R, task_ids=IDS, name="EWC")
    display = TaskAccuracyDisplay.from_result(result)
    for j, line in enumerate(display.lines_):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(j, 3))
        np.testing.assert_array_equal(line.get_ydata(), R[j:, j])
        assert line.get_label() == IDS[j]
    np.testing.assert_allclose(display.average_.get_ydata(), [0.9, 0.65, 0.6])
    assert display.average_.get_linewidth() > display.lines_[0].get_linewidth()
    assert display.ax_.get_title() == "EWC"
    assert [t.get_text() for t in display.ax_.get_legend().get_texts()] == [*IDS, "average"]


def test_average_and_name_are_optional():
    result = SimpleNamespace(matrix=R, task_ids=None)
    display = TaskAccuracyDisplay.from_result(result, average=False)
    assert display.average_ is None
    assert display.name is None
    assert display.ax_.get_title() == ""
    assert len(display.ax_.lines) == 3
    assert [line.get_label() for line in display.lines_] == ["1", "2", "3"]


def test_a_long_name_is_wrapped():
    name = "EWCClassifier with Kronecker factors over all tasks of the stream, mean of five seeds"
    for ax in (None, Figure().subplots()):
        display = TaskAccuracyDisplay.from_matrix(R, name=name, ax=ax)
        display.figure_.draw_without_rendering()
        assert display.ax_.get_title().split() == name.split()
        box, figure = display.ax_.title.get_window_extent(), display.figure_.bbox
        assert figure.x0 <= box.x0 and box.x1 <= figure.x1


def test_tasks_of_any_name_are_in_the_legend():
    names = ["", "_hidden", "spring"]
    display = TaskAccuracyDisplay.from_matrix(R, task_ids=names)
    texts = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert texts == ["''", "_hidden", "spring", "average"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: TaskAccuracyDisplay.from_matrix(R, task_ids=IDS, ax=ax),
        lambda ax: RestoringForceDisplay(np.geomspace(1e-3, 10, 20)).plot(ax),
    ],
    ids=["lines", "force"],
)
def test_the_legend_stays_within_the_cell_of_axes_without_a_layout(draw):
    first, second = Figure((12, 4)).subplots(1, 2)
    for ax in (first, second):
        edge = ax.get_window_extent().x1
        draw(ax)
        ax.figure.draw_without_rendering()
        legend = ax.get_legend().get_window_extent()
        assert ax.get_window_extent().x1 <= legend.x0
        assert legend.x1 <= edge + 1
    for layout in ("constrained", "tight"):
        ax = Figure(layout=layout).subplots()
        draw(ax)
        ax.figure.draw_without_rendering()
        assert ax.get_legend().get_window_extent().x1 <= ax.figure.bbox.x1


# ImportanceDisplay


def test_boxes_show_the_importances_above_zero():
    display = ImportanceDisplay(COEFS, INTERCEPTS).plot()
    coefficients, intercepts = display.boxes_
    medians = [line.get_ydata()[0] for line in coefficients["medians"]]
    np.testing.assert_allclose(medians, [3.0, 505.0])
    first = coefficients["boxes"][0].get_path().vertices[:, 1]
    np.testing.assert_allclose(
        [first.min(), first.max()], np.quantile([1, 4, 4, 2, 3, 3], [0.25, 0.75])
    )
    ends = [line.get_ydata()[1] for line in coefficients["whiskers"][:2]]
    np.testing.assert_allclose(ends, np.quantile([1, 4, 4, 2, 3, 3], [0.05, 0.95]))
    assert intercepts["medians"][1].get_ydata()[0] == 7
    assert display.ax_.get_yscale() == "log"
    # 2 of 8 coefficients and both intercepts of the first layer are 0; the second has none.
    shares = {text.get_position()[0]: text.get_text() for text in display.ax_.texts}
    assert shares == {-0.2: "25.0%\nat 0", 0.2: "100.0%\nat 0"}
    labels = [t.get_text() for t in display.ax_.get_xticklabels()]
    assert labels == ["layer 1\n4 → 2", "layer 2\n2 → 1"]


def test_importances_that_are_all_zero_can_be_drawn():
    display = ImportanceDisplay([np.zeros((4, 3))], [np.zeros(3)]).plot()
    display.figure_.canvas.draw()
    assert [text.get_text() for text in display.ax_.texts] == ["100.0%\nat 0"] * 2


@pytest.mark.parametrize(
    ("image_shape", "expected"),
    [
        (None, [[1.0, 8.0], [2.0, 6.0]]),
        ((1, 4), [[1.0, 8.0, 2.0, 6.0]]),
        ((1, 2, 2), [[9.0, 8.0]]),
    ],
)
def test_image_sums_over_the_units_of_the_first_layer(image_shape, expected):
    display = ImportanceDisplay(COEFS, INTERCEPTS, image_shape=image_shape).plot(kind="image")
    np.testing.assert_array_equal(display.im_.get_array(), expected)


def test_importance_errors():
    with pytest.raises(ValueError, match="kind must be 'layers' or 'image'; got 'units'"):
        ImportanceDisplay(COEFS, INTERCEPTS).plot(kind="units")
    for shape in (8, "ab", (2, 2.0), (4,), (-2, -2)):
        with pytest.raises(ValueError, match="image_shape must be .* with 4 features; got"):
            ImportanceDisplay(COEFS, INTERCEPTS, image_shape=shape).plot(kind="image")
    with pytest.raises(ValueError, match="3 features do not form a square image"):
        ImportanceDisplay([COEFS[0][:3]], INTERCEPTS).plot(kind="image")


def test_importance_of_an_estimator(clf):
    display = ImportanceDisplay.from_estimator(clf, image_shape=(2, 8), kind="image")
    expected = clf.coef_importances_[0].sum(axis=1).reshape(2, 8)
    np.testing.assert_array_equal(display.im_.get_array(), expected)
    assert display.im_.get_array()[0, 3] == 0 < display.im_.get_array()[0, 0]
    coefficients, intercepts = ImportanceDisplay.from_estimator(clf).boxes_
    for layer in range(2):
        for boxes, blocks in [
            (coefficients, clf.coef_importances_),
            (intercepts, clf.intercept_importances_),
        ]:
            positive = blocks[layer][blocks[layer] > 0]
            assert boxes["medians"][layer].get_ydata()[0] == pytest.approx(np.median(positive))


@pytest.mark.parametrize("make", [make_pipeline, make_continual_pipeline])
@pytest.mark.parametrize("display", [ImportanceDisplay, RestoringForceDisplay])
def test_pipelines_are_drawn_by_their_last_step(clf, make, display):
    of_pipeline = display.from_estimator(make(StandardScaler(), make("passthrough", clf)))
    assert not differing(vars(of_pipeline), vars(display.from_estimator(clf)))


def differing(a, b):
    """Name the data in which two displays differ."""
    data = ("coef_importances", "intercept_importances", "importances")
    return [
        key
        for key in {*a, *b} & {*data}
        if not all(np.array_equal(x, y) for x, y in zip(a[key], b[key], strict=True))
    ]


@pytest.mark.parametrize("display", [ImportanceDisplay, RestoringForceDisplay])
def test_other_estimators_are_refused(display, clf):
    for other in (SGDClassifier(), make_pipeline(StandardScaler(), SGDClassifier())):
        with pytest.raises(TypeError, match=r"of a fitted EWCClassifier, or .* got (SGD|Pipe)"):
            display.from_estimator(other)
    with pytest.raises(TypeError, match=r"a fitted EWCClassifier, .* got <class"):
        display.from_estimator(EWCClassifier)
    search = GridSearchCV(clf, {"max_iter": [500]}, cv=2).fit([[0.0], [1.0]] * 5, [0, 1] * 5)
    with pytest.raises(TypeError, match=r"give its best_estimator_\); got GridSearchCV"):
        display.from_estimator(search)
    display.from_estimator(search.best_estimator_)
    with pytest.raises(NotFittedError):
        display.from_estimator(make_pipeline(StandardScaler(), EWCClassifier()))


# RestoringForceDisplay


def test_force_is_minus_the_gradient_of_the_penalty():
    importances, ewc_lambda = [0.05, 0.5, 1234.5], 2.0
    display = RestoringForceDisplay(importances, ewc_lambda=ewc_lambda).plot()
    h = 1e-3
    for F, line in zip(importances, display.lines_, strict=True):
        d, force = line.get_data()
        assert d.min() < 0 < d.max()

        def penalty(d, F=F):
            return ewc_lambda / 2 * F * d**2

        gradient = (penalty(d + h) - penalty(d - h)) / (2 * h)
        np.testing.assert_allclose(force, -gradient, rtol=1e-6, atol=1e-9)
    labels = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert labels == ["0.05", "0.5", "1230"]
    assert "λ = 2" in display.ax_.get_ylabel()


def test_force_on_weights_of_an_estimator(clf):
    display = RestoringForceDisplay.from_estimator(clf, quantiles=(0, 0.5, 1))
    weights = np.concatenate(
        [np.ravel(F) for F in clf.coef_importances_ + clf.intercept_importances_]
    )
    positive = weights[weights > 0]
    assert len(positive) < len(weights)
    expected = [positive.min(), np.median(positive), positive.max()]
    np.testing.assert_allclose(display.importances, expected)
    slopes = [np.polyfit(*line.get_data(), 1)[0] for line in display.lines_]
    np.testing.assert_allclose(slopes, -clf.ewc_lambda * np.array(expected), rtol=1e-6)
    assert len(RestoringForceDisplay.from_estimator(clf).lines_) == 4


def test_many_forces_are_named_in_columns():
    for n, named in [(3, 3), (20, 20), (100, 20)]:
        display = RestoringForceDisplay(np.linspace(0.1, 1, n)).plot()
        display.figure_.draw_without_rendering()
        legend = display.ax_.get_legend()
        assert len(display.lines_) == n
        assert len(legend.get_texts()) == named
        box, figure = legend.get_window_extent(), display.figure_.bbox
        assert figure.y0 <= box.y0 and box.x1 <= figure.x1
        beside = box.x0 >= display.ax_.get_window_extent().x1
        assert beside == (n > 3)


def test_force_errors():
    nothing = SimpleNamespace(
        coef_importances_=[np.zeros((2, 2))], intercept_importances_=[np.zeros(2)], ewc_lambda=1.0
    )
    with pytest.raises(ValueError, match="No weight .* has an importance above 0"):
        RestoringForceDisplay.from_estimator(nothing)
    for bad in (0.5, [[0.5]], [-0.1], [1.1], [NAN], "half", None):
        with pytest.raises(ValueError, match=r"quantiles must be a list of numbers in \[0, 1\]"):
            RestoringForceDisplay.from_estimator(nothing, quantiles=bad)
    for bad in ([-1.0], [NAN], 3.0, ["a"], [[1], [2, 3]]):
        with pytest.raises(ValueError, match="importances must be a list of numbers >= 0"):
            RestoringForceDisplay(bad).plot()


def test_matplotlib_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'skewc\[plot\]'"):
        AccuracyMatrixDisplay.from_matrix(R)
