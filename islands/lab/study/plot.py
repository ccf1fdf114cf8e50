"""The plot of a study: the metric over tokens, a line for each cell, the mean over its seeds."""

from collections.abc import Mapping
from math import isfinite, nan
from statistics import mean

from islands.lab.study.table import Results
from islands.lab.study.trial import Result
from islands.run.records.drawing import Canvas, Point
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

HEIGHT = 560
SKIPPED_SHARE = 0.15
"""The first part of a curve is left out: it falls so far that all ends would lie together."""


def plot(results: Results, metric: str, title: str) -> bytes:
    """The plot as a PNG file; cells beyond the number of colours repeat them.

    Args:
        results: what was found, by cell and seed.
        metric: that is drawn.
        title: stands above it.
    """
    curves = {name: points_of(found, metric) for name, found in results.items()}
    ends = max((x for points in curves.values() for x, _ in points), default=1.0)
    shown = {
        name: [point for point in points if point[0] >= SKIPPED_SHARE * ends]
        for name, points in curves.items()
    }
    drawn = {name: points for name, points in shown.items() if points}
    canvas = Canvas(WIDTH, HEIGHT + LEGEND_ROW * len(drawn))
    canvas.text((MARGIN, MARGIN / 2), f"{title}: {metric}", INK, SCALE + 1)
    if not drawn:
        canvas.text((MARGIN, HEIGHT / 2), "nothing was evaluated", INK, SCALE)
        return canvas.png()
    across = Scale.of([0.0, ends], LABEL_WIDTH, WIDTH - MARGIN, y=False)
    values = [y for points in drawn.values() for _, y in points]
    up = Scale.of(values, HEIGHT - 3 * MARGIN, 3 * MARGIN, y=True)
    axes(canvas, across, up)
    for index, (name, points) in enumerate(drawn.items()):
        colour = LINES[index % len(LINES)]
        curve(canvas, across, up, points, colour)
        label = f"{name}: {points[-1][1]:.4g}"
        legend_row(canvas, HEIGHT + LEGEND_ROW * index, colour, label)
    return canvas.png()


def points_of(found: Mapping[int, Result], metric: str) -> list[Point]:
    """The mean curve of a cell, at the marks that all of its seeds have."""
    curves = [
        {mark: (tokens, figures.get(metric, nan)) for mark, tokens, figures in result.curve}
        for result in found.values()
    ]
    marks = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    points = [
        (mean(curve[mark][0] for curve in curves), mean(curve[mark][1] for curve in curves))
        for mark in marks
    ]
    return [point for point in points if isfinite(point[1])]
