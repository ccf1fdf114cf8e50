"""`summary.png`: one picture of a run's loss, its evaluations, and the states of its learners."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from islands.protocol.settings.run import RunSettings
from islands.run.records.drawing import LETTER_ROWS, Canvas, Colour, Point, text_width
from islands.run.records.figures import LearnerFigures, RunFigures, drawable, in_order
from islands.run.records.formatting import count, duration, metric

WIDTH = 1200
MARGIN = 24
TITLE_HEIGHT = 80
CHART_HEIGHT = 320
ROW_HEIGHT = 22
BAR_HEIGHT = 14
LEGEND_HEIGHT = 40
LEGEND_ROW = 22
LABEL_WIDTH = 96
NAME_CHARACTERS = 16
ROWS_MOST = 32
TICKS = 6
LOG_SPAN = 30.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""
NARROW = 1e-9
"""A range that is smaller than this share of its values is drawn as a line in the middle."""
TINY = 1e-200
SCALE = 2

INK: Colour = (40, 40, 48)
FAINT: Colour = (225, 225, 230)
LOSS: Colour = (31, 99, 180)
EVALUATION: Colour = (200, 90, 20)
LINES: tuple[Colour, ...] = (
    (31, 99, 180),
    (200, 90, 20),
    (60, 140, 70),
    (150, 60, 160),
    (190, 40, 60),
    (90, 90, 100),
    (20, 150, 160),
    (170, 140, 20),
)
"""Colours of lines that are drawn over one another."""
STATES: dict[str, Colour] = {
    "starting": (240, 190, 80),
    "stepping": (90, 170, 100),
    "paused": (150, 160, 180),
    "diverged": (160, 80, 180),
    "away": (225, 120, 110),
    "left": (225, 225, 230),
}
"""The states of a learner, and the colour of each."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or logarithmic mapping of values to the pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float, *, y: bool) -> "Scale":
        """Make a scale that covers all values; only `y` scales may be logarithmic."""
        low, high = min(values), max(values)
        logarithmic = y and low > 0 and high > LOG_SPAN * low
        if high - low <= NARROW * max(abs(low), abs(high), TINY):
            half = max(0.5, NARROW * abs(low))
            low, high = low - half, high + half
        return cls(low, high, start, end, logarithmic)

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        if self.logarithmic:
            span = log10(self.high) - log10(self.low)
            share = (log10(value) - log10(self.low)) / span
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """A few round values for the axis."""
        if self.logarithmic:
            first, last = floor(log10(self.low)), ceil(log10(self.high))
            powers = [10.0**power for power in range(first, last + 1)]
            every = max(1, len(powers) // (2 * TICKS))
            return [power for power in powers[::every] if self.low <= power <= self.high]
        rough = (self.high - self.low) / TICKS
        unit = 10.0 ** floor(log10(rough))
        step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= rough)
        first, last = ceil(self.low / step), floor(self.high / step)
        return [step * index for index in range(first, last + 1)]


def picture_of(figures: RunFigures, settings: RunSettings, end_s: float, share: float) -> bytes:
    """Draw the picture of a run, and return it as a PNG file.

    Args:
        figures: the run's losses and evaluations, and what its learners did.
        settings: the run's settings, for its name.
        end_s: how long the run has lasted, over all its starts.
        share: the run's yield.
    """
    names = sorted(figures.learners, key=in_order)
    rows = min(len(names), ROWS_MOST)
    more = len(names) - rows
    timeline = LEGEND_HEIGHT + ROW_HEIGHT * (rows + bool(more)) + 2 * MARGIN
    canvas = Canvas(WIDTH, TITLE_HEIGHT + CHART_HEIGHT + timeline)
    _title(canvas, figures, settings, end_s, share)
    _charts(canvas, figures)
    top = TITLE_HEIGHT + CHART_HEIGHT
    _timeline(canvas, {name: figures.learners[name] for name in names[:rows]}, top, end_s)
    if more:
        y = top + LEGEND_HEIGHT + ROW_HEIGHT * rows
        canvas.text((MARGIN, y), f"and {more:,} more", INK, SCALE)
    return canvas.png()


def _title(
    canvas: Canvas, figures: RunFigures, settings: RunSettings, end_s: float, share: float
) -> None:
    told = (
        f"{count(figures.tokens)} tokens in {duration(end_s)}, {figures.merges:,} merges, "
        f"yield {share:.2f}, evictions: {figures.evictions}"
    )
    canvas.text((MARGIN, MARGIN / 2), settings.run, INK, SCALE + 1)
    canvas.text((MARGIN, MARGIN / 2 + 28), told, INK, SCALE)


