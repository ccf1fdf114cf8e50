"""What a follower keeps of published values, until it is commanded to adopt one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from islands.actors.ports import InlineWorker
from islands.island.follower import VALUES_MAX, FollowerShares
from islands.protocol.errors import InvariantError
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.learner.actions import AdoptValue
from islands.protocol.messages.membership import Refused
from islands.protocol.messages.multihost import ShareWanted, SyncerTold
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.shares import (
    ContributionShare,
    ShareHello,
    ShareWelcome,
    UpdateShare,
)
from messaging.actors.scope import Scope
from messaging.codec.tensors import digest
from messaging.envelope import Envelope
from messaging.links.link import Lane, Link
from messaging.links.link_state import DialSettings
from messaging.links.memory_link import MemoryNetwork
from tests.virtual import virtual

ZERO, WHO = FragmentIndex(0), Incarnation(1, 1)
HELLO = ShareHello(PROTOCOL, "run", LearnerName("ana"), WHO, "signed", "layout", 0)


class Host:
    """A follower, and the syncer's end of its session."""

    def __init__(self, scope: Scope) -> None:
        self.network = MemoryNetwork()
        self.held: list[Version] = []
        self.changes: list[int] = []
        self.lacking: list[ShareWanted] = []
        self.listener = self.network.listen("syncer")
        self.side = FollowerShares(
            1,
            network=self.network,
            dialling=DialSettings(),
            scope=scope,
            worker=InlineWorker(lambda: 0.0),
            changed=lambda: self.changes.append(self.side.session),
            lacks=self.lacking.append,
            holds=lambda _, version: self.held.append(version),
        )

    async def session(self, number: int = 1) -> Link:
        """The session that rank 0's word leads to."""
        self.side.on_syncer(SyncerTold(number, "syncer", HELLO))
        link = await self.listener.accept()
        hello = (await link.receive()).body
        assert isinstance(hello, ShareHello)
        assert (hello.rank, hello.name) == (1, "ana")
        say(link, ShareWelcome(1))
        await asyncio.sleep(0.1)
        return link


def say(link: Link, body: object, *payload: memoryview) -> None:
    """The syncer says something."""
    lane = Lane.BULK if payload else Lane.CONTROL
    link.send(Envelope(link.local, link.remote, 1, body, payload=payload), lane)


async def send(link: Link, number: int, *, wrong: str = "") -> None:
    """Send a share of two ranges, whose elements are the number of the version."""
    parts = [np.full(size, number, np.float32).view(np.uint8).data for size in (3, 2)]
    computed = wrong or digest(memoryview(b"".join(parts)))
    say(link, UpdateShare(ZERO, Version(1, number), ((0, 3), (7, 9)), computed), *parts)
    await asyncio.sleep(0.1)


def adopt(number: int, *, in_shares: bool = True) -> AdoptValue:
    """Rank 0's command."""
    empty = memoryview(b"")
    return AdoptValue(ZERO, Version(1, number), 0.0, 1, WHO, empty, in_shares=in_shares)


def value(adopted: AdoptValue) -> list[float]:
    """Its elements."""
    elements: list[float] = np.frombuffer(adopted.payload, np.float32).tolist()
    return elements


@asynccontextmanager
async def open_host() -> AsyncIterator[Host]:
    """A follower, whose tasks may not fail."""
    failed: list[BaseException] = []
    scope = Scope("test", lambda _, error: failed.append(error))
    yield Host(scope)
    await scope.close()
    assert not failed


@virtual
async def test_a_command_finds_its_share_whatever_came_since() -> None:
    """Newer ones stay for commands of their own, older ones are forgotten."""
    async with open_host() as host:
        link = await host.session()
        for number in (1, 2, 3):
            await send(link, number)
        assert host.held == [Version(1, number) for number in (1, 2, 3)]
        assert value(host.side.adopts(adopt(2))) == [2.0] * 5
        assert host.side.adopts(adopt(2, in_shares=False)) == adopt(2, in_shares=False)
        assert value(host.side.adopts(adopt(3))) == [3.0] * 5
        with pytest.raises(InvariantError, match=r"1\.3 of fragment 0"):
            host.side.adopts(adopt(3))


