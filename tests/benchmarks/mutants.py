"""Mutated frames: what members say, with wrong values, and some that are no documents at all."""

import asyncio
import itertools
import random
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum

from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    LearnerName,
    Lease,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.protocol.messages.control import Command, Note, RunEnded, Verb
from islands.protocol.messages.membership import Heartbeat, Joined, Leave, RunSpecRequest, Stop
from islands.protocol.messages.peers import StateOffer, StateRequest
from islands.protocol.messages.registry import MESSAGE_TYPES, PROTOCOL
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    ContributionFate,
    FragmentSeed,
)
from islands.settings.wire_limits import limits_of
from messaging.codec.frames import Codec
from messaging.errors import EncodeError
from messaging.websocket.network import WebsocketNetwork
from tests.benchmarks.attackers import FIGURES, GONE, NOBODY, Peer, Target, admit
from tests.benchmarks.drawn_messages import damaged

NUMBERS = (-(2**63), -(10**6), -1, 0, 1, 2, 7, 10**6, 2**31, 2**63 - 1)
TIMES = (-1.0, 0.0, 1e-300, 0.1, 1e6, 1e308, float("inf"), float("nan"))
KEPT = ("name", "incarnation", "credential", "ticket", "phase")
"""Fields without which a message is of nobody: to change them ends a session, or an incarnation."""
WORDS = ("", "[/x]", "\x1b[2J\x07", "x" * 5000, "\u202eabc", "a\nb\0", "syncer", "../..", "ana")


def twisted(
    value: object, chance: random.Random, share: float, kept: tuple[str, ...] = ()
) -> object:
    """The same thing, in which some parts are others; not those that are to be kept."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: twisted(getattr(value, field.name), chance, share, kept)
            for field in fields(value)
            if field.name not in kept
        }
        return replace(value, **changed)
    if isinstance(value, tuple):
        parts = tuple(twisted(one, chance, share, kept) for one in value)
        return parts * chance.choice((0, 1, 1, 1, 50)) if chance.random() < share else parts
    if chance.random() >= share:
        return value
    if isinstance(value, Enum):
        return chance.choice([*type(value)])
    return chance.choice({int: NUMBERS, float: TIMES, str: WORDS}.get(type(value), (value, None)))


def sayings(target: Target, name: str, joined: Joined | None) -> dict[str, list[object]]:
    """What a member says to the supervisor, and to the syncer, that ends no session by itself.

    Under `all` is whatever there is.
    """
    incarnation = NOBODY if joined is None else joined.incarnation
    credential = "forged" if joined is None else joined.credential
    own = Joined(target.run, name, incarnation, credential, 1, ())
    hello, who = target.hello(own), LearnerName(name)
    ticket, fragment, version = Ticket(1, 3, who, incarnation), FragmentIndex(0), Version(1, 1)
    progress = replace(hello.progress, leases=(Lease(0, 1, 5),) * 3, steps=3, tokens=24)
    beat = Heartbeat(Role.LEARNER, name, incarnation, Phase.STEPPING, 5, credential)
    told = [
        Command(Verb.STATUS, "proof"),
        Note("exit", '{"reason": "x"}'),
        FIGURES,
        Stop("over"),
        RunEnded("over"),
        ContributionFate(ticket, fragment, Fate.LATE, "x"),
    ]
    trained = [
        Contribution(ticket, fragment, version, 1, 8, 8, "float32", "d" * 32),
        ContributionDeclined(ticket, fragment, "no"),
        FragmentSeed(1, fragment, who, incarnation, "d" * 32),
        StateRequest(incarnation, 0, "s"),
        StateOffer(0, 1, "s", "d"),
    ]
    rest = [
        hello,
        progress,
        Leave(who, incarnation, "bye"),
        RunSpecRequest(PROTOCOL, Role.LEARNER, name),
    ]
    asked = [beat] if joined is not None else [beat, target.join(name)]
    return {
        "supervisor": [*told, *asked],
        "syncer": [*told[1:], *trained],
        "all": [*told, *trained, *rest, beat, target.join(name)],
    }


class Mutants:
    """Sessions that say mutated things until the hub has read enough of them.

    Args:
        target: the hub.
        frames: that it is to read.
        admitted: whether they join before, and greet the syncer.
        fatal_share: of what ends a session: other names, broken documents.
    """

    def __init__(self, target: Target, frames: int, *, admitted: bool, fatal_share: float) -> None:
        """Nobody speaks."""
        self._target = target
        self._frames = frames
        self._admitted = admitted
        self._fatal_share = fatal_share
        self._begun = target.frames_read()
        self._count = itertools.count()
        self._done = asyncio.Event()

    async def run(self, sessions: int = 16) -> int:
        """Speak, over so many sessions at once; returns how many frames were read."""
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(self._work())
            while self._read() < self._frames:  # noqa: ASYNC110  another process reads
                await asyncio.sleep(0.5)
            self._done.set()
        return self._read()

    def _read(self) -> int:
        return self._target.frames_read() - self._begun

    async def _work(self) -> None:
        while not self._done.is_set():
            try:
                await self._one_name()
            except GONE:
                await asyncio.sleep(0.01)

    async def _one_name(self) -> None:
        """Somebody comes, says what it likes for as long as it is heard, and is gone."""
        number = next(self._count)
        chance, name = random.Random(number), f"mutant-{number}"
        network, joined = self._target.network(), None
        peers: list[tuple[str, Peer]] = []
        try:
            if self._admitted:
                await network.close()
                network, peer, joined = await admit(self._target, name)
                peers = [("supervisor", peer), await self._greet(network, "syncer", name, joined)]
            else:
                path = "syncer" if chance.random() < self._fatal_share else "supervisor"
                peers = [await self._greet(network, path, name, None)]
            said = sayings(self._target, name, joined)
            async with asyncio.TaskGroup() as group:
                for path, one in peers:
                    group.create_task(one.drain())
                    group.create_task(self._babble(one, said[path], said["all"], chance))
        finally:
            with suppress(*GONE):
                await network.close()

    async def _greet(
        self, network: WebsocketNetwork, path: str, name: str, joined: Joined | None
    ) -> tuple[str, Peer]:
        link = await network.dial(self._target.url.rpartition("/")[0] + "/" + path, local=name)
        peer = Peer(link, Codec(MESSAGE_TYPES, limits_of(self._target.layout)))
        if joined is not None:
            await peer.say(self._target.hello(joined))
        return path, peer

    async def _babble(
        self, peer: Peer, harmless: list[object], every: list[object], chance: random.Random
    ) -> None:
        for number in itertools.count():
            if self._done.is_set() or peer.link.closed:
                break
            if number % 8 == 0:  # else nobody would read what the hub answers
                await asyncio.sleep(0)
            fatal = chance.random() < self._fatal_share
            kept = () if fatal else KEPT
            body = twisted(chance.choice(every if fatal else harmless), chance, 0.1, kept)
            with suppress(EncodeError, TypeError, ValueError, OverflowError):
                document = peer.document(body, chance.choice(("", "ana", "mutant-1")))
                try:
                    await peer.put(damaged(document, chance) if fatal else document)
                except GONE:
                    break
        peer.link.close("enough")