def _charts(canvas: Canvas, figures: RunFigures) -> None:
    """Draw the training loss and, beside it, the task's evaluations; both over tokens."""
    name, _ = metric(figures)
    evaluated = [
        (float(row["tokens"]), row[name])
        for row in figures.evaluations
        if name in row and drawable(row[name])
    ]
    charts = [("training loss", figures.losses.all(), LOSS), (name, evaluated, EVALUATION)]
    drawn = [chart for chart in charts if chart[1]]
    width = WIDTH / max(1, len(drawn))
    for index, (title, points, colour) in enumerate(drawn):
        _chart(canvas, (index * width, TITLE_HEIGHT), width, title, points, colour)
    if not drawn:
        canvas.text((MARGIN, TITLE_HEIGHT + MARGIN), "no step was told", INK, SCALE)


def _chart(
    canvas: Canvas,
    corner: Point,
    width: float,
    title: str,
    points: Sequence[Point],
    colour: Colour,
) -> None:
    left, right = corner[0] + LABEL_WIDTH, corner[0] + width - MARGIN
    top, bottom = corner[1] + MARGIN + 8, corner[1] + CHART_HEIGHT - 2 * MARGIN
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across = Scale.of([0.0, *xs], left, right, y=False)
    up = Scale.of(ys, bottom, top, y=True)
    axes(canvas, across, up)
    canvas.text((left, corner[1]), f"{title}: {ys[0]:.4g} to {ys[-1]:.4g}", colour, SCALE)
    curve(canvas, across, up, points, colour)


def axes(canvas: Canvas, across: Scale, up: Scale, *, unit: str = "tokens") -> None:
    """The axes of a chart, with labelled lines at round values.

    Args:
        canvas: to draw on.
        across: where tokens or times lie, from the left end of the chart to its right one.
        up: where values lie, from its bottom to its top; none are labelled if both are the same.
        unit: what x counts; `time` is in seconds.
    """
    (left, right), (bottom, top) = (across.start, across.end), (up.start, up.end)
    for value in up.ticks if top != bottom else ():
        y = up.at(value)
        canvas.line([(left, y), (right, y)], FAINT)
        label = f"{value:.4g}"
        place = left - text_width(label, SCALE) - 4, y - LETTER_ROWS * SCALE / 2
        canvas.text(place, label, INK, SCALE)
    for value in across.ticks:
        x = across.at(value)
        canvas.line([(x, top), (x, bottom)], FAINT)
        label = _time(value) if unit == "time" else count(value).replace(".0 ", " ")
        half = text_width(label, SCALE) / 2
        canvas.text((min(x, WIDTH - MARGIN - half) - half, bottom + 6), label, INK, SCALE)
    canvas.line([(left, top), (left, bottom), (right, bottom)], INK)
    canvas.text((right - text_width(unit, SCALE), bottom + 26), unit, INK, SCALE)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else "0"


def legend_row(canvas: Canvas, y: float, colour: Colour, text: str) -> None:
    """One line of a legend below a chart, `LEGEND_ROW` high: a box in the colour, and a text."""
    side = LETTER_ROWS * SCALE
    canvas.box((MARGIN, y), (MARGIN + side, y + side), colour)
    canvas.text((MARGIN + text_width("nn", SCALE), y), text, INK, SCALE)


def curve(
    canvas: Canvas, across: Scale, up: Scale, points: Sequence[Point], colour: Colour
) -> None:
    """A line through points on two scales; a single point is drawn as a dot."""
    places = [(across.at(x), up.at(y)) for x, y in points]
    canvas.line(places if len(places) > 1 else places * 2, colour, 2.5)


def _timeline(
    canvas: Canvas, learners: dict[str, LearnerFigures], top: float, end_s: float
) -> None:
    """Draw a bar for each learner, coloured by its state over time."""
    left = MARGIN + text_width("n" * NAME_CHARACTERS, SCALE)
    across = Scale(0.0, max(end_s, 1e-9), left, WIDTH - MARGIN)
    _legend(canvas, (left, top))
    top += LEGEND_HEIGHT
    bottom = top + ROW_HEIGHT * len(learners)
    for value in across.ticks:
        x, label = across.at(value), _time(value)
        canvas.line([(x, top - 4), (x, bottom)], FAINT)
        place = min(x, WIDTH - MARGIN - text_width(label, SCALE))
        canvas.text((place, bottom + 4), label, INK, SCALE)
    for index, (name, learner) in enumerate(learners.items()):
        y = top + ROW_HEIGHT * index
        canvas.text((MARGIN, y), name[: NAME_CHARACTERS - 1], INK, SCALE)
        for (at_s, state), (until_s, _) in pairwise([*learner.states, (end_s, "")]):
            start, end = across.at(at_s), max(across.at(at_s) + 1, across.at(until_s))
            canvas.box((start, y), (end, y + BAR_HEIGHT), STATES.get(state, FAINT))


def _legend(canvas: Canvas, corner: Point) -> None:
    x, y = corner
    for state, colour in STATES.items():
        canvas.box((x, y), (x + BAR_HEIGHT, y + BAR_HEIGHT), colour)
        canvas.text((x + BAR_HEIGHT + 6, y), state, INK, SCALE)
        x += BAR_HEIGHT + text_width(state, SCALE) + MARGIN
