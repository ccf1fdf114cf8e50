"""The simulated network: each fault does what it is said to do."""

import asyncio
import random
from dataclasses import replace

import pytest

from messaging.actors.scope import Scope
from messaging.envelope import NOMINAL_HEADER_BYTES, Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryLink, MemoryListener
from messaging.simulation.network import Route, SimulatedNetwork, host_of
from messaging.simulation.virtual_time import run_virtual
from tests.virtual import virtual


def numbered(number: int, size_bytes: int = 0) -> Envelope:
    payload = (memoryview(bytes(size_bytes)),) if size_bytes else ()
    return Envelope("learner", "syncer", number, None, payload=payload)


async def session(network: SimulatedNetwork) -> tuple[MemoryLink, MemoryLink]:
    listener = network.listen("syncer")
    near = await network.dial("syncer", local="learner")
    return near, await listener.accept()


async def received(link: MemoryLink) -> tuple[list[tuple[float, int]], str]:
    """Receive until the link closes; return arrival times and numbers, and the reason."""
    loop = asyncio.get_running_loop()
    arrived: list[tuple[float, int]] = []
    while True:  # ends when the link does
        try:
            envelope = await link.receive()
        except LinkClosed as closed:
            return arrived, str(closed)
        arrived.append((round(loop.time(), 9), envelope.id))


@pytest.fixture
def network() -> SimulatedNetwork:
    return SimulatedNetwork(random.Random(0), Route())


def test_host_of_an_address() -> None:
    assert host_of("syncer:bulk") == host_of("syncer") == "syncer"


@virtual
async def test_latency_and_bandwidth_add_up() -> None:
    network = SimulatedNetwork(random.Random(0), Route(latency_s=0.1, bandwidth_bytes_per_s=1000))
    near, far = await session(network)
    start = asyncio.get_running_loop().time()
    size = 1000 - NOMINAL_HEADER_BYTES
    for number in range(3):
        assert near.send(numbered(number, size), Lane.BULK)
    near.send(numbered(9))
    await asyncio.sleep(10)
    near.close("done")
    arrived, _ = await received(far)
    assert len(arrived) == 4
    assert start == 0.2  # there and back


@virtual
async def test_control_does_not_wait_for_bulk() -> None:
    network = SimulatedNetwork(random.Random(0), Route(latency_s=0.1, bandwidth_bytes_per_s=10_000))
    near, far = await session(network)
    near.send(numbered(1, 1_000_000), Lane.BULK)
    near.send(numbered(2))
    start = asyncio.get_running_loop().time()
    assert (await far.receive()).id == 2
    assert asyncio.get_running_loop().time() - start < 1
    assert (await far.receive()).id == 1
    assert asyncio.get_running_loop().time() - start > 100


@virtual
async def test_jitter_keeps_the_order_of_a_lane(seed: int) -> None:
    network = SimulatedNetwork(random.Random(seed), Route(jitter_s=0.1))
    near, far = await session(network)
    reader = asyncio.create_task(received(far))
    for number in range(200):
        near.send(numbered(number))
        await asyncio.sleep(0.001)
    near.close("done")
    arrived, reason = await reader
    assert [number for _, number in arrived] == list(range(200))
    assert reason == "closed by learner: done"


@virtual
async def test_duplicates_come_twice_in_a_row() -> None:
    network = SimulatedNetwork(random.Random(0), Route(duplicate=1.0))
    near, far = await session(network)
    near.send(numbered(1))
    near.send(numbered(2))
    near.close("done")
    arrived, _ = await received(far)
    assert [number for _, number in arrived] == [1, 1, 2, 2]


@virtual
async def test_dropped_bulk_is_skipped() -> None:
    network = SimulatedNetwork(random.Random(0), Route(drop=1.0))
    near, far = await session(network)
    assert not near.send(numbered(1), Lane.BULK)
    await asyncio.sleep(1)
    assert not near.closed
    assert not far.closed


@virtual
async def test_dropped_control_breaks_the_session(network: SimulatedNetwork) -> None:
    near, far = await session(network)
    near.send(numbered(1))
    network.set_route("learner", "syncer", Route(drop=1.0))
    near.send(numbered(2))
    network.set_route("learner", "syncer", Route())
    near.send(numbered(3))
    arrived, reason = await received(far)
    assert [number for _, number in arrived] in ([], [1])
    assert "connection lost" in reason
    await asyncio.sleep(1)
    assert near.close_reason == "connection lost"
    assert not network.channels


@virtual
async def test_cut_holds_and_healing_delivers_in_order(network: SimulatedNetwork) -> None:
    near, far = await session(network)
    near.send(numbered(0))  # under way when the cut begins
    network.cut("learner", "syncer")
    reader = asyncio.create_task(received(far))
    for number in range(1, 5):
        near.send(numbered(number))
        await asyncio.sleep(1)
    assert not near.closed
    assert not far.closed
    network.heal("learner", "syncer")
    near.send(numbered(5))
    await asyncio.sleep(5)
    near.close("done")
    arrived, _ = await reader
    assert [number for _, number in arrived] == [0, 1, 2, 3, 4, 5]
    assert arrived[0][0] > 4


@virtual
async def test_one_way_cut_stops_one_direction(network: SimulatedNetwork) -> None:
    near, far = await session(network)
    network.cut("learner", "syncer", one_way=True)
    assert network.is_cut("learner", "syncer")
    assert not network.is_cut("syncer", "learner")
    near.send(numbered(1))
    far.send(numbered(2))
    assert (await near.receive()).id == 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await far.receive()
    with pytest.raises(DialFailed, match="no answer"):
        await network.dial("syncer", local="learner")
    network.heal_all()
    assert (await far.receive()).id == 1


