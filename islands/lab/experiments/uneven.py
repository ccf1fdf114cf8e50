"""Learners of unlike speed: what waiting for the slowest costs, and what not waiting costs.

A lock-step run waits for all at each step; a decoupled one for no one. Quorum and grace then
decide which contributions are merged, and the rule of adoption decides the fate of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import NamedTuple

from islands.lab.experiments.experiment import Experiment
from islands.lab.experiments.fleet import Cell, Link, Played, play, steady
from islands.lab.experiments.formulas import goodput_of_waiting, lock_step
from islands.lab.settings.fleets import UnevenOptions
from islands.protocol.settings.choices import Adoption
from islands.settings.quantities import markdown_table

LOCK_STEP = "wait for all at each step"
ADOPTIONS = (Adoption.OVERWRITE, Adoption.DELAY_CORRECTED)
WARMUP_INTERVALS = 2


class Row(NamedTuple):
    """A row of the table: how long a merge waits for contributions, and how it is adopted."""

    merge: str
    adoption: str


Key = tuple[Row, int]
"""Of a run: its row, and its seed."""


def cells_of(options: UnevenOptions) -> dict[Key, Cell]:
    """Return every run that is asked for, by row and seed."""
    run = options.run
    quorums = {
        f"K={len(options.speeds)}": replace(run, quorum=len(options.speeds)),
        "K=1, no grace": replace(run, quorum=1, grace_safety=0.0),
        f"K=1, grace {run.grace_safety:g}": replace(run, quorum=1),
    }
    rows = {Row(LOCK_STEP, Adoption.OVERWRITE.value): lock_step(run.timing)}
    for name, settings in quorums.items():
        for adoption in ADOPTIONS:
            rows[Row(name, adoption.value)] = replace(settings, adoption=adoption)
    measured_s = options.steps * options.step_s * mean(options.speeds)
    cell = replace(
        steady(len(options.speeds)),
        step_s=options.step_s,
        noise=options.noise,
        speeds=options.speeds,
        parameters=options.parameters,
        link=Link(options.latency_s, options.gbit_s),
        warmup_s=WARMUP_INTERVALS * run.interval_steps * options.step_s,
        measured_s=measured_s,
    )
    return {
        (row, seed): replace(cell, settings=replace(settings, seed=seed), seed=seed)
        for row, settings in rows.items()
        for seed in options.seeds
    }


def table(options: UnevenOptions, runs: Mapping[Key, Played]) -> str:
    """Return the table as Markdown, and the closed formula beside it."""
    head = ["merge", "adoption", "goodput, %", "yield, %", "learners per merge", "merges"]
    lines = [head, *(_line(row, seeds) for row, seeds in by_row(runs).items())]
    formula = 100 * goodput_of_waiting(options.speeds, options.noise)
    sentence = (
        f"By formula, waiting for all at each step leaves {formula:.1f} % goodput; published for "
        "four learners at 1.0 and four at 1.18, with noise of 10 %: 84 %, and 100 % with K=1 "
        "(arXiv 2604.21428)."
    )
    return f"{markdown_table(lines)}\n\n{sentence}\n"


def by_row(runs: Mapping[Key, Played]) -> dict[Row, list[Played]]:
    """Return the runs of all seeds, by row."""
    rows: dict[Row, list[Played]] = {}
    for (row, _), played in runs.items():
        rows.setdefault(row, []).append(played)
    return rows


def _line(row: Row, runs: Sequence[Played]) -> list[str]:
    return [
        *row,
        f"{100 * mean(run.figures.goodput for run in runs):.1f}",
        f"{100 * mean(run.training.yield_share for run in runs):.1f}",
        f"{mean(run.training.per_merge for run in runs):.2f}",
        f"{mean(len(run.training.merges_s) for run in runs):.0f}",
    ]


def figures_of(options: UnevenOptions, runs: Mapping[Key, Played]) -> dict[str, object]:
    """Return the figures of every run, and the closed formula."""
    rows = [
        {
            "merge": row.merge,
            "adoption": row.adoption,
            "seed": seed,
            "goodput": played.figures.goodput,
            "yield": played.training.yield_share,
            "learners_per_merge": played.training.per_merge,
            "participation": played.training.participation,
            "merges": len(played.training.merges_s),
        }
        for (row, seed), played in runs.items()
    ]
    formula = goodput_of_waiting(options.speeds, options.noise)
    return {"lock_step_goodput_by_formula": formula, "runs": rows}


EXPERIMENT = Experiment("uneven", cells_of, play, table, figures_of)
