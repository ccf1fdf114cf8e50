"""The link that a run needs, preset by preset and model by model, beside formula and paper.

The published table is that of Streaming DiLoCo (arXiv 2501.18512, table 4): Gbit/s to reach a
utilisation by the authors' own simulation, which knows layers, hides an all-reduce behind the
backward pass, counts 16 bits for each value, and tries bandwidths a fifth apart. Here every value
travels twice, to the syncer in 16 bits and back in 32, and no step begins before the last value of
the one before it: where learners wait, our figures are about three times theirs for this alone.

Each bandwidth is searched for by bisection over runs of the actors. **Utilisation** is the share of
what an unlimited link allows. Learners that wait lose time, and all of their tokens are merged:
theirs is goodput. Learners that never wait step all the time. Where values overwrite, they lose
tokens in place of time: theirs is goodput × yield. Where delay is corrected they lose neither, and
are merged more rarely: theirs is contributions that are merged per second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import NamedTuple

from islands.lab.experiments.experiment import Experiment
from islands.lab.experiments.fleet import Cell, Link, play, steady
from islands.lab.experiments.formulas import (
    Job,
    gbit_text,
    lock_step,
    needed_gbit_s,
    period_s,
    syncer_gbit_s,
)
from islands.lab.settings.fleets import BandwidthOptions
from islands.protocol.errors import UserError
from islands.protocol.settings.choices import Adoption, LearnerWaits, Precision, UpdatePrecision
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.settings.quantities import count, markdown_table

SHARDS = (1, 4, 16)
PUBLISHED_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)
PUBLISHED: Mapping[str, Mapping[float, tuple[float, ...]]] = {
    "data-parallel": {
        1e9: (86.8, 152.6, 184.2, 222.3, 569.0),
        10e9: (104.8, 222.3, 222.3, 268.3, 471.5),
        100e9: (184.2, 323.8, 390.7, 390.7, 471.5),
    },
    "diloco": {
        1e9: (1.4, 6.2, 13.3, 23.3, 86.8),
        10e9: (1.7, 7.5, 16.0, 33.9, 104.8),
        100e9: (3.0, 11.0, 23.3, 49.4, 184.2),
    },
    "streaming_diloco, no overlap": {
        1e9: (1.4, 5.2, 9.1, 16.0, 28.1),
        10e9: (1.7, 5.2, 9.1, 13.3, 19.3),
        100e9: (2.4, 6.2, 9.1, 11.0, 19.3),
    },
    "streaming_diloco": {
        1e9: (1.4, 4.3, 6.2, 9.1, 11.0),
        10e9: (1.7, 3.6, 5.2, 6.2, 7.5),
        100e9: (1.7, 3.6, 4.3, 5.2, 5.2),
    },
    "streaming_diloco, fp4 both ways": {
        1e9: (0.4, 0.9, 1.7, 2.0, 3.0),
        10e9: (0.4, 0.9, 1.4, 1.4, 1.7),
        100e9: (0.5, 0.9, 1.1, 1.1, 1.4),
    },
}
"""Gbit/s by row and parameters, for `PUBLISHED_SHARES`."""


PATIENCE = 10.0
"""Of a run, for each second of its step: values are sent again after 20 steps at the earliest.

Where that is less than an exchange takes, a link that is just wide enough is filled by what is sent
twice, and stays full.
"""


WARMUP_ROUNDS = 6
"""After which timeouts know how long an exchange takes, and nothing is sent twice."""

ROUNDS_LEAST, STEPS_LEAST, INTERVALS = 4, 24, 2
START_STEPS = 6.0
FACTOR = 1.3
"""Between two bandwidths that are tried, until one is enough and one is not."""

TRIALS_MOST = 40
LOWER_MOST = 4.0
"""By how many times a bandwidth that is tried may be lower than the first: runs get longer."""

SLACK = 0.0005
"""By which a share may miss its level: it is that of some ten rounds."""

UNLIMITED_GBIT_S = 1e9


class Key(NamedTuple):
    """The key of a search: its row, and the model's parameters."""

    row: str
    parameters: float


