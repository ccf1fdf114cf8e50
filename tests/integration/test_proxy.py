"""The fault proxy does to plain sockets what it is told, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from islands.lab.faults.proxy import Connection, End, FaultProxy, Way
from islands.lab.faults.stream_faults import Cut, Faults

pytestmark = pytest.mark.integration

LIMIT_S = 20.0
TEXT = bytes(range(256)) * 40


@dataclass
class Side:
    """One end of a connection through the proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def take(self, size: int) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()


@dataclass
class Path:
    """A connection, its two ends and the proxy between them."""

    proxy: FaultProxy
    near: Side
    far: Side
    connection: Connection


class Room:
    """A listener, a proxy before it, and a way to dial through both."""

    def __init__(self, proxy: FaultProxy, accepted: asyncio.Queue[Side]) -> None:
        self.proxy = proxy
        self.sides: list[Side] = []
        self._accepted = accepted

    async def dial(self) -> Path:
        near = Side(*await asyncio.open_connection(self.proxy.host, self.proxy.port))
        async with asyncio.timeout(LIMIT_S):
            far = await self._accepted.get()
        await self.proxy.wait(lambda: len(self.proxy.connections) * 2 > len(self.sides))
        self.sides += [near, far]
        return Path(self.proxy, near, far, self.proxy.connections[-1])


@asynccontextmanager
async def open_room(*, queue_bytes: int = 1 << 20) -> AsyncIterator[Room]:
    """Listen, put a proxy before it, and close everything at the end."""
    accepted: asyncio.Queue[Side] = asyncio.Queue()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accepted.put(Side(reader, writer))

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy("127.0.0.1", port, seed=3, queue_bytes=queue_bytes) as proxy:
        room = Room(proxy, accepted)
        yield room
    for side in room.sides:
        side.writer.transport.abort()
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def open_path(*, queue_bytes: int = 1 << 20) -> AsyncIterator[Path]:
    """Open one connection through a proxy."""
    async with open_room(queue_bytes=queue_bytes) as room:
        yield await room.dial()


async def test_without_faults_everything_passes() -> None:
    async with open_path() as path:
        path.near.send(TEXT * 50)
        path.near.writer.write_eof()
        assert await path.far.rest() == TEXT * 50
        path.far.send(TEXT)
        assert await path.near.take(len(TEXT)) == TEXT
        path.far.writer.close()
        assert await path.near.rest() == b""
        await path.proxy.wait(lambda: path.connection.ended)
        assert path.connection.up.delivered_bytes == 50 * len(TEXT)


async def test_latency_and_jitter_delay_and_keep_order() -> None:
    loop = asyncio.get_running_loop()
    async with open_path() as path:
        path.proxy.inject(Faults(latency_s=0.05, jitter_s=0.05), Way.UP)
        start_s = loop.time()
        for number in range(20):
            path.near.send(bytes((number,)))
            await path.proxy.wait(lambda n=number: path.connection.up.read_bytes > n)  # type: ignore[misc]
        assert await path.far.take(20) == bytes(range(20))
        assert loop.time() - start_s >= 0.05
        path.far.send(b"back")
        assert await path.near.take(4) == b"back"


async def test_bandwidth_is_not_exceeded() -> None:
    loop = asyncio.get_running_loop()
    async with open_path() as path:
        path.proxy.inject(Faults(bandwidth_bytes_s=100_000), Way.UP)
        start_s = loop.time()
        path.near.send(bytes(20_000))
        await path.far.take(20_000)
        assert loop.time() - start_s >= 0.1


async def test_a_held_direction_delivers_late_and_the_other_goes_on() -> None:
    async with open_path() as path:
        path.proxy.inject(Faults(cut=Cut.HOLD), Way.UP)
        path.near.send(TEXT)
        path.near.writer.write_eof()
        path.far.send(b"still here")
        assert await path.near.take(10) == b"still here"
        await path.proxy.wait(lambda: path.connection.up.read_bytes == len(TEXT))
        assert path.connection.up.delivered_bytes == 0
        path.proxy.heal()
        assert await path.far.rest() == TEXT


async def test_a_held_direction_slows_its_sender() -> None:
    async with open_path(queue_bytes=1 << 16) as path:
        path.proxy.inject(Faults(cut=Cut.HOLD), Way.UP)
        path.near.send(bytes(1 << 26))
        waiting = asyncio.create_task(path.near.writer.drain())
        await path.proxy.wait(lambda: path.connection.up.read_bytes >= 1 << 16)
        assert path.connection.up.read_bytes <= 1 << 17
        assert not waiting.done()
        waiting.cancel()


async def test_old_bytes_arrive_after_a_newer_connection() -> None:
    async with open_room() as room:
        old = await room.dial()
        old.connection.inject(Faults(cut=Cut.HOLD), Way.UP)
        old.near.send(b"old news")
        old.near.writer.close()
        new = await room.dial()
        new.near.send(b"new")
        assert await new.far.take(3) == b"new"
        await room.proxy.wait(lambda: old.connection.up.read_bytes == 8)
        room.proxy.heal()
        assert await old.far.rest() == b"old news"


async def test_a_losing_cut_swallows() -> None:
    async with open_path() as path:
        path.proxy.inject(Faults(cut=Cut.LOSE), Way.UP)
        path.near.send(TEXT)
        await path.proxy.wait(lambda: path.connection.up.lost_bytes == len(TEXT))
        path.proxy.heal()
        path.near.send(b"after")
        assert await path.far.take(5) == b"after"


@pytest.mark.parametrize("after", [1, 255, len(TEXT) - 1])
async def test_reset_comes_after_exactly_so_many_bytes(after: int) -> None:
    async with open_path() as path:
        path.proxy.inject(Faults(reset_after_bytes=after), Way.UP)
        path.near.send(TEXT)
        assert await path.far.take(after) == TEXT[:after]
        with pytest.raises(ConnectionResetError):
            await path.far.rest()
        with pytest.raises(ConnectionResetError):
            await path.near.rest()
        await path.proxy.wait(lambda: path.connection.ended)
        assert path.connection.up.end is End.RESET


async def test_a_reset_of_the_peer_is_passed_on_as_one() -> None:
    async with open_path() as path:
        path.near.send(b"x")
        assert await path.far.take(1) == b"x"
        path.connection.reset()
        for side in (path.near, path.far):
            with pytest.raises(ConnectionResetError):
                await side.rest()


async def test_closing_can_be_slow() -> None:
    loop = asyncio.get_running_loop()
    async with open_path() as path:
        path.proxy.inject(Faults(close_delay_s=0.1), Way.UP)
        start_s = loop.time()
        path.near.send(TEXT)
        path.near.writer.write_eof()
        assert await path.far.take(len(TEXT)) == TEXT
        assert await path.far.rest() == b""
        assert loop.time() - start_s >= 0.1


async def test_nobody_behind_the_proxy_is_a_reset() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with FaultProxy("127.0.0.1", port) as proxy:
        side = Side(*await asyncio.open_connection(proxy.host, proxy.port))
        with pytest.raises(ConnectionResetError):
            await side.rest()
        side.writer.transport.abort()
