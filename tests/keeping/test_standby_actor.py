"""A standby beside the actors that it follows and asks, on a virtual clock."""

import asyncio
import random

import pytest

from islands.actors.role_actor import Context
from islands.files.tape_writing import MemoryTape
from islands.keeping.standby import StandbyActor
from islands.keeping.standbys import Standbys
from islands.lab.world.disk import SimulatedDisk
from islands.lab.world.inline import InlineWorker
from islands.protocol.errors import DiskError
from islands.protocol.identities import Incarnation, Role
from islands.protocol.messages.standby import Follow, PieceHeld
from islands.supervisor.actor import SupervisorActor
from islands.syncer.journal import Journal
from tests.syncer.actor_bench import LAYOUT, SETTINGS, Room, last_words, open_syncer, say
from tests.virtual import beside, virtual


class Hosts:
    """Three hosts: of the supervisor, of a syncer, and of a standby; each has a disk of its own."""

    def __init__(self, *, waits: bool, after_s: float | None = None) -> None:
        self.disks = {name: SimulatedDisk(random.Random(0)) for name in ("hub", "own", "copy")}
        self.syncer = Room(self.disks["own"], follower=Standbys(waits=waits))
        self.supervisor = self.make_supervisor()
        self.standby = StandbyActor(
            "sb",
            self._context(),
            disk=self.disks["copy"],
            worker=InlineWorker(lambda: 0.001),
            credentials=self.syncer.credentials,
            address="sb",
            after_s=after_s,
            rng=random.Random(0),
        )

    def _context(self) -> Context:
        return Context(SETTINGS, LAYOUT, self.syncer.network, MemoryTape())

    def make_supervisor(self) -> SupervisorActor:
        return SupervisorActor(
            "supervisor",
            self._context(),
            disk=self.disks["hub"],
            credentials=self.syncer.credentials,
            spec=("{}", memoryview(b"{}")),
        )

    def versions(self, host: str) -> list[str]:
        recovered = Journal(self.disks[host], len(LAYOUT.fragments)).recover()
        assert recovered is not None
        return [str(one and one.version) for one in recovered.durable.published]


@pytest.mark.parametrize("waits", [True, False])
@virtual
async def test_a_journal_is_copied_over_links(waits: bool) -> None:  # noqa: FBT001
    hosts = Hosts(waits=waits)
    async with beside(hosts.supervisor), beside(hosts.syncer.actor):
        await asyncio.sleep(5.0)
        assert ("journalled" in hosts.syncer.kinds()) is not waits
        async with beside(hosts.standby):
            await asyncio.sleep(5.0)
            assert hosts.standby.state.whole
        assert {"journalled", "mirrored"} <= {*hosts.syncer.kinds()}
        assert hosts.versions("copy") == hosts.versions("own")


@virtual
async def test_it_is_the_syncer_once_no_other_lives() -> None:
    hosts = Hosts(waits=False, after_s=1.0)
    async with beside(hosts.supervisor), beside(hosts.standby):
        async with beside(hosts.syncer.actor):
            await asyncio.sleep(5.0)
        await asyncio.sleep(30.0)
        assert hosts.standby.promoted == "syncer"
        memory = hosts.supervisor.memory
        assert memory is not None
        assert memory.promoted == "sb"
    again = hosts.make_supervisor()
    async with beside(again):
        await asyncio.sleep(0.1)
        memory = again.memory
        assert memory is not None
        assert memory.promoted == "sb"


@virtual
async def test_a_promotion_that_cannot_be_kept_is_not_granted() -> None:
    hosts = Hosts(waits=False, after_s=1.0)
    async with beside(hosts.standby):
        supervisor = asyncio.create_task(hosts.supervisor.run())
        async with beside(hosts.syncer.actor):
            await asyncio.sleep(5.0)
            hosts.disks["hub"].spoil(failing=True)
        with pytest.raises(DiskError):
            await supervisor
        await asyncio.sleep(5.0)
        assert hosts.standby.promoted is None


@virtual
async def test_who_is_no_standby_follows_nothing() -> None:
    async with open_syncer(seeded=True) as room:
        who = Incarnation(1, 1)
        for credential in ("forged", room.credentials.sign("sb", who), ""):
            link = await room.network.dial("syncer", local="sb")
            say(link, Follow("sb", who, credential, {}, "sb"))
            assert await last_words(link) == []
        link = await room.network.dial("syncer", local="sb")
        say(link, PieceHeld(1))
        assert await last_words(link) == []
        # A syncer that keeps no copies has nothing to send to a real one either.
        link = await room.network.dial("syncer", local="sb")
        say(link, Follow("sb", who, room.credentials.sign("sb", who, Role.STANDBY), {}, "sb"))
        assert await last_words(link) == []
        assert room.kinds().count("refused") == 4
