"""The pictures of runs: one of each run at its end, and one of several runs side by side."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from islands.protocol.settings.run import RunSettings
from islands.run.records.charts import (
    GREEN,
    LEGEND_INCHES,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Points,
    encoded,
    line,
    new_figure,
    scale_y,
    seconds_below,
    title,
    tokens_below,
)
from islands.run.records.figures import LearnerFigures, RunFigures, drawable, in_order
from islands.run.records.run_curves import RunCurves, Series
from islands.settings.quantities import count, duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS_MOST = 32
NAME_CHARACTERS = 24
CHART_INCHES, ROW_INCHES, AROUND_INCHES = 3.6, 0.24, 1.9
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


class RunPicture(NamedTuple):
    """One picture as the content of two files."""

    png: bytes
    svg: bytes


def picture_of(
    figures: RunFigures, settings: RunSettings, end_s: float, share: float
) -> RunPicture:
    """Draw a run: its loss and its evaluations over tokens, and what each learner did when.

    Args:
        figures: the run's losses and evaluations, and what its learners did.
        settings: the run's settings, for its name.
        end_s: how long the run has lasted, over all its starts.
        share: the run's yield.

    Raises:
        UserError: matplotlib is not installed.
    """
    names = sorted(figures.learners, key=in_order)
    shown = {name: figures.learners[name] for name in names[:ROWS_MOST]}
    more = len(names) - len(shown)
    timeline = ROW_INCHES * max(1, len(shown) + bool(more))
    told = (
        f"{count(figures.tokens)} tokens in {duration(end_s)}, {figures.merges:,} merges, "
        f"yield {share:.2f}, evictions: {figures.evictions}"
    )
    name, _ = figures.metric
    evaluated = [
        (float(row["tokens"]), row[name])
        for row in figures.evaluations
        if name in row and drawable(row[name])
    ]
    charts = [("training loss", figures.losses.all()), (name, evaluated)]
    charts = [chart for chart in charts if chart[1]] or [("no step was reported", [])]
    with new_figure(CHART_INCHES + timeline + AROUND_INCHES) as figure:
        title(figure, settings.run, told)
        rows = figure.add_gridspec(2, len(charts), height_ratios=(CHART_INCHES, timeline))
        for index, (what, points) in enumerate(charts):
            axes = figure.add_subplot(rows[0, index])
            axes.set_title(_ends(what, points))
            tokens_below(axes, max((x for x, _ in points), default=0.0))
            if points:
                line(axes, points, index)
                scale_y(axes, [y for _, y in points])
        _timeline(figure.add_subplot(rows[1, :]), shown, more, end_s)
        return RunPicture(encoded(figure), encoded(figure, "svg"))


def _ends(what: str, points: Points) -> str:
    return f"{what}: {points[0][1]:.4g} to {points[-1][1]:.4g}" if points else what


def _timeline(
    axes: "Axes", learners: Mapping[str, LearnerFigures], more: int, end_s: float
) -> None:
    """Draw a bar for each learner, coloured by its state over time."""
    unit_s = seconds_below(axes, end_s)
    spans: dict[str, list[tuple[int, float, float]]] = {state: [] for state in STATES}
    for row, learner in enumerate(learners.values()):
        for (from_s, state), (until_s, _) in pairwise([*learner.states, (end_s, "")]):
            length_s = max(end_s / 2_000, until_s - from_s)  # what lasted an instant is seen, too
            spans.setdefault(state, []).append((row, from_s / unit_s, length_s / unit_s))
    for state, found in spans.items():
        if found:
            rows, begins, lengths = zip(*found, strict=True)
            colour = STATES.get(state, STATES["left"])
            axes.barh(rows, lengths, BAR_HEIGHT, begins, color=colour, label=state)
    names = [name[:NAME_CHARACTERS] for name in learners] + [f"and {more:,} more"] * bool(more)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    if any(spans.values()):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES), borderaxespad=0.2)


def plot(
    runs: Mapping[str, RunCurves], metric: str | None, kind: Literal["png", "svg"] = "png"
) -> bytes:
    """Draw several runs over one another, over tokens and over time; return the file's content.

    Args:
        runs: the curves of each run, by the name that the legend shows.
        metric: the figure of the evaluation that is drawn; None if no run has any.
        kind: of the file.

    Raises:
        UserError: matplotlib is not installed.
    """
    charts: list[tuple[str, dict[str, Series]]] = [
        ("training loss", {name: run.loss for name, run in runs.items()})
    ]
    if metric is not None:
        found = {name: run.evaluations.get(metric, Series()) for name, run in runs.items()}
        charts.append((metric, found))
    height = CHART_INCHES * len(charts) + LEGEND_INCHES * (1 + len(runs))
    with new_figure(height) as figure:
        rows = figure.subplots(len(charts), 2, sharex="col", sharey="row", squeeze=False)
        every = [one for _, series in charts for one in series.values()]
        tokens = _largest_x([one.tokens.all() for one in every])
        seconds = _largest_x([one.seconds.all() for one in every])
        for (what, series), (over_tokens, over_time) in zip(charts, rows, strict=True):
            over_tokens.set_title(what)
            tokens_below(over_tokens, tokens)
            _draw_all(over_tokens, [one.tokens.all() for one in series.values()])
            unit_s = seconds_below(over_time, seconds)
            for axes in (over_tokens, over_time):
                axes.tick_params(labelbottom=True)
            drawn = [one.seconds.all() for one in series.values()]
            _draw_all(over_time, [[(x / unit_s, y) for x, y in points] for points in drawn])
        for name, handle in zip(runs, rows[0, 0].lines, strict=True):
            ends = [_end(what, series[name].tokens.all()) for what, series in charts]
            handle.set_label(f"{name}: {', '.join(filter(None, ends))}")
        figure.legend(handles=rows[0, 0].lines, loc="outside lower left")
        return encoded(figure, kind)


def _largest_x(drawn: Sequence[Points]) -> float:
    return max((x for points in drawn for x, _ in points), default=0.0)


def _draw_all(axes: "Axes", drawn: Sequence[Points]) -> None:
    """Draw the lines of all runs; one without a point keeps its colour."""
    for index, points in enumerate(drawn):
        line(axes, points, index)
    values = [y for points in drawn for _, y in points]
    if values:
        scale_y(axes, values)


def _end(what: str, points: Points) -> str:
    return f"{what} {points[-1][1]:.4g}" if points else ""
