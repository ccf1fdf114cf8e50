"""The plot of a study: the metric over tokens, a line for each cell, the mean over its seeds."""

from collections.abc import Mapping
from math import isfinite, nan
from statistics import mean

from islands.lab.study.table import Results
from islands.lab.study.trial import Result
from islands.run.records.charts import (
    LEGEND_INCHES,
    encoded,
    line,
    new_figure,
    scale_y,
    title,
    tokens_below,
)

CHART_INCHES = 5.0
SKIPPED_SHARE = 0.15
"""The first part of a curve is left out: it falls so far that all ends would lie together."""


def plot(results: Results, metric: str, name: str) -> bytes:
    """Draw the plot as a PNG file.

    Args:
        results: what was found, by cell and seed.
        metric: that is drawn.
        name: of the study, which stands above it.

    Raises:
        UserError: matplotlib is not installed.
    """
    curves = {cell: points_of(found, metric) for cell, found in results.items()}
    ends = max((x for points in curves.values() for x, _ in points), default=1.0)
    shown = {
        cell: [point for point in points if point[0] >= SKIPPED_SHARE * ends]
        for cell, points in curves.items()
    }
    drawn = {cell: points for cell, points in shown.items() if points}
    with new_figure(CHART_INCHES + LEGEND_INCHES * len(drawn)) as figure:
        title(figure, name)
        axes = figure.subplots()
        axes.set_ylabel(metric)
        tokens_below(axes, ends)
        if not drawn:
            axes.set_title("nothing was evaluated")
            return encoded(figure)
        for index, (cell, points) in enumerate(drawn.items()):
            line(axes, points, index, f"{cell}: {points[-1][1]:.4g}")
        scale_y(axes, [y for points in drawn.values() for _, y in points])
        figure.legend(loc="outside lower left")
        return encoded(figure)


def points_of(found: Mapping[int, Result], metric: str) -> list[tuple[float, float]]:
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
