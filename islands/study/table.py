"""The result of a study: one row per cell, and how it compares with the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from islands.errors import UserError
from islands.settings.study import StudyOptions
from islands.study.cells import Trial, is_of
from islands.study.statistics import Comparison, Verdict, compare
from islands.study.trial import Result

Results = Mapping[str, Mapping[int, Result]]
"""What was found, by cell and seed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One cell.

    Args:
        name: of the cell.
        metric: of each seed.
        comparison: with the baseline.
        yield_share: mean over the seeds.
        participation: mean over the seeds.
        merges: mean over the seeds.
    """

    name: str
    metric: dict[int, float]
    comparison: Comparison
    yield_share: float
    participation: float
    merges: float


def by_cell(found: Sequence[tuple[Trial, Result]]) -> dict[str, dict[int, Result]]:
    """Results by cell and seed, in the order of the study."""
    cells: dict[str, dict[int, Result]] = {}
    for trial, result in found:
        cells.setdefault(trial.name, {})[trial.seed] = result
    return cells


def metric_of(options: StudyOptions, result: Result) -> str:
    """The figure that is compared.

    Args:
        options: of the study.
        result: of any of its trials.

    Raises:
        UserError: the task's evaluation has no such figure.
    """
    name = options.metric or next(iter(result.figures), "")
    if name not in result.figures:
        known = ", ".join(result.figures) or "none"
        raise UserError(f"metric is {name!r}; the task's evaluation has {known}")
    return name


def baseline_of(options: StudyOptions, results: Results, metric: str) -> str | None:
    """The baseline; of one that is swept the best, so that nobody is compared with a poor one."""
    key = options.baseline
    names = [] if key is None else [name for name in results if is_of(key, name)]
    sign = -1.0 if options.higher_is_better else 1.0
    means = {name: sign * mean(_metric(results[name], metric).values()) for name in names}
    return min(means, key=means.__getitem__, default=None)


def rows_of(options: StudyOptions, results: Results, metric: str) -> list[Row]:
    """One row per cell."""
    baseline = baseline_of(options, results, metric)
    reference = {} if baseline is None else _metric(results[baseline], metric)
    return [
        Row(
            name,
            found := _metric(results[name], metric),
            _compared(options, found, reference, alone=name == baseline),
            mean(each.yield_share for each in results[name].values()),
            mean(each.participation for each in results[name].values()),
            mean(each.merges for each in results[name].values()),
        )
        for name in results
    ]


def _metric(results: Mapping[int, Result], metric: str) -> dict[int, float]:
    return {seed: result.figures[metric] for seed, result in sorted(results.items())}


def _compared(
    options: StudyOptions, found: dict[int, float], reference: dict[int, float], *, alone: bool
) -> Comparison:
    if alone:
        return Comparison(mean(found.values()), None, None, None, Verdict.BASELINE)
    return compare(
        found, reference, within=options.within, higher_is_better=options.higher_is_better
    )


def table(options: StudyOptions, results: Results, metric: str) -> str:
    """The table as Markdown."""
    rows = rows_of(options, results, metric)
    head = ("cell", metric, "each seed", "worse by", "95 % interval", "yield", "took part", "")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    lines = [_line(line, widths) for line in cells]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    told = (
        f"{options.tokens:,} tokens each, seeds {', '.join(map(str, options.seeds))}; `within` "
        f"means at most {options.within:.1%} worse than the baseline"
    )
    return "\n".join([*lines, "", told]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _cells(row: Row) -> tuple[str, ...]:
    found = row.comparison
    between = "" if found.low is None else f"{found.low:+.2%} to {found.high:+.2%}"
    return (
        row.name,
        f"{found.mean:.4g}",
        " ".join(f"{value:.4g}" for value in row.metric.values()),
        "" if found.worse_by is None else f"{found.worse_by:+.2%}",
        between,
        f"{row.yield_share:.3f}",
        f"{row.participation:.3f}",
        found.verdict.value,
    )
