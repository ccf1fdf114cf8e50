"""Real websocket links through the fault proxy: late is allowed, wrong and twice are not.

The oracle is the same everywhere. What one end receives on a lane is a beginning of what the other
end sent there: whole, unchanged, in order, each once. A session that cannot keep this ends. Seeds
decide where it is struck.
"""

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from islands.lab.faults.fault import Direction
from islands.lab.faults.proxy import Connection, FaultProxy, Faults
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link, Listener
from messaging.links.link_state import DialSettings
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.settings import WebsocketSettings
from tests.messaging.doubles import Probe, Spoken, beat, carrying, probe

pytestmark = pytest.mark.integration

LIMIT_S = 30.0
CROWD = 64
SMALL = WebsocketSettings(chunk_bytes=1 << 14, close_s=0.5)


@dataclass
class Session:
    """Both ends of a link, and the connections that it is made of."""

    near: Link
    far: Link
    control: Connection
    bulk: Connection

    def ends(self, way: Direction) -> tuple[Link, Link]:
        return (self.near, self.far) if way is Direction.UP else (self.far, self.near)


class Room:
    """A hub behind a fault proxy, and a dialler before it."""

    def __init__(
        self, hub: WebsocketNetwork, listener: Listener, dialling: WebsocketNetwork, seed: int
    ) -> None:
        self.hub = hub
        self.listener = listener
        self.dialling = dialling
        self.proxy = FaultProxy(hub.port, seed=seed)

    @property
    def address(self) -> str:
        """What to dial to reach the hub through the proxy."""
        return f"ws://127.0.0.1:{self.proxy.port}/hub"

    async def open_session(self) -> Session:
        """Dial through the proxy, and accept."""
        before = len(self.proxy.connections)
        near = await self.dialling.dial(self.address, local="near")
        async with asyncio.timeout(LIMIT_S):
            far = await self.listener.accept()
        control, bulk = self.proxy.connections[before:]
        return Session(near, far, control, bulk)


@asynccontextmanager
async def open_room(settings: WebsocketSettings = SMALL, *, seed: int = 0) -> AsyncIterator[Room]:
    """Start a hub and a proxy; close everything at the end."""
    hub = WebsocketNetwork((Probe, Spoken), settings=settings)
    dialling = WebsocketNetwork((Probe, Spoken), settings=settings)
    await hub.open("127.0.0.1", 0)
    room = Room(hub, hub.listen("hub"), dialling, seed)
    try:
        async with room.proxy:
            yield room
    finally:
        await dialling.close()
        await hub.close()


def envelopes(seed: int, count: int = 8, most_bytes: int = 50_000) -> list[Envelope]:
    """Make bulk envelopes with payloads of several sizes, none like another."""
    rng = random.Random(seed)
    sizes = [0, *(rng.randrange(1, most_bytes) for _ in range(count - 1))]
    return [carrying(rng.randbytes(size), Lane.BULK, number) for number, size in enumerate(sizes)]


async def drain(link: Link) -> tuple[list[Envelope], str]:
    """Receive until the session is over; return what came and why it ended."""
    received: list[Envelope] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            while True:  # until the link is closed
                received.append(await link.receive())
    except LinkClosed:
        return received, link.close_reason or ""


def send_all(link: Link, sent: Sequence[Envelope]) -> None:
    """Send on both lanes, numbers apart."""
    for envelope in sent:
        link.send(on_control(envelope))
        link.send(envelope, Lane.BULK)


def on_control(envelope: Envelope) -> Envelope:
    """The same bytes, as they are sent on the control lane."""
    return carrying(b"".join(envelope.payload), Lane.CONTROL, envelope.id + 1000)


def expect_beginning(received: Sequence[Envelope], sent: Sequence[Envelope]) -> None:
    """Hold the oracle for both lanes."""
    bulk = [envelope for envelope in received if envelope.id < 1000]
    control = [envelope for envelope in received if envelope.id >= 1000]
    assert bulk == list(sent[: len(bulk)])
    assert control == [on_control(envelope) for envelope in sent[: len(control)]]


async def receive_all(link: Link, count: int) -> list[Envelope]:
    async with asyncio.timeout(LIMIT_S):
        return [await link.receive() for _ in range(count)]


