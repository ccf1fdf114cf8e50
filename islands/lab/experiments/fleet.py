"""A fleet of learners whose chips fail, run by the production actors on a virtual clock.

The supervisor, the syncer and the learners are those of a real run, on the simulated network and
disks of `islands.lab.world`; only what a learner steps on is made up (`chips.py`). Its arithmetic
is that of a toy; on the network, its values count as many times as the model is larger. Where
moments are merged, as many values of the toy travel as these do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from islands.lab.experiments.cells import HOUR_S, Cell, Figures, Link, Training, figures_of
from islands.lab.experiments.chips import Device
from islands.lab.experiments.event_model import devices_of
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import Costs, LearnerHost, Trainers, World
from islands.learner.actor import LearnerActor
from islands.model.interfaces import Trainer
from islands.protocol.errors import InvariantError
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Merged
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

BATCHES = 1000
"""Of a shard."""

ROWS_LEAST, COLUMNS, NOISES = 24, 256, 3
"""The toy: rows of as many values as a block of a quantised contribution has, each fragment as many
rows as the others."""

LOOK_S = 0.2
START_S = 100.0
"""Virtual seconds within which all learners must step, for patience 1."""

END_S = 1000.0
"""Virtual seconds that a fleet may take beyond its time before it is given up."""


class MergeTimes:
    """A tape that keeps nothing but when something was merged."""

    def __init__(self) -> None:
        """Nothing was merged yet."""
        self.times_s: list[float] = []

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Keep the time of an entry if it tells of a merge."""
        if isinstance(entry, Merged):
            self.times_s.append(at_s)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a syncer had counted at one time.

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


def play(cell: Cell) -> tuple[Figures, Training]:
    """Run a fleet until it has been measured.

    Returns:
        What its chips did, and what its syncer counted.

    Raises:
        InvariantError: an actor failed, or the syncer was gone at the end.
        VirtualTimeError: the run stood still.
    """
    devices = devices_of(cell)
    tape = MergeTimes()
    world = World(
        cell.settings,
        hosts_of(cell),
        seed=cell.seed,
        tape=tape,
        costs=costs_of(cell),
        trainers=trainers_of(cell),
        step_end_s=lambda name, begin_s, work_s: devices[name].step(begin_s, work_s),
    )
    tallies: list[Tally] = []
    for device in devices.values():
        device.counted.from_s = inf  # until the learners have begun
    start_s = run_virtual(_live(world, cell, devices, tallies), limit_s=limit_s(cell))
    before, after = tallies
    merges_s = [at_s - start_s for at_s in tape.times_s]
    figures = figures_of(cell, [device.counted for device in devices.values()], start_s)
    return figures, _training(cell, figures, before, after, merges_s)


def limit_s(cell: Cell) -> float:
    """Return the virtual seconds after which a run is given up."""
    return cell.end_s + END_S + START_S * cell.settings.timing.patience


def hosts_of(cell: Cell) -> dict[str, LearnerHost]:
    """Return the machine of each learner."""
    return {
        name: LearnerHost(cell.speed(index) * cell.step_s, cell.noise)
        for index, name in enumerate(cell.names)
    }


def rows_of(cell: Cell) -> int:
    """Return how many rows the toy has: each fragment has as many."""
    fragments = cell.settings.fragments
    return fragments * ceil(ROWS_LEAST / fragments)


def trainers_of(cell: Cell) -> Trainers:
    """Return what makes the trainers of a fleet's learners."""
    shapes = tuple((f"layers/{row}", (COLUMNS,)) for row in range(rows_of(cell)))

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


def route_of(cell: Cell, link: Link) -> Route:
    """Return the network of one link, on which the toy's values count as those of the model."""
    return Route(
        latency_s=link.latency_s,
        bandwidth_bytes_per_s=link.gbit_s * 1e9 / 8,
        payload_scale=cell.parameters / (rows_of(cell) * COLUMNS),
    )


def costs_of(cell: Cell) -> Costs:
    """Return what takes time beside steps; until learners are connected, links are wide."""
    latency_s = max(cell.link_of(index).latency_s for index in range(cell.learners))
    return Costs(cell.work_s, route=Route(latency_s=latency_s))


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
    """Give a learner its own link, both ways."""
    route = route_of(cell, link)
    for other in (SUPERVISOR, SYNCER):
        world.network.set_route(name, other, route)
        world.network.set_route(other, name, route)


def _steps(learner: LearnerActor | None) -> bool:
    return learner is not None and learner.state.phase is Phase.STEPPING


def _training(
    cell: Cell, figures: Figures, before: Tally, after: Tally, merges_s: Sequence[float]
) -> Training:
    """Return what the training came to, for the time that was measured."""
    measured = tuple(at_s for at_s in merges_s if cell.warmup_s <= at_s <= cell.end_s)
    yield_share = (after.applied - before.applied) / max(1, after.processed - before.processed)
    contributions = after.contributions - before.contributions
    chip_s = cell.chips * cell.measured_s
    useful = yield_share * figures.goodput * chip_s / cell.step_s * cell.chip_tokens
    sent = after.carried_bytes - before.carried_bytes if cell.learners > 1 else 0.0
    return Training(
        yield_share=yield_share,
        merges_s=measured,
        participation=contributions / max(1, after.present - before.present),
        per_merge=contributions / max(1, after.merges - before.merges),
        chip_hours=1e9 * chip_s / HOUR_S / useful if useful else inf,
        link_bytes=sent / useful if useful else 0.0,
    )


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
    check(world)
    tallies.append(Tally.of(world.syncer_state, world.network.carried_bytes))
    await world.kill_all()
    return start_s


def check(world: World) -> None:
    """Refuse the figures of a world in which an actor failed, or that has no syncer any more.

    Raises:
        InvariantError: an actor failed, or the syncer is gone.
    """
    check_actors(world)
    if world.syncer_state is None:
        raise InvariantError("the syncer was gone at the end")


def check_actors(world: World) -> None:
    """Refuse the figures of a world in which an actor failed.

    Raises:
        InvariantError: an actor failed.
    """
    if world.failures:
        name, error = world.failures[0]
        raise InvariantError(f"{name} failed: {error}") from error
