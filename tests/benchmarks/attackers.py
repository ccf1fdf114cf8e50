"""What strangers and faulty members do to a hub, for `tests.benchmarks.attacks`.

Each attack is a function of a target and a duration; it returns how much it sent.
"""

import asyncio
import itertools
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import ClientError
from msgpack import packb

from islands.layout.leaves import Layout
from islands.protocol.identities import (
    Incarnation,
    LearnerName,
    Phase,
    Role,
)
from islands.protocol.messages.control import Note, RunEnded, StepFigures
from islands.protocol.messages.membership import Heartbeat, Join, Joined
from islands.protocol.messages.peers import StateOffer
from islands.protocol.messages.registry import MESSAGE_TYPES, PROTOCOL
from islands.protocol.messages.training import FragmentProgress, Hello, Progress
from islands.settings.wire_limits import limits_of
from messaging.codec.frames import Codec, head_frame
from messaging.envelope import Envelope
from messaging.errors import DialFailed, EncodeError, LinkClosed
from messaging.links.link import Lane
from messaging.websocket.link import WebsocketLink
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret

T = TypeVar("T")

GONE = (OSError, ClientError, LinkClosed, DialFailed, EncodeError, EOFError, TimeoutError)
"""What an attacker hears of a hub that shows it out."""

FIGURES = StepFigures("p", 1, 8, 0.1, 0.1, 2.0, 0.0, 0.0, ((1, 1),), 0.0, 1, 1)
NOBODY = Incarnation(1, 999_999)
PIECES = b"\x02\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 40_000
"""A message in empty pieces that does not end."""


@dataclass(frozen=True, slots=True)
class Target:
    """A hub, as an attacker knows it."""

    url: str
    secret: Secret
    layout: Layout
    run: str
    tls: ssl.SSLContext | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def network(self) -> WebsocketNetwork:
        """A way to it, with the token."""
        limits = limits_of(self.layout)
        return WebsocketNetwork(
            MESSAGE_TYPES, secret=self.secret, limits=limits, client_tls=self.tls
        )

    def join(self, name: str) -> Join:
        """What an honest learner would ask."""
        return Join(PROTOCOL, self.run, Role.LEARNER, name, self.layout.fingerprint)

    def hello(self, joined: Joined) -> Hello:
        """What an honest learner that was just admitted would say to the syncer."""
        name, told = LearnerName(joined.name), (FragmentProgress(None, 0, 0, 0),)
        count = len(self.layout.fragments)
        progress = Progress(
            *(name, joined.incarnation, Phase.HEALING, 0, 0, 0.0, 0, 0), told * count, ()
        )
        return Hello(
            *(PROTOCOL, self.run, Role.LEARNER, name, joined.incarnation, joined.credential),
            *(self.layout.fingerprint, progress, ("",) * count),
        )


class Peer:
    """A session that says what it likes, frame by frame, and hears nothing it does not ask for."""

    def __init__(self, link: WebsocketLink, codec: Codec) -> None:
        self.link = link
        self.sent = 0
        self._codec = codec
        self._numbers = itertools.count()

    def document(self, body: object, recipient: str = "") -> bytes:
        """An envelope's header document."""
        link = self.link
        return self._codec.encode(Envelope(link.local, recipient or link.remote, 1, body))

    async def say(self, body: object) -> None:
        """Send a message on control; waits while the hub does not read."""
        await self.put(self.document(body))

    async def put(self, document: bytes) -> None:
        """Send a document of whatever content, with a checksum that is right."""
        frame = head_frame(document, next(self._numbers))
        await self.link._control.send_bytes(frame)  # noqa: SLF001  it says what no link would
        self.sent += 1

    async def hear(self, kind: type[T]) -> T:
        """The next message of a kind."""
        while True:  # until it comes, or the session ends
            body = (await self.link.receive()).body
            if isinstance(body, kind):
                return body

    async def drain(self) -> None:
        """Hear everything, and forget it."""
        with suppress(*GONE):
            while True:  # until the session ends
                await self.link.receive()


