"""Fleets that a file describes, compared: unlike speeds, narrow links, learners that come and go.

Each fleet is played once for each seed. The measured time is so many rounds as a fleet that nothing
delays makes in the file's steps; where learners wait for a merge, a round is as long as their
slowest link makes it, in closed form: an exchange of N/P values takes (u + d)·N/(P·B) + 4·l, for u
and d bits of a value on its way up and down, B bits per second, and l seconds of each of the
messages (the report of the step, the pull, the contribution, the value).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from statistics import mean, median
from typing import Annotated

from islands.lab.experiments.chips import Chips
from islands.lab.experiments.fleet import FleetResult, FleetRun, Group, Link, lock_step, play
from islands.lab.experiments.plot import Line, chart, markdown_table
from islands.lab.experiments.side_by_side import Experiment, Pictures
from islands.lab.settings.cells import chosen, run_settings
from islands.lab.settings.fleets import LEARNERS_MOST, ComparisonOptions
from islands.numerics.codecs import size_bytes
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import LearnerWaits, Precision
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import COUNT, NOT_NEGATIVE, POSITIVE
from islands.settings.groups import put
from islands.settings.quantities import duration

MESSAGES = 4
"""Of an exchange, one after another."""

BITS, GIGA, BLOCK = 8, 1e9, 1 << 20
WARMUP_STEPS, LOCK_WARMUP_ROUNDS, WARMUP_INTERVALS = 4, 10, 2
"""What is not measured: some steps, and so many rounds that timeouts know how long they take."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One fleet of the file.

    With `lock_step` each learner waits for the merge of all after each step, in place of the
    algorithm of `preset` and `run`, which replace the file's settings. By default each learner has
    one chip that never fails; an `elastic` one goes on without the slices that failed. A step at
    speed 1 takes `step_s` on average, with a standard deviation of `noise` times that. The links
    carry a model of so many `parameters`, each way. Of the start `warmup_steps` are not measured,
    by default four and two intervals; then `steps` are.
    """

    learners: tuple[Group, ...] = (Group(4),)
    lock_step: bool = False
    preset: str | None = None
    run: dict[str, object] = field(default_factory=dict)
    chips: Chips = field(default_factory=lambda: Chips(1.0, mtbi_s=inf))
    elastic: bool = True
    step_s: Annotated[float, POSITIVE] = 10.0
    noise: Annotated[float, NOT_NEGATIVE] = 0.0
    parameters: Annotated[float, POSITIVE] = 1e9
    gbit_s: Annotated[float, POSITIVE] = 20.0
    latency_s: Annotated[float, NOT_NEGATIVE] = 0.03
    warmup_steps: Annotated[int | None, NOT_NEGATIVE] = None
    steps: Annotated[int, COUNT] = 240


@dataclass(frozen=True, slots=True)
class RunKey:
    """Of a run: the entry of its fleet in the file, what is swept, and its seed."""

    entry: str
    swept: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.entry} {self.swept}".rstrip()


Runs = Mapping[RunKey, FleetResult]


def cells_of(options: ComparisonOptions) -> dict[RunKey, FleetRun]:
    entries = {name: _with_defaults(options.fleet, entry) for name, entry in options.fleets.items()}
    fleets = chosen(Fleet, "fleets", entries, options.baseline, options.only or "")
    return {
        RunKey(entry, name.removeprefix(entry).strip(), seed): cell_of(
            options.run, fleet, seed, f"fleets.{entry}"
        )
        for seed in options.seeds
        for entry, name, fleet in fleets
    }


def _with_defaults(defaults: Mapping[str, object], entry: object) -> object:
    """Return an entry with what holds for all fleets; of `run`, setting by setting."""
    if not isinstance(entry, dict):
        return entry
    run = entry.get("run")
    found = {**defaults, **entry}
    if isinstance(run, dict):
        found["run"] = defaults.get("run", {})
        for name, each in run.items():
            found = put(found, f"run.{name}", each)
    return found


def cell_of(base: RunSettings, fleet: Fleet, seed: int, place: str) -> FleetRun:
    if all(group.changes for group in fleet.learners):
        raise SettingsError(f"{place}.learners needs a group that is there all the time")
    if sum(group.count for group in fleet.learners) > LEARNERS_MOST:
        raise SettingsError(f"{place}.learners are more than {LEARNERS_MOST}")
    for group in fleet.learners:
        if group.until_step is not None and group.until_step <= group.from_step:
            raise SettingsError(
                f"{place}.learners.until_step is {group.until_step:g}; it must be above from_step, "
                f"which is {group.from_step:g}"
            )
    settings = run_settings(base, fleet.preset, fleet.run, place)
    if fleet.lock_step:
        settings = replace(lock_step(settings.timing), precision=settings.precision)
    cell = FleetRun(
        groups=fleet.learners,
        each=fleet.chips,
        elastic=fleet.elastic,
        step_s=fleet.step_s,
        noise=fleet.noise,
        parameters=fleet.parameters,
        link=Link(fleet.latency_s, fleet.gbit_s),
        settings=replace(settings, seed=seed),
        seed=seed,
    )
    round_s, interval = period_s(cell), settings.round_interval_steps(settings.fragments)
    if fleet.warmup_steps is not None:
        warmup_s = fleet.warmup_steps * fleet.step_s
    else:
        rounds = LOCK_WARMUP_ROUNDS if fleet.lock_step else WARMUP_INTERVALS * settings.fragments
        warmup_s = WARMUP_STEPS * fleet.step_s + rounds * round_s
    return replace(cell, warmup_s=warmup_s, measured_s=ceil(fleet.steps / interval) * round_s)


def period_s(cell: FleetRun) -> float:
    """Return the seconds from one merge to the next, over all fragments, of the slowest link."""
    settings = cell.settings
    own_s = settings.round_interval_steps(settings.fragments) * cell.step_s
    links = [cell.link_of(group) for group in cell.groups]
    billions = cell.parameters / settings.fragments / GIGA
    up = _bits(settings, settings.precision.finest) * billions
    down = _bits(settings, Precision(settings.update_precision.value)) * billions
    if settings.learner_waits is not LearnerWaits.AT_TAU:
        return max(own_s, *(max(up, down) / link.gbit_s for link in links))
    exchange_s = max((up + down) / link.gbit_s + MESSAGES * link.latency_s for link in links)
    return own_s + max(0.0, exchange_s - settings.overlap_steps_max * cell.step_s)


def _bits(settings: RunSettings, precision: Precision) -> float:
    """Return the bits that travel; merged moments go beside, exactly where values are coarse."""
    moments = [(BLOCK, 2 * BLOCK)] if settings.merge_moments else []
    values = 2 * BLOCK if moments else BLOCK
    return BITS * size_bytes(values, precision, moments, settings.top_k_share) / BLOCK


# --- table, figures, picture --------------------------------------------------------------------


Rows = Mapping[tuple[str, str], Sequence[FleetResult]]
"""The runs of all seeds, by entry and what is swept."""


def table(options: ComparisonOptions, runs: Runs) -> str:
    """Return the tables as Markdown, with means over seeds; and which promises were broken."""
    rows = by_name(runs)
    swept = _swept(rows)
    changes = any(played.cell.changes for played in runs.values())
    parts = [_long(options, rows, changes=changes)] if swept is None else _wide(options, *swept)
    broken = [f"{key.name}: {each}" for key, played in runs.items() for each in played.broken]
    if changes:
        parts += ["\n".join(broken) or "By the history checker, no promise was broken."]
    return "\n\n".join(parts) + "\n"


def by_name(runs: Runs) -> Rows:
    rows: dict[tuple[str, str], list[FleetResult]] = {}
    for key, played in runs.items():
        rows.setdefault((key.entry, key.swept), []).append(played)
    return rows


def _swept(rows: Rows) -> tuple[str, dict[str, dict[float, Sequence[FleetResult]]]] | None:
    """Return what all entries sweep, and their runs by value; None if it is not one number."""
    units, entries = set[str](), dict[str, dict[float, Sequence[FleetResult]]]()
    for (entry, swept), played in rows.items():
        unit, _, value = swept.partition("=")
        units.add(unit)
        try:
            entries.setdefault(entry, {})[float(value)] = played
        except ValueError:
            return None
    return (units.pop(), entries) if len(units) == 1 else None


def _wide(
    options: ComparisonOptions,
    unit: str,
    entries: Mapping[str, Mapping[float, Sequence[FleetResult]]],
) -> list[str]:
    """Return tables with a column for each value: useful steps, and those over the baseline's."""
    values = sorted({value for found in entries.values() for value in found})
    head = [f"{unit}={value:g}" for value in values]
    lines = [
        [name, *(_percent(found[value]) if value in found else "" for value in values)]
        for name, found in entries.items()
    ]
    tables = [markdown_table([["useful steps, %", *head], *lines])]
    if options.baseline is not None:
        theirs = entries[options.baseline]
        ratios = [
            [
                name,
                *(
                    f"{_rate(found[value]) / _rate(theirs[value]):.1f}"
                    if value in found and value in theirs
                    else ""
                    for value in values
                ),
            ]
            for name, found in entries.items()
            if name != options.baseline
        ]
        tables.append(markdown_table([[f"times as fast as {options.baseline}", *head], *ratios]))
    return tables


