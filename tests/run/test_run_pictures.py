"""The picture of a run: what is drawn, and that anything can be."""

import sys
import warnings
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.typing import NDArray

from islands.protocol.errors import UserError
from islands.protocol.settings.run import RunSettings
from islands.run.records import pictures
from islands.run.records.figures import Curve, LearnerFigures, RunFigures
from islands.run.records.run_curves import curves_of
from islands.run.records.run_folder import RunFolder
from tests.run.test_run_curves import run_folder, step

SETTINGS = RunSettings(run="r")
WIDTH = 1800
Pixels = NDArray[np.uint8]


def pixels_of(png: bytes) -> Pixels:
    """The pixels of a PNG file: rows, columns, colours."""
    pixels: Pixels = np.rint(255 * imread(BytesIO(png))[:, :, :3]).astype(np.uint8)
    return pixels


def drawn(pixels: Pixels, colour: str) -> NDArray[np.intp]:
    exactly = np.rint(255 * np.array(to_rgb(colour))).astype(np.uint8)
    return np.argwhere((pixels == exactly).all(axis=2))


def run(learners: int = 2) -> RunFigures:
    """A run whose loss falls, evaluated twice, and in which each learner was away for a while."""
    figures = RunFigures()
    for index in range(learners):
        learner = LearnerFigures(tokens=500)
        for at_s, state in ((0, "starting"), (10, "stepping"), (40, "away"), (50, "stepping")):
            learner.enter(float(at_s), state)
        figures.learners[f"learner-{index}"] = learner
    for index in range(100):
        figures.losses.add(10.0 * index, 8.0 - 0.06 * index)
    figures.evaluations += [{"at_s": 1, "tokens": t, "bits": 9.0 - t / 500} for t in (300, 900)]
    return figures


def test_the_loss_falls_from_upper_left_to_lower_right() -> None:
    pixels = pixels_of(pictures.picture_of(run(), SETTINGS, 100.0, 0.9))
    assert pixels.shape[1] == WIDTH
    curve = drawn(pixels[:600], pictures.BLUE)
    left = curve[curve[:, 1] < WIDTH / 2]
    first, last = left[left[:, 1].argmin()], curve[curve[:, 1].argmax()]
    assert left[left[:, 1].argmax()][0] - first[0] > 250
    assert first[1] < 200
    assert last[1] > 2 * WIDTH / 3, "the evaluation is beside it"


def test_the_timeline_has_a_bar_for_each_state_of_each_learner() -> None:
    pixels = pixels_of(pictures.picture_of(run(), SETTINGS, 80.0, 0.9))
    rows = [
        {state: len(drawn(row[None], colour)) for state, colour in pictures.STATES.items()}
        for row in pixels
        if len(drawn(row[None], pictures.STATES["stepping"])) > WIDTH / 2
    ]
    middle = [row for row in rows if row["away"]]
    assert 0 < len(middle) < len(rows) / 2, "the bar of one that is away is thinner"
    for sizes in middle:
        assert sizes["starting"] == pytest.approx(sizes["away"], abs=4)
        assert sizes["stepping"] == pytest.approx(6 * sizes["away"], rel=0.04)
        assert sizes["diverged"] == 0


def test_of_a_crowd_some_are_drawn() -> None:
    heights = [
        len(pixels_of(pictures.picture_of(run(number), SETTINGS, 80.0, 0.9)))
        for number in (pictures.LEARNERS_MOST, 1000)
    ]
    assert heights[0] < heights[1] < 2700, "it fits a page"


STRANGE: list[list[float]] = [
    *([], [2.0], [2.0, 2.0], [0.0, 0.0], [-3.0, 5.0], [1e-300, 1e300], [1e308, -1e308]),
    *([1e100, -1e100], [5e-324, 1e100], [5e-324, 1e-323], [1e-99, 1e100], [1e16, 1e16 + 2]),
]


def test_any_loss_can_be_drawn() -> None:
    """A run must not fail at its end because its curve is a strange one."""
    with pictures.new_figure(2.0 * len(STRANGE)) as figure:
        for axes, values in zip(figure.subplots(len(STRANGE)), STRANGE, strict=True):
            curve = Curve()
            for x, value in enumerate(values):
                curve.add(float(x), value)
            points = curve.all()
            pictures.count_below(axes, "tokens", max((x for x, _ in points), default=0.0))
            pictures.line(axes, points)
            pictures.scale_y(axes, [y for _, y in points] or [0.0])
        assert pixels_of(pictures.encoded(figure)).shape[1] == WIDTH


