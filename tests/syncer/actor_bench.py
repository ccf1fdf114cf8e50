"""A syncer's actor that runs: on any disk, over links in memory, its work taking any time."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from islands.actors.role_actor import Context
from islands.files.disk import Disk
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.disk import SimulatedDisk
from islands.lab.world.inline import InlineWorker
from islands.numerics.outer import outer_optimizer
from islands.protocol.identities import Incarnation, LearnerName, Phase, Ticket
from islands.protocol.membership import Credentials
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.syncer.actor import SyncerActor
from islands.syncer.journal import Follower
from islands.syncer.workers import Hooks, SyncerWorkers
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Link
from messaging.links.memory_link import MemoryNetwork
from tests.syncer.bench import Learner
from tests.virtual import beside

LAYOUT = NumpyTrainer(2).layout
SETTINGS = RunSettings(fragments=2)
ANA, BEN = LearnerName("ana"), LearnerName("ben")
WHO = Incarnation(1, 1)
TICKET = Ticket(1, 0, ANA, WHO)


def zeros() -> list[NDArray[np.float32]]:
    return [np.zeros(fragment.size, np.float32) for fragment in LAYOUT.fragments]


class Room:
    def __init__(
        self,
        disk: Disk | None = None,
        *,
        settings: RunSettings = SETTINGS,
        seeded: bool = True,
        work_s: Callable[[], float] = lambda: 0.001,
        follower: Follower | None = None,
    ) -> None:
        now_s = asyncio.get_running_loop().time
        self.exported: list[float] = []
        self.ended: list[float] = []
        self.ready_s: list[float] = []
        self.revoked: list[tuple[tuple[str, int], ...]] = []
        self.network = MemoryNetwork()
        self.tape = MemoryTape()
        self.credentials = Credentials("run", b"a key for the tests alone")
        self.actor = SyncerActor(
            "syncer",
            Context(settings, LAYOUT, self.network, self.tape),
            disk=disk or SimulatedDisk(random.Random(0)),
            workers=SyncerWorkers.of(InlineWorker(work_s)),
            optimizer=outer_optimizer(settings.outer),
            credentials=self.credentials,
            shards=4,
            rng=random.Random(0),
            initial=zeros if seeded else None,
            follower=follower,
            hooks=Hooks(
                export=lambda *_: self.exported.append(now_s()),
                report=self.report,
                ready=lambda: self.ready_s.append(now_s()),
                revoked=self.revoked.append,
            ),
        )

    def report(self, _: SyncerState) -> bytes:
        self.ended.append(asyncio.get_running_loop().time())
        return b""

    def kinds(self) -> list[str]:
        return [str(json.loads(line)["kind"]) for line in self.tape.lines]

    async def hello(self, name: LearnerName, *, genuine: bool = True, follows: int = 0) -> Link:
        link = await self.network.dial("syncer", local=name)
        credential = self.credentials.sign(name, WHO) if genuine else "forged"
        learner = Learner(name, 2, WHO.counter)
        learner.phase = Phase.COMPILING
        proof = self.credentials.prove_epoch(follows, "another start")
        hello = learner.hello("run", LAYOUT.fingerprint)
        say(link, replace(hello, credential=credential, epoch_seen=follows, epoch_proof=proof))
        return link


@asynccontextmanager
async def open_syncer(disk: Disk | None = None, *, seeded: bool = False) -> AsyncIterator[Room]:
    room = Room(disk, seeded=seeded)
    async with beside(room.actor):
        await asyncio.sleep(0.01)  # it listens from now on
        yield room


def say(link: Link, body: object) -> None:
    link.send(Envelope(link.local, link.remote, 1, body))


async def last_words(link: Link) -> list[object]:
    heard: list[object] = []
    try:
        while True:  # until the other end closes
            heard.append((await link.receive()).body)
    except LinkClosed:
        return heard