def _long(options: ComparisonOptions, rows: Rows, *, changes: bool) -> str:
    against = [] if options.baseline is None else [f"times as fast as {options.baseline}"]
    heads = ["fleet", "learners", "goodput, %", "yield, %", "learners per merge", "merges"]
    lines = [[*heads, "longest stall", *(["first merge after"] if changes else []), *against]]
    base = next((key for key in rows if key[0] == options.baseline), None)
    for key, played in rows.items():
        first = [each for run in played for each in run.training.first_merges_s]
        line = [
            " ".join(key).rstrip(),
            f"{mean(map(_present, played)):.1f}",
            f"{100 * mean(run.figures.goodput for run in played):.1f}",
            f"{100 * mean(run.training.yield_share for run in played):.1f}",
            f"{mean(run.training.per_merge for run in played):.2f}",
            f"{mean(len(run.training.merges) for run in played):.0f}",
            duration(max(run.figures.longest_stall_s for run in played)),
        ]
        line += [duration(median(first)) if first else ""] if changes else []
        lines.append(line if base is None else [*line, f"{_rate(played) / _rate(rows[base]):.3g}"])
    return markdown_table(lines)


def _percent(played: Sequence[FleetResult]) -> str:
    return f"{100 * mean(run.useful for run in played):.1f}"


