"""A fleet of learners whose chips fail, run by the production actors on a virtual clock.

The supervisor, the syncer and the learners are those of a real run, on the simulated network and
disks of `islands.simulation`; only what a learner steps on is made up (`chips.py`). Its arithmetic
is that of a toy; the network's bandwidth is as much lower as the toy is smaller than the model.
"""

import asyncio
from collections.abc import Sequence

from islands.cluster.summary import SyncerShare, share_of
from islands.errors import InvariantError
from islands.goodput.cells import HOUR_S, Cell, Figures, Training, figures_of
from islands.goodput.event_model import devices_of
from islands.identities import SUPERVISOR, SYNCER
from islands.layout.leaves import VALUE_BYTES
from islands.simulation.world import Costs, LearnerHost, World
from islands.tape.entry import Entry
from islands.tape.round_entries import Merged
from islands.training.toy import NumpyTrainer
from islands.training.trainer import Trainer
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

BATCHES = 1000
"""Of a shard."""

ROWS, COLUMNS, NOISES = 96, 256, 3
"""The toy: large enough that the headers of messages count for little beside its values."""

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


def play(cell: Cell) -> tuple[Figures, Training]:
    """Run a fleet until it has been measured.

    Returns:
        What its chips did, and what its syncer counted.

    Raises:
        InvariantError: an actor failed, or the syncer was gone at the end.
        VirtualTimeError: the run stood still.
    """
    devices = devices_of(cell)
    hosts = {
        name: LearnerHost(cell.speed(index) * cell.step_s, cell.noise)
        for index, name in enumerate(cell.names)
    }

    def trainer(_: str, host: LearnerHost) -> Trainer:
        shapes = tuple((f"layers/{row}", (COLUMNS,)) for row in range(ROWS))
        return NumpyTrainer(
            cell.settings.fragments,
            shapes=shapes,
            batch_tokens=host.batch_tokens,
            batches_per_shard=BATCHES,
            momentum=host.momentum,
            noises=NOISES,
        )

    toy_share = ROWS * COLUMNS / cell.parameters
    route = Route(
        latency_s=cell.link.latency_s,
        bandwidth_bytes_per_s=cell.link.gbit_s * 1e9 / 8 * toy_share,
    )
    tape = MergeTimes()
    world = World(
        cell.settings,
        hosts,
        seed=cell.seed,
        tape=tape,
        costs=Costs(route=route),
        trainers=trainer,
        step_end_s=lambda name, begin_s, work_s: devices[name].step(begin_s, work_s),
    )
    shares: list[SyncerShare] = []
    run_virtual(_live(world, cell, shares), limit_s=cell.end_s + END_S)
    figures = figures_of(cell, [device.counted for device in devices.values()])
    return figures, _training(cell, figures, shares[0], tape.times_s)


def _training(
    cell: Cell, figures: Figures, share: SyncerShare, merges_s: Sequence[float]
) -> Training:
    """Return what the training came to, for the time that was measured."""
    measured = tuple(at_s for at_s in merges_s if cell.warmup_s <= at_s <= cell.end_s)
    chip_s = cell.chips * cell.measured_s
    useful = share["yield"] * figures.goodput * chip_s / cell.step_s * cell.chip_tokens
    contributions = share["participation"] * cell.learners * len(measured)
    updates = cell.learners * len(measured)
    fragment_bytes = VALUE_BYTES * cell.parameters / cell.settings.fragments
    sent = (contributions + updates) * fragment_bytes if cell.learners > 1 else 0.0
    return Training(
        yield_share=share["yield"],
        merges_s=measured,
        participation=share["participation"],
        chip_hours=1e9 * chip_s / HOUR_S / useful,
        link_bytes=sent / useful,
    )


async def _live(world: World, cell: Cell, shares: list[SyncerShare]) -> None:
    """Run all members; take the syncer's figures at the end, when all are killed."""
    for name in (SUPERVISOR, SYNCER, *cell.names):
        world.start(name)
    await asyncio.sleep(cell.end_s)
    state = world.syncer_state
    if world.failures:
        name, error = world.failures[0]
        raise InvariantError(f"{name} failed: {error}") from error
    if state is None:
        raise InvariantError("the syncer was gone at the end")
    shares.append(share_of(state))
    await world.kill_all()
