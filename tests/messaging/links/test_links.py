"""Every kind of link keeps the same rules, on real and on virtual clocks."""

import random
from operator import attrgetter

import pytest

from messaging.envelope import Envelope
from messaging.errors import DialFailed
from messaging.links.link import Lane
from messaging.links.memory_link import BACKLOG, MemoryNetwork
from messaging.simulation.network import Route, SimulatedNetwork
from messaging.simulation.virtual_time import run_virtual
from tests.messaging import doubles


@pytest.mark.parametrize("rule", doubles.LINK_RULES, ids=attrgetter("__name__"))
async def test_memory_links_keep_the_rules(rule: doubles.LinkRule) -> None:
    await doubles.hold_to(rule, MemoryNetwork(), "far")


@pytest.mark.parametrize("rule", doubles.LINK_RULES, ids=attrgetter("__name__"))
def test_simulated_links_keep_the_rules(rule: doubles.LinkRule) -> None:
    route = Route(latency_s=0.002, jitter_s=0.003, bandwidth_bytes_per_s=1e8)
    network = SimulatedNetwork(random.Random(0), route)
    run_virtual(doubles.hold_to(rule, network, "far"), limit_s=60)


async def test_control_overtakes_bulk_that_waits() -> None:
    async with doubles.open_session(MemoryNetwork(), "far") as (near, far):
        near.send(doubles.probe(1), Lane.BULK)
        near.send(doubles.probe(2), Lane.BULK)
        near.send(doubles.probe(3))
        assert [(await far.receive()).id for _ in range(3)] == [3, 1, 2]


async def test_nothing_is_copied_inside_one_process() -> None:
    async with doubles.open_session(MemoryNetwork(), "far") as (near, far):
        sent = doubles.probe(1, (memoryview(b"bulk"),))
        near.send(sent, Lane.BULK)
        assert await far.receive() is sent


async def test_sessions_nobody_accepts_are_bounded() -> None:
    network = MemoryNetwork()
    listener = network.listen("far")
    waiting = [await network.dial("far", local="near") for _ in range(BACKLOG)]
    with pytest.raises(DialFailed, match="too many"):
        await network.dial("far", local="near")
    listener.close()
    assert all(link.closed for link in waiting)


async def test_bulk_capacity_is_that_of_the_network() -> None:
    async with doubles.open_session(MemoryNetwork(bulk_capacity=2), "far") as (near, _):
        assert [near.send(doubles.probe(n), Lane.BULK) for n in range(3)] == [True, True, False]


def test_size_of_an_envelope_counts_its_payload() -> None:
    bare = Envelope("a", "b", 1, None)
    loaded = Envelope("a", "b", 1, None, payload=(memoryview(bytes(10)), memoryview(bytes(5))))
    assert loaded.size_bytes - bare.size_bytes == 15
