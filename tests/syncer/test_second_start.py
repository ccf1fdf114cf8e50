"""A second syncer on one journal: where locks cannot keep it out, the epoch says who goes on."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.actors.ports import InlineWorker
from islands.actors.role_actor import Context
from islands.files.disk import Disk
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.disk import SimulatedDisk
from islands.numerics.outer import Sgd
from islands.protocol.credentials import Credentials
from islands.protocol.errors import DamagedError, DiskError, FencedError, UserError
from islands.protocol.settings.run import RunSettings
from islands.run.roles import journal_disk
from islands.syncer.actor import SyncerActor
from islands.syncer.journal_writer import DISK_RETRY_S
from islands.syncer.workers import SyncerWorkers
from messaging.links.memory_link import MemoryNetwork
from messaging.simulation.virtual_time import run_virtual

LAYOUT = NumpyTrainer(2).layout
HEARTBEAT_S = RunSettings().timing.heartbeat_s


def zeros() -> list[NDArray[np.float32]]:
    """A version 0."""
    return [np.zeros(fragment.size, np.float32) for fragment in LAYOUT.fragments]


class Start:
    """One start of a syncer whose version 0 comes from a file, with a network of its own."""

    def __init__(self, disk: Disk, settings: RunSettings | None = None) -> None:
        settings = settings or RunSettings(fragments=2)
        self.tape = MemoryTape()
        self.actor = SyncerActor(
            "syncer",
            Context(settings, LAYOUT, MemoryNetwork(), self.tape),
            disk=disk,
            workers=SyncerWorkers.of(InlineWorker(lambda: 0.001)),
            optimizer=Sgd.of(settings.outer),
            credentials=Credentials("run", b"a key for the tests alone"),
            shards=4,
            rng=random.Random(0),
            initial=zeros,
        )
        self.task = asyncio.get_running_loop().create_task(self.actor.run())

    @property
    def journalled(self) -> int:
        """Records that it made durable."""
        return sum(json.loads(line)["kind"] == "journalled" for line in self.tape.lines)

    async def end(self) -> None:
        """As a process that is killed."""
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.actor.kill()


def virtually(body: Callable[[], Awaitable[None]]) -> None:
    """Run a test's body on the virtual clock."""

    async def main() -> None:
        await body()

    run_virtual(main(), limit_s=1000.0)


def test_the_older_of_two_syncers_ends_itself_and_the_newer_goes_on() -> None:
    """It ends within two heartbeats, though it has nothing to write, and says what happened."""

    async def body() -> None:
        disk = SimulatedDisk(random.Random(0))
        old = Start(disk)
        await asyncio.sleep(10.0)
        assert not old.task.done()
        new = Start(disk)
        await asyncio.sleep(2 * HEARTBEAT_S + 0.1)
        assert old.task.done()
        with pytest.raises(FencedError, match="epoch 2 owns the journal, this syncer is 1"):
            old.task.result()
        new.actor.finish("enough")
        await asyncio.sleep(1.0)
        assert not new.task.done()
        assert new.actor.state.durable.finished == "enough"
        assert new.journalled > 0
        await new.end()

    virtually(body)


def test_a_syncer_that_is_fenced_in_the_middle_of_its_records_ends_at_once() -> None:
    """The record that finds out is not tried again, and those behind it are not written."""

    async def body() -> None:
        disk = SimulatedDisk(random.Random(0))
        old = Start(disk)
        await asyncio.sleep(0.0015)  # version 0 is being journalled, one fragment after the other
        new = Start(disk)
        await asyncio.sleep(0.1)
        with pytest.raises(FencedError):
            old.task.result()
        await asyncio.sleep(10.0)
        assert new.actor.state.version(0) is not None
        await new.end()

    virtually(body)


class Failing(SimulatedDisk):
    """A disk whose next writes of fragments fail in a way of its own."""

    error: Exception | None = None

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.error is not None and name.startswith(("fragment", "metadata")):
            raise self.error
        super().write(name, parts)


def test_a_disk_that_fails_is_tried_again_and_a_damaged_journal_is_not() -> None:
    """What may pass is waited for, for as long as it takes; what cannot pass ends the syncer."""

    async def body() -> None:
        disk = Failing(random.Random(0))
        disk.error = DiskError("fragment-00000.a cannot be written: input/output error")
        start = Start(disk)
        await asyncio.sleep(100 * DISK_RETRY_S)
        assert not start.task.done()
        disk.error = None
        await asyncio.sleep(2 * DISK_RETRY_S)
        assert start.actor.state.version(1) is not None
        disk.error = DamagedError("gone")
        start.actor.finish("enough")
        await asyncio.sleep(1.0)
        with pytest.raises(DamagedError, match="gone"):
            start.task.result()

    virtually(body)


def test_a_folder_has_one_journal_at_a_time(tmp_path: Path) -> None:
    """A second start is refused with a sentence before it takes an epoch, until the first ends."""
    first = journal_disk(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="in use by another syncer; choose another, or end that"):
        journal_disk(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    first.close()
    journal_disk(tmp_path).close()


def test_the_end_of_a_syncer_frees_its_journal(tmp_path: Path) -> None:
    """However it ends, the next start of the same process has it."""

    async def body() -> None:
        for _ in range(2):
            start = Start(journal_disk(tmp_path))
            await asyncio.sleep(1.0)
            await start.end()

    virtually(body)
