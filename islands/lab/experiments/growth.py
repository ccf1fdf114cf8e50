"""One run whose learners become many and few again, while it goes on.

Learners come in waves, train, and leave in waves; those of the beginning stay. The tape of the run
is judged by the history checker, and shows the cost of the changes: how long a newcomer takes until
its first contribution is merged, and for how long those that stay did not step.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median

import msgspec

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import judge
from islands.lab.checker.evidence import Limits
from islands.lab.experiments.experiment import Experiment, Pictures
from islands.lab.experiments.fleet import (
    BATCHES,
    Cell,
    Link,
    attach,
    begin,
    check_actors,
    steady,
    world_of,
)
from islands.lab.experiments.plot import Line, chart
from islands.lab.settings.fleets import GrowOptions
from islands.lab.world.world import World
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.member_entries import ProcessStarted
from islands.protocol.tape.round_entries import Merged
from islands.protocol.tape.simulation_entries import LeftOver
from islands.settings.quantities import duration, markdown_table
from messaging.simulation.virtual_time import run_virtual

PHASES = ("few at first", "growing", "many", "shrinking", "few at last")
END_STEPS = 200.0
"""Within which the run must end after its time."""

MAILBOX_MOST, MESSAGES_EACH = 256, 8
"""Most messages that may wait in a mailbox, of all learners and of each."""

START_S = 5.0
"""Before the first phase, for patience 1: members start in them."""


@dataclass(slots=True)
class Diary:
    """The tape of the run, and the entries of it that the figures need.

    Attributes:
        tape: all entries, for the history checker.
        started_s: when the process of each learner was started.
        merges: when something was merged, and whose contributions.
    """

    tape: MemoryTape = field(default_factory=MemoryTape)
    started_s: dict[str, float] = field(default_factory=dict)
    merges: list[tuple[float, list[str]]] = field(default_factory=list)

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Keep an entry."""
        self.tape.write(at_s, actor, entry)
        if isinstance(entry, ProcessStarted):
            self.started_s[entry.name] = at_s
        elif isinstance(entry, Merged):
            self.merges.append((at_s, list(entry.participants)))


@dataclass(slots=True)
class Gaps:
    """The time between the end of each learner's step and the beginning of its next.

    Attributes:
        all: (when the gap ended, how long it was) by learner, of gaps above 0.
    """

    all: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _ended_s: dict[str, float] = field(default_factory=dict)

    def step(self, name: str, begin_s: float, work_s: float) -> float:
        """Note a step; returns its end."""
        ended_s = self._ended_s.get(name, begin_s)
        if begin_s > ended_s:
            self.all.setdefault(name, []).append((begin_s, begin_s - ended_s))
        self._ended_s[name] = begin_s + work_s
        return begin_s + work_s

    def longest_s(self, names: Sequence[str], from_s: float, until_s: float) -> float:
        """Return the longest gap of these learners that ended within a time; 0 if there is none."""
        gaps = (gap for name in names for gap in self.all.get(name, ()))
        return max((gap_s for at_s, gap_s in gaps if from_s <= at_s < until_s), default=0.0)


@dataclass(frozen=True, slots=True)
class Phase:
    """The figures of one phase of the run.

    Attributes:
        name: of the phase.
        from_s: when it began.
        until_s: when it ended.
        learners: that were there, mean over merges.
        merges: how many.
        per_merge: contributions per merge.
        longest_gap_s: of those that stay, between two steps.
    """

    name: str
    from_s: float
    until_s: float
    learners: float
    merges: int
    per_merge: float
    longest_gap_s: float


@dataclass(frozen=True, slots=True)
class Grown:
    """The figures of the run.

    Attributes:
        phases: one after another.
        first_merge_s: of each newcomer, the time from its process's start to its first merge.
        present: (time, learners that are there) at each change.
        per_merge: (time, contributions) of each merge.
        violations: promises of the history checker that were broken.
        imbalance: tokens by which the ledger does not balance.
    """

    phases: tuple[Phase, ...]
    first_merge_s: tuple[float, ...]
    present: tuple[tuple[float, int], ...]
    per_merge: tuple[tuple[float, int], ...]
    violations: tuple[str, ...]
    imbalance: int


