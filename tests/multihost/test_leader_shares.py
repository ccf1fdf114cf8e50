"""Who of an island sends which share of a contribution."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from islands.actors.ports import InlineWorker
from islands.identities import FragmentIndex, Incarnation, LearnerName, Phase, Role, Ticket, Version
from islands.layout.ranges import Ranges
from islands.messages.multihost import ShareWanted, SyncerTold
from islands.messages.protocol import PROTOCOL
from islands.messages.shares import ContributionShare
from islands.messages.training import Contribution, Hello, Progress
from islands.multihost.leader_shares import HostSession, LeaderShares
from messaging.codec.tensors import digest
from messaging.simulation.virtual_time import run_virtual

WHO = Incarnation(1, 1)
ANA = LearnerName("ana")
TICKET = Ticket(1, 5, ANA, WHO)
MESSAGE = Contribution(TICKET, FragmentIndex(0), Version(1, 0), 1, 8, 8, "float32", "")
VALUE = np.arange(9, dtype=np.float32)
PAYLOAD = VALUE.view(np.uint8).data
APART: tuple[Ranges, ...] = (((0, 3),), ((3, 6),), ((6, 9),))


def hello() -> Hello:
    """What the learner told the syncer."""
    progress = Progress(ANA, WHO, Phase.STEPPING, 0, 0, 0.0, 0, 0, fragments=(), leases=())
    return Hello(PROTOCOL, "run", Role.LEARNER, ANA, WHO, "signed", "layout", progress, ())


class Island:
    """Rank 0 of three hosts, and what it says."""

    def __init__(self, shares: tuple[Ranges, ...] = APART) -> None:
        self.told: list[tuple[int, object]] = []
        self.sent: list[tuple[ContributionShare, bytes]] = []
        self._shares = shares
        self.leader = LeaderShares(
            3,
            tell=lambda rank, body: self.told.append((rank, body)),
            shared=lambda: self,
            worker=InlineWorker(lambda: 0.0),
        )

    def shares(self, _: int) -> tuple[Ranges, ...]:
        """Each host's share."""
        return self._shares

    def size(self, _: int) -> int:
        """All elements."""
        return VALUE.size

    def link(self) -> None:
        """The learner is welcome at the syncer."""
        self.leader.linked("syncer", hello(), self._send)

    def _send(self, body: object, payload: memoryview, _: str) -> bool:
        assert isinstance(body, ContributionShare)
        self.sent.append((body, bytes(payload)))
        return True

    def open(self, *ranks: int, number: int = 1) -> None:
        """The sessions of some hosts open."""
        for rank in ranks:
            self.leader.heard(rank, HostSession(number))

    def divide(self, message: Contribution = MESSAGE, answer: int = 4) -> tuple[Ranges, bytes]:
        """Contribute; what is left to rank 0."""
        self.told.clear()
        head, own = self.leader.divide(message, PAYLOAD, answer)
        assert head.answer == (answer if head.ranges else 0)
        return head.ranges, bytes(own())

    def wanted(self) -> dict[int, Ranges]:
        """What other hosts were asked for."""
        return {rank: body.ranges for rank, body in self.told if isinstance(body, ShareWanted)}


def elements(*indices: int) -> bytes:
    """The bytes of some elements."""
    return VALUE[list(indices)].tobytes()


