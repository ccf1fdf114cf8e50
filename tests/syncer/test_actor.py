"""The syncer's actor: whose word counts for whom."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from islands.files.disk import RealDisk
from islands.lab.world.disk import SimulatedDisk
from islands.protocol.errors import DiskError, OutdatedError
from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.messages.membership import Leave, Refused
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentSeed,
    FragmentUpdate,
    Welcome,
)
from islands.protocol.syncer.journalling import APART
from islands.syncer.journal import Journal
from islands.syncer.value_store import INSPECTIONS_MAX
from messaging.links.memory_link import MemoryLink
from tests.syncer.actor_bench import ANA, BEN, TICKET, WHO, Room, last_words, open_syncer, say
from tests.virtual import virtual

IN_ANAS_NAME = [
    Leave(ANA, WHO, "bye"),
    ContributionDeclined(TICKET, FragmentIndex(0), "nothing"),
    Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "float32", ""),
    FragmentSeed(1, FragmentIndex(0), ANA, WHO, ""),
]


@pytest.mark.parametrize("body", IN_ANAS_NAME, ids=lambda body: type(body).__name__)
@virtual
async def test_who_speaks_in_anothers_name_is_dropped(body: object) -> None:
    async with open_syncer() as room:
        ana, ben = await room.hello(ANA), await room.hello(BEN)
        assert isinstance((await ben.receive()).body, Welcome)
        say(ben, body)
        await last_words(ben)
        assert "kept_out" in room.kinds()
        assert ANA in room.actor.state.core.members.learners
        assert not ana.closed


@virtual
async def test_a_forged_credential_opens_nothing() -> None:
    async with open_syncer() as room:
        ana = await room.hello(ANA)
        assert isinstance((await ana.receive()).body, Welcome)
        forged = await room.hello(ANA, genuine=False)
        say(forged, Leave(ANA, WHO, "bye"))
        heard = await last_words(forged)
        assert all(isinstance(body, Refused) for body in heard)
        assert ANA in room.actor.state.core.members.learners
        assert not ana.closed


@virtual
async def test_nothing_is_heard_before_hello() -> None:
    async with open_syncer() as room:
        await room.hello(ANA)
        link = await room.network.dial("syncer", local="x")
        say(link, Leave(ANA, WHO, "bye"))
        assert await last_words(link) == []
        assert ANA in room.actor.state.core.members.learners


@virtual
async def test_the_end_is_told_once_the_worker_has_exported() -> None:
    async with open_syncer(seeded=True) as room:
        await asyncio.sleep(1.0)
        room.actor.finish("enough")
        await asyncio.sleep(1.0)
        (exported_s,), (ended_s,) = room.exported, room.ended
        assert ended_s == pytest.approx(exported_s + 0.001)


@virtual
async def test_a_run_without_values_exports_none() -> None:
    async with open_syncer(seeded=False) as room:
        await asyncio.sleep(1.0)
        room.actor.finish("enough")
        await asyncio.sleep(60.0)
        assert (len(room.exported), len(room.ended)) == (0, 1)


@virtual
async def test_contributions_do_not_pile_up_before_the_worker() -> None:
    async with open_syncer() as room:
        link = await room.hello(ANA)
        await asyncio.sleep(1.0)
        for _ in range(3 * INSPECTIONS_MAX):
            say(link, Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "", ""))
        await asyncio.sleep(1.0)
        assert room.kinds().count("fate") + room.kinds().count("duplicate") == INSPECTIONS_MAX
        say(link, Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "", ""))
        await asyncio.sleep(1.0)
        assert room.kinds().count("duplicate") == INSPECTIONS_MAX


@virtual
async def test_an_answer_that_finds_the_queue_full_ends_its_pull() -> None:
    """Its learner is asked again; were it dropped in silence, the pull would stay open."""
    async with open_syncer() as room:
        link = await room.hello(ANA)
        await asyncio.sleep(1.0)
        learner = room.actor.state.core.members.learners[ANA]
        learner.pulls.send(TICKET.round, 0, room.actor.now_s())
        for _ in range(INSPECTIONS_MAX + 1):
            say(link, Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "", ""))
        await asyncio.sleep(1.0)
        assert not learner.pulls.open
        assert room.kinds().count("declined") == 1


class Shut(RealDisk):
    shut = False

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.shut:
            raise DiskError(f"{name} cannot be written: no space left on device")
        super().write(name, parts)


@pytest.mark.parametrize("full", [False, True])
@virtual
async def test_an_older_journal_ends_the_syncer_also_without_room_for_an_epoch(
    tmp_path: Path, *, full: bool
) -> None:
    disk = Shut(tmp_path)
    room = Room(disk, seeded=False)
    task = asyncio.get_running_loop().create_task(room.actor.run())
    await asyncio.sleep(0.01)  # it listens from now on
    disk.shut = full
    await room.hello(ANA, follows=7)
    await asyncio.wait([task])  # noqa: TID251  of one task
    with pytest.raises(OutdatedError, match="epoch 7"):
        task.result()
    disk.shut = False
    assert Journal(disk, 0).begin_epoch(1) == (2 if full else 8 + APART)


@virtual
async def test_a_start_over_a_copy_is_never_outranked() -> None:
    disk = SimulatedDisk(random.Random(0))
    room = Room(disk)
    task = asyncio.get_running_loop().create_task(room.actor.run())
    await asyncio.sleep(0.01)  # it listens from now on
    await room.hello(ANA, follows=APART)
    await asyncio.wait([task])  # noqa: TID251  of one task
    with pytest.raises(OutdatedError, match="from a copy of this journal"):
        task.result()
    assert Journal(disk, 0).begin_epoch(1) == 2


@virtual
async def test_a_value_that_is_still_being_sent_is_not_sent_again() -> None:
    async with open_syncer(seeded=True) as room:
        ana = await room.hello(ANA)
        sending = set[str]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryLink, "holds", lambda _, topic: topic in sending)
            await asyncio.sleep(0.1)
            connection = room.actor.state.core.members.learners[ANA].connection
            assert connection is not None
            update = FragmentUpdate(1, FragmentIndex(0), Version(1, 0), -1, "", 0.0, None)
            for topics in ({"update-0"}, {"update-0"}, set[str]()):
                sending.clear()
                room.actor._send_value(connection, update)  # noqa: SLF001
                sending |= topics
                room.actor._send_value(connection, update)  # noqa: SLF001
            heard = list[object]()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    while True:  # until no more has come
                        heard.append((await ana.receive()).body)
        assert [body for body in heard if isinstance(body, FragmentUpdate)] == [update] * 4