@asynccontextmanager
async def peers(
    target: Target, count: int, name: str = "peer", path: str = "supervisor", *, deaf: bool = False
) -> AsyncIterator[list[Peer]]:
    """So many sessions with the token."""
    network = target.network()
    url = target.url.rpartition("/")[0] + "/" + path
    found, draining = [], []
    try:
        for number in range(count):
            with suppress(*GONE):
                link = await network.dial(url, local=f"{name}-{number}")
                found.append(Peer(link, Codec(MESSAGE_TYPES, limits_of(target.layout))))
        if not deaf:
            draining = [asyncio.create_task(peer.drain()) for peer in found]
        yield found
    finally:
        for task in draining:
            task.cancel()
        with suppress(*GONE):
            await network.close()


async def admit(target: Target, name: str) -> tuple[WebsocketNetwork, Peer, Joined]:
    """Join as an honest learner would."""
    network = target.network()
    link = await network.dial(target.url, local=name)
    peer = Peer(link, Codec(MESSAGE_TYPES, limits_of(target.layout)))
    await peer.say(target.join(name))
    async with asyncio.timeout(30):
        return network, peer, await peer.hear(Joined)


async def until(seconds: float, *work: Callable[[], Awaitable[int]]) -> int:
    """Repeat pieces of work beside each other for so long; returns the sum of what they did."""
    total = 0

    async def repeat(piece: Callable[[], Awaitable[int]]) -> None:
        nonlocal total
        while True:  # until the time is over
            try:
                total += await piece()
            except GONE:
                await asyncio.sleep(0.01)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for piece in work:
                group.create_task(repeat(piece))
    return total


# ----------------------------------------------------------------------- before the token is shown


async def silent(target: Target, seconds: float, per_s: int = 600) -> int:
    """Connections that say nothing."""
    held: list[socket.socket] = []

    async def connect() -> int:
        await asyncio.sleep(1 / per_s)
        one = socket.socket()
        one.setblocking(False)  # noqa: FBT003  of the standard library
        with suppress(BlockingIOError):
            one.connect(target.place)
        held.append(one)
        if len(held) > 4 * per_s:
            held.pop(0).close()
        return 1

    try:
        return await until(seconds, connect)
    finally:
        for one in held:
            one.close()


async def malformed(target: Target, seconds: float) -> int:
    """Requests that are none, with the token in them."""
    chance = random.Random(0)

    async def ask() -> int:
        reader, writer = await asyncio.open_connection(*target.place, ssl=target.tls)
        line = bytearray(b"GET /supervisor HTTP/1.1\r\n" + target.secret.header().encode())
        line[chance.randrange(4, 26)] = chance.randrange(256)
        writer.write(bytes(line) + b"\r\n\r\n")
        with suppress(*GONE):
            await reader.read()
        writer.transport.abort()
        return 1

    return await until(seconds, *[ask] * 8)


async def endless_headers(target: Target, seconds: float) -> int:
    """Sixty connections at a time that send headers, each of which is allowed, without end."""

    async def send() -> int:
        _, writer = await asyncio.open_connection(*target.place, ssl=target.tls)
        try:
            writer.write(b"GET /supervisor HTTP/1.1\r\n")
            for number in itertools.count():
                writer.write(b"H%d: %s\r\n" % (number, b"x" * 8000))
                await writer.drain()
        finally:
            writer.transport.abort()
        return 1

    return await until(seconds, *[send] * 60)


# -------------------------------------------------------------------------------- with the token


async def empty_pieces(target: Target, seconds: float) -> int:
    """Two hundred sessions that send messages in empty pieces, as fast as they are read."""
    async with peers(target, 200) as crowd:

        async def flood(peer: Peer) -> int:
            writer = peer.link._control._writer  # noqa: SLF001  it says what no link would
            assert writer is not None, "the session is open"
            while not peer.link.closed:
                writer.transport.write(PIECES)
                await asyncio.sleep(0)
            raise EOFError

        return await until(seconds, *[lambda peer=peer: flood(peer) for peer in crowd])


async def small_messages(target: Target, seconds: float) -> int:
    """Two hundred sessions that say small things as fast as they are read."""
    async with peers(target, 200) as crowd:
        beat = Heartbeat(Role.LEARNER, "mallory", NOBODY, Phase.STEPPING, 1, "forged")
        await until(seconds, *[lambda peer=peer: _burst(peer, beat) for peer in crowd])
        return sum(peer.sent for peer in crowd)


