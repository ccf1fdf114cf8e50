"""The plots of simulated fleets: lines over a quantity, and what one fleet did in time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from islands.lab.experiments.goodput import Fleets, Played, published_of
from islands.run.records.charts import (
    BLACK,
    COLOURS,
    GREEN,
    LEGEND_INCHES,
    VERMILION,
    Points,
    encoded,
    line,
    new_figure,
    seconds_below,
    thousands,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TIMELINE_S = 3600.0
"""Of a fleet, from the time when it is first measured."""
CHART_INCHES = 5.0
ROWS_MOST, ROW_INCHES, AROUND_INCHES = 32, 0.24, 1.6
BAR_HEIGHT = 0.7
SHORTEST_SHARE = 1 / 2_000
"""A stall is drawn at least so long, as a share of the timeline, so that it is seen."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        name: in the legend.
        points: quantity and value, in the order of the quantity.
        published: the same as others published it, which is drawn as crosses.
        steps: whether values hold until the next point.
    """

    name: str
    points: Points
    published: Points = ()
    steps: bool = False


def chart(
    what: str,
    lines: Sequence[Line],
    unit: str,
    *,
    top: float = 100.0,
    logarithmic: bool = False,
) -> bytes:
    """Draw lines over a quantity, and return a PNG file.

    Args:
        what: what the values are.
        lines: at least one point in all.
        unit: of the quantity; `time` is in seconds.
        top: the upper end of values, whose lower end is 0.
        logarithmic: whether the quantity, which is above 0 then, has a logarithmic scale.

    Raises:
        UserError: matplotlib is not installed.
    """
    crossed = any(each.published for each in lines)
    with new_figure(CHART_INCHES + LEGEND_INCHES * (len(lines) + crossed)) as figure:
        axes = figure.subplots()
        axes.set_ylabel(what)
        unit_s = _quantity_below(
            axes, [x for each in lines for x, _ in each.points], unit, logarithmic=logarithmic
        )
        axes.set_ylim(0, 1.02 * top)
        for index, each in enumerate(lines):
            points = [(x / unit_s, y) for x, y in each.points]
            line(axes, points, index, each.name, steps=each.steps)
            colour = COLOURS[index % len(COLOURS)]
            for x, y in each.published:
                axes.plot(x, y, "x", color=colour, markersize=9, markeredgewidth=2)
        if crossed:
            axes.plot([], [], "x", color=BLACK, markersize=9, markeredgewidth=2, label="published")
        figure.legend(loc="outside lower left")
        return encoded(figure)


def _quantity_below(
    axes: "Axes", quantities: Sequence[float], unit: str, *, logarithmic: bool
) -> float:
    """Label the horizontal axis; return the number by which quantities are divided."""
    most = max(quantities)
    if unit == "time":
        return seconds_below(axes, most)
    axes.set_xlabel(unit)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xticks(sorted(set(quantities)), minor=False)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_xlim(0, 1.01 * most)
        axes.xaxis.set_major_formatter(lambda value, _: thousands(value))
    return 1.0


def plot(found: Fleets) -> bytes:
    """Goodput against chips, a line for each row and a cross for what was published; a PNG file."""
    rows = list(dict.fromkeys(row for row, _ in found))
    chips = list(dict.fromkeys(number for _, number in found))
    lines = [
        Line(
            row.name,
            [(number, 100 * found[row, number].figures.goodput) for number in chips],
            [
                (number, theirs)
                for number in chips
                if (theirs := published_of(found, row, number)) is not None
            ],
        )
        for row in rows
    ]
    return chart("goodput, % of chip-time", lines, "chips")


def timeline(played: Played) -> bytes:
    """Who stepped and who stalled in one fleet's first hour, and when it merged; a PNG file."""
    cell = played.cell
    from_s = cell.warmup_s
    until_s = min(cell.end_s, from_s + TIMELINE_S)
    names = cell.names[:ROWS_MOST]
    with new_figure(AROUND_INCHES + ROW_INCHES * (len(names) + 1)) as figure:
        title(figure, f"{cell.chips:,.0f} chips in {cell.learners:,} learners")
        axes = figure.subplots()
        unit_s = seconds_below(axes, until_s - from_s)
        everywhere = range(len(names))
        axes.barh(
            everywhere, (until_s - from_s) / unit_s, BAR_HEIGHT, color=GREEN, label="stepping"
        )
        stalls = [
            (row, (start_s - from_s) / unit_s, (min(stop_s, until_s) - start_s) / unit_s)
            for row in everywhere
            for start_s, stop_s in played.figures.stalls_s[row]
            if start_s < until_s
        ]
        if stalls:
            rows, begins, lengths = zip(*stalls, strict=True)
            shortest = SHORTEST_SHARE * (until_s - from_s) / unit_s
            shown = [max(shortest, length) for length in lengths]
            axes.barh(rows, shown, BAR_HEIGHT, begins, color=VERMILION, label="stalled")
        merges = [(at_s - from_s) / unit_s for at_s in played.training.merges_s if at_s < until_s]
        height = BAR_HEIGHT / 2
        axes.vlines(merges, len(names) - height, len(names) + height, color=BLACK, linewidth=0.8)
        axes.set_yticks(range(len(names) + 1), [*names, "merges"])
        axes.set_ylim(len(names) + 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
        return encoded(figure)
