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
from io import BytesIO
from typing import TYPE_CHECKING, Literal

from islands.protocol.errors import UserError, not_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#8C8C8C"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
DASHES = ("-", "--", ":", "-.")
"""Lines beyond the number of colours repeat them with the next dash."""
INK, FAINT = "#333338", "#E1E1E6"
WIDTH_INCHES = 12.0
LEGEND_INCHES = 0.25
"""The height of a line of a legend."""
DOTS_PER_INCH = 150
LOG_SPAN = 30.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""
SMALLEST_LOGARITHM = 1e-100
MARGIN = 1.01
"""Axes from zero go on for so much beyond the last point, so that its mark is whole."""
MARKED_POINTS = 60
"""Lines of at most so many points show each of them."""
TIME_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
UNITS_LEAST = 3.0
"""A time axis counts in the largest unit of which it has at least so many."""


@contextmanager
def new_figure(height_inches: float) -> "Iterator[Figure]":
    """Make an empty figure; what is drawn and encoded within the `with` has the common look.

    Raises:
        UserError: matplotlib is not installed.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of fonts and caches nobody asks
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(not_installed("a picture", "matplotlib")) from error
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sign that no font has is drawn as a box
        mpl.rcdefaults()
        _apply_look(mpl.rc)
        yield Figure((WIDTH_INCHES, height_inches), dpi=DOTS_PER_INCH, layout="constrained")


def _apply_look(rc: Callable[..., object]) -> None:
    rc("axes", axisbelow=True, edgecolor=INK, grid=True, labelcolor=INK)
    rc("axes", titlelocation="left", titlesize=12.0, titleweight="bold")
    rc("axes.spines", right=False, top=False)
    rc("figure", titlesize=15.0)
    rc("font", size=11.0)
    rc("grid", color=FAINT)
    rc("legend", frameon=False)
    rc("lines", linewidth=1.8, markersize=4.0)
    rc("svg", hashsalt="islands")
    rc("text", color=INK, parse_math=False)
    rc("xtick", color=INK)
    rc("ytick", color=INK)


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
    figure.suptitle(name + "\n" * bool(told), x=0.01, ha="left", weight="bold")
    if told:
        inches = figure.get_figheight()
        figure.text(0.01, 1 - 0.42 / inches, told, va="center", fontsize=11.0)


def line(
    axes: "Axes", points: Points, index: int = 0, label: str = "", *, steps: bool = False
) -> None:
    """Draw a line through points in the colour of its index; few points are marked.

    Args:
        axes: to draw on.
        points: x and y of each point.
        index: number of the line among those of the picture.
        label: its name in a legend.
        steps: whether values hold until the next point.
    """
    turn, colour = divmod(index, len(COLOURS))
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=COLOURS[colour],
        linestyle=DASHES[turn % len(DASHES)],
        marker="o" if len(points) <= MARKED_POINTS and not steps else "",
        drawstyle="steps-post" if steps else "default",
        label=label,
    )


def scale_y(axes: "Axes", values: Sequence[float]) -> None:
    """Make the axis of values logarithmic if they are positive and span more than `LOG_SPAN`."""
    low, high = min(values), max(values)
    if low > SMALLEST_LOGARITHM and high > LOG_SPAN * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda *_: "")


def tokens_below(axes: "Axes", most: float) -> None:
    """Label the horizontal axis as tokens, from zero to `most`."""
    axes.set_xlim(0, MARGIN * most or 1.0)
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(lambda value, _: thousands(value))


def thousands(value: float) -> str:
    """Return a round number as an axis shows it: 800, 20 k, 1.2 M."""
    unit, name = next((known for known in UNITS if value >= known[0]), (1.0, ""))
    return f"{value / unit:g} {name}".rstrip()


def seconds_below(axes: "Axes", most_s: float) -> float:
    """Label the horizontal axis as time in a unit that fits, from zero to `most_s`.

    Returns:
        The seconds of the unit, by which times are divided.
    """
    unit_s, unit = next(
        (known for known in TIME_UNITS if most_s >= UNITS_LEAST * known[0]), (1.0, "s")
    )
    axes.set_xlim(0, MARGIN * most_s / unit_s or 1.0)
    axes.set_xlabel(f"time ({unit})")
    return unit_s
