"""One model over regions: data-parallel training against decoupled, by the speed of their links.

Every region is a learner, and reaches the hub over its own link. The measure is the rate at which
tokens reach the published values: a lock-step run waits for the links, a decoupled one loses tokens
if its exchanges do not fit.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, exp, log
from statistics import mean

from islands.lab.experiments.experiment import Experiment, Pictures
from islands.lab.experiments.fleet import Cell, Link, Played, play, steady
from islands.lab.experiments.formulas import (
    Job,
    gbit_text,
    lock_step,
    period_s,
    ring_step_s,
    syncer_gbit_s,
)
from islands.lab.experiments.plot import Line, chart
from islands.lab.settings.fleets import RegionsOptions
from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.settings.run import RunSettings
from islands.settings.quantities import markdown_table

DATA_PARALLEL, RING = "data-parallel, bf16", "data-parallel by a ring (formula)"
DECOUPLED, QUANTISED = "decoupled, bf16 up", "decoupled, int8 both ways"
FP4 = "decoupled, fp4 both ways"
FINE, LOCK_STEPS, WARMUP_INTERVALS = 0.8, 8, 2
LOCK_WARMUP_STEPS = 10
"""After which its timeouts know how long an exchange takes, and nothing is sent twice."""
PUBLISHED = "more than 20 times faster over four regions at 2-5 Gbit/s"

Key = tuple[str, float, int]
"""Of a run: its kind, the Gbit/s of its links, and its seed."""


def kinds_of(options: RegionsOptions) -> dict[str, RunSettings]:
    """Return the settings of each kind of run."""
    run = replace(options.run, precision=Precision.BFLOAT16)
    lock = replace(lock_step(run.timing), precision=Precision.BFLOAT16)
    int8 = replace(run, precision=Precision.INT8, update_precision=UpdatePrecision.INT8)
    fp4 = replace(run, precision=Precision.FP4, update_precision=UpdatePrecision.FP4)
    return {DATA_PARALLEL: lock, DECOUPLED: run, QUANTISED: int8, FP4: fp4}


def cells_of(options: RegionsOptions) -> dict[Key, Cell]:
    """Return every run that is asked for."""
    return {
        (kind, gbit_s, seed): _cell(options, settings, gbit_s, seed)
        for kind, settings in kinds_of(options).items()
        for gbit_s in dict.fromkeys(options.gbit_s)
        for seed in options.seeds
    }


def _cell(options: RegionsOptions, settings: RunSettings, gbit_s: float, seed: int) -> Cell:
    links = tuple(Link(latency_s, gbit_s) for latency_s in options.latencies_s)
    job = Job(options.parameters, options.step_s, max(options.latencies_s))
    round_s = period_s(settings, job, gbit_s)
    locked = settings.interval_steps == 1
    steps = LOCK_STEPS if locked else options.steps
    rounds = ceil(steps / settings.round_interval_steps(settings.fragments))
    before = LOCK_WARMUP_STEPS if locked else WARMUP_INTERVALS * settings.fragments
    return replace(
        steady(len(links)),
        step_s=options.step_s,
        noise=options.noise,
        parameters=options.parameters,
        link=links[0],
        links=links,
        settings=replace(settings, seed=seed),
        warmup_s=4 * options.step_s + before * round_s,
        measured_s=rounds * round_s,
        seed=seed,
    )


def useful_of(options: RegionsOptions, runs: Mapping[Key, Played]) -> dict[str, list[float]]:
    """Return the useful share of each kind by speed of the links, and that of a ring by formula."""
    speeds = list(dict.fromkeys(options.gbit_s))
    job = Job(options.parameters, options.step_s, max(options.latencies_s))
    members = len(options.latencies_s)
    shares = {RING: [options.step_s / ring_step_s(job, members, gbit_s) for gbit_s in speeds]}
    for kind in kinds_of(options):
        shares[kind] = [
            mean(runs[kind, gbit_s, seed].useful for seed in options.seeds) for gbit_s in speeds
        ]
    return shares


def table(options: RegionsOptions, runs: Mapping[Key, Played]) -> str:
    """Return the tables as Markdown: useful shares, ratios, and where the links stop mattering."""
    speeds, shares = list(dict.fromkeys(options.gbit_s)), useful_of(options, runs)
    head = ["useful steps, %", *(f"{gbit_s:g} Gbit/s" for gbit_s in speeds)]
    lines = [[kind, *(f"{100 * share:.1f}" for share in row)] for kind, row in shares.items()]
    against = [
        [f"{kind} / {of}", *(_times(a, b) for a, b in zip(shares[kind], shares[of], strict=True))]
        for kind in (DECOUPLED, QUANTISED, FP4)
        for of in (DATA_PARALLEL, RING)
    ]
    ratios = [["times as fast", *head[1:]], *against]
    parts = [
        markdown_table([head, *lines]),
        "",
        markdown_table(ratios),
        "",
        *_sentences(options, shares),
    ]
    return "\n".join(parts) + "\n"


def _times(share: float, other: float) -> str:
    return f"{share / other:.1f}" if other > 0 else "-"


def _sentences(options: RegionsOptions, shares: Mapping[str, list[float]]) -> list[str]:
    speeds = list(dict.fromkeys(options.gbit_s))
    best = [max(shares[kind][index] for kind in kinds_of(options)) for index in range(len(speeds))]
    lines = [f"Published: {PUBLISHED} (a blog, without the length of a step)."]
    for kind in (DATA_PARALLEL, RING, DECOUPLED, QUANTISED, FP4):
        relative = [
            share / top if top else 0.0 for share, top in zip(shares[kind], best, strict=True)
        ]
        fine = reaches(speeds, relative, FINE)
        where = (
            "at no speed that was tried" if fine is None else f"from {gbit_text(fine)} Gbit/s on"
        )
        lines.append(f"{kind}: within {100 * (1 - FINE):.0f} % of the best {where}.")
    job = Job(options.parameters, options.step_s)
    for kind, settings in kinds_of(options).items():
        into, out = syncer_gbit_s(settings, job, len(options.latencies_s), 1)
        lines.append(
            f"{kind}: the hub's own link carries {gbit_text(into)} Gbit/s in and "
            f"{gbit_text(out)} out at full speed (formula)."
        )
    return lines


def reaches(speeds: list[float], shares: list[float], level: float) -> float | None:
    """Return the speed from which on shares are at a level, between two of them by their logarithm.

    Args:
        speeds: in ascending order.
        shares: at each speed.
        level: that is asked for.

    Returns:
        None if the last share is below the level.
    """
    if shares[-1] < level:
        return None
    index = len(shares)
    while index > 0 and shares[index - 1] >= level:
        index -= 1
    if index == 0:
        return speeds[0]
    low, high = shares[index - 1], shares[index]
    part = (level - low) / (high - low)
    return exp(log(speeds[index - 1]) + part * log(speeds[index] / speeds[index - 1]))


def pictures(options: RegionsOptions, runs: Mapping[Key, Played]) -> Pictures:
    """Draw the useful steps of each kind against the speed of the links."""
    speeds = list(dict.fromkeys(options.gbit_s))
    lines = [
        Line(kind, [(speed, 100 * share) for speed, share in zip(speeds, row, strict=True)])
        for kind, row in useful_of(options, runs).items()
    ]
    title = "useful steps, % of what nothing delays"
    return {"regions.png": lambda: chart(title, lines, "Gbit/s", logarithmic=True)}


def figures_of(options: RegionsOptions, runs: Mapping[Key, Played]) -> dict[str, object]:
    """Return the figures of every run, and the formula's."""
    rows = [
        {
            "kind": kind,
            "gbit_s": gbit_s,
            "seed": seed,
            "useful": played.useful,
            "goodput": played.figures.goodput,
            "yield": played.training.yield_share,
            "participation": played.training.participation,
            "merges": len(played.training.merges_s),
            "measured_s": played.cell.measured_s,
        }
        for (kind, gbit_s, seed), played in runs.items()
    ]
    return {"ring_by_formula": useful_of(options, runs)[RING], "runs": rows}


EXPERIMENT = Experiment("regions", cells_of, play, table, figures_of, pictures)
