"""Shares or counts as lines over a quantity: one chart with a legend below it."""

from collections.abc import Sequence
from dataclasses import dataclass

from islands.run.records.drawing import Canvas, Colour, Point
from islands.run.records.picture import (
    INK,
    LABEL_WIDTH,
    LEGEND_ROW,
    LINES,
    MARGIN,
    SCALE,
    WIDTH,
    Scale,
    axes,
    curve,
    legend_row,
)

HEIGHT = 520
ARM = 5
"""Pixels from the middle of a cross to its ends."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        name: in the legend.
        points: quantity and value, in the order of the quantity.
        published: the same as others published it, which is drawn as crosses.
    """

    name: str
    points: Sequence[Point]
    published: Sequence[Point] = ()


def chart(
    title: str,
    lines: Sequence[Line],
    unit: str,
    *,
    top: float = 100.0,
    logarithmic: bool = False,
) -> bytes:
    """Draw lines over a quantity, and return a PNG file.

    Args:
        title: what the values are.
        lines: at least one point in all.
        unit: of the quantity; `time` is in seconds.
        top: the upper end of values, whose lower end is 0.
        logarithmic: whether the quantity, which is above 0 then, has a logarithmic scale.
    """
    crossed = any(line.published for line in lines)
    canvas = Canvas(WIDTH, HEIGHT + LEGEND_ROW * (len(lines) + crossed))
    canvas.text((MARGIN, MARGIN / 2), title, INK, SCALE + 1)
    across = _across([x for line in lines for x, _ in line.points], logarithmic=logarithmic)
    up = Scale(0.0, top, HEIGHT - 3 * MARGIN, 3 * MARGIN)
    axes(canvas, across, up, unit=unit)
    for index, line in enumerate(lines):
        colour = LINES[index % len(LINES)]
        curve(canvas, across, up, line.points, colour)
        for x, y in line.published:
            _cross(canvas, (across.at(x), up.at(y)), colour)
        legend_row(canvas, HEIGHT + LEGEND_ROW * index, colour, line.name)
    if crossed:
        place = (MARGIN, HEIGHT + LEGEND_ROW * len(lines))
        canvas.text(place, "crosses: published", INK, SCALE)
    return canvas.png()


def _across(quantities: Sequence[float], *, logarithmic: bool) -> Scale:
    if logarithmic:
        low, high = min(quantities), max(quantities)
        return Scale(low, max(high, 2 * low), LABEL_WIDTH, WIDTH - MARGIN, logarithmic=True)
    return Scale.of([0.0, *quantities], LABEL_WIDTH, WIDTH - MARGIN, y=False)


def _cross(canvas: Canvas, at: Point, colour: Colour) -> None:
    x, y = at
    canvas.line([(x - ARM, y - ARM), (x + ARM, y + ARM)], colour, 2.0)
    canvas.line([(x - ARM, y + ARM), (x + ARM, y - ARM)], colour, 2.0)
