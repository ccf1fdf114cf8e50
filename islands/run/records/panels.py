"""The panels of a plot of runs: which figure each shows, its lines, marks, scales and units.

Nothing is drawn here. A figure is what a run's metrics hold, or what follows from their totals, as
tokens per second do. Such a rate is that over a stretch of the run which is so long that heartbeats
do not show in it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from islands.protocol.errors import UserError
from islands.run.records.charts import unit_of
from islands.run.records.legends import HAPPENINGS
from islands.run.records.run_curves import Happening, Mean, RunCurves, Series
from islands.settings.commands import Axis, Over

LOSS, EVALUATION, SPEED = "loss", "evaluation", "tokens_per_s"
RATES = (SPEED, "traffic")
SHARES = ("goodput", "yield", "participation")
"""Figures between 0 and 1."""
RATE_PARTS = 40
"""Into so many stretches a run is divided for its rates."""
RATE_LEAST_S = 8.0
"""A stretch lasts at least so long, as each learner has a row a second at most."""
MARKS_MOST = 8
"""Of more happenings of a kind in one run so many are marked, evenly over it."""
TITLES = {
    LOSS: "training loss",
    SPEED: "tokens per second",
    "goodput": "goodput: share of time spent stepping",
    "yield": "yield: share of tokens in the model",
    "traffic": "traffic: sent, received (thin line)",
    "participation": "share of learners in a merge",
    "staleness": "versions that contributions are behind",
    "step_time_s": "seconds per step",
}
BYTE_RATES = ((1e9, " (GB/s)"), (1e6, " (MB/s)"), (1e3, " (kB/s)"), (1.0, " (B/s)"))

Xy = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Mark:
    """A happening on the line of a run."""

    what: str
    at: Xy


@dataclass(frozen=True, slots=True)
class RunLines:
    """The lines of one run in a panel, and the marks on the first of them."""

    run: int
    lines: list[list[Xy]]
    marks: list[Mark]


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes.

    Args:
        figure: the name of what it shows.
        title: the same in words, with the unit.
        note: what follows the title where there is room; "" if there is nothing.
        unit: by which values are divided where they are written.
        over: what its horizontal axis shows.
        runs: the runs that have the figure.
        log: axes with a logarithmic scale.
    """

    figure: str
    title: str
    note: str
    unit: float
    over: Over
    runs: list[RunLines]
    log: Collection[Axis]

    @property
    def points(self) -> list[Xy]:
        """The points of all lines."""
        return [point for run in self.runs for line in run.lines for point in line]


def panels_of(
    runs: Sequence[RunCurves],
    figures: Sequence[str] = (),
    over: Sequence[Over] = tuple(Over),
    log: Collection[Axis] = (),
    metric: str | None = None,
) -> list[Panel]:
    """Return a panel for each figure over each quantity.

    Args:
        runs: the curves of each run.
        figures: names of what is shown; none: the loss and what was evaluated.
        over: what horizontal axes show.
        log: axes with a logarithmic scale, on which only what is above zero has a place.
        metric: the figure of the task's evaluation; None: the first one.

    Raises:
        UserError: no run has such a figure, or nothing of it has a place on a logarithmic scale.
    """
    metric = _metric(runs, metric)
    found = [figures_of(run, metric) for run in runs]
    known = list(dict.fromkeys(name for one in found for name in one))
    chosen = figures or [name for name in (LOSS, EVALUATION) if name in known] or known[:1]
    for name in chosen:
        if name not in known:
            raise UserError(f"figures has {name}; the runs have {', '.join(known) or 'none'}")
    titles = TITLES | ({} if metric is None else {EVALUATION: metric})
    panels = []
    for name in chosen:
        for one in over:
            lines = _lines_of(name, runs, found, one, log)
            unit, told = _unit_of(name, lines)
            title, colon, note = titles.get(name, name).partition(": ")
            panels.append(Panel(name, title + told, colon + note, unit, one, lines, log))
    return panels


def _unit_of(name: str, lines: Sequence[RunLines]) -> tuple[float, str]:
    """Return the unit of rates, which are large numbers, and how it is told; others have none."""
    most = max((y for run in lines for line in run.lines for _, y in line), default=0.0)
    if name == "traffic":
        return next((each for each in BYTE_RATES if most >= each[0]), BYTE_RATES[-1])
    unit, word = unit_of(most) if name == SPEED else (1.0, "")
    return unit, f" ({word})" if word else ""


