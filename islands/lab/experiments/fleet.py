"""A fleet of learners, run by the production actors on a virtual clock, and its figures.

The supervisor, the syncer and the learners are those of a real run, on the simulated network and
disks of `islands.lab.world`; only the chips that a learner steps on are made up (`chips.py`), and
when learners come and go. The arithmetic is that of a toy; on the network, its values count as many
times as the model is larger. Where moments are merged, as many values of it travel as these do.

Goodput is chip-time spent on steps over all chip-time, that of chips which are away included. Yield
is tokens that reached the published values over tokens processed, both within the measured time.
Uptime is the share of time in which at least one learner of those that stay steps. A fleet is
good only if goodput and yield are both high.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from math import ceil, inf
from operator import itemgetter
from typing import Annotated

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import judge
from islands.lab.experiments.chips import Chips, Counted, Device, ElasticChips, RigidChips
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import MAILBOX_MOST, Costs, LearnerHost, Trainers, World
from islands.learner.actor import LearnerActor
from islands.model.interfaces import Trainer
from islands.protocol.errors import InvariantError
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase
from islands.protocol.settings.choices import LearnerWaits
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.settings.setting import COUNT, NOT_NEGATIVE, POSITIVE, Setting
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Merged
from islands.protocol.tape.simulation_entries import LeftOver
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

HOUR_S = 3600.0

BATCHES = 1000  # of a shard
ROWS_LEAST, COLUMNS, NOISES = 24, 256, 3
"""The toy: rows of as many values as a block of a quantised contribution has, each fragment as many
rows as the others."""

LOOK_S = 0.2
START_S, SETTLE_S = 100.0, 5.0
"""For patience 1: time within which all learners must step, and in which a run of a budget may."""
END_S = 1000.0  # more than its time, a fleet is given up
MESSAGES_EACH = 8  # of each learner may wait


def lock_step(timing: Timing) -> RunSettings:
    """Return the settings of data-parallel training as actors: all merge before the next step.

    DiLoCo at H = 1 replaces the all-reduce of gradients, so that the bytes are those of a hub: 16
    bits up and 32 down for each value, where a ring sends 2(M − 1)/M · 16 bits.
    """
    return replace(PRESETS[Preset.DILOCO], interval_steps=1, outer=OuterSettings(), timing=timing)


@dataclass(frozen=True, slots=True)
class Link:
    """The network between a learner and the syncer: latency of a message, bandwidth each way."""

    latency_s: float = 0.03
    gbit_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Group:
    """Learners that are alike; times are in steps of the fleet, from when those of the start step.

    Their steps are `speed` times as long, and a link is the fleet's where it is null. They come at
    `from_step` and go at `until_step`; null = they stay until the end. One that has `stay_steps`
    stays so long on average before it is killed, and comes again after `away_steps`. With `abrupt`
    they are killed where they go, in place of leaving.
    """

    count: Annotated[int, COUNT] = 1
    speed: Annotated[float, POSITIVE] = 1.0
    gbit_s: Annotated[float | None, POSITIVE] = None
    latency_s: Annotated[float | None, NOT_NEGATIVE] = None
    from_step: Annotated[float, NOT_NEGATIVE] = 0.0
    until_step: Annotated[float | None, POSITIVE] = None
    stay_steps: Annotated[float | None, Setting(least=1)] = None
    away_steps: Annotated[float, Setting(least=1)] = 2.0
    abrupt: bool = False

    @property
    def changes(self) -> bool:
        """Whether its learners come or go while the fleet is played."""
        return bool(self.from_step or self.until_step or self.stay_steps)


@dataclass(frozen=True, slots=True)
class Member:
    """One learner of a fleet, and (start, end) of each visit of its, until it goes for good.

    Times are seconds from when the learners of the start step.
    """

    name: str
    group: Group
    visits: tuple[tuple[float, float], ...]
    end_s: float

    @property
    def early(self) -> bool:
        return self.visits[0][0] == 0.0

    @property
    def stays(self) -> bool:
        return self.early and self.visits[0][1] == inf

    def killed(self, go_s: float) -> bool:
        """Whether it is killed at the end of a visit, in place of leaving."""
        return self.group.abrupt or go_s != self.end_s


@dataclass(frozen=True, slots=True)
class FleetRun:
    """One fleet; data-parallel training is one learner.

    `each` are the chips of each learner, `link` that of groups which name no other, and `work_s`
    the least and most seconds of one piece of work that is no step, such as a merge. It is measured
    for `measured_s` after `warmup_s`, from when all learners of the start step.
    """

    groups: tuple[Group, ...]
    each: Chips = field(default_factory=lambda: Chips(1.0, mtbi_s=inf))
    elastic: bool = True
    step_s: float = 10.0
    noise: float = 0.0
    chip_tokens: float = 1024.0
    parameters: float = 1e9
    link: Link = field(default_factory=Link)
    work_s: tuple[float, float] = (0.0005, 0.004)
    settings: RunSettings = field(default_factory=lambda: PRESETS[Preset.DECOUPLED_DILOCO])
    warmup_s: float = 1800.0
    measured_s: float = 6 * HOUR_S
    seed: int = 0

    @property
    def learners(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def chips(self) -> float:
        return self.each.count * self.learners

    @property
    def end_s(self) -> float:
        return self.warmup_s + self.measured_s

    @property
    def changes(self) -> bool:
        return any(group.changes for group in self.groups)

    @property
    def rows(self) -> int:
        return self.settings.fragments * ceil(ROWS_LEAST / self.settings.fragments)

    def members(self) -> tuple[Member, ...]:
        groups = [group for group in self.groups for _ in range(group.count)]
        return tuple(
            self._member(f"learner-{index:04}", group) for index, group in enumerate(groups)
        )

    def _member(self, name: str, group: Group) -> Member:
        come_s = group.from_step * self.step_s
        end_s = inf if group.until_step is None else group.until_step * self.step_s
        if group.stay_steps is None:
            return Member(name, group, ((come_s, end_s),), end_s)
        rng, visits = random.Random(f"{self.seed}/visits/{name}"), []
        while come_s < min(end_s, self.end_s):
            taken_s = come_s + rng.expovariate(1 / (group.stay_steps * self.step_s))
            visits.append((come_s, min(taken_s, end_s)))
            come_s = taken_s + group.away_steps * self.step_s
        return Member(name, group, tuple(visits), end_s)

    def link_of(self, group: Group) -> Link:
        latency_s = self.link.latency_s if group.latency_s is None else group.latency_s
        return Link(latency_s, group.gbit_s or self.link.gbit_s)

    def chip_s(self) -> float:
        """Return the chip-seconds that were there in the measured time, failed chips included."""
        return sum(
            self.each.count * max(0.0, min(end_s, self.end_s) - max(start_s, self.warmup_s))
            for member in self.members()
            for start_s, end_s in member.visits
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a fleet's chips, with (start, end) of each stall by learner that stays."""

    goodput: float
    uptime: float
    stalls_s: tuple[tuple[tuple[float, float], ...], ...] = ()

    @classmethod
    def of(
        cls, cell: FleetRun, counted: Sequence[Sequence[Counted]], start_s: float = 0
    ) -> "Figures":
        members = zip(cell.members(), counted, strict=True)
        stalls = [visits[0].still for member, visits in members if member.stays]
        still = reduce(overlaps, stalls) if stalls else []
        return cls(
            goodput=sum(each.chip_s for visits in counted for each in visits) / cell.chip_s(),
            uptime=1.0 - sum(stop - start for start, stop in still) / cell.measured_s,
            stalls_s=tuple(
                tuple((start - start_s, stop - start_s) for start, stop in each) for each in stalls
            ),
        )

    @property
    def longest_stall_s(self) -> float:
        """The longest time in which a learner that stays took no step."""
        return max((stop - start for each in self.stalls_s for start, stop in each), default=0.0)


