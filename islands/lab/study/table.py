"""The results of a study: a row for each cell, compared with the baseline, and their plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import mean

from islands.lab.experiments.plot import markdown_table
from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import Trial
from islands.lab.study.statistics import Comparison, Verdict, compare
from islands.lab.study.trial import Result
from islands.protocol.errors import UserError
from islands.run.records import pictures

Results = Mapping[str, Mapping[int, Result]]
"""Results by cell and seed; every cell is there, also one that has no result."""


@dataclass(frozen=True, slots=True)
class Row:
    """One cell: its metric by seed, NaN where there is none, and means over seeds with a result."""

    name: str
    metric: dict[int, float]
    comparison: Comparison
    yield_share: float
    participation: float
    virtual_s: float

    @property
    def mean(self) -> float:
        return mean(self.metric.values())


def by_cell(
    trials: Sequence[Trial], ended: Mapping[str, Result | None]
) -> dict[str, dict[int, Result]]:
    cells: dict[str, dict[int, Result]] = {}
    for trial in trials:
        cell, result = cells.setdefault(trial.name, {}), ended.get(trial.fingerprint)
        if result is not None:
            cell[trial.seed] = result
    return cells


def metric_of(options: StudyOptions, first: Result) -> str:
    name = options.metric or next(iter(first.figures), "")
    if name not in first.figures:
        known = ", ".join(first.figures) or "none"
        raise UserError(f"metric is {name!r}; the task's evaluation has {known}")
    return name


def rows_of(
    options: StudyOptions, trials: Sequence[Trial], results: Results, metric: str
) -> list[Row]:
    """One row per cell; one that lacks a seed, or a finite figure, has failed."""
    metrics = {
        name: {seed: own[seed].metric(metric) if seed in own else nan for seed in options.seeds}
        for name, own in results.items()
    }
    sign = -1.0 if options.higher_is_better else 1.0
    means = {  # of a baseline that is swept the best: nobody is compared with a poor one
        trial.name: sign * mean(metrics[trial.name].values())
        for trial in trials
        if trial.key == options.baseline and _whole(metrics[trial.name])
    }
    baseline = min(means, key=means.__getitem__, default=None)
    rows = []
    for name, own in metrics.items():
        ended = [*results[name].values()]
        if not _whole(own):
            comparison = Comparison(Verdict.FAILED)
        elif name == baseline:
            comparison = Comparison(Verdict.BASELINE)
        elif baseline is None:
            comparison = Comparison(Verdict.UNDECIDED)
        else:
            comparison = compare(
                own,
                metrics[baseline],
                within=options.within,
                higher_is_better=options.higher_is_better,
            )
        rows.append(
            Row(
                name,
                own,
                comparison,
                mean(each.yield_share for each in ended) if ended else 0.0,
                mean(each.participation for each in ended) if ended else 0.0,
                mean(each.virtual_s for each in ended) if ended else 0.0,
            )
        )
    return rows


def _whole(metrics: Mapping[int, float]) -> bool:
    return all(map(isfinite, metrics.values()))


def table(options: StudyOptions, rows: Sequence[Row], metric: str) -> str:
    head = (
        *("cell", metric, "each seed", "worse by", "95 % interval"),
        *("yield", "took part", "virtual s", ""),
    )
    cells = markdown_table([head, *(_cells(row) for row in rows)])
    alike = "" if options.seed_argument else "; all seeds read the data in one order"
    seeds = ", ".join(map(str, options.seeds))
    sentences = (
        f"Budget: {options.tokens:,} tokens each; seeds {seeds}{alike}. `within`: at most "
        f"{options.within:.1%} worse than the baseline. `failed`: a trial failed, did not spend "
        "its budget, or ended with a figure that is no number."
    )
    return f"{cells}\n\n{sentences}\n"


def _cells(row: Row) -> tuple[str, ...]:
    comparison = row.comparison
    known = comparison.low is not None and comparison.high is not None
    return (
        row.name,
        f"{row.mean:.4g}",
        " ".join(f"{value:.4g}" for value in row.metric.values()),
        "" if comparison.worse_by is None else f"{comparison.worse_by:+.2%}",
        f"{comparison.low:+.2%} to {comparison.high:+.2%}" if known else "",
        f"{row.yield_share:.3f}",
        f"{row.participation:.3f}",
        f"{row.virtual_s:.1f}",
        comparison.verdict.value,
    )


# --- the plot ----------------------------------------------------------------------------------

CHART_INCHES = 3.6
SKIPPED_SHARE = 0.15
"""The first part of a curve is left out: it falls so far that all ends would lie together."""


def plot(results: Results, metric: str, name: str) -> bytes:
    """Draw the metric over tokens as a PNG file: a line for each cell, the mean over its seeds."""
    curves = {cell: points_of(found, metric) for cell, found in results.items()}
    ends = max((x for points in curves.values() for x, _ in points), default=1.0)
    shown = {
        cell: [point for point in points if point[0] >= SKIPPED_SHARE * ends]
        for cell, points in curves.items()
    }
    drawn = {cell: points for cell, points in shown.items() if points}
    with pictures.new_figure(CHART_INCHES + len(drawn) * pictures.LINE_INCHES / 2) as figure:
        figure.suptitle(name, x=0.01, ha="left")
        axes = figure.subplots()
        axes.set_ylabel(metric)
        if not drawn:
            axes.set_title("nothing was evaluated")
            return pictures.encoded(figure)
        names = [f"{cell}  {points[-1][1]:.4g}" for cell, points in drawn.items()]
        for index, points in enumerate(drawn.values()):
            pictures.line(axes, points, index, names[index])
        pictures.scale_y(axes, [y for points in drawn.values() for _, y in points])
        pictures.count_below(axes, "tokens", ends)
        axes.set_xlim(left=SKIPPED_SHARE * ends)
        figure.legend(loc="outside lower left", ncols=2)
        return pictures.encoded(figure)


def points_of(found: Mapping[int, Result], metric: str) -> list[tuple[float, float]]:
    """The mean curve of a cell, at the marks that all of its seeds have."""
    curves = [
        {mark: (tokens, figures.get(metric, nan)) for mark, tokens, figures in result.curve}
        for result in found.values()
    ]
    marks = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    points = [
        (mean(curve[mark][0] for curve in curves), mean(curve[mark][1] for curve in curves))
        for mark in marks
    ]
    return [point for point in points if isfinite(point[1])]
