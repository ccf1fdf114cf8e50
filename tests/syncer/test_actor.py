"""The syncer's actor: whose word counts for whom."""

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
from islands.files.disk import Disk, RealDisk
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.numerics.outer import Sgd
from islands.protocol.credentials import Credentials
from islands.protocol.errors import DiskError, OutdatedError
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.protocol.messages.membership import Leave, Refused
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.shares import UpdatesInShares
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentProgress,
    FragmentSeed,
    Hello,
    Progress,
    Welcome,
)
from islands.protocol.settings.run import RunSettings
from islands.syncer.actor import SyncerActor
from islands.syncer.hooks import Hooks
from islands.syncer.inspection_queue import INSPECTIONS_MAX
from islands.syncer.journal import Journal
from islands.syncer.journal_writer import DISK_RETRY_S
from islands.syncer.workers import SyncerWorkers
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Link
from messaging.links.memory_link import MemoryNetwork
from messaging.simulation.virtual_time import run_virtual

LAYOUT = NumpyTrainer(2).layout
SETTINGS = RunSettings(fragments=2)
ANA, BEN = LearnerName("ana"), LearnerName("ben")
WHO = Incarnation(1, 1)
TICKET = Ticket(1, 0, ANA, WHO)


def zeros() -> list[NDArray[np.float32]]:
    """A version 0."""
    return [np.zeros(fragment.size, np.float32) for fragment in LAYOUT.fragments]


class Room:
    """A syncer that runs."""

    def __init__(self, disk: Disk, *, seeded: bool = False) -> None:
        self.exported: list[float] = []
        self.ended: list[float] = []
        self.network = MemoryNetwork()
        self.tape = MemoryTape()
        self.credentials = Credentials("run", b"a key for the tests alone")
        self.actor = SyncerActor(
            "syncer",
            Context(SETTINGS, LAYOUT, self.network, self.tape),
            disk=disk,
            workers=SyncerWorkers.of(InlineWorker(lambda: 0.001)),
            optimizer=Sgd.of(SETTINGS.outer),
            credentials=self.credentials,
            shards=4,
            rng=random.Random(0),
            initial=zeros if seeded else None,
            hooks=Hooks(
                export=lambda *_: self.exported.append(asyncio.get_running_loop().time()),
                finished=lambda _: self.ended.append(asyncio.get_running_loop().time()),
            ),
        )

    def kinds(self) -> list[str]:
        """What is on the tape."""
        return [str(json.loads(line)["kind"]) for line in self.tape.lines]

    async def hello(self, name: LearnerName, *, genuine: bool = True, follows: int = 0) -> Link:
        """A learner opens a session; it may follow a start of another epoch."""
        link = await self.network.dial("syncer", local=name)
        credential = self.credentials.sign(name, WHO) if genuine else "forged"
        progress = Progress(
            *(name, WHO, Phase.COMPILING, 0, 0, 0.0, 0, 0),
            fragments=(FragmentProgress(),) * 2,
            leases=(),
        )
        message = Hello(
            *(PROTOCOL, "run", Role.LEARNER, name, WHO, credential, LAYOUT.fingerprint),
            progress=progress,
            digests=("", ""),
            epoch_seen=follows,
            epoch_proof=self.credentials.prove_epoch(follows, "another start"),
        )
        say(link, message)
        return link


def say(link: Link, body: object) -> None:
    """Whoever is at this end says something."""
    link.send(Envelope(link.local, link.remote, 1, body))


def with_syncer(
    folder: Path,
    body: Callable[[Room], Awaitable[None]],
    *,
    seeded: bool = False,
    disk: Disk | None = None,
) -> None:
    """Run a test's body beside a syncer, on the virtual clock."""

    async def main() -> None:
        room = Room(disk or RealDisk(folder), seeded=seeded)
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
    UpdatesInShares(ANA, WHO, ()),
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
        assert ANA in room.actor.state.core.members.learners
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
        assert ANA in room.actor.state.core.members.learners
        assert not ana.closed

    with_syncer(tmp_path, act)


def test_nothing_is_heard_before_hello(tmp_path: Path) -> None:
    """Whoever begins with something else is dropped."""

    async def act(room: Room) -> None:
        await room.hello(ANA)
        link = await room.network.dial("syncer", local="x")
        say(link, Leave(ANA, WHO, "bye"))
        assert await last_words(link) == []
        assert ANA in room.actor.state.core.members.learners

    with_syncer(tmp_path, act)


def test_the_end_is_told_once_the_worker_has_exported(tmp_path: Path) -> None:
    """A large model takes its time to be written, and heartbeats go on meanwhile."""

    async def body(room: Room) -> None:
        await asyncio.sleep(1.0)
        room.actor.finish("enough")
        await asyncio.sleep(1.0)
        (exported_s,), (ended_s,) = room.exported, room.ended
        assert ended_s == pytest.approx(exported_s + 0.001)

    with_syncer(tmp_path, body, seeded=True)


def test_contributions_do_not_pile_up_before_the_worker(tmp_path: Path) -> None:
    """A peer that sends without end costs no more memory than one that answers twice."""

    async def body(room: Room) -> None:
        link = await room.hello(ANA)
        await asyncio.sleep(1.0)
        for _ in range(3 * INSPECTIONS_MAX):
            say(link, Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "", ""))
        await asyncio.sleep(1.0)
        assert room.kinds().count("fate") + room.kinds().count("duplicate") == INSPECTIONS_MAX
        say(link, Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "", ""))
        await asyncio.sleep(1.0)
        assert room.kinds().count("duplicate") == INSPECTIONS_MAX

    with_syncer(tmp_path, body)


class Tight(RealDisk):
    """A disk that has room for the number of an epoch, and for nothing else while it is full."""

    full = True

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.full and not name.startswith("epoch"):
            raise DiskError(f"{name} cannot be written: no space left on device")
        super().write(name, parts)


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """Version 0 is published once the disk has room; until then the syncer stays, and says so."""
    disk = Tight(tmp_path)

    async def body(room: Room) -> None:
        await asyncio.sleep(3 * DISK_RETRY_S)
        assert not room.actor.ref.stopped
        assert room.actor.state.version(0) is None
        assert "disk" in room.kinds()
        disk.full = False
        await asyncio.sleep(2 * DISK_RETRY_S)
        assert room.actor.state.version(0) is not None

    with_syncer(tmp_path, body, seeded=True, disk=disk)


class Shut(RealDisk):
    """A disk that takes nothing any more once it is shut."""

    shut = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.shut:
            raise DiskError(f"{name} cannot be written: no space left on device")
        super().write(name, parts)


@pytest.mark.parametrize("full", [False, True])
def test_an_older_journal_ends_the_syncer_also_without_room_for_an_epoch(
    tmp_path: Path, *, full: bool
) -> None:
    """It is to be started again, whatever the disk says: no reader fails of that."""

    async def main() -> None:
        disk = Shut(tmp_path)
        room = Room(disk)
        task = asyncio.get_running_loop().create_task(room.actor.run())
        await asyncio.sleep(0.01)  # it listens from now on
        disk.shut = full
        await room.hello(ANA, follows=7)
        await asyncio.wait([task])
        with pytest.raises(OutdatedError, match="epoch 7"):
            task.result()
        disk.shut = False
        assert Journal(disk, 0).begin_epoch(1) == (2 if full else 8)

    run_virtual(main(), limit_s=100.0)
