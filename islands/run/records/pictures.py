"""Pictures of runs, which matplotlib draws: `summary.png`, and `islands plot` of several runs.

The look holds within `new_figure` alone: a user's own figures in the same process stay as they are.

Reference: colours by Okabe and Ito, "Color Universal Design" (2008), which people with any kind of
colour blindness can tell apart.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from islands.protocol.errors import UserError, not_installed
from islands.protocol.settings.run import RunSettings
from islands.run.records.figures import Curve, LearnerFigures, RunFigures, drawable, in_order
from islands.run.records.run_curves import Mean, RunCurves
from islands.settings.commands import Over
from islands.settings.quantities import count, duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, ...]]

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#8C8C8C"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
DASHES = ("-", "--", ":", "-.")
"""Each line differs from its neighbours in its dashes too, for those who see no colours."""
WIDTH_INCHES, ROW_INCHES, LINE_INCHES = 7.2, 2.1, 0.18
DOTS_PER_INCH = 250.0
LOG_SPAN = 30.0
"""Positive values that span more than this factor are drawn on a logarithmic scale."""
MARKED_POINTS = 60
"""Lines of at most so many points show each of them."""
TIME_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
UNITS = ((1e12, "trillions"), (1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))
LOSS, EVALUATION = "loss", "evaluation"
PANELS_MOST = 10
RATE_PARTS, RATE_LEAST_S = 40, 8.0
"""A rate is that over one of so many stretches of a run, of at least so many seconds each, so that
heartbeats do not show in it."""
LEARNERS_MOST, NAME_CHARACTERS = 32, 24
BAR_HEIGHT = 0.7
STATES = {
    "starting": ORANGE,
    "stepping": GREEN,
    "paused": SKY,
    "diverged": PURPLE,
    "away": VERMILION,
    "left": "#D4D4D8",
}
"""The states of a learner, and the colour of each."""

# --- the common look --------------------------------------------------------------------------


@contextmanager
def new_figure(height_inches: float) -> "Iterator[Figure]":
    """Make an empty figure; what is drawn and encoded within the `with` has the common look."""
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
        mpl.rc("axes", axisbelow=True, grid=True, titlelocation="left", titleweight="bold")
        mpl.rc("axes.spines", right=False, top=False)
        mpl.rc("font", size=8.5)
        mpl.rc("grid", color="#E1E1E6")
        mpl.rc("legend", frameon=False)
        mpl.rc("lines", linewidth=1.3, markersize=3.0)
        mpl.rc("svg", hashsalt="islands")
        mpl.rc("text", parse_math=False)
        size = (WIDTH_INCHES, height_inches)
        yield Figure(size, dpi=DOTS_PER_INCH, layout="constrained")


def encoded(figure: "Figure", kind: Literal["png", "svg"] = "png") -> bytes:
    """Return a figure as the content of a file; equal figures have equal contents."""
    file = BytesIO()
    figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else {})
    return file.getvalue()


def line(axes: "Axes", points: Points, index: int = 0, label: str = "", **drawn: Any) -> None:  # noqa: ANN401  (properties of a line)
    """Draw a line through points in the colour and dashes of its index; few points are marked."""
    marker = "o" if len(points) <= MARKED_POINTS and "drawstyle" not in drawn else ""
    turn, colour = divmod(index, len(COLOURS))
    look = {"color": COLOURS[colour], "linestyle": DASHES[(index + turn) % len(DASHES)]}
    xs, ys = [x for x, _ in points], [y for _, y in points]
    axes.plot(xs, ys, **{**look, "marker": marker, "label": label, **drawn})


def scale_y(axes: "Axes", values: Sequence[float]) -> None:
    """Make the axis of values logarithmic where they span `LOG_SPAN`."""
    if min(values) > 0 and max(values) / LOG_SPAN > min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def count_below(axes: "Axes", what: str, most: float) -> None:
    """Label the horizontal axis as a number of things, in one unit, so that its ticks are short."""
    unit, name = next((known for known in UNITS if most >= known[0] / 2), (1.0, ""))
    axes.set_xlim(0, 1.01 * most or 1.0)
    axes.set_xlabel(f"{what} ({name})" if name else what)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit:g}")


def seconds_below(axes: "Axes", most_s: float) -> float:
    """Label the horizontal axis as time in a unit that fits; return the seconds of the unit."""
    unit_s, unit = next((known for known in TIME_UNITS if most_s >= 3 * known[0]), (1.0, "s"))
    axes.set_xlim(0, 1.01 * most_s / unit_s or 1.0)
    axes.set_xlabel(f"time ({unit})")
    return unit_s


# --- one run, at its end ----------------------------------------------------------------------


def picture_of(figures: RunFigures, settings: RunSettings, end_s: float, share: float) -> bytes:
    """Draw a run as a PNG file: its loss and evaluations, and what each learner did when."""
    name, _ = figures.metric
    rows = [row for row in figures.evaluations if drawable(row.get(name, float("nan")))]
    evaluated: Points = [(float(row["tokens"]), row[name]) for row in rows]
    charts: list[tuple[str, Points]]
    charts = [("training loss", figures.losses.all()), (name, evaluated)]
    charts = [chart for chart in charts if chart[1]] or [("no step was reported", [])]
    heights = ROW_INCHES, LINE_INCHES * (2 + min(len(figures.learners), LEARNERS_MOST + 1))
    evictions = "eviction" if figures.evictions == 1 else "evictions"
    with new_figure(sum(heights) + 1.3) as figure:
        figure.suptitle(
            f"{settings.run}: {count(figures.tokens)} tokens in {duration(end_s)}, "
            f"{figures.merges:,} merges, yield {share:.2f}, {figures.evictions:,} {evictions}",
            x=0.01,
            ha="left",
        )
        rows_of_axes = figure.add_gridspec(2, len(charts), height_ratios=heights)
        for column, (what, points) in enumerate(charts):
            axes = figure.add_subplot(rows_of_axes[0, column])
            ends = f": {points[0][1]:.4g} to {points[-1][1]:.4g}" if points else ""
            axes.set_title(what + ends)
            count_below(axes, "tokens", max((x for x, _ in points), default=0.0))
            if points:
                line(axes, points)
                scale_y(axes, [y for _, y in points])
        _timeline(figure.add_subplot(rows_of_axes[1, :]), figures.learners, end_s)
        return encoded(figure)


def _timeline(axes: "Axes", learners: Mapping[str, LearnerFigures], end_s: float) -> None:
    unit_s, names = seconds_below(axes, end_s), sorted(learners, key=in_order)
    spans: dict[str, list[tuple[int, float, float]]] = {state: [] for state in STATES}
    for row, name in enumerate(names[:LEARNERS_MOST]):
        for (from_s, state), (until_s, _) in pairwise([*learners[name].states, (end_s, "")]):
            length_s = max(end_s / 2_000, until_s - from_s)  # what lasted an instant is seen, too
            spans.setdefault(state, []).append((row, from_s / unit_s, length_s / unit_s))
    for state, found in spans.items():
        if found:
            rows, begins, lengths = zip(*found, strict=True)
            height = BAR_HEIGHT / (3 if state in ("away", "left") else 1)
            colour = STATES.get(state, STATES["left"])
            axes.barh(rows, lengths, height, begins, color=colour, label=state)
    more = len(names) - LEARNERS_MOST
    shown = [name[:NAME_CHARACTERS] for name in names[:LEARNERS_MOST]]
    shown += [f"and {more:,} more"] * (more > 0)
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    if any(spans.values()):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES), borderaxespad=0.2)


# --- several runs -----------------------------------------------------------------------------


def plot(
    runs: Mapping[str, RunCurves],
    figures: Sequence[str] = (),
    over: Sequence[Over] = tuple(Over),
    metric: str | None = None,
    kind: Literal["png", "svg"] = "png",
) -> bytes:
    """Draw each figure of runs over each quantity; return the content of a file."""
    metrics = list(dict.fromkeys(name for run in runs.values() for name in run.evaluations))
    if metric is not None and metric not in metrics:
        known = ", ".join(metrics) or "no figures"
        raise UserError(f"metric is {metric}; the runs' evaluations have {known}")
    metric = metric or next(iter(metrics), "")
    found = {name: figures_of(run, metric) for name, run in runs.items()}
    known_figures = list(dict.fromkeys(name for of in found.values() for name in of))
    usual = [name for name in (LOSS, EVALUATION) if name in known_figures] or known_figures[:1]
    for name in figures:
        if name not in known_figures:
            raise UserError(
                f"figures has {name}; the runs have {', '.join(known_figures) or 'none'}"
            )
    panels = [(name, one) for name in figures or usual for one in over]
    if len(panels) > PANELS_MOST:
        raise UserError(
            f"figures and over make {len(panels)} panels, and a picture has room for "
            f"{PANELS_MOST}; name fewer"
        )
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with new_figure(rows * ROW_INCHES + LINE_INCHES * (3 + len(runs))) as figure:
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, (name, one) in zip(grid, panels, strict=False):
            axes.set_title(metric if name == EVALUATION else name)
            _draw(axes, {run: of.get(name, []) for run, of in found.items()}, one)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=min(3, len(runs)))
        return encoded(figure, kind)


def _draw(axes: "Axes", runs: Mapping[str, Sequence[Mean]], over: Over) -> None:
    most = max(x.tokens if over is Over.TOKENS else x.at_s for of in runs.values() for x in of)
    if over is Over.TOKENS:
        count_below(axes, "tokens", most)
    unit_s = seconds_below(axes, most) if over is Over.TIME else 1.0
    for index, (name, means) in enumerate(runs.items()):
        points = [
            (one.tokens if over is Over.TOKENS else one.at_s / unit_s, one.value) for one in means
        ]
        line(axes, points, index, name)
    scale_y(axes, [one.value for of in runs.values() for one in of])


def figures_of(run: RunCurves, metric: str) -> dict[str, list[Mean]]:
    found = {
        LOSS: _points(run.loss),
        EVALUATION: _points(run.evaluations.get(metric, Curve())),
        "tokens_per_s": _rate(run, "tokens"),
        "goodput": _rate(run, "stepping_s", "allocated_s"),
        "bytes_up_per_s": _rate(run, "bytes_up"),
        "bytes_down_per_s": _rate(run, "bytes_down"),
        **{name: means.all() for name, means in run.means.items()},
    }
    return {name: points for name, points in found.items() if points}


def _points(curve: Curve) -> list[Mean]:
    return [Mean(*point) for point in curve.all()]


def _rate(run: RunCurves, what: str, per: str | None = None) -> list[Mean]:
    """Return the growth of one total over that of another, or over time, by stretches."""
    above = _points(run.totals.get(what, Curve()))
    if not above:
        return []
    below = above if per is None else _points(run.totals[per])
    spent = [one.at_s if per is None else one.value for one in below]
    least_s = max(RATE_LEAST_S, (above[-1].at_s - above[0].at_s) / RATE_PARTS)
    rates, begin = [], 0
    for index, point in enumerate(above):
        between = spent[index] - spent[begin]
        if point.at_s - above[begin].at_s >= least_s and between > 0:
            rate = max(0.0, point.value - above[begin].value) / between
            middle = above[(begin + index) // 2]  # learners' reports lie up to a second apart
            value = rate if per is None else min(1.0, rate)
            rates.append(Mean(middle.tokens, middle.at_s, value))
            begin = index
    return rates