async def many_values(target: Target, seconds: float) -> int:
    """Documents of eight thousand empty maps in a field that nobody knows."""
    async with peers(target, 20) as crowd:
        body = {"protocol": PROTOCOL, "role": "learner", "name": "x", "more": [{}] * 8000}
        document = packb(
            {"type": "RunSpecRequest", "sender": "x", "recipient": "y", "id": 1, "body": body}
        )
        await until(seconds, *[lambda peer=peer: _put(peer, document) for peer in crowd])
        return sum(peer.sent for peer in crowd)


async def ends_of_the_run(target: Target, seconds: float) -> int:
    """Thirty sessions that say that the run has ended, with as much as may come with it."""
    size = 32 << 20
    payload = (memoryview(bytes(size)),)
    async with peers(target, 30) as crowd:
        for peer in crowd:
            with suppress(*GONE):
                peer.link.send(Envelope("x", "y", 1, RunEnded("x"), payload=payload), Lane.BULK)
        await asyncio.sleep(seconds)
        return sum(peer.link.bytes_sent for peer in crowd)


async def held_sessions(target: Target, seconds: float) -> int:
    """Five hundred sessions that are opened and left."""
    async with peers(target, 500) as crowd:
        await asyncio.sleep(seconds)
        return len(crowd)


async def stolen_names(target: Target, seconds: float) -> int:
    """Guessed incarnations, names of roles, markup, and two hundred names on one link."""
    network = target.network()

    async def ask() -> int:
        link = await network.dial(target.url, local="thief")
        peer = Peer(link, Codec(MESSAGE_TYPES, limits_of(target.layout)))
        try:
            for name in ("learner-0000", "learner-0001"):
                for counter in range(1, 6):
                    guess = Incarnation(1, counter)
                    await peer.say(replace(target.join(name), previous=guess))
            for name in ("syncer", "supervisor", "[/x]", "\x1b[2J", *map(str, range(200))):
                await peer.say(target.join(name))
        finally:
            link.close("done")
            await link.ended.wait()
        return peer.sent

    try:
        return await until(seconds, ask)
    finally:
        await network.close()


# ---------------------------------------------------------------------------------- admitted


async def poisonous_words(target: Target, seconds: float) -> int:
    """One message each: an epoch from the future, figures without a process, notes of markup."""
    count = itertools.count()

    async def once() -> int:
        network, peer, joined = await admit(target, f"poison-{next(count)}")
        try:
            await peer.say(replace(FIGURES, process=""))
            await peer.say(Note("[/x]", '{"actor": "supervisor", "event": "\\u001b[2J"}'))
            await peer.say(Note("exit", '{"name": 7, "reason": [[[[1]]]]}'))
            link = await network.dial(target.url.rpartition("/")[0] + "/syncer", local="poison")
            other = Peer(link, Codec(MESSAGE_TYPES, limits_of(target.layout)))
            await other.say(replace(target.hello(joined), epoch_seen=10**9, epoch_proof="x.y"))
            await other.drain()
            await asyncio.sleep(0.05)
            return 4
        finally:
            await network.close()

    return await until(seconds, once)


async def unread_relay(target: Target, seconds: float) -> int:
    """One member gives moments to another one that does not read, as fast as they are taken."""
    networks, links = [], []
    for name in ("giver", "taker"):
        network, _, joined = await admit(target, name)
        networks.append(network)
        link = await network.dial(target.url.rpartition("/")[0] + "/syncer", local=name)
        peer = Peer(link, Codec(MESSAGE_TYPES, limits_of(target.layout)))
        await peer.say(target.hello(joined))
        links.append(link)
    giver, taker = links
    await asyncio.sleep(0.5)
    for bulk in taker._bulks:  # noqa: SLF001  it reads no more
        bulk.socket.pause_reading()
    piece = (memoryview(bytes(8 << 20)),)
    offer = StateOffer(0, 1, "schema", "digest")

    async def give() -> int:
        sent = giver.send(Envelope("giver", "taker", 1, offer, payload=piece), Lane.BULK)
        await asyncio.sleep(0.001)
        return int(sent)

    try:
        return await until(seconds, give)
    finally:
        for network in networks:
            with suppress(*GONE):
                await network.close()


async def _burst(peer: Peer, body: object, count: int = 50) -> int:
    for _ in range(count):
        await peer.say(body)
    await asyncio.sleep(0)
    return count


async def _put(peer: Peer, document: bytes) -> int:
    await peer.put(document)
    return 1