@dataclass(frozen=True, slots=True)
class Search:
    """A search for bandwidths of one kind of run and one model.

    Attributes:
        settings: of the runs.
        job: the model.
        learners: how many.
        utilisations: shares of what an unlimited link allows.
        within: by what share a bandwidth that is found may be too high.
    """

    settings: RunSettings
    job: Job
    learners: int
    utilisations: tuple[float, ...]
    within: float


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes:
        gbit_s: least bandwidth for each utilisation; infinite if none is enough.
        lowest_gbit_s: the lowest bandwidth that was tried; less may be enough where it is.
        runs: how many runs it took.
    """

    gbit_s: dict[float, float]
    lowest_gbit_s: float
    runs: int


def search(wanted: Search) -> Found:
    """Find the least bandwidths, each run being used for all utilisations."""
    known: dict[float, float] = {}
    top = 1.0 if _waits(wanted) else _share(wanted, UNLIMITED_GBIT_S)

    def share(gbit_s: float) -> float:
        if gbit_s not in known:
            known[gbit_s] = _share(wanted, gbit_s) / top
        return known[gbit_s]

    bandwidths = {
        level: least(
            share,
            level,
            known,
            begin=needed_gbit_s(wanted.settings, wanted.job, level),
            within=wanted.within,
        )
        for level in wanted.utilisations
    }
    return Found(bandwidths, min(known, default=0.0), len(known))


def least(
    share: Callable[[float], float],
    level: float,
    known: dict[float, float],
    *,
    begin: float,
    within: float,
) -> float:
    """Return the least bandwidth whose share is at a level, at most so much too high.

    Args:
        share: of a bandwidth; it grows with it.
        level: that is asked for.
        known: shares that are known by bandwidth; `share` adds to it.
        begin: where to begin if nothing is known.
        within: by what share the answer may be too high.
    """
    if begin == inf:
        return inf
    share(begin)
    for _ in range(TRIALS_MOST):
        enough = min(
            (each for each, value in known.items() if value >= level - SLACK), default=None
        )
        short = max(
            (each for each, value in known.items() if enough is None or each < enough),
            default=None,
        )
        if enough is None:
            share(max(known) * FACTOR)
        elif short is None and enough <= begin / LOWER_MOST:
            return enough
        elif short is None:
            share(enough / FACTOR)
        elif enough <= short * (1 + within):
            return enough
        else:
            share(sqrt(enough * short))
    return inf


def cell_of(wanted: Search, gbit_s: float) -> Cell:
    """Return the run that is played with a bandwidth."""
    settings, job = wanted.settings, wanted.job
    round_s = period_s(settings, job, gbit_s)
    rounds = max(
        ROUNDS_LEAST,
        STEPS_LEAST / settings.round_interval_steps(settings.fragments),
        0 if _waits(wanted) else INTERVALS * settings.fragments,
    )
    warmup = WARMUP_ROUNDS if settings.interval_steps < STEPS_LEAST else ROUNDS_LEAST / 2
    before = max(warmup, 1 if _waits(wanted) else settings.fragments)
    return replace(
        steady(wanted.learners),
        step_s=job.step_s,
        parameters=job.parameters,
        link=Link(job.latency_s, gbit_s),
        work_s=(0.0, 0.0),
        settings=settings,
        warmup_s=START_STEPS * job.step_s + before * round_s,
        measured_s=rounds * round_s,
    )


def _waits(wanted: Search) -> bool:
    return wanted.settings.learner_waits is LearnerWaits.AT_TAU


def _share(wanted: Search, gbit_s: float) -> float:
    """Play a run; returns the quantity that its utilisation is measured by."""
    played = play(cell_of(wanted, gbit_s))
    figures, training = played.figures, played.training
    if _waits(wanted):
        return figures.goodput
    if wanted.settings.adoption is Adoption.OVERWRITE:
        return figures.goodput * training.yield_share
    return training.per_merge * len(training.merges_s) / played.cell.measured_s


def rows_of(options: BandwidthOptions, fragments: int, step_s: float) -> dict[str, RunSettings]:
    """Return the settings of each row for one model."""
    timing = Timing(patience=PATIENCE * step_s)
    steps = options.interval_steps
    diloco = replace(PRESETS[Preset.DILOCO], interval_steps=steps)
    streaming = replace(PRESETS[Preset.STREAMING_DILOCO], interval_steps=steps, fragments=fragments)
    decoupled = PRESETS[Preset.DECOUPLED_DILOCO]
    fine = {
        "data-parallel": lock_step(timing),
        "diloco": diloco,
        "streaming_diloco, no overlap": replace(streaming, overlap_steps=0),
        "streaming_diloco": streaming,
        "decoupled_diloco": decoupled,
        "decoupled": PRESETS[Preset.DECOUPLED],
    }
    rows = {name: replace(each, precision=Precision.BFLOAT16) for name, each in fine.items()}
    for name, each in (("streaming_diloco", streaming), ("decoupled_diloco", decoupled)):
        rows[f"{name}, fp4 both ways"] = replace(
            each, precision=Precision.FP4, update_precision=UpdatePrecision.FP4
        )
    return {
        name: replace(each, timing=timing)
        for name, each in sorted(rows.items(), key=lambda item: _place(item[0], rows))
        if options.only is None or options.only in name
    }


def _place(name: str, rows: Mapping[str, RunSettings]) -> int:
    order = list(rows)
    base = name.removesuffix(", fp4 both ways")
    return 2 * order.index(base) + (name != base)


def searches_of(options: BandwidthOptions) -> dict[Key, Search]:
    """Return every search that is asked for.

    Raises:
        UserError: no row has a name that contains `only`.
    """
    searches = {}
    for parameters, step_s, fragments in _models(options):
        for name, settings in rows_of(options, fragments, step_s).items():
            job = Job(parameters, step_s, options.latency_s)
            searches[Key(name, parameters)] = Search(
                settings, job, options.learners, options.utilisations, options.within
            )
    if not searches:
        raise UserError(f"only is {options.only!r}; no row has it in its name")
    return searches


def _models(options: BandwidthOptions) -> list[tuple[float, float, int]]:
    return list(zip(options.parameters, options.step_s, options.fragments, strict=True))


def published(key: Key, utilisation: float) -> float | None:
    """Return the published bandwidth in Gbit/s; None if there is none."""
    row = PUBLISHED.get(key.row, {}).get(key.parameters)
    return (
        row[PUBLISHED_SHARES.index(utilisation)]
        if row and utilisation in PUBLISHED_SHARES
        else None
    )


def table(options: BandwidthOptions, found: Mapping[Key, Found]) -> str:
    """Return the tables as Markdown: one for each model, and the load on the syncer's own link."""
    searches = searches_of(options)
    parts = []
    for parameters, step_s, _ in _models(options):
        keys = [key for key in found if key.parameters == parameters]
        heads = [f"{100 * level:g} %" for level in options.utilisations]
        lines = [[f"{count(parameters)} parameters, {step_s:g} s steps; Gbit/s for", *heads]]
        lines += [
            [
                key.row,
                *(_cell(searches[key], found[key], key, level) for level in options.utilisations),
            ]
            for key in keys
        ]
        parts += [markdown_table(lines), ""]
    parts += [
        "Simulated / closed formula / published for Streaming DiLoCo (arXiv 2501.18512, table 4).",
        "",
        _load(options, searches),
        "",
        "The load on the syncer's own link is a formula; a run has one syncer.",
    ]
    return "\n".join(parts) + "\n"


