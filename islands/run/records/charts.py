"""The common look of all pictures, which matplotlib draws.

matplotlib takes half a second to import, so it is imported where a picture is made. Only its
object-oriented interface is used, and the look holds within `new_figure` alone: the figures and
settings of a user's own code in the same process stay as they are.

Reference: colours by Okabe and Ito, "Color Universal Design" (2008), which people with any kind of
colour blindness can tell apart.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from islands.protocol.errors import UserError, not_installed
from islands.settings.commands import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#8C8C8C"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    *("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5))),
)
"""Each line differs from its neighbours in its dashes too, for those who see no colours."""
INK, FAINT = "#333338", "#E1E1E6"
LOG_SPAN = 30.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""
SMALLEST_LOGARITHM = 1e-100
MARGIN, LOG_MARGIN = 1.01, 1.06
"""Axes go on for so much beyond the last point, so that its mark is whole."""
MARKED_POINTS = 60
"""Lines of at most so many points show each of them."""
TIME_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
UNITS = ((1e12, "trillions"), (1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))
NARROW, WIDE = 10.0, 300.0
"""A logarithmic scale over less than the first factor has even ticks, over less than the second
ticks at 1, 2 and 5, and beyond that one at each power of ten."""
UNITS_SHARE = 0.5
"""A count is told in the largest unit of which it has at least so much."""
UNITS_LEAST = 3.0
"""A time axis counts in the largest unit of which it has at least so many."""


@dataclass(frozen=True, slots=True)
class Look:
    """The measures of a picture.

    Args:
        width_inches: of the picture.
        height_inches: of the picture; None where that depends on what it shows.
        dots_per_inch: of a PNG file.
        font_points: size of its text.
        line_points: width of its lines.
    """

    width_inches: float
    height_inches: float | None
    dots_per_inch: float
    font_points: float
    line_points: float

    @property
    def text_inches(self) -> float:
        """The height of a line of text, with the space below it."""
        return 1.5 * self.font_points / POINTS_PER_INCH


POINTS_PER_INCH = 72.0
PAD = 0.5
"""The space around axes, in heights of the font."""
LOOKS = {
    Size.PAGE: Look(7.2, None, 250.0, 8.5, 1.3),
    Size.TALK: Look(40 / 3, 7.5, 144.0, 18.0, 3.0),
}
"""A page has the width of a column of text, a slide 1,920 by 1,080 pixels."""


@contextmanager
def new_figure(height_inches: float, size: Size = Size.PAGE) -> "Iterator[Figure]":
    """Make an empty figure; what is drawn and encoded within the `with` has the common look.

    Args:
        height_inches: of the picture, unless its size fixes that.
        size: where it is shown.

    Raises:
        UserError: matplotlib is not installed.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of fonts and caches nobody asks
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(not_installed("a picture", "matplotlib")) from error
    # Not by `rcdefaults`: it imports a deprecated module, and filters are those of all threads.
    defaults = {k: v for k, v in mpl.rcParamsDefault.items() if not k.startswith("backend")}
    with mpl.rc_context(defaults), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sign that no font has is drawn as a box
        look = LOOKS[size]
        _apply_look(mpl.rc, look)
        inches = (look.width_inches, look.height_inches or height_inches)
        yield Figure(inches, dpi=look.dots_per_inch, layout="constrained")


def _apply_look(rc: Callable[..., object], look: Look) -> None:
    font, line_points = look.font_points, look.line_points
    rc("axes", axisbelow=True, edgecolor=INK, grid=True, labelcolor=INK)
    rc("axes", titlelocation="left", titlesize=1.1 * font, titleweight="bold")
    rc("axes", linewidth=line_points / 2)
    rc("axes.spines", right=False, top=False)
    rc("figure", titlesize=1.35 * font)
    pad_inches = PAD * font / POINTS_PER_INCH
    rc("figure.constrained_layout", w_pad=pad_inches, h_pad=pad_inches)
    rc("font", size=font)
    rc("grid", color=FAINT, linewidth=line_points / 2)
    rc("legend", frameon=False)
    rc("lines", linewidth=line_points, markersize=2.4 * line_points, dash_capstyle="butt")
    rc("svg", hashsalt="islands")
    rc("text", color=INK, parse_math=False)
    for name in ("xtick", "ytick"):
        rc(name, color=INK, labelsize=0.95 * font)
        rc(f"{name}.major", width=line_points / 2, size=2.4 * line_points)
        rc(f"{name}.minor", width=line_points / 3, size=1.4 * line_points)


