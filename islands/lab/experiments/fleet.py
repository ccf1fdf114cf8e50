"""A fleet of learners, run by the production actors on a virtual clock, and its figures.

The supervisor, the syncer and the learners are those of a real run, on the simulated network and
disks of `islands.lab.world`; only the chips that a learner steps on are made up (`chips.py`). The
arithmetic is that of a toy; on the network, its values count as many times as the model is larger.
Where moments are merged, as many values of the toy travel as these do.

Goodput is chip-time spent on steps over all chip-time, that of chips which are away included. Yield
is tokens that reached the published values over tokens processed, both within the measured time.
Uptime is the share of time in which at least one learner steps. A fleet is good only if goodput and
yield are both high.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import ceil, inf

from islands.files.tape_writing import Tape
from islands.lab.experiments.chips import Chips, Counted, Device, ElasticChips, RigidChips
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import Costs, LearnerHost, Trainers, World
from islands.learner.actor import LearnerActor
from islands.model.interfaces import Trainer
from islands.protocol.errors import InvariantError
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase
from islands.protocol.settings.choices import LearnerWaits
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Merged
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

HOUR_S = 3600.0

BATCHES = 1000
"""Batches of a shard."""

ROWS_LEAST, COLUMNS, NOISES = 24, 256, 3
"""The toy: rows of as many values as a block of a quantised contribution has, each fragment as many
rows as the others."""

LOOK_S = 0.2
START_S = 100.0
"""Virtual seconds within which all learners must step, for patience 1."""

END_S = 1000.0
"""Virtual seconds that a fleet may take beyond its time before it is given up."""


@dataclass(frozen=True, slots=True)
class Link:
    """The network between a learner and the syncer.

    Attributes:
        latency_s: of one message.
        gbit_s: bandwidth of one learner, each way.
    """

    latency_s: float = 0.03
    gbit_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One fleet.

    Attributes:
        chips: of all learners together.
        learners: M; data-parallel training is one learner.
        each: the chips of each learner, and what a failure costs it.
        elastic: whether a learner goes on without the slices that failed.
        step_s: mean seconds of a step where nothing fails.
        noise: standard deviation of a step's time, as a share of the mean.
        speeds: by how many times the steps of each learner are longer; 1 for those not named.
        chip_tokens: tokens of one chip in a step.
        parameters: of the model, which the network carries.
        link: the network.
        links: the links of the learners, one after another; `link` for those not named.
        work_s: least and most seconds of one piece of work that is no step, such as a merge.
        settings: of the run.
        warmup_s: what comes before, from when all learners step, is not measured: no slice is away
            yet.
        measured_s: for how long the fleet is measured.
        seed: of all chance.
    """

    chips: float
    learners: int
    each: Chips
    elastic: bool = True
    step_s: float = 10.0
    noise: float = 0.0
    speeds: tuple[float, ...] = ()
    chip_tokens: float = 1024.0
    parameters: float = 1e9
    link: Link = field(default_factory=Link)
    links: tuple[Link, ...] = ()
    work_s: tuple[float, float] = (0.0005, 0.004)
    settings: RunSettings = field(default_factory=lambda: PRESETS[Preset.DECOUPLED_DILOCO])
    warmup_s: float = 1800.0
    measured_s: float = 6 * HOUR_S
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The learners' names."""
        return tuple(f"learner-{index:04}" for index in range(self.learners))

    @property
    def end_s(self) -> float:
        """The end of the time that is measured."""
        return self.warmup_s + self.measured_s

    @property
    def rows(self) -> int:
        """Number of rows of the toy: each fragment has as many."""
        return self.settings.fragments * ceil(ROWS_LEAST / self.settings.fragments)

    def speed(self, index: int) -> float:
        """By how many times the steps of a learner are longer."""
        return self.speeds[index] if index < len(self.speeds) else 1.0

    def link_of(self, index: int) -> Link:
        """The link of a learner."""
        return self.links[index] if index < len(self.links) else self.link