def _metric(runs: Sequence[RunCurves], wanted: str | None) -> str | None:
    """Return the figure of the evaluation to draw; None if no run has been evaluated.

    Raises:
        UserError: no run has the one that is wanted.
    """
    known = list(dict.fromkeys(name for run in runs for name in run.evaluations))
    if wanted is None:
        return known[0] if known else None
    if wanted not in known:
        raise UserError(
            f"metric is {wanted}; the runs' evaluations have {', '.join(known) or 'no figures'}"
        )
    return wanted


def figures_of(run: RunCurves, metric: str | None) -> dict[str, list[list[Mean]]]:
    """Return the lines of each figure that a run has, by the figure's name."""
    found = {
        LOSS: [_points(run.loss)],
        EVALUATION: [_points(run.evaluations.get(metric or "", Series()))],
        SPEED: [_rate(run, "tokens")],
        "goodput": [_rate(run, "stepping_s", "allocated_s")],
        "traffic": [_rate(run, "bytes_up"), _rate(run, "bytes_down")],
        **{name: [means.all()] for name, means in run.means.items()},
    }
    return {name: lines for name, lines in found.items() if any(lines)}


def _points(series: Series) -> list[Mean]:
    pairs = zip(series.tokens.all(), series.seconds.all(), strict=True)
    return [Mean(tokens, at_s, value) for (tokens, value), (at_s, _) in pairs]


def _rate(run: RunCurves, what: str, per: str | None = None) -> list[Mean]:
    """Return the growth of one total over that of another, or over time, by stretches."""
    above = _points(run.totals.get(what, Series()))
    if not above:
        return []
    below = [point.at_s for point in above] if per is None else _values(run.totals[per])
    least_s = max(RATE_LEAST_S, (above[-1].at_s - above[0].at_s) / RATE_PARTS)
    rates, begin = [], 0
    for index, point in enumerate(above):
        spent = below[index] - below[begin]
        if point.at_s - above[begin].at_s >= least_s and spent > 0:
            share = max(0.0, point.value - above[begin].value) / spent
            if per is not None:
                share = min(1.0, share)  # reports of learners lie up to a second apart
            middle = above[(begin + index) // 2]
            rates.append(Mean(middle.tokens, middle.at_s, share))
            begin = index
    return rates


def _values(series: Series) -> list[float]:
    return [value for _, value in series.seconds.all()]


def _lines_of(
    name: str,
    runs: Sequence[RunCurves],
    found: Sequence[dict[str, list[list[Mean]]]],
    over: Over,
    log: Collection[Axis],
) -> list[RunLines]:
    """Return the lines of one figure, of all runs that have it.

    Raises:
        UserError: nothing of it has a place on a logarithmic scale.
    """
    drawn = []
    for number, (run, figures) in enumerate(zip(runs, found, strict=True)):
        lines = [_placed(line, over, log) for line in figures.get(name, [])]
        if any(lines):
            drawn.append(RunLines(number, lines, marks_on(lines[0], run.happenings, over)))
    if not drawn:
        axes = " and ".join(log)
        raise UserError(
            f"log has {axes}; {name} has no point above 0, so none has a place on such a scale"
        )
    return drawn


def _placed(line: Iterable[Mean], over: Over, log: Collection[Axis]) -> list[Xy]:
    points = [(one.tokens if over is Over.TOKENS else one.at_s, one.value) for one in line]
    return [
        (x, y) for x, y in points if (x > 0 or Axis.X not in log) and (y > 0 or Axis.Y not in log)
    ]


def marks_on(line: Sequence[Xy], happenings: Sequence[Happening], over: Over) -> list[Mark]:
    """Return marks at the height of a run's line, where that has begun and not yet ended."""
    marks = []
    for what in HAPPENINGS:
        every = [one for one in happenings if one.what == what]
        for one in evenly(every, MARKS_MOST):
            x = one.tokens if over is Over.TOKENS else one.at_s
            if line and line[0][0] <= x <= line[-1][0]:
                marks.append(Mark(what, (x, height_at(line, x))))
    return marks


def evenly(every: Sequence[Happening], most: int) -> list[Happening]:
    """Return at most so many, that lie evenly over all."""
    step = max(1.0, len(every) / most)
    return [every[int(index * step)] for index in range(min(most, len(every)))]


def height_at(line: Sequence[Xy], x: float) -> float:
    """Return the height of a line between its ends."""
    index = bisect_right(line, x, key=lambda point: point[0])
    if index == len(line):
        return line[-1][1]
    (x0, y0), (x1, y1) = line[index - 1], line[index]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