def encoded(figure: "Figure", kind: Literal["png", "svg"] = "png") -> bytes:
    """Return a figure as the content of a file; equal figures have equal contents."""
    if figure.get_layout_engine() is not None:  # what it found serves all files of the figure
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    file = BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(file, format=kind, metadata=metadata)
    return file.getvalue()


def title(figure: "Figure", name: str, told: str = "") -> None:
    """Write a name above the figure at its left, and a line of smaller text below the name."""
    from matplotlib import rcParams

    points, inches = rcParams["font.size"], figure.get_figheight()
    figure.suptitle(name + "\n" * bool(told), x=0.01, ha="left", weight="bold")
    if told:
        figure.text(0.01, 1 - 2.75 * points / POINTS_PER_INCH / inches, told, va="center")


def line(
    axes: "Axes",
    points: Points,
    index: int = 0,
    label: str = "",
    *,
    steps: bool = False,
    scale: float = 1.0,
) -> None:
    """Draw a line through points in the colour of its index; few points are marked.

    Args:
        axes: to draw on.
        points: x and y of each point.
        index: number of the line among those of the picture.
        label: its name in a legend.
        steps: whether values hold until the next point.
        scale: of its width.
    """
    from matplotlib import rcParams

    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        **style(index),
        marker="o" if len(points) <= MARKED_POINTS and not steps else "",
        drawstyle="steps-post" if steps else "default",
        label=label,
        linewidth=scale * rcParams["lines.linewidth"],
        markersize=scale * rcParams["lines.markersize"],
    )


def style(index: int) -> dict[str, Any]:
    """Return colour and dashes of a line by its number; 32 lines in a row differ in either."""
    turn, colour = divmod(index, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[(index + turn) % len(DASHES)]}


def scale_y(axes: "Axes", values: Sequence[float], *, logarithmic: bool = False) -> None:
    """Make the axis of values logarithmic if that is asked for, or where they span `LOG_SPAN`."""
    low, high = min(values), max(values)
    if logarithmic or (low > SMALLEST_LOGARITHM and high > LOG_SPAN * low):
        _make_logarithmic(axes, "y", low, high)
        axes.set_ylim(low / LOG_MARGIN, LOG_MARGIN * high)


def _make_logarithmic(axes: "Axes", which: Literal["x", "y"], low: float, high: float) -> None:
    """Give an axis a logarithmic scale, with as many ticks as a reader needs."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if high < NARROW * low:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_minor_locator(NullLocator())
    elif high < WIDE * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda *_: "")


def tokens_below(axes: "Axes", most: float, least: float = 0.0) -> None:
    """Label the horizontal axis as tokens, in one unit that fits; from `least` on a log scale."""
    _end_below(axes, most, least)
    count_below(axes, "tokens", most)


def count_below(axes: "Axes", what: str, most: float) -> None:
    """Label the horizontal axis as a number of things, in one unit, so that its ticks are short."""
    unit, name = unit_of(most)
    axes.set_xlabel(f"{what} ({name})" if name else what)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit:g}")


def unit_of(most: float) -> tuple[float, str]:
    """Return the unit in which an axis up to `most` counts, and its name; one has none."""
    return next((known for known in UNITS if most >= UNITS_SHARE * known[0]), (1.0, ""))


def seconds_below(axes: "Axes", most_s: float, least_s: float = 0.0) -> float:
    """Label the horizontal axis as time in a unit that fits; from `least_s` on a log scale.

    Returns:
        The seconds of the unit, by which times are divided.
    """
    unit_s, unit = next(
        (known for known in TIME_UNITS if most_s >= UNITS_LEAST * known[0]), (1.0, "s")
    )
    _end_below(axes, most_s / unit_s, least_s / unit_s)
    axes.set_xlabel(f"time ({unit})")
    return unit_s


def _end_below(axes: "Axes", most: float, least: float) -> None:
    if least > 0:
        _make_logarithmic(axes, "x", least, most)
        axes.set_xlim(least / LOG_MARGIN, LOG_MARGIN * most)
    else:
        axes.set_xlim(0, MARGIN * most or 1.0)