Runs = Mapping[str, Grown]
RUN = "run"
"""The key of the only run."""


def cell_of(options: GrowOptions) -> Cell:
    """Return the fleet as it is at first."""
    return replace(
        steady(options.learners),
        step_s=options.step_s,
        noise=options.noise,
        parameters=options.parameters,
        link=Link(options.latency_s, options.gbit_s),
        settings=replace(options.run, budget_s=_ends_s(options)[-1], seed=options.seed),
        warmup_s=options.steady_steps * options.step_s / 2,
        seed=options.seed,
    )


def _ends_s(options: GrowOptions) -> list[float]:
    steady_s = options.steady_steps * options.step_s
    waves_s = len(list(_waves(options))) * options.wave_steps * options.step_s
    ends, now_s = [], START_S * options.run.timing.patience
    for lasts_s in (steady_s, waves_s, steady_s, waves_s, steady_s):
        now_s += lasts_s
        ends.append(now_s)
    return ends


def _waves(options: GrowOptions) -> Iterator[list[str]]:
    for first in range(options.learners, options.most, options.wave):
        last = min(options.most, first + options.wave)
        yield [f"newcomer-{index:04}" for index in range(first, last)]


def play(options: GrowOptions) -> Grown:
    """Play the run with the actors, and judge its tape.

    Raises:
        InvariantError: an actor failed.
        VirtualTimeError: the run stood still.
    """
    cell, diary, gaps = cell_of(options), Diary(), Gaps()
    world = world_of(cell, diary, gaps.step)
    end_s = _ends_s(options)[-1] + END_STEPS * options.step_s
    present: list[tuple[float, int]] = []
    imbalance = run_virtual(_live(world, cell, options, present), limit_s=2 * end_s)
    lines = tuple(diary.tape.lines)
    violations = tuple(str(each) for each in judge(lines, _limits(world, options)))
    return Grown(
        _phases(cell, options, diary, gaps, present),
        tuple(_first_merges(diary)),
        tuple(present),
        tuple((at_s, len(names)) for at_s, names in diary.merges),
        violations,
        imbalance,
    )


async def _live(
    world: World, cell: Cell, options: GrowOptions, present: list[tuple[float, int]]
) -> int:
    loop = asyncio.get_running_loop()
    await begin(world, cell)
    present.append((0.0, options.learners))
    few, _, many, _, last = _ends_s(options)
    waves = list(_waves(options))
    every_s = options.wave_steps * options.step_s
    host = next(iter(world.hosts.values()))
    for index, names in enumerate(waves):
        await asyncio.sleep(few + index * every_s - loop.time())
        for name in names:
            world.hosts[name] = host
            attach(world, cell, name, cell.link)
            world.start(name)
        present.append((loop.time(), present[-1][1] + len(names)))
    for index, names in enumerate(waves):
        await asyncio.sleep(many + index * every_s - loop.time())
        await _dismiss(world, names, abrupt=options.abrupt)
        present.append((loop.time(), present[-1][1] - len(names)))
    imbalance = 0
    while world.finished is None or world.processes.names():
        state = world.syncer_state
        if state is not None:
            imbalance = sum(abs(row.imbalance) for row in state.ledger_rows())
        if world.failures or loop.time() > last + END_STEPS * options.step_s:
            break
        await asyncio.sleep(options.step_s / 2)
    check_actors(world)
    for name in sorted(world.processes.names()):
        world.note(LeftOver(name))
    await world.kill_all()
    return imbalance


async def _dismiss(world: World, names: Sequence[str], *, abrupt: bool) -> None:
    for name in names:
        learner = world.learner(name)
        if abrupt:
            await world.kill(name)
        elif learner is not None:
            learner.leave("no longer needed")


def _limits(world: World, options: GrowOptions) -> Limits:
    return Limits.of(
        world.settings,
        world.layout,
        batch_tokens={name: host.batch_tokens for name, host in world.hosts.items()},
        records_per_shard=BATCHES,
        mailbox_most=max(MAILBOX_MOST, MESSAGES_EACH * options.most),
    )