def test_data_of_an_old_session_arrives_late() -> None:
    orders: set[tuple[str, ...]] = set()

    def run(seed: int) -> None:
        async def scenario(network: SimulatedNetwork) -> None:
            seen: list[str] = []

            async def serve(listener: MemoryListener) -> None:
                async with Scope() as scope:
                    for session_number in range(2):
                        link = await listener.accept()
                        scope.spawn(read(link, session_number), f"session {session_number}")
                    await asyncio.sleep(60)

            async def read(link: MemoryLink, session_number: int) -> None:
                arrived, _ = await received(link)
                seen.extend(f"{session_number}" for _ in arrived)

            server = asyncio.create_task(serve(network.listen("syncer")))
            old = await network.dial("syncer", local="learner")
            network.cut("learner", "syncer")
            old.send(numbered(1))
            await asyncio.sleep(5)
            old.close("no sign of life")
            await asyncio.sleep(1)
            network.heal("learner", "syncer")
            new = await network.dial("syncer", local="learner")
            new.send(numbered(2))
            new.close("done")
            await server
            orders.add(tuple(seen))

        network = SimulatedNetwork(random.Random(seed), Route(keep_tail=1.0))
        run_virtual(scenario(network), limit_s=1000)

    for seed in range(20):
        run(seed)
    assert ("1", "0") in orders


@virtual
async def test_crash_is_noticed_by_peers(network: SimulatedNetwork) -> None:
    near, far = await session(network)
    near.send(numbered(1))
    network.crash("syncer")
    assert far.closed
    assert not near.closed
    _, reason = await received(near)
    assert reason == "closed by syncer: the process died"
    with pytest.raises(DialFailed, match="nobody listens"):
        await network.dial("syncer", local="learner")
    network.listen("syncer")
    await network.dial("syncer", local="learner")


@virtual
async def test_crash_behind_a_cut_is_noticed_after_healing(network: SimulatedNetwork) -> None:
    near, _ = await session(network)
    network.cut("learner", "syncer")
    network.crash("syncer")
    await asyncio.sleep(100)
    assert not near.closed
    network.heal_all()
    with pytest.raises(LinkClosed, match="died"):
        await near.receive()


@virtual
async def test_silent_crash_is_never_noticed(network: SimulatedNetwork) -> None:
    near, _ = await session(network)
    network.crash("syncer", silent=True)
    await asyncio.sleep(500)
    assert not near.closed
    near.close("no sign of life")
    await asyncio.sleep(5)
    assert not network.channels


@virtual
async def test_ended_sessions_leave_nothing_behind(seed: int) -> None:
    network = SimulatedNetwork(random.Random(seed), Route(jitter_s=0.05, drop=0.05, duplicate=0.1))
    rng = random.Random(seed)
    for _ in range(30):
        near, far = await session(network)
        for number in range(rng.randrange(5)):
            near.send(numbered(number), rng.choice([Lane.CONTROL, Lane.BULK]))
            far.send(numbered(number))
        if rng.random() < 0.3:
            network.cut("learner", "syncer", one_way=rng.random() < 0.5)
        verb = rng.randrange(4)
        if verb == 0:
            near.close("done")
        elif verb == 1:
            far.close("done")
        elif verb == 2:
            network.crash("learner")
        network.crash("syncer", silent=rng.random() < 0.2)
        near.close("end")
        network.heal_all()
        await asyncio.sleep(5)
        assert not network.channels
        assert not network.listeners()


@virtual
async def test_a_changed_envelope_ends_its_session() -> None:
    network = SimulatedNetwork(random.Random(0), Route(latency_s=0.5))
    near, far = await session(network)
    near.send(numbered(1))
    assert (await far.receive()).id == 1
    network.route = replace(network.route, corrupt=1.0)
    near.send(numbered(2), Lane.BULK)
    network.route = replace(network.route, corrupt=0.0)
    near.send(numbered(3), Lane.BULK)
    arrived, reason = await received(far)
    assert not arrived
    assert "checksum" in reason
    assert (await received(near))[0] == []


@virtual
async def test_a_reset_loses_what_is_in_flight() -> None:
    network = SimulatedNetwork(random.Random(0), Route(latency_s=0.5))
    near, far = await session(network)
    near.send(numbered(1))
    await asyncio.sleep(1)
    near.send(numbered(2), Lane.BULK)
    far.send(numbered(3))
    assert network.reset("syncer", "learner")
    assert near.closed
    assert far.closed
    assert [number for _, number in (await received(far))[0]] == [1]
    assert (await received(near))[0] == []
    assert not network.reset("syncer", "learner")
    assert not (await network.dial("syncer", local="learner")).closed


@virtual
async def test_a_frozen_host_answers_nobody(network: SimulatedNetwork) -> None:
    near, far = await session(network)
    network.freeze("syncer")
    near.send(numbered(1))
    with pytest.raises(DialFailed, match="no answer from 'syncer'"):
        await network.dial("syncer", local="learner")
    asyncio.get_running_loop().call_later(1, network.thaw, "syncer")
    began_s = asyncio.get_running_loop().time()
    await network.dial("syncer", local="learner")
    assert round(asyncio.get_running_loop().time() - began_s, 6) == 1
    assert (await far.receive()).id == 1
