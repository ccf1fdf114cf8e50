"""The picture of a run at its end: its curves, and what each learner did when."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from islands.protocol.settings.run import RunSettings
from islands.run.records.charts import (
    GREEN,
    INK,
    LOOKS,
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
from islands.run.records.legends import HAPPENINGS, legend_below, legend_of_marks, mark
from islands.settings.commands import Size
from islands.settings.quantities import count, duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS_MOST = {Size.PAGE: 32, Size.TALK: 8}
NAME_CHARACTERS = 24
CHART_INCHES, AROUND_INCHES = 2.1, 1.5
ROW_LINES = 1.15
"""The height of a learner's row, in lines of text."""
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


KINDS: Mapping[Size, tuple[Literal["png", "svg"], ...]] = {
    Size.PAGE: ("png", "svg"),
    Size.TALK: ("png",),
}


class RunPicture(NamedTuple):
    """One picture as the content of three files, of which the last is for a slide of a talk."""

    png: bytes
    svg: bytes
    talk: bytes


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
    pictures = []
    for size, kinds in KINDS.items():
        with new_figure(_height_inches(figures, size), size) as figure:
            title(figure, settings.run, _told(figures, end_s, share))
            _draw(figure, figures, end_s, size)
            pictures += [encoded(figure, kind) for kind in kinds]
    return RunPicture(*pictures)


def _height_inches(figures: RunFigures, size: Size) -> float:
    return CHART_INCHES + _timeline_inches(figures, size) + AROUND_INCHES


def _timeline_inches(figures: RunFigures, size: Size) -> float:
    rows = min(len(figures.learners), ROWS_MOST[size] + 1)
    return LOOKS[size].text_inches * ROW_LINES * max(1, rows)


def _told(figures: RunFigures, end_s: float, share: float) -> str:
    evictions = "eviction" if figures.evictions == 1 else "evictions"
    return (
        f"{count(figures.tokens)} tokens in {duration(end_s)}, {figures.merges:,} merges, "
        f"yield {share:.2f}, {figures.evictions:,} {evictions}"
    )


def _draw(figure: "Figure", figures: RunFigures, end_s: float, size: Size) -> None:
    names = sorted(figures.learners, key=in_order)
    shown = {name: figures.learners[name] for name in names[: ROWS_MOST[size]]}
    name, _ = figures.metric
    evaluated = [
        (float(row["tokens"]), row[name])
        for row in figures.evaluations
        if name in row and drawable(row[name])
    ]
    charts = [("training loss", figures.losses.all()), (name, evaluated)]
    charts = [chart for chart in charts if chart[1]] or [("no step was reported", [])]
    heights = (CHART_INCHES, _timeline_inches(figures, size))
    rows = figure.add_gridspec(2, len(charts), height_ratios=heights)
    for column, (what, points) in enumerate(charts):
        axes = figure.add_subplot(rows[0, column])
        axes.set_title(_ends(what, points))
        tokens_below(axes, max((x for x, _ in points), default=0.0))
        if points:
            line(axes, points)
            scale_y(axes, [y for _, y in points])
    axes = figure.add_subplot(rows[1, :])
    unit_s = _timeline(axes, shown, len(names) - len(shown), end_s)
    seen = _marks(axes, figures.happenings, list(shown), unit_s)
    legend_below(figure, [], legend_of_marks(seen), size)


def _ends(what: str, points: Points) -> str:
    return f"{what}: {points[0][1]:.4g} to {points[-1][1]:.4g}" if points else what


def _timeline(
    axes: "Axes", learners: Mapping[str, LearnerFigures], more: int, end_s: float
) -> float:
    """Draw a bar for each learner, by its state over time; return the seconds of the time's unit.

    A learner that is away has a thinner bar, for those who see no colours.
    """
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
            height = BAR_HEIGHT / 3 if state in ("away", "left") else BAR_HEIGHT
            axes.barh(rows, lengths, height, begins, color=colour, label=state)
    names = [name[:NAME_CHARACTERS] for name in learners] + [f"and {more:,} more"] * bool(more)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    if any(spans.values()):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES), borderaxespad=0.2)
    return unit_s


def _marks(
    axes: "Axes",
    happenings: Iterable[tuple[float, str, str]],
    rows: Sequence[str],
    unit_s: float,
) -> set[str]:
    """Mark happenings on the bars of learners, those of the run below; return their kinds."""
    drawn = set()
    for at_s, what, name in happenings:
        if what in HAPPENINGS:
            y = rows.index(name) if name in rows else max(1, len(rows)) - 0.5
            axes.plot(at_s / unit_s, y, **mark(what), color=INK, clip_on=False)
            drawn.add(what)
    return drawn
