"""Names of what is drawn: beside lines, in legends, and the marks of what befell a run."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from islands.run.records.charts import INK, LOOKS, POINTS_PER_INCH
from islands.settings.commands import Size

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

HAPPENINGS = {
    "killed": ("process died", "X"),
    "evicted": ("evicted", "v"),
    "extended": ("run extended", ">"),
    "checkpoint": ("checkpoint", "s"),
    "hub_started": ("hub restarted", "D"),
}
"""What is marked, in words and by its sign."""
MARK_SCALE = 1.7
"""The marks of happenings are larger than those of points by this factor."""
SIGN_WIDTH, LEGEND_SIGN = 0.6, 6
"""The width of a sign as a share of its height, and the signs that the sample of a line takes."""
UNNAMED = "_child"
"""How the label of a line begins that was given none."""
LABELS_AT = 1.06
"""Where names of lines begin right of the axes, whose width is 1."""


def spread(wanted: Sequence[float], gap: float, most: float = 1.0) -> list[float]:
    """Return places near those wanted, in the same order, that are at least `gap` apart.

    Places that would overlap are centred, as a group, on the mean of what they wanted, between 0
    and `most` as far as there is room for all.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[list[int]] = []

    def centre(group: list[int]) -> float:
        half = gap * (len(group) - 1) / 2
        mean = sum(wanted[index] for index in group) / len(group)
        return max(half, min(mean, most - half))

    for index in order:
        group = [index]
        while groups and centre(group) - centre(groups[-1]) < (
            gap * (len(group) + len(groups[-1])) / 2
        ):
            group = [*groups.pop(), *group]
        groups.append(group)
    placed = {
        index: centre(group) + gap * (place - (len(group) - 1) / 2)
        for group in groups
        for place, index in enumerate(group)
    }
    return [placed[index] for index in range(len(wanted))]


def label_ends(axes: "Axes", strong: Collection[str] = ()) -> None:
    """Write the name of each line right of its end, in its colour, so that nobody needs a legend.

    Args:
        axes: on which all lines are drawn, and whose scales are set.
        strong: names that are written in bold.
    """
    from matplotlib import rcParams

    figure = axes.get_figure(root=True)
    assert figure is not None, "these axes are drawn on"
    figure.draw_without_rendering()  # so that the height of the axes is known
    lines = [one for one in axes.lines if not str(one.get_label()).startswith(UNNAMED)]
    ends = [np.asarray(one.get_xydata())[-1] for one in lines]
    heights = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    gap_inches = 1.3 * rcParams["font.size"] / POINTS_PER_INCH
    gap = gap_inches * figure.dpi / axes.get_window_extent().height
    for one, end, place in zip(lines, ends, spread(list(heights), gap), strict=True):
        name, colour = str(one.get_label()), one.get_color()
        thin = {"color": colour, "linewidth": one.get_linewidth() / 2}
        axes.annotate(
            name,
            xy=(float(end[0]), float(end[1])),
            xytext=(LABELS_AT, place),
            textcoords="axes fraction",
            color=colour,
            weight="bold" if name in strong else "normal",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "shrinkA": 0.0, **thin},
        )


def mark(what: str) -> dict[str, Any]:
    """Return the properties of a mark, its colour apart; it lies on whatever else is drawn."""
    from matplotlib import rcParams

    points = MARK_SCALE * rcParams["lines.markersize"]
    shape = {"marker": HAPPENINGS[what][1], "markersize": points, "markeredgecolor": "white"}
    return {**shape, "markeredgewidth": points / 10, "linestyle": "", "zorder": 3}


def legend_of_marks(seen: Collection[str]) -> "list[Line2D]":
    """Return what a legend shows of the marks that were drawn."""
    return [
        handle(words, **mark(what), color=INK)
        for what, (words, _) in HAPPENINGS.items()
        if what in seen
    ]


def handle(label: str, **drawn: Any) -> "Line2D":  # noqa: ANN401  (properties of a line)
    """Return what a legend shows of a line that is drawn in this way."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **drawn)


def legend_below(
    figure: "Figure",
    lines: "Sequence[Artist]",
    signs: "Sequence[Artist]" = (),
    size: Size = Size.PAGE,
) -> None:
    """Explain lines below all axes, in as many columns as their labels allow, and signs beside.

    Signs are explained right of the lines where there is room, and else after them.
    """
    look = LOOKS[size]

    def inches(handles: "Sequence[Artist]") -> float:
        longest = max((len(str(handle.get_label())) for handle in handles), default=0)
        return (longest + LEGEND_SIGN) * SIGN_WIDTH * look.font_points / POINTS_PER_INCH

    def columns(handles: "Sequence[Artist]", room_inches: float) -> int:
        return max(1, min(len(handles), int(room_inches / inches(handles))))

    left, room_inches = [*lines, *signs], look.width_inches
    if lines and signs and inches(lines) + inches(signs) <= room_inches:
        figure.legend(handles=signs, loc="outside lower right")
        left, room_inches = [*lines], room_inches - inches(signs)
    if left:
        figure.legend(handles=left, loc="outside lower left", ncols=columns(left, room_inches))
