"""The results of a run that has ended: its figures with a word on each, and what one may do next.

The words judge by the thresholds of `islands.run.records.summary`, which gives the advice.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from islands.run.records.figures import LearnerFigures, RunFigures, drawable
from islands.run.records.summary import DATA_WAIT_MOST, LOW_YIELD, Summary
from islands.settings.quantities import data_size, duration

BARS = "▁▂▃▄▅▆▇█"
CURVE = 30
"""Width of a curve in columns, so that 80 columns hold the line."""
GOOD = 0.9
"""A fraction from here on needs no remark."""
NEXT = (
    ("report {folder} --out run.html", "the page of this run as one file, for any browser"),
    ("plot {folder}", "its curves as pictures, also beside those of other runs"),
    ("model export {folder} model.safetensors", "the trained values in one file"),
)
"""Commands for every run that has ended, and what they make."""


class Result(NamedTuple):
    """One line: the name of a figure, the figure with its unit, and a word on it."""

    name: str
    value: str
    remark: str = ""


def results(figures: RunFigures, summary: Summary) -> list[Result]:
    number = cast("Mapping[str, float]", summary)
    losses = [loss for _, loss in figures.losses.all()]
    name, values = figures.metric
    curves = (("training loss", losses), (name, values))
    lines = [
        Result(title, f"{curve[0]:.3f} → {curve[-1]:.3f}", sparkline(curve, CURVE))
        for title, curve in curves
        if curve
    ]
    tokens_per_s = number["tokens"] / max(number["wall_s"], 1e-9)
    lines += [
        Result("tokens", f"{number['tokens']:,}", f"{tokens_per_s:,.0f} tokens/s on average"),
        Result("time", duration(number["wall_s"])),
        Result("merged in time", f"{number['yield']:.1%}", _on_yield(number["yield"])),
        Result("merged at all", f"{number['merged_at_all']:.1%}", "of tokens, with the end's"),
        Result("goodput", f"{number['goodput']:.1%}", _on_goodput(figures, number)),
        Result("merges", f"{number['merges']:,}", _on_merges(number)),
        Result("evictions", f"{number['evictions']:,}", _returned(figures)),
        _stall(figures),
        Result(
            "traffic",
            f"{data_size(number['bytes_up'])} up, {data_size(number['bytes_down'])} down",
            "of all learners",
        ),
    ]
    if number["data_wait"] >= DATA_WAIT_MOST:
        lines.append(Result("data wait", f"{number['data_wait']:.1%}", "steps waited for batches"))
    return lines


def _on_yield(fraction: float) -> str:
    word = "good" if fraction >= GOOD else "fair" if fraction >= LOW_YIELD else "low, see below"
    return f"of tokens, before the run ended: {word}"


def _on_goodput(figures: RunFigures, number: Mapping[str, float]) -> str:
    remark = "of learners' time was steps"
    if number["goodput"] >= GOOD:
        return f"{remark}: good"
    spent: defaultdict[str, float] = defaultdict(float)
    for learner in figures.learners.values():  # before it was heard it was starting
        states = [(0.0, "starting"), *learner.states, (number["wall_s"], "")]
        for (from_s, state), (until_s, _) in pairwise(states):
            spent[state] += max(0.0, until_s - from_s)
        spent["waiting for data"] += learner.waited_s  # within the time of stepping
    spent.pop("stepping", None)
    return (
        f"{remark}; most of the rest was {max(spent, key=spent.__getitem__)}" if spent else remark
    )


def _on_merges(number: Mapping[str, float]) -> str:
    fraction = number["participation"]
    return f"with {fraction:.0%} of learners in each{': good' * (fraction >= GOOD)}"


def _returned(figures: RunFigures) -> str:
    """Name a learner that was started more than once, and count the others."""
    again = [(name, done.incarnations) for name, done in figures.learners.items()]
    again = [(name, times) for name, times in again if times > 1]
    if not again:
        return ""
    more = f", and {len(again) - 1} more" * (len(again) > 1)
    return f"{again[0][0]} was admitted {again[0][1]} times{more}"


def _stall(figures: RunFigures) -> Result:
    """Return by how much the latest step came late, where the gaps between steps were measured."""
    gaps = figures.gaps
    if not gaps.count:
        return Result("longest stall", "not measured", "no learner told the gaps between its steps")
    late = "by which a step came late" if gaps.largest_s else "no step came late"
    return Result("longest stall", duration(gaps.largest_s), late)


def show_results(console: Console, figures: RunFigures, summary: Summary) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for line in results(figures, summary):
        table.add_row(line.name, line.value, line.remark)
    console.print(table)
    console.print()
    console.print(_fates(cast("dict[str, object]", summary["ledger"])))
    console.print()
    console.print(_learners(cast("dict[str, dict[str, float]]", summary["learners"]), figures))
    if summary["unbooked_tokens"]:
        console.print(
            f"Not in the total: {summary['unbooked_tokens']:,} tokens of processes that ended "
            "before they had reported them to the syncer.",
            soft_wrap=True,
        )


def show_next(console: Console, folder: Path, *, generates: bool) -> None:
    """Print the commands that one may use next, each on a line that can be copied."""
    commands = [(f"islands {each.format(folder=folder)}", does) for each, does in NEXT]
    if generates:
        does = "the text with which the model goes on"
        commands.append((f"islands model generate {folder} --prompt TEXT", does))
    console.print("\nWhat one may do next:\n", highlight=False)
    for command, does in commands:
        console.print(f"    {command}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"        {does}", style="dim", markup=False, highlight=False)


def _fates(ledger: dict[str, object]) -> Table:
    """Return the fates that befell tokens, as means over fragments."""
    rows = cast("list[dict[str, int]]", ledger["fragments"])
    table = Table(box=None, pad_edge=False)
    for title in ("what became of the tokens", "tokens", "share"):
        table.add_column(title, justify="right" if title in ("tokens", "share") else "left")
    processed = max(1, sum(row["processed"] for row in rows))
    for name in rows[0]:
        total = sum(row[name] for row in rows)
        if total or name in ("processed", "applied"):
            table.add_row(name, f"{total / len(rows):,.0f}", f"{total / processed:.1%}")
    if ledger["imbalance"]:
        table.add_row("imbalance, an error of Islands", str(ledger["imbalance"]), "", style="red")
    return table


def _learners(learners: dict[str, dict[str, float]], figures: RunFigures) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("learner", no_wrap=True)
    for title in ("steps", "tokens", "in time", "at all", "loss", "starts", "sent", "received"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in learners.items():
        done = figures.learners.get(name, LearnerFigures())
        table.add_row(
            Text(name),
            f"{row['steps']:,}",
            f"{row['tokens']:,}",
            f"{row['merged_in_time']:.0%}",
            f"{row['merged_at_all']:.0%}",
            "" if done.loss is None else f"{done.loss:.3f}",
            f"{row['incarnations']:,}",
            data_size(done.bytes_up) if done.bytes_up else "",
            data_size(done.bytes_down) if done.bytes_down else "",
        )
    totals = [f"{sum(row[key] for row in learners.values()):,}" for key in ("steps", "tokens")]
    table.add_row("total", *totals, *[""] * 6, style="bold")
    return table


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw a curve as one line of text: the mean of each of `width` equal parts.

    Values that have no place on an axis are left out, so that a diverged run is shown as well.
    """
    values = [value for value in values if drawable(value)]
    width = min(width, len(values))
    if width < 1:
        return ""
    bounds = [index * len(values) // width for index in range(width + 1)]
    means = [fmean(values[begin:end]) for begin, end in pairwise(bounds)]
    low = min(means)
    span = (max(means) - low) or 1.0
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)