def _rate(played: Sequence[FleetResult]) -> float:
    """Return useful steps of all learners in the time of one step; above 0."""
    return max(1e-9, mean(run.useful * _present(run) for run in played))


def _present(played: FleetResult) -> float:
    """Return the mean number of learners in the measured time."""
    return played.cell.chip_s() / played.cell.each.count / played.cell.measured_s


def figures_of(_: ComparisonOptions, runs: Runs) -> list[dict[str, object]]:
    return [
        {
            "fleet": key.entry,
            "swept": key.swept,
            "seed": key.seed,
            "learners": _present(played),
            "goodput": played.figures.goodput,
            "uptime": played.figures.uptime,
            "yield": played.training.yield_share,
            "useful": played.useful,
            "learners_per_merge": played.training.per_merge,
            "participation": played.training.participation,
            "merges": len(played.training.merges),
            "measured_s": played.cell.measured_s,
            "link_bytes_per_token": played.training.link_bytes,
            "longest_stall_s": played.figures.longest_stall_s,
            "first_merges_s": played.training.first_merges_s,
            "broken": played.broken,
        }
        for key, played in runs.items()
    ]


def pictures(options: ComparisonOptions, runs: Runs) -> Pictures:
    """Draw useful steps against what is swept; else who is there over time, where that changes."""
    swept = _swept(by_name(runs))
    changing = next((played for played in runs.values() if played.cell.changes), None)
    name = f"{options.name}.png"
    if swept is not None:
        unit, entries = swept
        lines = [
            Line(entry, [(value, float(_percent(found[value]))) for value in sorted(found)])
            for entry, found in entries.items()
        ]
        above = all(value > 0 for each in entries.values() for value in each)
        return {name: lambda: chart("useful steps, %", lines, unit, logarithmic=above)}
    return {} if changing is None else {name: lambda: _over_time(changing)}


def _over_time(played: FleetResult) -> bytes:
    there = list(_presence(played.cell))
    merged = [(at_s, float(number)) for at_s, number in played.training.merges]
    lines = [
        Line("learners that are there", there, steps=True),
        Line("learners per merge", merged),
    ]
    most = max(number for _, number in [*there, *merged])
    return chart("learners", lines, "time", top=most)


def _presence(cell: FleetRun) -> Iterator[tuple[float, float]]:
    """Yield (time, learners that are there) at each change, and at the end."""
    changes = sorted(
        (min(at_s, cell.end_s), change)
        for member in cell.members()
        for visit in member.visits
        for at_s, change in zip(visit, (1, -1), strict=True)
        if at_s < cell.end_s
    )
    number = 0
    for at_s, change in changes:
        number += change
        yield at_s, float(number)
    yield cell.end_s, float(number)


EXPERIMENT = Experiment(
    cells_of,
    play,
    table,
    figures_of,
    pictures,
    kept=lambda runs: not any(played.broken for played in runs.values()),
)
