"""Hostile hosts of an island for `tests.benchmarks.hostile`: followers of a real rank 0."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from islands.island.leader import IslandLeader
from islands.lab.world.inline import InlineWorker
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.messages import multihost
from islands.protocol.messages.registry import MULTIHOST_TYPES, PROTOCOL
from islands.protocol.ranges import Ranges
from islands.protocol.settings.run import Timing
from messaging.actors.scope import Scope
from messaging.codec.frames import Codec
from messaging.envelope import Envelope
from messaging.errors import DialFailed, EncodeError, FrameError, LinkClosed
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryLink, MemoryNetwork
from tests.benchmarks.drawn_messages import damaged, drawn
from tests.benchmarks.hostile_trial import Trial
from tests.messaging.doubles import decoded

HOSTS = 3
FACTS = {"name": "eve"}
BURST = 32
DAMAGED_SHARE = 0.1
FOLLOWERS = (multihost.HostState, multihost.LeaveAsked, multihost.ValueShare)
"""The messages of followers that do not end the session that they come over, nor the island."""

FATAL_SHARE = 0.0005
"""How often any other message is said."""

ELEMENTS = 9
VALUE = np.zeros(ELEMENTS // HOSTS, np.float32).view(np.uint8).data


class Hosts:
    """Two followers that say anything to their leader; an island that they end is begun anew."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._codec = Codec(MULTIHOST_TYPES)
        self._links: list[MemoryLink] = []
        self._told = 0
        who = Incarnation(1, 1)
        self._expected: dict[str, Sequence[object]] = {
            "fragment": [FragmentIndex(0)],
            "ticket": [Ticket(1, 1, LearnerName("eve"), who)],
            "version": [Version(1, 0)],
            "kind": ["snapshot", "value"],
            "held": [0, 1],
            "boundary": [0, 1],
            "over": [False],
            "newest": [()],
        }

    # --- what rank 0 knows of the model -------------------------------------------------------

    def shares(self, fragment: int) -> list[Ranges]:
        del fragment
        each = ELEMENTS // HOSTS
        return [((rank * each, (rank + 1) * each),) for rank in range(HOSTS)]

    def size(self, fragment: int) -> int:
        del fragment
        return ELEMENTS

    @property
    def fragments(self) -> int:
        return 1

    # --- a trial ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Begin islands until all input was sent."""
        said = 0
        self._trial.begin()
        while said < self._trial.inputs:
            said += await self._island(self._trial.inputs - said)
        self._trial.measuring = False

    async def _island(self, inputs: int) -> int:
        trial, said = self._trial, 0

        def failed(name: str, error: BaseException) -> None:
            trial.problems.append(f"{name} failed: {error!r}")

        async with Scope("island", failed) as scope:
            network = MemoryNetwork(measure=self._codec.size_bytes)
            leader = IslandLeader(
                HOSTS,
                host="near",
                facts=FACTS,
                scope=scope,
                worker=InlineWorker(lambda: 0.0),
                say=self._note,
                leave=self._note,
            )
            leader._shared = self  # type: ignore[assignment]  # noqa: SLF001  a model alone
            forming = asyncio.create_task(leader.form(network.listen("rank-0")))
            await asyncio.sleep(0)
            for rank in range(1, HOSTS):
                link = await network.dial("rank-0", local=f"rank-{rank}")
                scope.spawn(self._drain(link), f"rank-{rank}")
                hello = multihost.HostHello(PROTOCOL, rank, HOSTS, "far", FACTS)
                link.send(Envelope("x", "rank-0", 1, hello))
                self._links = [*self._links[-1:], link]
            await forming
            leader.begin("nowhere:1", Timing())
            while said < inputs and self._opened() and not leader.ended.done():
                with trial.own():
                    for _ in range(min(BURST, inputs - said)):
                        self._say_something()
                        said += 1
                await asyncio.sleep(0.02)
                trial.look()
            began_s = asyncio.get_running_loop().time()
            for link in self._links:
                link.close("enough")
            async with asyncio.timeout(60):
                await leader.ended
            trial.end_s = max(trial.end_s, asyncio.get_running_loop().time() - began_s)
        return said

    def _note(self, sentence: object) -> None:
        self._trial.stored_bytes += len(str(sentence))

    async def _drain(self, link: MemoryLink) -> None:
        with suppress(LinkClosed, DialFailed):
            while True:  # until the session ends
                await link.receive()
                self._trial.bytes_sent += link.bytes_received
                link.bytes_received = 0

    def _opened(self) -> list[MemoryLink]:
        return [link for link in self._links if not link.closed]

    def _say_something(self) -> None:
        trial, chance = self._trial, self._trial.chance
        kind = chance.choice(MULTIHOST_TYPES if chance.random() < FATAL_SHARE else FOLLOWERS)
        self._told += 1
        body, link = drawn(kind, chance, self._expected), chance.choice(self._opened())
        payload = (VALUE,) if kind is multihost.ValueShare else ()
        trial.types[kind.__name__] += 1
        envelope = Envelope(link.local, link.remote, self._told, body, payload=payload)
        with suppress(EncodeError, OverflowError, FrameError):
            document = self._codec.encode(envelope)
            if chance.random() < DAMAGED_SHARE:
                document = damaged(document, chance)
            with trial.theirs():
                arrived = decoded(self._codec, document, payload)
            link.send(arrived, Lane.BULK if payload else Lane.CONTROL)
