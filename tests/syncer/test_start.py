"""The start of a syncer: its journal is read beside the loop, and others see that it is."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import InlineWorker
from islands.actors.role_actor import Context
from islands.files.disk import DiskFile
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.disk import SimulatedDisk
from islands.numerics.outer import Sgd
from islands.protocol.credentials import Credentials
from islands.protocol.errors import DiskError
from islands.protocol.identities import Incarnation, Phase
from islands.protocol.messages.membership import Heartbeat, HeartbeatAck, Join, Joined
from islands.protocol.settings.run import RunSettings
from islands.syncer.actor import SyncerActor
from islands.syncer.hooks import Hooks
from islands.syncer.journal_writer import DISK_RETRY_S
from islands.syncer.workers import SyncerWorkers
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.link import Link
from messaging.links.memory_link import MemoryNetwork
from messaging.simulation.virtual_time import run_virtual

LAYOUT = NumpyTrainer(2).layout
SETTINGS = RunSettings(fragments=2)
RECOVERY_S = 100.0
"""How long it takes to read the journal of these tests."""


def zeros() -> list[NDArray[np.float32]]:
    """A version 0."""
    return [np.zeros(fragment.size, np.float32) for fragment in LAYOUT.fragments]


class Room:
    """A supervisor that admits whoever asks, and a syncer whose disk is slow when it starts."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.network = MemoryNetwork()
        self.tape = MemoryTape()
        self.beats: list[Heartbeat] = []
        self.joins: list[Join] = []
        self.links: list[Link] = []
        self.admits = True
        self.ready_s: list[float] = []
        self.began_s = asyncio.get_running_loop().time()
        self.actor = SyncerActor(
            "syncer",
            Context(SETTINGS, LAYOUT, self.network, self.tape),
            disk=disk or SimulatedDisk(random.Random(0)),
            workers=SyncerWorkers.of(
                InlineWorker(lambda: 0.001 if self.actor.begun else RECOVERY_S)
            ),
            optimizer=Sgd.of(SETTINGS.outer),
            credentials=Credentials("run", b"a key for the tests alone"),
            shards=4,
            rng=random.Random(0),
            initial=zeros,
            hooks=Hooks(ready=lambda: self.ready_s.append(asyncio.get_running_loop().time())),
        )

    async def supervise(self) -> None:
        """Admit, and acknowledge every heartbeat."""
        listener = self.network.listen("supervisor")
        try:
            while True:  # until the test ends
                await self.answer(await listener.accept())
        finally:
            listener.close()

    def say(self, *bodies: object) -> None:
        """Say something to the syncer."""
        link = self.links[-1]
        for body in bodies:
            link.send(Envelope(link.local, link.remote, 1, body))

    async def answer(self, link: Link) -> None:
        """Hear one member until its link ends."""
        self.links.append(link)
        try:
            while True:
                body = (await link.receive()).body
                match body:
                    case Join(name=name):
                        self.joins.append(body)
                        if self.admits:
                            self.say(Joined("run", name, Incarnation(1, 1), "", 1, ()))
                    case Heartbeat():
                        self.beats.append(body)
                        self.say(HeartbeatAck(1, ()))
                    case _:
                        pass
        except LinkClosed:
            return


def with_room(body: Callable[[Room], Awaitable[None]], disk: SimulatedDisk | None = None) -> None:
    """Run a test's body beside a supervisor and a syncer, on the virtual clock."""

    async def main() -> None:
        room = Room(disk)
        failed: list[BaseException] = []
        scope = Scope("test", lambda _, error: failed.append(error))
        scope.spawn(room.supervise(), "supervisor")
        scope.spawn(room.actor.run(), "syncer")
        await body(room)
        await room.actor.kill()
        await scope.close()
        assert not failed

    run_virtual(main(), limit_s=10_000.0)


def test_heartbeats_go_on_while_the_journal_is_read() -> None:
    """They say that the syncer is healing, name no address that nobody listens at, then they do."""

    async def body(room: Room) -> None:
        await asyncio.sleep(RECOVERY_S - 1.0)
        assert len(room.beats) > RECOVERY_S / SETTINGS.timing.heartbeat_s - 5
        assert {(beat.phase, beat.address) for beat in room.beats} == {(Phase.HEALING, None)}
        try:
            await room.network.dial("syncer", local="ana")
        except DialFailed:
            pass
        else:
            raise AssertionError
        room.beats.clear()
        await asyncio.sleep(5.0)
        last = room.beats[-1]
        assert (last.phase, last.address, last.epoch) == (Phase.MERGING, room.actor.address, 1)

    with_room(body)


def test_it_is_ready_when_it_has_read_its_journal_and_listens() -> None:
    """Once, and not before: until then a service manager waits."""

    async def body(room: Room) -> None:
        await asyncio.sleep(RECOVERY_S + 10.0)
        assert room.ready_s == [room.began_s + RECOVERY_S]
        await room.network.dial("syncer", local="ana")

    with_room(body)


def test_who_is_asked_to_end_while_it_reads_ends_at_once() -> None:
    """What the journal holds is not needed any more."""

    async def body(room: Room) -> None:
        await asyncio.sleep(1.0)
        room.actor.ref.stop("SIGTERM")
        await asyncio.sleep(1.0)
        assert not room.actor.begun
        await asyncio.sleep(2 * RECOVERY_S)
        assert room.ready_s == []

    with_room(body)


def test_an_end_that_was_asked_for_while_it_read_is_not_forgotten() -> None:
    """The run is closed as soon as it is known."""

    async def body(room: Room) -> None:
        await asyncio.sleep(1.0)
        room.actor.finish("enough")
        await asyncio.sleep(RECOVERY_S)
        room.actor.finish("enough")  # version 0 was only read now
        await asyncio.sleep(1.0)
        assert room.actor.state.durable.finished == "enough"

    with_room(body)


class Stubborn(SimulatedDisk):
    """A disk that cannot be read while it is stubborn."""

    stubborn = True

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        if self.stubborn:
            message = f"{name} cannot be read: input/output error"
            raise DiskError(message)
        return super().open(name, at_bytes)


def test_a_disk_that_fails_at_the_start_is_waited_for() -> None:
    """As it is later: a restart would find the same, and use up the supervisor's patience."""
    disk = Stubborn(random.Random(0))

    async def body(room: Room) -> None:
        await asyncio.sleep(3 * (RECOVERY_S + DISK_RETRY_S))
        assert not room.actor.ref.stopped
        assert sum(b'"disk"' in line for line in room.tape.lines) >= 3
        disk.stubborn = False
        await asyncio.sleep(2 * (RECOVERY_S + DISK_RETRY_S))
        assert room.actor.begun

    with_room(body, disk)