def run(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play on a virtual clock, as workers need a loop."""
    run_virtual(act(), limit_s=10.0)


def test_each_host_whose_session_is_open_sends_its_own() -> None:
    """Rank 0 sends its own, and those of hosts without a session."""
    island = Island()
    assert island.divide() == ((), bytes(PAYLOAD)), "no link"
    island.link()
    assert [(rank, type(body)) for rank, body in island.told] == [(1, SyncerTold), (2, SyncerTold)]
    assert island.divide() == ((), bytes(PAYLOAD)), "no sessions"
    island.open(1, 2)
    assert island.divide() == (((0, 3),), elements(0, 1, 2))
    assert island.wanted() == {1: ((3, 6),), 2: ((6, 9),)}
    island.leader.arrived(TICKET)
    island.open(1, number=0)
    assert island.divide() == (((0, 6),), elements(*range(6)))
    assert island.wanted() == {2: ((6, 9),)}


def test_hosts_that_have_everything_send_even_parts() -> None:
    """A model without common devices is whole on each host."""
    island = Island((((0, 9),),) * 3)
    island.link()
    island.open(1, 2)
    assert island.divide() == (((0, 3),), elements(0, 1, 2))
    assert island.wanted() == {1: ((3, 6),), 2: ((6, 9),)}


def test_interleaved_shares_are_cut_where_they_lie() -> None:
    """Neighbouring ranges of two hosts that rank 0 sends for are one."""
    island = Island((((0, 2), (6, 9)), ((2, 4),), ((4, 6),)))
    island.link()
    island.open(2)
    assert island.divide() == (((0, 4), (6, 9)), elements(0, 1, 2, 3, 6, 7, 8))


def test_rank_0_stands_in_for_a_host_whose_session_is_lost() -> None:
    """For each contribution that may have been on its way, once."""
    island = Island()

    async def act() -> None:
        island.link()
        island.open(1, 2)
        island.divide()
        other = replace(MESSAGE, ticket=replace(TICKET, round=6), fragment=FragmentIndex(1))
        island.divide(other, answer=5)
        island.leader.arrived(other.ticket)
        for _ in range(2):
            island.open(1, number=0)
            await asyncio.sleep(0.1)
            island.open(1)
        share = ContributionShare(
            *(TICKET, 4, FragmentIndex(0), "float32", ((3, 6),)),
            digest=digest(memoryview(elements(3, 4, 5))),
        )
        assert island.sent == [(share, elements(3, 4, 5))]

    run(act)


def test_rank_0_stands_in_for_a_host_that_lacks_a_snapshot() -> None:
    """Unless that contribution is not the newest of its fragment any more."""
    island = Island()

    async def act() -> None:
        island.link()
        island.open(1, 2)
        island.divide()
        newer = replace(TICKET, round=8)
        island.leader.lacking(2, newer, 0)
        island.divide(replace(MESSAGE, ticket=newer), answer=6)
        island.leader.lacking(2, TICKET, 0)
        await asyncio.sleep(0.1)
        assert island.sent == []
        island.leader.lacking(2, newer, 0)
        await asyncio.sleep(0.1)
        assert [(share.answer, payload) for share, payload in island.sent] == [
            (6, elements(6, 7, 8))
        ]

    run(act)


def test_a_new_link_begins_anew() -> None:
    """Sessions count once they are told open for this link; nothing of the old one is sent."""
    island = Island()
    island.link()
    island.open(1, 2)
    island.divide()
    island.leader.unlinked()
    assert island.divide() == ((), bytes(PAYLOAD))
    island.link()
    assert island.divide() == ((), bytes(PAYLOAD)), "they were told of the link before"
    island.open(1, 2, number=2)
    island.open(1, number=0)
    assert island.sent == []
    assert island.divide() == (((0, 6),), elements(*range(6)))


def test_the_bytes_of_all_sessions_are_the_islands() -> None:
    """They are part of the learner's figures."""
    island = Island()
    island.leader.heard(1, HostSession(0, 10, 1))
    island.leader.heard(2, HostSession(0, 20, 2))
    assert (island.leader.bytes_sent, island.leader.bytes_received) == (30, 3)


@pytest.mark.parametrize("ranges", [((0, 3),), ()])
def test_a_host_without_elements_sends_nothing(ranges: Ranges) -> None:
    """A fragment may have fewer elements than there are devices."""
    island = Island((ranges, ((len(ranges) and 3, 9),), ()))
    island.link()
    island.open(1, 2)
    assert island.divide()[0] == ranges
    assert island.wanted() == ({1: ((3, 9),)} if ranges else {})