def overlaps(
    some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the common parts of two lists of intervals; each is in order, without overlaps."""
    common: list[tuple[float, float]] = []
    i = j = 0
    while i < len(some) and j < len(others):
        start, stop = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if start < stop:
            common.append((start, stop))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return common


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of a syncer at one time.

    Of tokens, `applied` are those that reached the published values, mean over fragments. Learners
    `present` at a merge are summed over merges.
    """

    processed: int
    applied: float
    merges: int
    contributions: int
    present: int
    carried_bytes: float

    @classmethod
    def of(cls, state: SyncerState, carried_bytes: float = 0.0) -> "Tally":
        durable, rows = state.durable, state.ledger_rows()
        applied = sum(row.applied for row in rows) - durable.belated_tokens
        return cls(
            durable.ledger.processed,
            applied / max(1, len(rows)),
            durable.merges,
            durable.participants_sum,
            durable.present_sum,
            carried_bytes,
        )


@dataclass(frozen=True, slots=True)
class Training:
    """The figures of a fleet's training in the measured time, as its syncer counted them.

    `merges` has (time of the commit, learners merged), `participation` is per learner that was
    present, and per merge, `chip_hours` are for 10⁹ tokens that reached the published values, and
    `link_bytes` for each of these, as large as they are for the model; 0 where one learner trains
    alone. `first_merges_s` are from the start of each learner that came later.
    """

    yield_share: float
    merges: tuple[tuple[float, int], ...]
    participation: float
    per_merge: float
    chip_hours: float
    link_bytes: float
    first_merges_s: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, cell: FleetRun, goodput: float, before: Tally, after: Tally, tape: "MergeTape"
    ) -> "Training":
        yield_share = (after.applied - before.applied) / max(1, after.processed - before.processed)
        contributions = after.contributions - before.contributions
        chip_s = cell.chip_s()
        useful = yield_share * goodput * chip_s / cell.step_s * cell.chip_tokens
        sent = after.carried_bytes - before.carried_bytes if cell.learners > 1 else 0.0
        merges = [(at_s - tape.start_s, names) for at_s, names in tape.merges]
        return cls(
            yield_share=yield_share,
            merges=tuple(
                (at_s, len(names)) for at_s, names in merges if cell.warmup_s <= at_s <= cell.end_s
            ),
            participation=contributions / max(1, after.present - before.present),
            per_merge=contributions / max(1, after.merges - before.merges),
            chip_hours=1e9 * chip_s / HOUR_S / useful if useful else inf,
            link_bytes=sent / useful if useful else 0.0,
            first_merges_s=tuple(
                first_s - member.visits[0][0]
                for member in cell.members()
                if not member.early
                for first_s in [next((at for at, names in merges if member.name in names), None)]
                if first_s is not None
            ),
        )