async def test_a_link_counts_what_is_on_the_wire() -> None:
    async with open_room() as room:
        session = await room.open_session()

        def carried(way: Direction) -> int:
            return sum(one.pump(way).delivered_bytes for one in (session.control, session.bulk))

        # the handshake is none of the link's
        before = {way: carried(way) for way in Direction.BOTH.ways}
        for number in range(500):
            for sender, receiver in ((session.near, session.far), (session.far, session.near)):
                sender.send(Envelope("a", "b", number, Probe(number, "x" * (number % 300))))
                await receiver.receive()
        for number in range(20):
            session.near.send(probe(number, (memoryview(bytes(3000)),)), Lane.BULK)
            await session.far.receive()
        for way in Direction.BOTH.ways:
            sender, receiver = session.ends(way)
            assert sender.bytes_sent == pytest.approx(carried(way) - before[way], rel=0.02)
            assert receiver.bytes_received == pytest.approx(sender.bytes_sent, rel=0.02)


@pytest.mark.parametrize("way", Direction.BOTH.ways)
async def test_reset_inside_a_frame_delivers_nothing_partial(way: Direction, seed: int) -> None:
    rng = random.Random(f"{way} {seed}")
    async with open_room(seed=seed) as room:
        session = await room.open_session()
        sender, receiver = session.ends(way)
        struck = rng.choice((session.control, session.bulk))
        pump = struck.pump(way)
        sent = envelopes(seed)
        total = sum(buffer.nbytes for envelope in sent for buffer in envelope.payload)
        after = pump.delivered_bytes + rng.randrange(1, total)
        struck.inject(Faults(reset_after_bytes=after), way)
        send_all(sender, sent)
        received, reason = await drain(receiver)
        expect_beginning(received, sent)
        assert len(received) < 2 * len(sent)
        assert "connection lost" in reason
        await drain(sender)
        assert pump.delivered_bytes == after


async def test_broken_sessions_leave_nothing_behind() -> None:
    async with open_room() as room:
        await drain_after_reset(room)  # what is made once is made
        tasks, files = len(asyncio.all_tasks()), open_files()
        for _ in range(20):
            await drain_after_reset(room)
        async with asyncio.timeout(LIMIT_S):
            while len(asyncio.all_tasks()) > tasks or open_files() > files:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.001)  # until all that was begun has ended


async def drain_after_reset(room: Room) -> None:
    """Open a session, break it while it carries much, and see both ends learn of it."""
    session = await room.open_session()
    send_all(session.near, envelopes(0))
    await room.proxy.wait(lambda: session.bulk.up.delivered_bytes > 1000)
    session.bulk.reset()
    for link in (session.near, session.far):
        await drain(link)


def open_files() -> int:
    """How many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_latency_and_jitter_keep_the_order() -> None:
    async with open_room() as room:
        room.proxy.inject(Faults(latency_s=0.01, jitter_s=0.03))
        session = await room.open_session()
        for sender, receiver in ((session.near, session.far), (session.far, session.near)):
            sent = envelopes(1, count=20)
            send_all(sender, sent)
            expect_beginning(received := await receive_all(receiver, 40), sent)
            assert len(received) == 40


async def test_old_bytes_never_reach_a_newer_session() -> None:
    async with open_room() as room:
        old = await room.open_session()
        for connection in (old.control, old.bulk):
            connection.inject(Faults(cut=True), Direction.UP)
        late = envelopes(4)
        send_all(old.near, late)
        await room.proxy.wait(lambda: old.control.up.read_bytes > old.control.up.delivered_bytes)
        old.near.close("dialling anew")
        new = await room.open_session()
        sent = envelopes(5)
        send_all(new.near, sent)
        await room.proxy.wait(lambda: new.bulk.up.delivered_bytes > 0)
        room.proxy.heal()
        expect_beginning(await receive_all(new.far, 2 * len(sent)), sent)
        received, reason = await drain(old.far)
        expect_beginning(received, late)
        assert "dialling anew" in reason
        assert not new.far.closed


class Caller:
    """A dialler that beats, and counts the answers."""

    def __init__(self, room: Room, settings: DialSettings, beat_s: float, seed: int) -> None:
        self.opened = 0
        self.reasons: list[str] = []
        self.heard = 0
        self.changed = asyncio.Event()
        self._beat_s = beat_s
        self.dialer = Dialer(
            room.dialling,
            room.address,
            local="near",
            on_open=self._on_open,
            on_envelope=self._on_envelope,
            on_close=self._on_close,
            rng=random.Random(seed),
            settings=settings,
        )

    async def wait(self, opened: int, heard: int) -> None:
        """Wait for so many sessions, and answers on all of them together."""
        async with asyncio.timeout(LIMIT_S):
            while self.opened < opened or self.heard < heard:
                self.changed.clear()
                await self.changed.wait()

    async def wait_lost(self, count: int) -> None:
        """Wait until so many sessions have ended."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.reasons) < count:
                self.changed.clear()
                await self.changed.wait()

    def _on_open(self, link: Link) -> None:
        self.opened += 1
        beat(link, self._beat_s)
        self.changed.set()

    def _on_envelope(self, link: Link, envelope: Envelope) -> None:
        self.heard += 1
        self.changed.set()

    def _on_close(self, link: Link, reason: str) -> None:
        self.reasons.append(reason)
        self.changed.set()