def _phases(
    cell: Cell,
    options: GrowOptions,
    diary: Diary,
    gaps: Gaps,
    present: Sequence[tuple[float, int]],
) -> tuple[Phase, ...]:
    ends = _ends_s(options)
    changes_s = [at_s for at_s, _ in present]
    phases = []
    for name, from_s, until_s in zip(PHASES, [cell.warmup_s, *ends], ends, strict=False):
        merges = [each for each in diary.merges if from_s <= each[0] < until_s]
        there = [present[bisect_right(changes_s, at_s) - 1][1] for at_s, _ in merges]
        phases.append(
            Phase(
                name,
                from_s,
                until_s,
                mean(there) if there else 0.0,
                len(merges),
                mean(len(names) for _, names in merges) if merges else 0.0,
                gaps.longest_s(cell.names, from_s, until_s),
            )
        )
    return tuple(phases)


def _first_merges(diary: Diary) -> Iterator[float]:
    """Yield how long each newcomer took from its start to the first merge of a contribution."""
    first: dict[str, float] = {}
    for at_s, names in diary.merges:
        for name in names:
            first.setdefault(name, at_s)
    for name, started_s in diary.started_s.items():
        if name.startswith("newcomer") and name in first:
            yield first[name] - started_s


def table(options: GrowOptions, runs: Runs) -> str:
    """Return the table as Markdown, and the cost of the changes in sentences."""
    grown = runs[RUN]
    head = [
        *("phase", "time", "learners", "merges", "merges per H steps"),
        *("learners per merge", "share, %", "longest gap"),
    ]
    lines = [head, *(_line(options, phase) for phase in grown.phases)]
    return "\n".join([markdown_table(lines), "", *_sentences(options, grown)]) + "\n"


def _line(options: GrowOptions, phase: Phase) -> list[str]:
    steps = (phase.until_s - phase.from_s) / options.step_s
    return [
        phase.name,
        duration(phase.until_s - phase.from_s),
        f"{phase.learners:.1f}",
        f"{phase.merges}",
        f"{phase.merges * options.run.interval_steps / steps:.1f}",
        f"{phase.per_merge:.1f}",
        f"{100 * phase.per_merge / phase.learners:.1f}" if phase.learners else "",
        duration(phase.longest_gap_s),
    ]


def _sentences(options: GrowOptions, grown: Grown) -> list[str]:
    merged = grown.first_merge_s
    sentences = [f"{len(merged)} of {options.most - options.learners} newcomers were merged."]
    if merged:
        sentences.append(
            f"From the start of its process to the first merge with it, a newcomer took "
            f"{duration(median(merged))} (median; {duration(max(merged))} at most), which is "
            f"{median(merged) / options.step_s:.1f} steps."
        )
    sentences.append("The longest gap is that between two steps of a learner that stays.")
    judged = "no promise was broken" if not grown.violations else "broken promises are listed"
    sentences.append(
        f"The ledger is off by {grown.imbalance} tokens; by the history checker, {judged}."
    )
    return [*sentences, *grown.violations]


def figures_of(options: GrowOptions, runs: Runs) -> dict[str, object]:
    """Return all figures."""
    grown = runs[RUN]
    return {
        "learners": options.learners,
        "most": options.most,
        "phases": [msgspec.to_builtins(phase) for phase in grown.phases],
        "first_merge_s": grown.first_merge_s,
        "violations": grown.violations,
        "ledger_imbalance": grown.imbalance,
    }


def pictures(options: GrowOptions, runs: Runs) -> Pictures:
    """Draw the learners that are there, and that were merged, over time."""
    grown, end_s = runs[RUN], _ends_s(options)[-1]
    present = [(at_s, float(number)) for at_s, number in grown.present]
    present.append((end_s, present[-1][1]))
    merged = [(at_s, float(number)) for at_s, number in grown.per_merge if at_s <= end_s]
    lines = [
        Line("learners that are there", present, steps=True),
        Line("learners per merge", merged),
    ]
    return {"grow.png": lambda: chart("learners", lines, "time", top=float(options.most))}


EXPERIMENT = Experiment(
    "grow",
    lambda options: {RUN: options},
    play,
    table,
    figures_of,
    pictures,
    kept=lambda runs: not runs[RUN].violations,
)