@dataclass(frozen=True, slots=True)
class FleetResult:
    """A fleet that was played, and the promises that the history checker found broken.

    Only of fleets whose learners come or go is the whole history kept.
    """

    cell: FleetRun
    figures: Figures
    training: Training
    broken: tuple[str, ...] = ()

    @property
    def useful(self) -> float:
        """Steps whose tokens reached the published values, per step that nothing delays.

        Of those who wait for the merge of each step, all do.
        """
        waits = self.cell.settings.learner_waits is LearnerWaits.AT_TAU
        return self.figures.goodput * (1.0 if waits else self.training.yield_share)


class MergeTape:
    """A tape that keeps when something was merged, and whose; and all entries, where asked to.

    The learners of the start stepped at `start_s`.
    """

    def __init__(self, *, history: bool = False) -> None:
        self.start_s = 0.0
        self.merges: list[tuple[float, tuple[str, ...]]] = []
        self.history = MemoryTape() if history else None

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        if isinstance(entry, Merged):
            self.merges.append((at_s, tuple(entry.participants)))
        if self.history is not None:
            self.history.write(at_s, actor, entry)


def play(cell: FleetRun) -> FleetResult:
    """Run a fleet until it is measured; where learners come and go, until its run has ended."""
    if cell.changes:
        budget_s = cell.end_s + SETTLE_S * cell.settings.timing.patience
        cell = replace(cell, settings=replace(cell.settings, budget_s=budget_s))
    devices = {member.name: devices_of(cell, member) for member in cell.members()}
    for device in (each for visits in devices.values() for each in visits):
        device.counted.from_s = inf  # until the learners of the start step
    tape = MergeTape(history=cell.changes)
    current = {name: visits[0] for name, visits in devices.items()}
    world = world_of(cell, tape, lambda name, *step: current[name].step(*step))
    tallies: list[Tally] = []
    limit_s = cell.end_s + END_S + START_S * cell.settings.timing.patience
    run_virtual(_live(world, cell, devices, current, tape, tallies), limit_s=limit_s)
    counted = [[each.counted for each in devices[name]] for name in devices]
    figures = Figures.of(cell, counted, tape.start_s)
    before, after = tallies
    training = Training.of(cell, figures.goodput, before, after, tape)
    if tape.history is None:
        return FleetResult(cell, figures, training)
    mailbox_most = max(MAILBOX_MOST, MESSAGES_EACH * len(world.hosts))
    limits = world.limits(records_per_shard=BATCHES, mailbox_most=mailbox_most)
    broken = tuple(map(str, judge(tape.history.lines, limits)))
    return FleetResult(cell, figures, training, broken)