DIAL = DialSettings(backoff_first_s=0.02, backoff_longest_s=0.1, dial_timeout_s=0.3, liveness_s=0.3)
PATIENT = DialSettings(backoff_first_s=0.05, dial_timeout_s=10.0)


@asynccontextmanager
async def open_callers(
    room: Room, count: int = 1, settings: DialSettings = DIAL, beat_s: float = 0.02
) -> AsyncIterator[list[Caller]]:
    """Run diallers, and a hub that answers each envelope; end all afterwards."""
    callers = [Caller(room, settings, beat_s, seed) for seed in range(count)]

    async def answer(link: Link) -> None:
        with contextlib.suppress(LinkClosed):
            while True:  # until the link is lost
                link.send(await link.receive())

    async with Scope() as scope:

        async def accept() -> None:
            while True:  # until cancelled
                scope.spawn(answer(await room.listener.accept()), "answer")

        scope.spawn(accept(), "accept")
        running = [scope.spawn(caller.dialer.run(), "dialer") for caller in callers]
        yield callers
        for caller in callers:
            caller.dialer.stop("the test ends")
        for task in running:
            await task


@pytest.mark.quick("both")
@pytest.mark.parametrize("way", list(Direction))
async def test_a_cut_is_noticed_and_the_session_comes_back(way: Direction) -> None:
    async with open_room() as room, open_callers(room) as (caller,):
        await caller.wait(opened=1, heard=3)
        room.proxy.inject(Faults(cut=True), way)
        await caller.wait_lost(1)
        assert "nothing heard" in caller.reasons[0]
        room.proxy.heal()
        await caller.wait(opened=2, heard=caller.heard + 3)


async def test_a_reset_is_noticed_at_once_and_the_session_comes_back() -> None:
    async with open_room() as room, open_callers(room) as (caller,):
        for number in range(1, 4):
            await caller.wait(opened=number, heard=3 * number)
            room.proxy.reset_all()
            await caller.wait_lost(number)
            assert "nothing heard" not in caller.reasons[-1]
        await caller.wait(opened=4, heard=12)


async def test_a_crowd_comes_back_after_a_reset() -> None:
    async with open_room() as room, open_callers(room, CROWD, PATIENT, 0.2) as callers:
        for number in (1, 2):
            for caller in callers:
                await caller.wait(opened=number, heard=number)
            if number == 1:
                room.proxy.reset_all()
        assert all(len(caller.reasons) >= 1 for caller in callers)


async def test_dialling_through_a_cut_fails_with_a_sentence() -> None:
    async with open_room(replace(SMALL, handshake_s=0.3)) as room:
        room.proxy.inject(Faults(cut=True), Direction.DOWN)
        with pytest.raises(DialFailed, match="answer"):
            await room.dialling.dial(room.address, local="near")
        room.proxy.heal()
        session = await room.open_session()
        assert not session.near.closed


async def test_a_dial_that_is_given_up_leaves_nothing_open() -> None:
    async with open_room(replace(SMALL, handshake_s=0.3)) as room:
        dialling = asyncio.create_task(room.dialling.dial(room.address, local="near"))
        connections = room.proxy.connections
        await room.proxy.wait(lambda: len(connections) == 2)
        connections[0].inject(Faults(cut=True), Direction.DOWN)
        with pytest.raises(DialFailed, match="answer"):
            await dialling
        room.proxy.heal()
        await room.proxy.wait(lambda: all(connection.ended for connection in connections))
        del dialling
        gc.collect()  # what was left open complains now
