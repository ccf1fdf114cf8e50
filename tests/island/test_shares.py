"""Shares of an island's values: who sends and is sent which, and their arithmetic."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.actors.ports import InlineWorker
from islands.island.forming import Ended
from islands.island.leader import AHEAD_MAX, IslandLeader
from islands.island.shares import Gathering, HostSession, LeaderShares, assembled, cut
from islands.learner.boundary import share_of
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.protocol.messages.multihost import HostHello, ShareWanted, SyncerTold, ValueShare
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.shares import BUFFERS_MAX, ContributionShare, UpdatesInShares
from islands.protocol.messages.training import Contribution, FragmentUpdate, Hello, Progress
from islands.protocol.ranges import Ranges, held_by
from islands.protocol.settings.run import Timing
from islands.protocol.syncer.shares import parted
from messaging.actors.scope import Scope
from messaging.codec.tensors import digest
from messaging.envelope import Envelope
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryNetwork
from messaging.simulation.virtual_time import run_virtual
from tests.virtual import virtual

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

    def __init__(self, *fragments: tuple[Ranges, ...]) -> None:
        self.told: list[tuple[int, object]] = []
        self.sent: list[tuple[ContributionShare, bytes]] = []
        self.asked: list[object] = []
        self.answers: list[int] = []
        self.said: list[str] = []
        self._fragments = fragments or (APART,)
        self.leader = LeaderShares(
            3,
            tell=lambda rank, body: self.told.append((rank, body)),
            shared=lambda: self,
            worker=InlineWorker(lambda: 0.0),
            say=self.said.append,
        )

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        """Each host's share."""
        return self._fragments[fragment % len(self._fragments)]

    def size(self, fragment: int) -> int:
        """All elements."""
        return max(max(stop for _, stop in share) for share in self.shares(fragment) if share)

    def sizes(self) -> list[int]:
        """Those of all fragments."""
        return [self.size(fragment) for fragment in range(len(self._fragments))]

    def link(self) -> None:
        """The learner is welcome at the syncer."""
        self.leader.linked("syncer", hello(), self._send, whole=False)

    def _send(self, body: object, payload: tuple[memoryview, ...], _: str | None) -> bool:
        if isinstance(body, ContributionShare):
            self.sent.append((body, b"".join(payload)))
        else:
            self.asked.append(body)
        return True

    def open(self, *ranks: int, number: int = 1) -> None:
        """The sessions of some hosts open."""
        for rank in ranks:
            self.leader.on_state(rank, HostSession(number))

    def divide(self, message: Contribution = MESSAGE, snapshot: int = 4) -> tuple[Ranges, bytes]:
        """Contribute; what is left to rank 0."""
        self.told.clear()
        head, own = self.leader.divide(message, PAYLOAD, snapshot)
        wanted = [body for _, body in self.told if isinstance(body, ShareWanted)]
        assert {body.answer for body in wanted} == ({head.answer} if head.ranges else set())
        assert {body.snapshot for body in wanted} <= {snapshot}
        self.answers.append(head.answer)
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
        island.divide(other, snapshot=5)
        island.leader.arrived(other.ticket)
        for _ in range(2):
            island.open(1, number=0)
            await asyncio.sleep(0.1)
            island.open(1)
        share = ContributionShare(
            *(TICKET, 1, FragmentIndex(0), "float32", ((3, 6),)),
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
        island.leader.on_share_lacking(2, newer, 0)
        island.divide(replace(MESSAGE, ticket=newer), snapshot=6)
        island.leader.on_share_lacking(2, TICKET, 0)
        await asyncio.sleep(0.1)
        assert island.sent == []
        island.leader.on_share_lacking(2, newer, 0)
        await asyncio.sleep(0.1)
        assert [(share.answer, payload) for share, payload in island.sent] == [
            (2, elements(6, 7, 8))
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


def test_each_division_of_a_snapshot_has_a_number_of_its_own() -> None:
    """Shares of one that a lost link ended may still arrive, and do not meet those of the next."""
    island = Island()
    island.link()
    island.open(1, 2)
    island.divide()
    island.link()
    island.open(2, number=2)
    assert island.divide() == (((0, 6),), elements(*range(6)))
    assert island.answers == [1, 2]


def test_the_bytes_of_all_sessions_are_the_islands() -> None:
    """They are part of the learner's figures."""
    island = Island()
    island.leader.on_state(1, HostSession(0, 10, 1))
    island.leader.on_state(2, HostSession(0, 20, 2))
    assert (island.leader.bytes_sent, island.leader.bytes_received) == (30, 3)


@pytest.mark.parametrize("ranges", [((0, 3),), ()])
def test_a_host_without_elements_sends_nothing(ranges: Ranges) -> None:
    """A fragment may have fewer elements than there are devices."""
    island = Island((ranges, ((len(ranges) and 3, 9),), ()))
    island.link()
    island.open(1, 2)
    assert island.divide()[0] == ranges
    assert island.wanted() == ({1: ((3, 9),)} if ranges else {})


VERSION = Version(1, 3)


def update(version: Version = VERSION, ranges: Ranges = ((0, 3),)) -> FragmentUpdate:
    """A published value, of which rank 0 is sent its share."""
    share = b"".join(elements(*range(start, stop)) for start, stop in ranges)
    return FragmentUpdate(
        *(1, FragmentIndex(0), version, 0, "of the whole", 0.0, None),
        ranges=ranges,
        share_digest=digest(memoryview(share)),
    )


class Receiver(Island):
    """An island whose learner is given values."""

    def __init__(self, *fragments: tuple[Ranges, ...]) -> None:
        super().__init__(*fragments)
        self.given: list[bytes] = []
        self.refused: list[str] = []

    async def take(self, message: FragmentUpdate, *payload: bytes) -> bool:
        """Take in what the learner's own link brings."""
        taken = self.leader.takes(
            message,
            [memoryview(each) for each in payload],
            record=lambda entry: self.refused.append(entry.reason),
            arrived=lambda taken: self.given.append(bytes(taken.value)),
        )
        await asyncio.sleep(0.01)
        return taken

    def hold(self, *ranks: int, version: Version = VERSION) -> None:
        """Other hosts hold their shares."""
        for rank in ranks:
            self.leader.on_share_held(rank, FragmentIndex(0), version)


def receiver(*fragments: tuple[Ranges, ...]) -> Receiver:
    """One that has asked for values in shares."""
    island = Receiver(*fragments)
    island.link()
    island.leader.made()
    island.open(1, 2)
    return island


def test_values_in_shares_are_asked_for_while_every_host_has_a_session() -> None:
    """Over each link, once the model is made; and only where no host has elements of another."""
    island = receiver()
    wish, none = (
        UpdatesInShares(ANA, WHO, shares) for shares in (tuple((each,) for each in APART), ())
    )
    assert island.asked == [wish]
    island.open(1, 2)
    assert island.asked == [wish]
    island.open(2, number=0)
    assert island.asked == [wish, none], "it may be open at the syncer's end"
    island.open(2)
    assert island.asked == [wish, none, wish]
    island.link()
    island.open(1, number=2)
    assert island.asked == [wish, none, wish]
    island.open(2, number=2)
    assert island.asked == [wish, none, wish, wish]
    assert receiver((((0, 9),),) * 3).asked == []
    adds = Receiver()
    adds.leader.linked("syncer", hello(), adds._send, whole=True)  # noqa: SLF001
    adds.leader.made()
    adds.open(1, 2)
    assert adds.asked == [], "increments are added to whole values"


def interleaved(count: int) -> tuple[Ranges, ...]:
    """Shares of three hosts, each of this many ranges."""
    ranges = [(number, number + 1) for number in range(3 * count)]
    return tuple(tuple(ranges[rank::3]) for rank in range(3))


def test_each_fragment_is_shared_if_it_can_be() -> None:
    """Whatever the others are; people are told once of what could be, but for its ranges."""
    common, tiny = (((0, 9),),) * 3, ((), ((0, 4),), ((4, 9),))
    island = receiver(APART, common, tiny, interleaved(BUFFERS_MAX), interleaved(BUFFERS_MAX + 1))
    (wish,) = island.asked
    assert isinstance(wish, UpdatesInShares)
    assert tuple(zip(*wish.shares, strict=True)) == (
        *(APART, ((),) * 3, tiny, interleaved(BUFFERS_MAX), ((),) * 3),
    )
    assert parted(wish, island.sizes()) == tuple(zip(*wish.shares, strict=True))
    island.link()
    island.open(1, 2, number=2)
    assert len(island.asked) == 2
    (sentence,) = island.said
    assert "values of 1 fragments" in sentence
    assert receiver(common).said == []


@pytest.mark.parametrize("fragments", [400, 2000])
def test_as_many_fragments_are_shared_as_one_message_tells(fragments: int) -> None:
    """More ranges than one value may have; people are told once if it is too many."""
    island = receiver(*[interleaved(1)] * fragments)
    assert (len(island.asked), len(island.said)) == (1, 0)
    many = receiver(*[interleaved(BUFFERS_MAX)] * fragments)
    assert (len(many.asked), len(many.said)) == (0, 1)


@pytest.mark.parametrize("first", [True, False])
def test_a_value_reaches_the_learner_once_every_host_has_its_share(*, first: bool) -> None:
    """Whoever is last; and each share that a host holds serves one command."""
    island = receiver()

    async def act() -> None:
        if first:
            island.hold(1, 2)
        assert await island.take(update(), elements(0, 1, 2))
        if not first:
            island.hold(1)
            assert island.given == []
            island.hold(2)
        assert island.given == [elements(0, 1, 2)]
        island.link()
        island.open(1, 2, number=2)
        assert await island.take(update(), elements(0, 1, 2))
        assert len(island.given) == 1
        island.hold(1, 2)
        assert len(island.given) == 2

    run(act)


def test_an_older_value_does_not_follow_a_newer_one() -> None:
    """Neither another share, nor one that was waited for when the whole value came."""
    island, newer = receiver(), Version(1, 4)

    async def act() -> None:
        assert await island.take(update(), elements(0, 1, 2))
        assert await island.take(update(newer), elements(0, 1, 2))
        island.hold(1, 2)
        assert island.given == []
        island.hold(1, 2, version=newer)
        assert len(island.given) == 1
        island.hold(1, 2)
        await island.take(update(), elements(0, 1, 2))
        whole = replace(update(Version(1, 6)), ranges=())
        await island.take(update(Version(1, 5)), elements(0, 1, 2))
        assert not await island.take(whole, bytes(PAYLOAD))
        island.hold(1, 2, version=Version(1, 5))
        assert len(island.given) == 1
        assert not any(island.leader._held.values()), "nothing is left of them"  # noqa: SLF001
        assert not island.leader._pending  # noqa: SLF001

    run(act)


def test_a_share_that_is_not_this_hosts_is_refused() -> None:
    """Other ranges or lengths, another digest, a fragment that there is not."""
    island = receiver()

    async def act() -> None:
        island.hold(1, 2)
        assert await island.take(update(ranges=((0, 4),)), elements(0, 1, 2, 3))
        assert await island.take(update(), elements(0, 1))
        assert await island.take(replace(update(), fragment=FragmentIndex(7)), elements(0, 1, 2))
        assert await island.take(replace(update(), share_digest=""), elements(0, 1, 2))
        assert island.given == []
        assert len(island.refused) == 4
        assert "digest" in island.refused[-1]

    run(act)


# --- cut and put together -------------------------------------------------------------------------


@given(
    owners=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    size=st.integers(1, 100),
    kind=st.sampled_from((np.float32, np.uint16, np.uint8)),
)
def test_a_value_is_what_its_shares_are(owners: list[int], size: int, kind: type) -> None:
    """Whichever devices the hosts have, and in whichever precision the shares are."""
    whole: NDArray[np.generic] = np.arange(size).astype(kind)
    ranges = [held_by(rank, owners, size) for rank in sorted(set(owners))]
    shares = [cut(whole.view(np.uint8).data, each, size) for each in ranges]
    assert bytes(assembled(shares, ranges, size)) == whole.tobytes()
    for share, each in zip(shares, ranges, strict=True):
        assert bytes(share) == share_of(whole, each).tobytes()


def test_a_share_of_one_range_is_a_view() -> None:
    """The path of a fragment has no copy where the hosts' devices are in their order."""
    whole = np.arange(8, dtype=np.float32)
    share = np.frombuffer(cut(whole.view(np.uint8).data, ((2, 5),), 8), np.float32)
    assert np.shares_memory(share, whole)
    assert np.shares_memory(share_of(whole, ((2, 5),)), whole)


def test_hosts_that_hold_all_of_it_give_equal_shares() -> None:
    """A model without common devices is whole on each host."""
    whole = np.arange(4, dtype=np.float32).view(np.uint8).data
    everything: Ranges = ((0, 4),)
    assert bytes(assembled([whole, whole], [everything, everything], 4)) == bytes(whole)


def test_a_value_is_complete_once_every_host_gave_its_share() -> None:
    """Each host gives its shares in order; one that is ahead waits for the others."""
    gathering = Gathering(2)
    first, second, third = memoryview(b"1"), memoryview(b"2"), memoryview(b"3")
    gathering.add(1, first)
    gathering.add(1, second)
    assert gathering.complete() is None
    gathering.add(0, third)
    assert gathering.complete() == [third, first]
    assert gathering.complete() is None


@pytest.mark.parametrize("hosts", [1, 3])
def test_the_number_of_hosts_decides(hosts: int) -> None:
    """No share is taken for a whole value before all hosts have given one."""
    gathering = Gathering(hosts)
    for rank in range(hosts):
        assert gathering.complete() is None
        gathering.add(rank, memoryview(b"x"))
    assert gathering.complete() == [memoryview(b"x")] * hosts


@virtual
async def test_a_host_gives_no_shares_of_values_that_there_cannot_be() -> None:
    """Rank 0 keeps a host's shares for slower hosts, of a bounded number of values."""
    network, said = MemoryNetwork(), list[object]()
    async with Scope("island") as scope:
        leader = IslandLeader(
            2,
            host="near",
            facts={},
            scope=scope,
            worker=InlineWorker(lambda: 0.0),
            say=said.append,
            leave=said.append,
        )
        leader._shared = Nine()  # noqa: SLF001  a model without a thread that steps
        forming = asyncio.create_task(leader.form(network.listen("rank-0")))
        await asyncio.sleep(0)
        link = await network.dial("rank-0", local="rank-1")
        link.send(Envelope("rank-1", "rank-0", 1, HostHello(PROTOCOL, 1, 2, "far", {})))
        await forming
        leader.begin("nowhere", Timing())
        share = (memoryview(bytes(12)),)
        for number in range(AHEAD_MAX + 1):
            assert not link.closed
            body = ValueShare("snapshot", number)
            link.send(Envelope("rank-1", "rank-0", number, body, payload=share), Lane.BULK)
            await asyncio.sleep(0.1)
        assert "shares of more values than there can be" in str(link.close_reason)
        leader.end(Ended("enough", 0))


class Nine:
    """A model of one fragment of nine elements."""

    def shares(self, fragment: int) -> list[Ranges]:
        """Two hosts' shares."""
        assert fragment == 0
        return [((0, 6),), ((6, 9),)]

    def size(self, fragment: int) -> int:
        """Of its only fragment."""
        return self.sizes()[fragment]

    def sizes(self) -> list[int]:
        """Of all fragments."""
        return [9]