@virtual
async def test_what_is_told_twice_serves_two_commands() -> None:
    """A new incarnation adopts again what an ended one had adopted."""
    async with open_host() as host:
        link = await host.session()
        await send(link, 1)
        await send(link, 1)
        assert value(host.side.adopts(adopt(1))) == value(host.side.adopts(adopt(1)))


@virtual
async def test_shares_are_bounded_and_damaged_ones_not_kept() -> None:
    """Rank 0 is told of what is kept alone, so the next value comes whole, and makes room."""
    async with open_host() as host:
        link = await host.session()
        await send(link, 99, wrong="damaged")
        assert host.held == []
        for number in range(VALUES_MAX + 3):
            await send(link, number)
        assert len(host.held) == VALUES_MAX
        host.side.adopts(adopt(VALUES_MAX + 3, in_shares=False))
        assert not any(host.side._values.values())  # noqa: SLF001
        await send(link, 20)
        assert host.held[-1] == Version(1, 20)


@virtual
async def test_a_share_that_comes_after_its_value_was_replaced_is_not_kept() -> None:
    """But it is, where a new incarnation adopts the value again."""
    async with open_host() as host:
        link = await host.session()
        host.side.adopts(adopt(2, in_shares=False))
        await send(link, 1)
        await send(link, 2)
        assert host.held == []
        await send(link, 3)
        assert host.held == [Version(1, 3)]
        link.close("cut")
        other = replace(HELLO, incarnation=Incarnation(1, 2))
        host.side.on_syncer(SyncerTold(2, "syncer", other))
        again = await host.listener.accept()
        await send(again, 2)
        assert host.held[1:] == [Version(1, 2)]


@virtual
async def test_shares_of_snapshots_are_kept_until_a_value_replaces_their_base() -> None:
    """What is wanted after that is lacking, so rank 0 sends it."""
    async with open_host() as host:
        link = await host.session()
        one = FragmentIndex(1)
        for fragment, number in ((ZERO, 1), (one, 2), (one, 3)):
            host.side.keep(fragment, number, np.full(2, number, np.float32).view(np.uint8).data)
        wanted = ShareWanted(Ticket(1, 5, HELLO.name, WHO), 7, 2, one, "float32", ((0, 2),))
        host.side.on_adopted(ZERO)
        host.side.on_share_wanted(wanted)
        envelope = await link.receive()
        assert isinstance(envelope.body, ContributionShare)
        assert envelope.body.answer == 7
        assert np.frombuffer(envelope.payload[0], np.float32).tolist() == [2.0, 2.0]
        assert host.lacking == []
        host.side.on_adopted(one)
        host.side.on_share_wanted(replace(wanted, snapshot=3))
        assert host.lacking == [replace(wanted, snapshot=3)]
        assert not any(host.side._kept.values())  # noqa: SLF001


@virtual
async def test_a_session_comes_back_and_its_state_is_told() -> None:
    """The same one goes on where rank 0 tells of the same member again."""
    async with open_host() as host:
        link = await host.session()
        host.side.on_syncer(SyncerTold(2, "syncer", HELLO))
        assert host.changes == [1, 2]
        link.close("cut")
        again = await host.listener.accept()
        assert isinstance((await again.receive()).body, ShareHello)
        assert host.changes == [1, 2, 0]
        say(again, ShareWelcome(1))
        await asyncio.sleep(0.1)
        assert host.changes == [1, 2, 0, 2]


@pytest.mark.parametrize("retry", [True, False])
@virtual
async def test_a_refused_host_tries_again_only_if_that_may_help(*, retry: bool) -> None:
    """Meanwhile, and for ever, rank 0 sends everything."""
    async with open_host() as host:
        host.side.on_syncer(SyncerTold(1, "syncer", HELLO))
        link = await host.listener.accept()
        say(link, Refused("ana", "no", retry))
        await asyncio.sleep(0.1)
        link.close("dismissed")
        try:
            async with asyncio.timeout(10.0):
                await host.listener.accept()
        except TimeoutError:
            assert not retry
        else:
            assert retry
        assert host.changes == []
