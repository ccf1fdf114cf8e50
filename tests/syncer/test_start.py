"""The start of a syncer: its journal is read beside the loop, and others see that it is."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from islands.files.disk import DiskFile
from islands.lab.world.disk import SimulatedDisk
from islands.protocol.errors import DiskError
from islands.protocol.identities import Incarnation, Phase
from islands.protocol.messages.membership import Heartbeat, HeartbeatAck, Join, Joined
from islands.syncer.journal import DISK_RETRY_S
from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.link import Link
from tests.syncer.actor_bench import SETTINGS, Room
from tests.virtual import beside, virtual

RECOVERY_S = 100.0
"""How long it takes to read the journal of these tests."""


class Supervised(Room):
    """A supervisor that admits whoever asks, and a syncer whose disk is slow when it starts."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        super().__init__(disk, work_s=lambda: 0.001 if self.actor.begun else RECOVERY_S)
        self.beats: list[Heartbeat] = []
        self.joins: list[Join] = []
        self.links: list[Link] = []
        self.admits = True
        self.began_s = asyncio.get_running_loop().time()

    async def supervise(self) -> None:
        listener = self.network.listen("supervisor")
        try:
            while True:  # until the test ends
                await self.answer(await listener.accept())
        finally:
            listener.close()

    def say(self, *bodies: object) -> None:
        link = self.links[-1]
        for body in bodies:
            link.send(Envelope(link.local, link.remote, 1, body))

    async def answer(self, link: Link) -> None:
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


@asynccontextmanager
async def open_room(disk: SimulatedDisk | None = None) -> AsyncIterator[Supervised]:
    room = Supervised(disk)
    async with beside(room.actor, room.supervise()):
        yield room


@virtual
async def test_heartbeats_go_on_while_the_journal_is_read_and_then_it_is_ready() -> None:
    async with open_room() as room:
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
        assert room.ready_s == [room.began_s + RECOVERY_S]
        await room.network.dial("syncer", local="ana")


@virtual
async def test_who_is_asked_to_end_while_it_reads_ends_at_once() -> None:
    async with open_room() as room:
        await asyncio.sleep(1.0)
        room.actor.ref.stop("SIGTERM")
        await asyncio.sleep(1.0)
        assert not room.actor.begun
        await asyncio.sleep(2 * RECOVERY_S)
        assert room.ready_s == []


@virtual
async def test_an_end_that_was_asked_for_while_it_read_is_not_forgotten() -> None:
    async with open_room() as room:
        await asyncio.sleep(1.0)
        room.actor.finish("enough")
        await asyncio.sleep(RECOVERY_S)
        room.actor.finish("enough")  # version 0 was only read now
        await asyncio.sleep(1.0)
        assert room.actor.state.durable.finished == "enough"


class Stubborn(SimulatedDisk):
    stubborn = True

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        if self.stubborn:
            message = f"{name} cannot be read: input/output error"
            raise DiskError(message)
        return super().open(name, at_bytes)


@virtual
async def test_a_disk_that_fails_at_the_start_is_waited_for() -> None:
    """As it is later: a restart would find the same, and use up the supervisor's patience."""
    disk = Stubborn(random.Random(0))
    async with open_room(disk) as room:
        await asyncio.sleep(3 * (RECOVERY_S + DISK_RETRY_S))
        assert not room.actor.ref.stopped
        assert sum(b'"disk"' in line for line in room.tape.lines) >= 3
        disk.stubborn = False
        await asyncio.sleep(2 * (RECOVERY_S + DISK_RETRY_S))
        assert room.actor.begun
