"""Shares of an island's values: cut out, gathered, and put together."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.island.forming import Ended
from islands.island.leader import AHEAD_MAX, IslandLeader
from islands.island.shares import Gathering, assembled, cut
from islands.lab.world.inline import InlineWorker
from islands.learner.boundary import part_of
from islands.protocol.messages.multihost import HostHello, ValueShare
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.ranges import Ranges, held_by
from islands.protocol.settings.run import Timing
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryNetwork
from tests.virtual import virtual


@given(
    owners=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    size=st.integers(1, 100),
    kind=st.sampled_from((np.float32, np.uint16, np.uint8)),
)
def test_a_value_is_what_its_shares_are(owners: list[int], size: int, kind: type) -> None:
    whole: NDArray[np.generic] = np.arange(size).astype(kind)
    ranges = [held_by(rank, owners, size) for rank in sorted(set(owners))]
    shares = [cut(whole.view(np.uint8).data, each, size) for each in ranges]
    assert bytes(assembled(shares, ranges, size)) == whole.tobytes()
    for share, each in zip(shares, ranges, strict=True):
        assert bytes(share) == part_of(whole, each).tobytes()


def test_a_part_of_one_range_is_a_view() -> None:
    whole = np.arange(8, dtype=np.float32)
    share = np.frombuffer(cut(whole.view(np.uint8).data, ((2, 5),), 8), np.float32)
    assert np.shares_memory(share, whole)
    assert np.shares_memory(part_of(whole, ((2, 5),)), whole)


def test_hosts_that_hold_all_of_it_give_equal_shares() -> None:
    whole = np.arange(4, dtype=np.float32).view(np.uint8).data
    everything: Ranges = ((0, 4),)
    assert bytes(assembled([whole, whole], [everything, everything], 4)) == bytes(whole)


def test_a_value_is_complete_once_every_host_gave_its_share() -> None:
    gathering = Gathering(2)
    first, second, third = memoryview(b"1"), memoryview(b"2"), memoryview(b"3")
    gathering.add(1, first)
    gathering.add(1, second)
    assert gathering.complete() is None
    gathering.add(0, third)
    assert gathering.complete() == [third, first]
    assert gathering.complete() is None


@virtual
async def test_a_host_gives_no_shares_of_values_that_there_cannot_be() -> None:
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
        leader._shared = Nine()  # type: ignore[assignment]  # noqa: SLF001  a model alone
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
    def shares(self, fragment: int) -> list[Ranges]:
        assert fragment == 0
        return [((0, 6),), ((6, 9),)]

    def size(self, fragment: int) -> int:
        assert fragment == 0
        return 9

    @property
    def fragments(self) -> int:
        return 1