def _cell(search: Search, found: Found, key: Key, level: float) -> str:
    formula = needed_gbit_s(search.settings, search.job, level)
    theirs = published(key, level)
    ours = found.gbit_s[level]
    least = "at most " if ours == found.lowest_gbit_s else ""
    both = [f"{least}{gbit_text(ours)}", gbit_text(formula)]
    return " / ".join(both if theirs is None else [*both, f"{theirs:g}"])


def _load(options: BandwidthOptions, searches: Mapping[Key, Search]) -> str:
    heads = [f"{shards} shard{'s' * (shards > 1)}" for shards in SHARDS]
    title = f"Gbit/s in + out of {options.learners} learners, each shard"
    lines = [[title, "parameters", *heads]]
    for key, search in searches.items():
        loads = [
            syncer_gbit_s(search.settings, search.job, search.learners, shards) for shards in SHARDS
        ]
        cells = [f"{gbit_text(into)} + {gbit_text(out)}" for into, out in loads]
        lines.append([key.row, count(key.parameters), *cells])
    return markdown_table(lines)


def figures_of(options: BandwidthOptions, found: Mapping[Key, Found]) -> list[dict[str, object]]:
    """Return every bandwidth next to formula and paper."""
    searches = searches_of(options)
    return [
        {
            "row": key.row,
            "parameters": key.parameters,
            "step_s": searches[key].job.step_s,
            "utilisation": level,
            "gbit_s": gbit_s,
            "gbit_s_by_formula": needed_gbit_s(searches[key].settings, searches[key].job, level),
            "gbit_s_published": published(key, level),
            "runs": each.runs,
        }
        for key, each in found.items()
        for level, gbit_s in each.gbit_s.items()
    ]


EXPERIMENT = Experiment("bandwidth", searches_of, search, table, figures_of)