def test_a_run_without_a_step_has_a_picture() -> None:
    figures = RunFigures()
    figures.evaluations.append({"tokens": 1e18, "bits": float("nan")})
    assert pixels_of(pictures.picture_of(figures, SETTINGS, 0.0, 0.0)).shape[1] == WIDTH


def test_any_name_can_be_drawn() -> None:
    figures = run(0)
    figures.learners["$\\frac{$ 火星 \U0001f30b"] = LearnerFigures()
    figures.evaluations.append({"tokens": 1, "a_b $x^": 1.0})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        first, second = (pictures.picture_of(figures, SETTINGS, 1.0, 0.0) for _ in range(2))
    assert not told
    assert first == second, "equal figures have equal contents"


@pytest.mark.parametrize(
    ("most_s", "unit_s", "label"),
    [
        (0.0, 1.0, "time (s)"),
        (179.0, 1.0, "time (s)"),
        (180.0, 60.0, "time (min)"),
        (10_800.0, 3_600.0, "time (h)"),
        (3e7, 86_400.0, "time (d)"),
    ],
)
def test_times_are_counted_in_a_unit_that_fits(most_s: float, unit_s: float, label: str) -> None:
    axes = Figure().subplots()
    assert pictures.seconds_below(axes, most_s) == unit_s
    assert axes.get_xlabel() == label


@pytest.mark.parametrize(
    ("most", "label", "last"),
    [
        (900.0, "tokens (thousands)", "0.9"),
        (400.0, "tokens", "400"),
        (1.8e6, "tokens (millions)", "1.8"),
        (4e12, "tokens (trillions)", "4"),
    ],
)
def test_an_axis_has_one_unit(most: float, label: str, last: str) -> None:
    """Neighbours would else be read in different ones."""
    axes = Figure().subplots()
    pictures.count_below(axes, "tokens", most)
    assert axes.get_xlabel() == label
    shown = axes.xaxis.get_major_formatter()
    assert shown(most, None) == last


def test_many_lines_can_be_told_apart() -> None:
    axes = Figure().subplots()
    for index in range(32):
        pictures.line(axes, [(0.0, 1.0)], index)
    looks = [(one.get_color(), one.get_linestyle()) for one in axes.lines]
    assert len(set(looks)) == 32
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(looks))


def test_rates_are_those_of_a_stretch(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for second in range(100):
        spent = {"stepping_s": float(second), "bytes_up": 5e6 * second, "bytes_down": 0}
        rows.append({**step(float(second), "a", 30_000 * second, 2.0), **spent})
        if second < 50:
            rows.append({**step(second + 0.1, "b", 30_000 * second, 2.0), **spent})
    found = pictures.figures_of(curves_of(run_folder(tmp_path / "run", rows)), "")
    assert {round(one.value, -3) for one in found["tokens_per_s"]} == {30_000}
    assert max(one.value for one in found["bytes_up_per_s"]) == pytest.approx(1e7, rel=0.1)
    assert {one.value for one in found["bytes_down_per_s"]} == {0.0}
    goodput = [one.value for one in found["goodput"]]
    assert goodput[1] > 0.95
    assert goodput[-1] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("values", "scale"),
    [([1000.0, 0.1], "log"), ([30.0, 1.0], "linear"), ([-1.0, 100.0], "linear")],
)
def test_a_wide_range_above_zero_is_logarithmic(values: list[float], scale: str) -> None:
    """A loss from 1000 down to 0.1 would else be a line along the floor."""
    axes = Figure().subplots()
    pictures.scale_y(axes, values)
    assert axes.get_yscale() == scale
    formatter = axes.yaxis.get_major_formatter()
    assert scale == "linear" or formatter(0.1, None) == "0.1"


def test_settings_of_a_users_own_figures_stay() -> None:
    with mpl.rc_context({"lines.linewidth": 7.0}):
        pictures.picture_of(run(), SETTINGS, 80.0, 0.9)
        assert mpl.rcParams["lines.linewidth"] == 7.0


def test_without_matplotlib_a_run_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"a picture needs matplotlib, .* 'islands\[plots\]'"):
        pictures.picture_of(run(), SETTINGS, 80.0, 0.9)
    said: list[str] = []
    folder = RunFolder(tmp_path / "run", SETTINGS, say=said.append)
    folder.draw(1.0)
    folder.close()
    assert len(said) == 1
    assert "gets no summary.png: a picture needs matplotlib" in said[0]
    assert not list((tmp_path / "run").glob("summary.*"))