def steady(learners: int) -> Cell:
    """Return a fleet of so many learners whose chips never fail; each counts as one chip."""
    return Cell(float(learners), learners, Chips(1.0, mtbi_s=inf))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a fleet's chips.

    Attributes:
        goodput: share of chip-time that was spent on steps.
        uptime: share of time in which at least one learner stepped.
        stalls_s: by learner, (start, end) of each time in which it took no step.
    """

    goodput: float
    uptime: float
    stalls_s: tuple[tuple[tuple[float, float], ...], ...] = ()

    @classmethod
    def of(cls, cell: Cell, counted: Sequence[Counted], start_s: float = 0.0) -> "Figures":
        """Return the figures of what each learner's chips did; the learners began at `start_s`."""
        stalls = [each.still for each in counted]
        still = reduce(overlaps, stalls)
        return cls(
            goodput=sum(each.chip_s for each in counted) / (cell.chips * cell.measured_s),
            uptime=1.0 - sum(stop - start for start, stop in still) / cell.measured_s,
            stalls_s=tuple(
                tuple((start - start_s, stop - start_s) for start, stop in each) for each in stalls
            ),
        )


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

    Attributes:
        processed: tokens of all learners.
        applied: tokens that reached the published values, mean over fragments.
        merges: merges.
        contributions: contributions that were merged.
        present: learners at each merge, summed over merges.
        carried_bytes: that all links had carried.
    """

    processed: int = 0
    applied: float = 0.0
    merges: int = 0
    contributions: int = 0
    present: int = 0
    carried_bytes: float = 0.0

    @classmethod
    def of(cls, state: SyncerState | None, carried_bytes: float = 0.0) -> "Tally":
        """Read the counts of a syncer's state; a syncer that has not begun has counted nothing."""
        if state is None:
            return cls(carried_bytes=carried_bytes)
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
    """The figures of a fleet's training, as its syncer counted them.

    Attributes:
        yield_share: tokens that reached the published values over tokens processed, both within the
            measured time.
        merges_s: when each merge of the measured time was committed.
        participation: contributions per learner that was present, and per merge.
        per_merge: contributions per merge.
        chip_hours: for 10⁹ tokens that reached the published values.
        link_bytes: that all links carried, as large as they are for the model, for each token that
            reached the published values; 0 where one learner trains alone and needs none.
    """

    yield_share: float
    merges_s: tuple[float, ...]
    participation: float
    per_merge: float
    chip_hours: float
    link_bytes: float

    @classmethod
    def of(
        cls, cell: Cell, goodput: float, before: Tally, after: Tally, merges_s: Sequence[float]
    ) -> "Training":
        """Return the figures of the time between two tallies."""
        yield_share = (after.applied - before.applied) / max(1, after.processed - before.processed)
        contributions = after.contributions - before.contributions
        chip_s = cell.chips * cell.measured_s
        useful = yield_share * goodput * chip_s / cell.step_s * cell.chip_tokens
        sent = after.carried_bytes - before.carried_bytes if cell.learners > 1 else 0.0
        return cls(
            yield_share=yield_share,
            merges_s=tuple(at_s for at_s in merges_s if cell.warmup_s <= at_s <= cell.end_s),
            participation=contributions / max(1, after.present - before.present),
            per_merge=contributions / max(1, after.merges - before.merges),
            chip_hours=1e9 * chip_s / HOUR_S / useful if useful else inf,
            link_bytes=sent / useful if useful else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Played:
    """A fleet that was played."""

    cell: Cell
    figures: Figures
    training: Training

    @property
    def useful(self) -> float:
        """Steps whose tokens reached the published values, per step that nothing delays.

        Of those who wait for the merge of each step, all do.
        """
        waits = self.cell.settings.learner_waits is LearnerWaits.AT_TAU
        return self.figures.goodput * (1.0 if waits else self.training.yield_share)


class MergeTimes:
    """A tape that keeps nothing but when something was merged."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Keep the time of an entry if it is of a merge."""
        if isinstance(entry, Merged):
            self.times_s.append(at_s)


def play(cell: Cell) -> Played:
    """Run a fleet until it has been measured.

    Raises:
        InvariantError: an actor failed, or the syncer was gone at the end.
        VirtualTimeError: the run stood still.
    """
    devices = devices_of(cell)
    tape = MergeTimes()
    world = world_of(cell, tape, lambda name, begin_s, work_s: devices[name].step(begin_s, work_s))
    tallies: list[Tally] = []
    for device in devices.values():
        device.counted.from_s = inf  # until the learners have begun
    start_s = run_virtual(_live(world, cell, devices, tallies), limit_s=limit_s(cell))
    merges_s = [at_s - start_s for at_s in tape.times_s]
    figures = Figures.of(cell, [device.counted for device in devices.values()], start_s)
    before, after = tallies
    return Played(cell, figures, Training.of(cell, figures.goodput, before, after, merges_s))


def play_alone(cell: Cell) -> Figures:
    """Let each learner take step after step, with no actors, network or syncer.

    What the simulated fleet loses beyond this event model, the program itself has cost.
    """
    devices = devices_of(cell)
    for index, device in enumerate(devices.values()):
        now_s = 0.0
        while now_s < cell.end_s:
            now_s = device.step(now_s, cell.speed(index) * cell.step_s)
    return Figures.of(cell, [device.counted for device in devices.values()])


def devices_of(cell: Cell) -> Mapping[str, Device]:
    """Return the device of each learner, by name; each has a random stream of its own."""
    kind = ElasticChips if cell.elastic else RigidChips
    return {
        name: kind(
            cell.each,
            random.Random(f"{cell.seed}/{cell.chips:g}/{cell.learners}/{name}"),
            Counted(cell.warmup_s, cell.end_s),
        )
        for name in cell.names
    }


def limit_s(cell: Cell) -> float:
    """Return the virtual seconds after which a run is given up."""
    return cell.end_s + END_S + START_S * cell.settings.timing.patience


# --- the world of a fleet ---------------------------------------------------------------------


def world_of(
    cell: Cell,
    tape: Tape,
    step_end_s: Callable[[str, float, float], float] | None = None,
    *,
    batch_tokens: int | None = None,
) -> World:
    """Return the hosts of a fleet; until learners are connected, links are wide.

    Args:
        cell: the fleet.
        tape: of all actors.
        step_end_s: returns the end of a step, of a learner's name, its begin and its work.
        batch_tokens: tokens of a step; by default those of the toy.
    """
    hosts = {
        name: LearnerHost(cell.speed(index) * cell.step_s, cell.noise)
        if batch_tokens is None
        else LearnerHost(cell.speed(index) * cell.step_s, cell.noise, batch_tokens=batch_tokens)
        for index, name in enumerate(cell.names)
    }
    latency_s = max(cell.link_of(index).latency_s for index in range(cell.learners))
    return World(
        cell.settings,
        hosts,
        seed=cell.seed,
        tape=tape,
        costs=Costs(cell.work_s, route=Route(latency_s=latency_s)),
        trainers=trainers_of(cell),
        step_end_s=step_end_s,
    )


def trainers_of(cell: Cell) -> Trainers:
    """Return what makes the trainers of a fleet's learners."""
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


async def begin(world: World, cell: Cell) -> float:
    """Start all members; once all learners step, give each of them its own link, both ways.

    The start is not measured, and over a narrow link the first values would take long.

    Returns:
        When all step.

    Raises:
        InvariantError: they do not.
    """
    for name in (SUPERVISOR, SYNCER, *cell.names):
        world.start(name)
    loop = asyncio.get_running_loop()
    while not all(_steps(world.learner(name)) for name in cell.names):
        if loop.time() > START_S * cell.settings.timing.patience:
            raise InvariantError("the learners of a simulated fleet did not begin to step")
        await asyncio.sleep(LOOK_S)
    for index, name in enumerate(cell.names):
        attach(world, cell, name, cell.link_of(index))
    return loop.time()


def attach(world: World, cell: Cell, name: str, link: Link) -> None:
    """Give a learner its own link, both ways, on which the toy's values count as the model's."""
    route = Route(
        latency_s=link.latency_s,
        bandwidth_bytes_per_s=link.gbit_s * 1e9 / 8,
        payload_scale=cell.parameters / (cell.rows * COLUMNS),
    )
    for other in (SUPERVISOR, SYNCER):
        world.network.set_route(name, other, route)
        world.network.set_route(other, name, route)


def _steps(learner: LearnerActor | None) -> bool:
    return learner is not None and learner.state.phase is Phase.STEPPING


async def _live(
    world: World, cell: Cell, devices: Mapping[str, Device], tallies: list[Tally]
) -> float:
    """Run all members; read the syncer's counts before and after the time that is measured.

    Returns:
        When all learners had begun to step, from where the times of a fleet count.
    """
    start_s = await begin(world, cell)
    for device in devices.values():
        device.counted.from_s = start_s + cell.warmup_s
        device.counted.until_s = start_s + cell.end_s
    await asyncio.sleep(cell.warmup_s)
    tallies.append(Tally.of(world.syncer_state, world.network.carried_bytes))
    await asyncio.sleep(cell.measured_s)
    check_actors(world)
    if world.syncer_state is None:
        raise InvariantError("the syncer was gone at the end")
    tallies.append(Tally.of(world.syncer_state, world.network.carried_bytes))
    await world.kill_all()
    return start_s


def check_actors(world: World) -> None:
    """Refuse the figures of a world in which an actor failed.

    Raises:
        InvariantError: an actor failed.
    """
    if world.failures:
        name, error = world.failures[0]
        raise InvariantError(f"{name} failed: {error}") from error
