"""The table and the chart of an experiment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from islands.run.records import pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHART_INCHES = 3.0
CROSS: dict[str, Any] = {"markersize": 6.0, "markeredgewidth": 1.4}


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as a table of Markdown; the first one is its head."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    head, *rest = lines
    rows = (head, ["-" * width for width in widths], *rest)
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart, as others published it beside, drawn as crosses.

    Where it has `steps`, values hold until the next point.
    """

    name: str
    points: pictures.Points
    published: pictures.Points = ()
    steps: bool = False


def chart(
    what: str,
    lines: Sequence[Line],
    unit: str,
    *,
    top: float = 100.0,
    logarithmic: bool = False,
) -> bytes:
    """Draw lines of values in [0, top] over a quantity, and return a PNG file.

    The unit `time` is in seconds; with a logarithmic scale the quantity is above 0.
    """
    crossed = any(each.published for each in lines)
    legend_inches = pictures.LINE_INCHES * (len(lines) + crossed) / 2
    with pictures.new_figure(CHART_INCHES + legend_inches) as figure:
        axes = figure.subplots()
        axes.set_ylabel(what)
        unit_s = _quantity_below(
            axes, [x for each in lines for x, _ in each.points], unit, logarithmic=logarithmic
        )
        axes.set_ylim(0, 1.02 * top)
        for index, each in enumerate(lines):
            points = [(x / unit_s, y) for x, y in each.points]
            steps = {"drawstyle": "steps-post"} if each.steps else {}
            pictures.line(axes, points, index, each.name, **steps)
            colour = pictures.COLOURS[index % len(pictures.COLOURS)]
            for x, y in each.published:
                axes.plot(x, y, "x", color=colour, **CROSS)
        if crossed:
            axes.plot([], [], "x", color=pictures.BLACK, label="published", **CROSS)
        figure.legend(loc="outside lower left", ncols=2)
        return pictures.encoded(figure)


def _quantity_below(
    axes: "Axes", quantities: Sequence[float], unit: str, *, logarithmic: bool
) -> float:
    """Label the horizontal axis; return the number by which quantities are divided."""
    most = max(quantities)
    if unit == "time":
        return pictures.seconds_below(axes, most)
    axes.set_xlabel(unit)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xticks(sorted(set(quantities)), minor=False)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        pictures.count_below(axes, unit, most)
    return 1.0