def play_alone(cell: FleetRun) -> Figures:
    """Let each learner take step after step, with no actors, network or syncer.

    What the simulated fleet loses beyond this event model, the program itself has cost.
    """
    counted = []
    for member in cell.members():
        device, now_s = devices_of(cell, member)[0], 0.0
        while now_s < cell.end_s:
            now_s = device.step(now_s, member.group.speed * cell.step_s)
        counted.append([device.counted])
    return Figures.of(cell, counted)


def devices_of(cell: FleetRun, member: Member) -> list[Device]:
    """Return the device of each visit of a learner, which has a random stream of its own."""
    kind = ElasticChips if cell.elastic else RigidChips
    seed = f"{cell.seed}/{cell.chips:g}/{cell.learners}/{member.name}"
    return [
        kind(
            cell.each,
            random.Random(f"{seed}/{index}" if index else seed),
            Counted(max(cell.warmup_s, start_s), min(cell.end_s, end_s)),
        )
        for index, (start_s, end_s) in enumerate(member.visits)
    ]


# --- the world of a fleet ---------------------------------------------------------------------


def world_of(
    cell: FleetRun, tape: MergeTape, step_end_s: Callable[[str, float, float], float]
) -> World:
    """Return the hosts of a fleet; until learners are connected, links are wide."""
    hosts = {
        member.name: LearnerHost(member.group.speed * cell.step_s, cell.noise)
        for member in cell.members()
    }
    latency_s = max(cell.link_of(group).latency_s for group in cell.groups)
    return World(
        cell.settings,
        hosts,
        seed=cell.seed,
        tape=tape,
        costs=Costs(cell.work_s, route=Route(latency_s=latency_s)),
        trainers=trainers_of(cell),
        step_end_s=step_end_s,
    )


def trainers_of(cell: FleetRun) -> Trainers:
    shapes = tuple((f"layers/{row}", (COLUMNS,)) for row in range(cell.rows))

    def trainer(_: str, host: LearnerHost) -> Trainer:
        return NumpyTrainer(
            cell.settings.fragments,
            shapes=shapes,
            batch_tokens=host.batch_tokens,
            batches_per_shard=BATCHES,
            momentum=host.momentum,
            noises=NOISES,
            merges_moments=cell.settings.merge_moments,
        )

    return trainer


