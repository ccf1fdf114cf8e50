"""Every kind of link keeps the same rules, on real and on virtual clocks."""

import asyncio
import random

import pytest

from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed, LocalFault
from messaging.links.link import Lane, Link
from messaging.links.memory_link import BACKLOG, MemoryNetwork
from messaging.simulation.network import Route, SimulatedNetwork
from messaging.simulation.virtual_time import run_virtual
from tests.messaging.doubles import (
    LINK_RULES,
    FaultyLink,
    LinkRule,
    hold_to,
    open_session,
    probe,
)


def rule_name(rule: LinkRule) -> str:
    return getattr(rule, "__name__", "rule")


@pytest.mark.parametrize("rule", LINK_RULES, ids=rule_name)
async def test_memory_links_keep_the_rules(rule: LinkRule) -> None:
    await hold_to(rule, MemoryNetwork(), "far")


@pytest.mark.parametrize("rule", LINK_RULES, ids=rule_name)
def test_memory_links_keep_the_rules_on_the_virtual_clock(rule: LinkRule) -> None:
    run_virtual(hold_to(rule, MemoryNetwork(), "far"), limit_s=60)


@pytest.mark.parametrize("rule", LINK_RULES, ids=rule_name)
def test_simulated_links_keep_the_rules(rule: LinkRule) -> None:
    route = Route(latency_s=0.002, jitter_s=0.003, bandwidth_bytes_per_s=1e8)
    network = SimulatedNetwork(random.Random(0), route)
    run_virtual(hold_to(rule, network, "far"), limit_s=60)


@pytest.mark.parametrize("rule", LINK_RULES, ids=rule_name)
async def test_simulated_links_work_on_an_ordinary_loop(rule: LinkRule) -> None:
    network = SimulatedNetwork(random.Random(0), Route(latency_s=0.0005))
    await hold_to(rule, network, "far")


def test_the_rules_notice_a_breach() -> None:
    class LossyNetwork(MemoryNetwork):
        async def dial(self, address: str, *, local: str) -> Link:  # type: ignore[override]
            return FaultyLink(await super().dial(address, local=local), seed=0, drop=0.5)

    broken: list[str] = []
    for rule in LINK_RULES:
        try:
            run_virtual(hold_to(rule, LossyNetwork(), "far"), limit_s=60)
        except (AssertionError, TimeoutError, LinkClosed):
            broken.append(rule_name(rule))
    assert "each_lane_keeps_its_order" in broken


async def test_control_overtakes_bulk_that_waits() -> None:
    async with open_session(MemoryNetwork(), "far") as (near, far):
        near.send(probe(1), Lane.BULK)
        near.send(probe(2), Lane.BULK)
        near.send(probe(3))
        assert [(await far.receive()).id for _ in range(3)] == [3, 1, 2]


async def test_nothing_is_copied_inside_one_process() -> None:
    async with open_session(MemoryNetwork(), "far") as (near, far):
        sent = probe(1, (memoryview(b"bulk"),))
        near.send(sent, Lane.BULK)
        assert await far.receive() is sent


async def test_address_can_be_taken_once() -> None:
    network = MemoryNetwork()
    listener = network.listen("far")
    with pytest.raises(LocalFault, match="already"):
        network.listen("far")
    listener.close()
    network.listen("far").close()


async def test_sessions_nobody_accepts_are_bounded() -> None:
    network = MemoryNetwork()
    listener = network.listen("far")
    waiting = [await network.dial("far", local="near") for _ in range(BACKLOG)]
    with pytest.raises(DialFailed, match="too many"):
        await network.dial("far", local="near")
    listener.close()
    assert all(link.closed for link in waiting)


async def test_second_reader_is_refused() -> None:
    async with open_session(MemoryNetwork(), "far") as (_, far):
        reader = asyncio.create_task(far.receive())
        await asyncio.sleep(0)
        with pytest.raises(LocalFault, match="one reader"):
            await far.receive()
        far.close("done")
        with pytest.raises(LinkClosed):
            await reader


async def test_bulk_capacity_is_that_of_the_network() -> None:
    async with open_session(MemoryNetwork(bulk_capacity=2), "far") as (near, _):
        assert [near.send(probe(n), Lane.BULK) for n in range(3)] == [True, True, False]


async def test_faulty_link_skips_bulk_and_breaks_on_control() -> None:
    async with open_session(MemoryNetwork(), "far") as (near, far):
        faulty = FaultyLink(near, seed=1, drop=1.0)
        assert not faulty.send(probe(1), Lane.BULK)
        assert near.send(probe(2))
        assert not faulty.send(probe(3))
        assert faulty.close_reason is not None
        assert (await far.receive()).id == 2
        with pytest.raises(LinkClosed, match="injected"):
            await far.receive()


async def test_faulty_link_repeats() -> None:
    async with open_session(MemoryNetwork(), "far") as (near, far):
        faulty = FaultyLink(near, seed=1, duplicate=1.0)
        assert (faulty.local, faulty.remote, faulty.close_reason) == ("near", "far", None)
        assert faulty.send(probe(1))
        assert [(await far.receive()).id for _ in range(2)] == [1, 1]
        far.send(probe(2))
        assert (await faulty.receive()).id == 2
        faulty.close("done")
        assert near.closed


def test_size_of_an_envelope_counts_its_payload() -> None:
    bare = Envelope("a", "b", 1, None)
    loaded = Envelope("a", "b", 1, None, payload=(memoryview(bytes(10)), memoryview(bytes(5))))
    assert loaded.size_bytes - bare.size_bytes == 15
