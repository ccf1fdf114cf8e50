"""The picture of several runs side by side, made of the panels that were decided on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from islands.protocol.errors import UserError
from islands.run.records.charts import (
    LOOKS,
    encoded,
    line,
    new_figure,
    scale_y,
    seconds_below,
    style,
    title,
    tokens_below,
)
from islands.run.records.legends import handle, label_ends, legend_below, legend_of_marks, mark
from islands.run.records.panels import EVALUATION, LOSS, RATES, SHARES, Panel
from islands.settings.commands import Axis, Over, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_INCHES, SINGLE_INCHES = 2.1, 3.2
"""The height of a row of panels, and of a panel that stands alone."""
TOLD_MOST = {Size.PAGE: 12, Size.TALK: 3}
"""Of so many runs a legend says where they began and ended; of more it has room for names only."""
Y_MARGIN = 0.08
"""The share of the height that is left free above and below, so that marks are whole."""
ROOM = {Size.PAGE: 10, Size.TALK: 4}
"""Most panels of a picture, with which each is still legible."""


def plot(
    panels: Sequence[Panel],
    names: Sequence[str],
    size: Size = Size.PAGE,
    kind: Literal["png", "svg"] = "png",
) -> bytes:
    """Draw panels of runs; return the file's content.

    Args:
        panels: what is drawn.
        names: of the runs, in the order of their numbers.
        size: where the picture is shown.
        kind: of the file.

    Raises:
        UserError: there are more panels than there is room for, or matplotlib is not installed.
    """
    if len(panels) > ROOM[size]:
        raise UserError(
            f"figures and over make {len(panels)} panels, and a picture for a {size} has room for "
            f"{ROOM[size]}; name fewer"
        )
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    inches = SINGLE_INCHES if len(panels) == 1 else rows * ROW_INCHES
    with new_figure(inches + LOOKS[size].text_inches * (3 + len(names)), size) as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        alone = len(panels) == 1 < len(names)
        for axes, panel in zip(grid.flat, panels, strict=False):
            places = [x for one in panels if one.over is panel.over for x, _ in one.points]
            _draw(axes, panel, places, names if alone else [""] * len(names), size)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        ends = [_ends(number, panels) for number in range(len(names))]
        handles = []
        if len(names) == 1:
            title(figure, names[0], ends[0])
        elif alone:
            label_ends(grid[0, 0])
        else:
            told = ends if len(names) <= TOLD_MOST[size] else [""] * len(names)
            labels = [": ".join(filter(None, each)) for each in zip(names, told, strict=True)]
            handles += [handle(label, **style(number)) for number, label in enumerate(labels)]
        seen = {mark.what for panel in panels for run in panel.runs for mark in run.marks}
        legend_below(figure, handles, legend_of_marks(seen), size)
        return encoded(figure, kind)


def _draw(
    axes: "Axes", panel: Panel, places: Sequence[float], names: Sequence[str], size: Size
) -> None:
    """Draw the lines and marks of a panel.

    Args:
        axes: to draw on.
        panel: what is drawn.
        places: all that have a place on horizontal axes such as this one.
        names: of the runs; "" for those whose lines are not labelled.
        size: where the picture is shown.
    """
    axes.set_title(panel.title + ("" if size is Size.TALK else panel.note))
    axes.margins(y=Y_MARGIN)
    least, most = min(places) if Axis.X in panel.log else 0.0, max(places)
    unit = 1.0
    if panel.over is Over.TOKENS:
        tokens_below(axes, most, least)
    else:
        unit = seconds_below(axes, most, least)
    for run in panel.runs:
        for part, points in enumerate(filter(None, run.lines)):
            label = f"{names[run.run]}  {points[-1][1] / panel.unit:.4g}" if names[run.run] else ""
            shown = [(x / unit, y) for x, y in points]
            line(axes, shown, run.run, "" if part else label, scale=0.5 if part else 1.0)
    if panel.figure in SHARES and Axis.Y not in panel.log:
        axes.set_ylim(0, 1.04)
    else:
        scale_y(axes, [y for _, y in panel.points], logarithmic=Axis.Y in panel.log)
    if panel.figure in RATES and Axis.Y not in panel.log:
        axes.set_ylim(0, 1.08 * max(y for _, y in panel.points) or 1.0)
    if panel.unit > 1:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value / panel.unit:g}")
    for run in panel.runs:
        for each in run.marks:
            (x, y), colour = each.at, style(run.run)["color"]
            axes.plot(x / unit, y, **mark(each.what), color=colour, label="")


def _ends(number: int, panels: Sequence[Panel]) -> str:
    """Say where loss and evaluation of a run began and ended."""
    found = {
        panel.title: run.lines[0]
        for panel in reversed(panels)
        for run in panel.runs
        if run.run == number and run.lines[0] and panel.figure in (LOSS, EVALUATION)
    }
    told = [f"{what} {one[0][1]:.4g} to {one[-1][1]:.4g}" for what, one in found.items()]
    return ", ".join(reversed(told))