async def _begin(world: World, cell: FleetRun) -> float:
    """Start the members of the start; once all step, give each its own link; return when.

    The start is not measured, and over a narrow link the first values would take long.
    """
    early = [member for member in cell.members() if member.early]
    for name in (SUPERVISOR, SYNCER, *(member.name for member in early)):
        world.start(name)
    loop = asyncio.get_running_loop()
    while not all(_steps(world.learner(member.name)) for member in early):
        if loop.time() > START_S * cell.settings.timing.patience:
            raise InvariantError("the learners of a simulated fleet did not begin to step")
        await asyncio.sleep(LOOK_S)
    for member in early:
        _attach(world, cell, member)
    return loop.time()


def _attach(world: World, cell: FleetRun, member: Member) -> None:
    """Give a learner its own link, both ways, on which the toy's values count as the model's."""
    link = cell.link_of(member.group)
    route = Route(
        latency_s=link.latency_s,
        bandwidth_bytes_per_s=link.gbit_s * 1e9 / 8,
        payload_scale=cell.parameters / (cell.rows * COLUMNS),
    )
    for other in (SUPERVISOR, SYNCER):
        world.network.set_route(member.name, other, route)
        world.network.set_route(other, member.name, route)


def _steps(learner: LearnerActor | None) -> bool:
    return learner is not None and learner.state.phase is Phase.STEPPING


async def _live(
    world: World,
    cell: FleetRun,
    devices: Mapping[str, Sequence[Device]],
    current: dict[str, Device],
    tape: MergeTape,
    tallies: list[Tally],
) -> None:
    """Run all members; read the syncer's counts before and after the time that is measured.

    Each learner steps on its `current` device, of one for each of its visits.
    """
    loop = asyncio.get_running_loop()
    start_s = tape.start_s = await _begin(world, cell)

    async def take() -> None:
        check_actors(world)
        if world.syncer_state is None:
            raise InvariantError("the syncer was gone while a simulated fleet was measured")
        tallies.append(Tally.of(world.syncer_state, world.network.carried_bytes))

    async def come(member: Member, device: Device) -> None:
        current[member.name] = device
        _attach(world, cell, member)
        world.start(member.name)

    moments: list[tuple[float, Callable[[], Awaitable[object]]]] = [
        (cell.warmup_s, take),
        (cell.end_s, take),
    ]
    for member in cell.members():
        for device, (come_s, go_s) in zip(devices[member.name], member.visits, strict=True):
            device.counted.from_s = start_s + max(cell.warmup_s, come_s)
            device.counted.until_s = start_s + min(cell.end_s, go_s)
            if 0 < come_s < cell.end_s:
                moments.append((come_s, partial(come, member, device)))
            if go_s < cell.end_s:
                moments.append((go_s, partial(_go, world, member, abrupt=member.killed(go_s))))
    for at_s, act in sorted(moments, key=itemgetter(0)):
        await asyncio.sleep(start_s + at_s - loop.time())
        await act()
    limit_s = loop.time() + END_S
    while cell.changes and (world.finished is None or world.processes.names()):
        check_actors(world)
        if loop.time() > limit_s:
            break
        await asyncio.sleep(cell.step_s / 2)
    for name in sorted(world.processes.names()) if cell.changes else ():
        world.note(LeftOver(name))
    await world.kill_all()


async def _go(world: World, member: Member, *, abrupt: bool) -> None:
    learner = world.learner(member.name)
    if abrupt:
        await world.kill(member.name)
    elif learner is not None:
        learner.leave("no longer needed")


def check_actors(world: World) -> None:
    """Refuse the figures of a world in which an actor failed."""
    if world.failures:
        name, error = world.failures[0]
        raise InvariantError(f"{name} failed: {error}") from error
