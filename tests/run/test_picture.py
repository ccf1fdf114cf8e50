"""The picture of a run: what is drawn, and that anything can be."""

import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.protocol.settings.run import RunSettings
from islands.run.records.drawing import PNG_SIGNATURE, Canvas, text_width
from islands.run.records.figures import LearnerFigures, RunFigures
from islands.run.records.picture import (
    EVALUATION,
    LOSS,
    ROWS_MOST,
    STATES,
    WIDTH,
    Scale,
    picture_of,
)

SETTINGS = RunSettings(run="r")
Pixels = NDArray[np.uint8]


def pixels_of(png: bytes) -> Pixels:
    """The pixels of a PNG file of ours: one header, one unfiltered stream of rows, an end."""
    assert png.startswith(PNG_SIGNATURE)
    chunks, start = {}, len(PNG_SIGNATURE)
    while start < len(png):
        (size,) = struct.unpack(">I", png[start : start + 4])
        body, check = png[start + 4 : start + 8 + size], png[start + 8 + size : start + 12 + size]
        assert struct.unpack(">I", check) == (zlib.crc32(body),)
        chunks[body[:4]] = body[4:]
        start += 12 + size
    width, height, depth, colours = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colours, [*chunks][-1]) == (8, 2, b"IEND")
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def drawn(pixels: Pixels, colour: tuple[int, int, int]) -> NDArray[np.intp]:
    """Rows and columns of the pixels of exactly a colour."""
    return np.argwhere((pixels == colour).all(axis=2))


# ------------------------------------------------------------------------------------- the canvas


def test_a_line_goes_where_it_is_told_and_its_edges_are_blended() -> None:
    """Black in its middle, grey beside it, nothing elsewhere."""
    canvas = Canvas(40, 20)
    canvas.line([(5, 10.5), (35, 10.5)], (0, 0, 0), 3.0)
    pixels = pixels_of(canvas.png())
    assert (pixels[10, 6:34] == 0).all()
    assert (pixels[[8, 12], 10] == 255).all()
    assert (pixels[:, :3] == 255).all()
    canvas.line([(0, 0), (39, 19)], (0, 0, 0), 1.0)
    assert ((pixels_of(canvas.png()) > 0) & (pixels_of(canvas.png()) < 255)).any()


def test_whatever_is_drawn_stays_within_the_picture() -> None:
    """Coordinates come from figures, and figures may be anything."""
    canvas = Canvas(40, 20)
    canvas.line([(-1e6, -1e6), (1e6, 1e6)], (0, 0, 0), 2.0)
    canvas.line([(3, 3), (3, 3)], (0, 0, 0))
    canvas.line([], (0, 0, 0))
    canvas.box((-5, -5), (500, 3), (0, 0, 0))
    canvas.text((35, 15), "beyond its edge, and é\x00", (0, 0, 0))
    assert pixels_of(canvas.png()).shape == (20, 40, 3)


def test_letters_are_as_wide_as_they_are_said_to_be() -> None:
    """And unlike one another."""
    shapes = set()
    for sign in map(chr, range(ord("!"), ord("~") + 1)):
        canvas = Canvas(text_width(sign), 16)
        canvas.text((0, 0), sign, (0, 0, 0))
        pixels = pixels_of(canvas.png())
        assert (pixels[:, -2:] == 255).all(), "letters do not touch"
        shapes.add(pixels.tobytes())
    assert len(shapes) == ord("~") - ord("!") + 1


# ------------------------------------------------------------------------------------ the picture


def run(learners: int = 2) -> RunFigures:
    """A run whose loss falls, evaluated twice, and in which each learner was away for a while."""
    figures = RunFigures()
    for index in range(learners):
        learner = LearnerFigures(tokens=500)
        for at_s, state in ((0, "starting"), (10, "stepping"), (40, "away"), (50, "stepping")):
            learner.enter(float(at_s), state)
        figures.learners[f"learner-{index}"] = learner
    for step in range(100):
        figures.losses.add(10.0 * step, 8.0 - 0.06 * step)
    figures.evaluations += [{"at_s": 1, "tokens": t, "bits": 9.0 - t / 500} for t in (300, 900)]
    return figures


def test_the_loss_falls_from_upper_left_to_lower_right() -> None:
    """The evaluation has a chart of its own beside it."""
    pixels = pixels_of(picture_of(run(), SETTINGS, 100.0, 0.9))
    curve = drawn(pixels[110:400], LOSS)
    first, last = curve[curve[:, 1].argmin()], curve[curve[:, 1].argmax()]
    assert first[0] < last[0]
    assert first[1] < 150
    assert 500 < last[1] < WIDTH / 2
    assert drawn(pixels[110:400], EVALUATION)[:, 1].min() > WIDTH / 2


def test_the_timeline_has_a_bar_for_each_state_of_each_learner() -> None:
    """As long as it lasted: an eighth of the time it starts, as long it is away."""
    pixels = pixels_of(picture_of(run(), SETTINGS, 80.0, 0.9))
    bars = pixels[450:]
    sizes = {state: len(drawn(bars, colour)) for state, colour in STATES.items()}
    assert sizes["starting"] == pytest.approx(sizes["away"], rel=0.02)
    assert sizes["stepping"] == pytest.approx(6 * sizes["away"], rel=0.02)
    assert sizes["diverged"] == 0


def test_of_a_crowd_some_are_drawn() -> None:
    """A picture that nobody can open tells nothing."""
    heights = [
        len(pixels_of(picture_of(run(number), SETTINGS, 80.0, 0.9)))
        for number in (ROWS_MOST, ROWS_MOST + 1, 1000)
    ]
    assert heights[0] < heights[1] == heights[2] < 1500


@pytest.mark.parametrize(
    "values",
    [
        [],
        [2.0],
        [2.0, 2.0],
        [0.0, 0.0],
        [-3.0, 5.0],
        [1e-300, 1e300],
        [1e308, -1e308],
        [5e-324, 1e100],
        [5e-324, 1e-323],
        [1e16, 1e16 + 2],
    ],
)
def test_any_loss_can_be_drawn(values: list[float]) -> None:
    """A run must not fail at its end because its curve is a strange one."""
    figures = run(0)
    figures.losses.points.clear()
    figures.losses.newest = None
    for x, value in enumerate(values):
        figures.losses.add(float(x), value)
    figures.evaluations.append({"tokens": 1e18, "bits": float("nan")})
    assert pixels_of(picture_of(figures, SETTINGS, 0.0, 0.0)).shape[1] == WIDTH


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([0.0, 10.0], [0, 2, 4, 6, 8, 10]), ([0.13, 1.04], [0.2, 0.4, 0.6, 0.8, 1.0])],
)
def test_ticks_are_round(values: list[float], ticks: list[float]) -> None:
    """A person reads a chart by them."""
    assert Scale.of(values, 0, 100, y=False).ticks == pytest.approx(ticks)


def test_a_wide_range_above_zero_is_logarithmic() -> None:
    """A loss from 1000 down to 0.1 would else be a line along the floor."""
    scale = Scale.of([1000.0, 0.1], 0.0, 100.0, y=True)
    assert scale.at(10.0) == pytest.approx(50.0)
    assert scale.ticks == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
