"""Whose connection passes a proxy is known by its port, and faults hit that one alone."""

import asyncio
import os

import pytest

from islands.lab.faults.fault import Direction, Fault, FaultKind, Peer
from islands.lab.faults.paths import Paths, stream_faults_of
from islands.lab.faults.proxy import HOST, FaultProxy, Faults
from islands.run.hosting.process_identity import Identity, facts


def this_process(name: str) -> Identity | None:
    found = facts(os.getpid())
    assert found is not None
    return Identity(os.getpid(), found.started_ticks) if name == "learner-1" else None


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def test_a_connection_is_known_by_the_process_that_has_its_port() -> None:
    async with Paths(0, this_process, ["learner-0", "learner-1"]) as paths:
        server = await asyncio.start_server(echo, HOST, paths.ports.hub)
        reader, writer = await asyncio.open_connection(HOST, paths.ports.hub_proxy)
        for name, passes in (("learner-0", True), ("learner-1", False)):
            cut = Fault(FaultKind.CUT, link=Peer.SUPERVISOR, for_s=60.0)
            task = asyncio.create_task(paths.break_for(cut, [name]))
            await asyncio.sleep(0)
            writer.write(b"hello")
            if passes:
                assert await reader.readexactly(5) == b"hello"
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await reader.readexactly(5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        server.close()


async def test_a_fault_that_meets_no_connection_of_its_victim_did_not_take_place() -> None:
    latency = Fault(FaultKind.LATENCY, link=Peer.SUPERVISOR, for_s=0.01)
    async with Paths(0, this_process, ["learner-0", "learner-1"]) as paths:
        told = await paths.break_for(latency, ["learner-1"])
        assert told == "no connection of learner-1 passed the proxy"
        server = await asyncio.start_server(echo, HOST, paths.ports.hub)
        reader, writer = await asyncio.open_connection(HOST, paths.ports.hub_proxy)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert await paths.break_for(latency, ["learner-1"]) == ""
        told = await paths.break_for(latency, ["learner-0", "learner-1"])
        assert told == "no connection of learner-0 passed the proxy"
        writer.close()
        server.close()


async def test_a_reset_that_never_came_did_not_take_place() -> None:
    idle = Fault(FaultKind.RESET, link=Peer.SUPERVISOR, for_s=0.01)
    busy = Fault(FaultKind.RESET, link=Peer.SUPERVISOR, for_s=0.5, mean_bytes=1.0)
    async with Paths(0, this_process, ["learner-1"]) as paths:
        server = await asyncio.start_server(echo, HOST, paths.ports.hub)
        reader, writer = await asyncio.open_connection(HOST, paths.ports.hub_proxy)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert await paths.break_for(idle, ["learner-1"]) == "it reset nothing in 0.01 s"
        breaking = asyncio.create_task(paths.break_for(busy, ["learner-1"]))
        await asyncio.sleep(0)
        writer.write(bytes(1000))
        with pytest.raises(ConnectionError):
            await reader.readexactly(1000)
        assert await breaking == ""
        server.close()


async def test_what_a_client_suffers_holds_for_its_next_connections() -> None:
    server = await asyncio.start_server(echo, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy(port, client_of=lambda _: "a") as proxy:
        proxy.inject_client("a", Faults(cut=True), Direction.UP)
        _, writer = await asyncio.open_connection(HOST, proxy.port)
        await proxy.wait(lambda: len(proxy.connections) == 1)
        connection = proxy.connections[0]
        assert (connection.up.faults.cut, connection.down.faults.cut) == (True, False)
        proxy.heal_client("a")
        assert not connection.up.faults.cut
        proxy.inject_client("a", Faults(cut=True))
        proxy.heal()
        assert not connection.up.faults.cut
        writer.close()
    server.close()


def test_each_kind_spoils_bytes_in_its_own_way() -> None:
    kinds = [kind for kind in FaultKind if kind.of_links]
    plain = [kind for kind in kinds if stream_faults_of(Fault(kind)) == Faults()]
    assert plain == [FaultKind.FLAP, FaultKind.RESET]
