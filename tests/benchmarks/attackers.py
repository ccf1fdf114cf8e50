"""What strangers and faulty members do to a hub, for `tests.benchmarks.attacks`.

Each attack is a function of a target and a duration; it returns how much it sent.
"""

import asyncio
import contextlib
import itertools
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import ClientError
from msgpack import packb

from islands.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.layout import Layout
from islands.messages import (
    MESSAGE_TYPES,
    PROTOCOL,
    Contribution,
    ContributionDeclined,
    ContributionFate,
    Enquiry,
    FragmentProgress,
    FragmentSeed,
    Heartbeat,
    Hello,
    Join,
    Joined,
    Leave,
    Progress,
    StateOffer,
    StateRequest,
    Stop,
)
from islands.operation import Command, Note, RunEnded, StepFigures, Verb
from islands.wire_limits import limits_of
from messaging.codec import Codec, head_frame
from messaging.envelope import Envelope
from messaging.errors import DialFailed, EncodeError, LinkClosed
from messaging.link import Lane
from messaging.security import Secret
from messaging.websocket_link import WebsocketLink
from messaging.websocket_network import WebsocketNetwork

T = TypeVar("T")

GONE = (OSError, ClientError, LinkClosed, DialFailed, EncodeError, EOFError, TimeoutError)
"""What an attacker hears of a hub that shows it out."""

FIGURES = StepFigures("p", 1, 8, 0.1, 0.1, 2.0, 0.0, 0.0, ((1, 1),), 0.0, 1, 1)
NOBODY = Incarnation(1, 999_999)
NUMBERS = (-(2**63), -(10**6), -1, 0, 1, 2, 7, 10**6, 2**31, 2**63 - 1)
TIMES = (-1.0, 0.0, 1e-300, 0.1, 1e6, 1e308, float("inf"), float("nan"))
WORDS = ("", "[/x]", "\x1b[2J\x07", "x" * 5000, "\u202eabc", "a\nb\0", "syncer", "../..", "ana")


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


# -------------------------------------------------------------------------------- with the token


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
            {"type": "Enquiry", "sender": "x", "recipient": "y", "id": 1, "body": body}
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


# ------------------------------------------------------------------------------------ mutations


def twisted(value: object, chance: random.Random, share: float) -> object:
    """The same thing, in which some parts are others, of the same type or of another one."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: twisted(getattr(value, field.name), chance, share)
            for field in fields(value)
        }
        return replace(value, **changed)
    if isinstance(value, tuple):
        parts = tuple(twisted(one, chance, share) for one in value)
        return parts * chance.choice((0, 1, 1, 1, 50)) if chance.random() < share else parts
    if chance.random() >= share:
        return value
    if isinstance(value, Enum):
        return chance.choice([*type(value)])
    return chance.choice({int: NUMBERS, float: TIMES, str: WORDS}.get(type(value), (value, None)))


def bodies(target: Target, name: str, joined: Joined | None) -> list[object]:
    """What a member says, one of each kind."""
    incarnation = NOBODY if joined is None else joined.incarnation
    credential = "forged" if joined is None else joined.credential
    own = Joined(target.run, name, incarnation, credential, 1, ())
    hello, who, ticket = target.hello(own), LearnerName(name), None
    ticket = Ticket(1, 3, who, incarnation)
    fragment, version = FragmentIndex(0), Version(1, 1)
    lease = Lease(0, 1, 5)
    progress = replace(hello.progress, leases=(lease,) * 3, steps=3, tokens=24)
    return [
        target.join(name),
        hello,
        progress,
        Heartbeat(Role.LEARNER, name, incarnation, Phase.STEPPING, 5, credential),
        Contribution(ticket, fragment, version, 1, 8, 8, "float32", "d" * 32),
        ContributionDeclined(ticket, fragment, "no"),
        ContributionFate(ticket, fragment, Fate.LATE, "x"),
        FragmentSeed(1, fragment, who, incarnation, "d" * 32),
        Leave(who, incarnation, "bye"),
        Stop("over"),
        Enquiry(PROTOCOL, Role.LEARNER, name),
        Command(Verb.STATUS, "proof"),
        Note("exit", '{"reason": "x"}'),
        FIGURES,
        RunEnded("over"),
        StateRequest(incarnation, 0, "s"),
        StateOffer(0, 1, "s", "d"),
    ]


def damaged(document: bytes, chance: random.Random) -> bytes:
    """The same bytes, some of which are others."""
    data = bytearray(document)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                data[place] ^= 1 << chance.randrange(8)
            case 2:
                del data[place : place + chance.randrange(1, 9)]
            case _:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
        data = data or bytearray(b"\0")
    return bytes(data)


async def mutations(
    target: Target, frames: int, *, admitted: bool, fatal_share: float, sessions: int = 16
) -> int:
    """So many frames of members' messages with wrong values, some of them no documents at all."""
    left, sent, count = frames, 0, itertools.count()

    async def one_session() -> int:
        nonlocal left, sent
        number = next(count)
        chance, name = random.Random(number), f"mutant-{number}"
        network, drains = target.network(), []
        try:
            joined = None
            if admitted:
                await network.close()
                network, peer, joined = await admit(target, name)
            else:
                link = await network.dial(target.url, local=name)
                peer = Peer(link, Codec(MESSAGE_TYPES, limits_of(target.layout)))
            url = target.url.rpartition("/")[0] + "/syncer"
            other = Peer(await network.dial(url, local=name), peer._codec)  # noqa: SLF001
            if joined is not None:
                await other.say(target.hello(joined))
            drains = [asyncio.create_task(one.drain()) for one in (peer, other)]
            said = bodies(target, name, joined)
            while left > 0 and not (peer.link.closed and other.link.closed):
                to = chance.choice([one for one in (peer, other) if not one.link.closed])
                body = twisted(chance.choice(said), chance, 0.1)
                with suppress(EncodeError, TypeError, ValueError, OverflowError):
                    document = to.document(body, chance.choice(("", "ana", "mutant-1")))
                    fatal = chance.random() < fatal_share
                    left, sent = left - 1, sent + 1
                    await to.put(damaged(document, chance) if fatal else document)
        finally:
            for task in drains:
                task.cancel()
            with contextlib.suppress(*GONE):
                await network.close()
        return 0

    async def worker() -> None:
        while left > 0:
            try:
                await one_session()
            except GONE:
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(worker())
    return sent


async def _burst(peer: Peer, body: object, count: int = 50) -> int:
    for _ in range(count):
        await peer.say(body)
    await asyncio.sleep(0)
    return count


async def _put(peer: Peer, document: bytes) -> int:
    await peer.put(document)
    return 1
