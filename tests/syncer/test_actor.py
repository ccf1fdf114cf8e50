"""The syncer's actor: whose word counts for whom."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from islands.config import RunSettings
from islands.credentials import Credentials
from islands.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.messages import (
    PROTOCOL,
    Contribution,
    ContributionDeclined,
    FragmentProgress,
    FragmentSeed,
    Hello,
    Leave,
    Progress,
    Refused,
    Welcome,
)
from islands.numerics.outer import Sgd
from islands.ports import InlineWorker, RealDisk
from islands.role import Surroundings
from islands.syncer.actor import SyncerActor
from islands.tape import MemoryTape
from islands.toy import NumpyTrainer
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.link import Link
from messaging.memory_link import MemoryNetwork
from messaging.scope import Scope
from messaging.virtual_time import run_virtual

LAYOUT = NumpyTrainer(2).layout
SETTINGS = RunSettings(fragments=2)
ANA, BEN = LearnerName("ana"), LearnerName("ben")
WHO = Incarnation(1, 1)
TICKET = Ticket(1, 0, ANA, WHO)


class Room:
    """A syncer that runs."""

    def __init__(self, folder: Path) -> None:
        self.network = MemoryNetwork()
        self.tape = MemoryTape()
        self.credentials = Credentials("run", b"a key for the tests alone")
        self.actor = SyncerActor(
            "syncer",
            Surroundings(SETTINGS, LAYOUT, self.network, self.tape),
            disk=RealDisk(folder),
            worker=InlineWorker(lambda: 0.001),
            optimizer=Sgd.of(SETTINGS.outer),
            credentials=self.credentials,
            shards=4,
            rng=random.Random(0),
        )

    def kinds(self) -> list[str]:
        """What is on the tape."""
        return [str(json.loads(line)["kind"]) for line in self.tape.lines]

    async def hello(self, name: LearnerName, *, genuine: bool = True) -> Link:
        """A learner opens a session."""
        link = await self.network.dial("syncer", local=name)
        credential = self.credentials.sign(name, WHO) if genuine else "forged"
        progress = Progress(
            *(name, WHO, Phase.COMPILING, 0, 0, 0.0, 0, 0),
            fragments=(FragmentProgress(None, 0, 0, 0),) * 2,
            leases=(),
        )
        message = Hello(
            *(PROTOCOL, "run", Role.LEARNER, name, WHO, credential, LAYOUT.fingerprint),
            progress=progress,
            digests=("", ""),
        )
        say(link, message)
        return link


def say(link: Link, body: object) -> None:
    """Whoever is at this end says something."""
    link.send(Envelope(link.local, link.remote, 1, body))


def with_syncer(folder: Path, body: Callable[[Room], Awaitable[None]]) -> None:
    """Run a test's body beside a syncer, on the virtual clock."""

    async def main() -> None:
        room = Room(folder)
        failed: list[BaseException] = []
        scope = Scope("test", lambda _, error: failed.append(error))
        scope.spawn(room.actor.run(), "syncer")
        await asyncio.sleep(0.01)  # it listens from now on
        await body(room)
        await room.actor.kill()
        await scope.close()
        assert not failed

    run_virtual(main(), limit_s=100.0)


async def last_words(link: Link) -> list[object]:
    """Everything until the link is closed."""
    heard: list[object] = []
    try:
        while True:  # until the other end closes
            heard.append((await link.receive()).body)
    except LinkClosed:
        return heard


IN_ANAS_NAME = [
    Leave(ANA, WHO, "bye"),
    ContributionDeclined(TICKET, FragmentIndex(0), "nothing"),
    Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "float32", ""),
    FragmentSeed(1, FragmentIndex(0), ANA, WHO, ""),
]


@pytest.mark.parametrize("body", IN_ANAS_NAME, ids=lambda body: type(body).__name__)
def test_who_speaks_in_anothers_name_is_dropped(tmp_path: Path, body: object) -> None:
    """The session ends, the tape says why, and nothing happens to the other."""

    async def act(room: Room) -> None:
        ana, ben = await room.hello(ANA), await room.hello(BEN)
        assert isinstance((await ben.receive()).body, Welcome)
        say(ben, body)
        await last_words(ben)
        assert "impostor" in room.kinds()
        assert ANA in room.actor.state.core.learners
        assert not ana.closed

    with_syncer(tmp_path, act)


def test_a_forged_credential_opens_nothing(tmp_path: Path) -> None:
    """It is refused with a sentence; what it says in the same breath is not heard."""

    async def act(room: Room) -> None:
        ana = await room.hello(ANA)
        assert isinstance((await ana.receive()).body, Welcome)
        forged = await room.hello(ANA, genuine=False)
        say(forged, Leave(ANA, WHO, "bye"))
        heard = await last_words(forged)
        assert all(isinstance(body, Refused) for body in heard)
        assert ANA in room.actor.state.core.learners
        assert not ana.closed

    with_syncer(tmp_path, act)


def test_nothing_is_heard_before_hello(tmp_path: Path) -> None:
    """Whoever begins with something else is dropped."""

    async def act(room: Room) -> None:
        await room.hello(ANA)
        link = await room.network.dial("syncer", local="x")
        say(link, Leave(ANA, WHO, "bye"))
        assert await last_words(link) == []
        assert ANA in room.actor.state.core.learners

    with_syncer(tmp_path, act)
