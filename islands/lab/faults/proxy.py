"""A TCP proxy that breaks what passes through it, by order and by seed.

    async with FaultProxy(port) as proxy:
        link = await network.dial(f"ws://127.0.0.1:{proxy.port}/hub", local="near")
        proxy.inject(Faults(latency_s=0.1), Direction.UP)

*Up* is from who dialled to the target, *down* is back. Each direction reads ahead by no more than
`QUEUE_BYTES`, so a direction that is slow or cut slows its sender, as a network does. The end of a
stream, and a reset, wait their turn behind the bytes before them.
"""

import asyncio
import contextlib
import fcntl
import random
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from islands.lab.faults.fault import Direction

HOST = "127.0.0.1"
PIECE_BYTES = 1 << 16
QUEUE_BYTES = 1 << 20
_BANDWIDTH_STEP_S = 0.01
_BANDWIDTH_BURST_S = 0.05
_KERNEL_POLL_S = 0.0005
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset and forgets what is unsent


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that one direction suffers.

    Each byte arrives `latency_s` later, and up to `jitter_s` more, in its order. While it is cut
    nothing passes, and everything arrives afterwards, as TCP sends it again. Once so many bytes of
    the connection were delivered (`reset_after_bytes`), both its ends get a reset.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth_bytes_s: float | None = None
    cut: bool = False
    reset_after_bytes: int | None = None


class FaultProxy:
    """Listens, dials the target once for each connection, and passes bytes between the two.

    `client_of` names who dials, by its port. The seed decides jitter. `connections` has all that
    there ever were, in order.
    """

    def __init__(
        self, target_port: int, *, seed: int = 0, client_of: Callable[[int], str] = lambda _: ""
    ) -> None:
        self.port = 0
        self.connections: list[Connection] = []
        self._target_port = target_port
        self._seed = seed
        self._faults = dict.fromkeys(Direction.BOTH.ways, Faults())
        self._of_clients: dict[str, dict[Direction, Faults]] = {}
        self._client_of = client_of
        self._server: asyncio.Server
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._progress = asyncio.Event()

    async def __aenter__(self) -> Self:
        listening = socket.create_server((HOST, 0), backlog=256)
        # Small: what waits in the kernel has no latency, and heeds no cut.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Listen no more, and reset every connection."""
        self._server.close()
        self.reset_all()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._server.wait_closed()

    def inject(self, faults: Faults, direction: Direction = Direction.BOTH) -> None:
        """Let all connections, those to come too, suffer faults."""
        for way in direction.ways:
            self._faults[way] = faults
            for connection in self.connections:
                connection.inject(faults, way)

    def inject_client(
        self, client: str, faults: Faults, direction: Direction = Direction.BOTH
    ) -> None:
        """Let all connections of one client, those to come too, suffer faults instead."""
        for way in direction.ways:
            self._of_clients.setdefault(client, dict(self._faults))[way] = faults
            for connection in self._connections_of(client):
                connection.inject(faults, way)

    def heal_client(self, client: str) -> None:
        """Let a client suffer no more than the others do."""
        self._of_clients.pop(client, None)
        for way, faults in self._faults.items():
            for connection in self._connections_of(client):
                connection.inject(faults, way)

    def _connections_of(self, client: str) -> "list[Connection]":
        return [each for each in self.connections if each.client == client]

    def heal(self) -> None:
        """End all faults, those of clients and of single connections too."""
        self._of_clients.clear()
        self.inject(Faults())

    def reset_all(self) -> None:
        for connection in self.connections:
            connection.reset()

    async def wait(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        """Wait until something holds of this proxy; it is asked after each step."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._progress.wait()

    def _notify(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._join(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)
        self._notify()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a mistake of the proxy: the loop reports it

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await _dial(self._target_port)
        except OSError:
            reset(writer)
            return
        number = len(self.connections)
        client = self._client_of(writer.get_extra_info("peername")[1])
        suffered = self._of_clients.get(client, self._faults)

        def make_pump(
            source: asyncio.StreamReader, destination: asyncio.StreamWriter, way: Direction
        ) -> Pump:
            _prepare(destination)
            seed = f"{self._seed} {number} {way}"
            return Pump(source, destination, suffered[way], seed, self._notify)

        connection = Connection((reader, writer), far, make_pump, client)
        self.connections.append(connection)
        self._notify()
        await connection.run()


async def _dial(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)  # noqa: FBT003 (the name of the standard library)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        await asyncio.get_running_loop().sock_connect(connection, (HOST, port))
        return await asyncio.open_connection(sock=connection)
    except BaseException:
        connection.close()
        raise


def _prepare(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    writer.transport.set_write_buffer_limits(high=0)  # `drain` waits for the kernel


# --- one connection ----------------------------------------------------------------------------


class End(StrEnum):
    """The end of a stream."""

    CLOSED = "closed"
    RESET = "reset"


class Pump:
    """One direction of one connection: what has been read keeps the delay that it was given."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        faults: Faults,
        seed: str,
        notify: Callable[[], None],
    ) -> None:
        self.faults = faults
        self.read_bytes = 0
        self.delivered_bytes = 0
        self.end: End | None = None  # how the stream ended, once that was passed on
        self._reader = reader
        self._writer = writer
        self._jitter = random.Random(f"{seed} jitter")
        self._queue: deque[tuple[float, bytes | End]] = deque()
        self._queued_bytes = 0
        self._last_due_s = 0.0
        self._free_s = 0.0
        self._notify = notify
        self._changed = asyncio.Event()

    def inject(self, faults: Faults) -> None:
        self.faults = faults
        self._stir()

    async def read_all(self) -> None:
        """Take what the sender sends until it ends, no further ahead than the queue allows."""
        while True:  # until the sender ends
            await self._wait(lambda: self._queued_bytes < QUEUE_BYTES)
            try:
                data = await self._reader.read(PIECE_BYTES)
            except ConnectionError:
                self._put(End.RESET)
                return
            self.read_bytes += len(data)
            self._put(data or End.CLOSED)
            if not data:
                return

    async def deliver_all(self) -> End:
        """Give the receiver what was taken, when its time has come; return how it ended."""
        while True:  # until the end was passed on
            await self._wait(lambda: bool(self._queue))
            due_s, data = self._queue[0]
            while (wait_s := due_s - now_s()) > 0:
                await self._pause(wait_s)
            if isinstance(data, End):
                await self._wait(lambda: not self.faults.cut)
                return data
            await self._deliver(data)
            self._queue.popleft()
            self._queued_bytes -= len(data)
            self._stir()

    async def wait_received(self) -> None:
        """Wait until the receiver's kernel has all that was written."""
        await self._writer.drain()
        connection = self._writer.get_extra_info("socket")
        while _unsent_bytes(connection) > 0:  # noqa: ASYNC110 (the kernel tells nobody)
            await asyncio.sleep(_KERNEL_POLL_S)

    async def _deliver(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            await self._wait(lambda: not self.faults.cut)
            if self._writer.is_closing():
                return
            faults = self.faults
            size, pause_s = self._allowed(len(rest), faults)
            if faults.reset_after_bytes is not None:
                left = faults.reset_after_bytes - self.delivered_bytes
                if left <= 0:
                    raise ResetOrdered
                size = min(size, left)
            with contextlib.suppress(ConnectionError):
                self._writer.write(rest[:size])
                await self._writer.drain()
            self.delivered_bytes += size
            rest = rest[size:]
            self._stir()
            if self.delivered_bytes == faults.reset_after_bytes:
                raise ResetOrdered
            if pause_s > 0:
                await self._pause(pause_s)

    def _allowed(self, size: int, faults: Faults) -> tuple[int, float]:
        """Return how much may pass at once, and how long to wait afterwards."""
        if faults.bandwidth_bytes_s is None:
            return size, 0.0
        size = min(size, max(1, int(faults.bandwidth_bytes_s * _BANDWIDTH_STEP_S)))
        at_s = now_s()
        earliest_s = max(self._free_s, at_s - _BANDWIDTH_BURST_S)
        self._free_s = earliest_s + size / faults.bandwidth_bytes_s
        return size, self._free_s - at_s

    def _put(self, data: bytes | End) -> None:
        delay_s = self.faults.latency_s
        if self.faults.jitter_s > 0:
            delay_s += self.faults.jitter_s * self._jitter.random()
        self._last_due_s = max(self._last_due_s, now_s() + delay_s)
        self._queue.append((self._last_due_s, data))
        if isinstance(data, bytes):
            self._queued_bytes += len(data)
        self._stir()

    def _stir(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._notify()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def _pause(self, seconds: float) -> None:
        before, end_s = self.faults, now_s() + seconds
        while self.faults is before and (wait_s := end_s - now_s()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()


class ResetOrdered(Exception):  # noqa: N818 -- no error: what the faults asked for
    """The faults ask for a reset of the connection."""


class Connection:
    """One connection through the proxy, of a client whose name is empty if nobody knows it."""

    def __init__(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        make_pump: Callable[[asyncio.StreamReader, asyncio.StreamWriter, Direction], Pump],
        client: str = "",
    ) -> None:
        self.client = client
        self.up = make_pump(near[0], far[1], Direction.UP)
        self.down = make_pump(far[0], near[1], Direction.DOWN)
        self.ended = False
        self.was_reset = False  # by the faults
        self._writers = (near[1], far[1])
        self._tasks: list[asyncio.Task[None]] = []

    def pump(self, way: Direction) -> Pump:
        return self.up if way is Direction.UP else self.down

    def inject(self, faults: Faults, direction: Direction = Direction.BOTH) -> None:
        """Let this connection alone suffer faults from now on."""
        for way in direction.ways:
            self.pump(way).inject(faults)

    def reset(self) -> None:
        """Reset both ends at once; what is under way is lost."""
        for writer in self._writers:
            reset(writer)
        for task in self._tasks:
            task.cancel()

    async def run(self) -> None:
        """Pass everything on until both directions have ended."""
        make = asyncio.create_task
        for pump, writer in ((self.up, self._writers[1]), (self.down, self._writers[0])):
            self._tasks += [make(pump.read_all()), make(self._deliver(pump, writer))]
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self.ended = True
            if self.up.end is self.down.end is End.CLOSED:
                for writer in self._writers:
                    writer.close()  # what the kernel still holds arrives
            else:
                self.reset()

    async def _deliver(self, pump: Pump, writer: asyncio.StreamWriter) -> None:
        try:
            end = await pump.deliver_all()
        except ResetOrdered:
            end, self.was_reset = End.RESET, True
            await pump.wait_received()
            self.reset()
        with contextlib.suppress(OSError):
            if end is End.RESET:
                reset(writer)
            elif not writer.is_closing():
                await writer.drain()
                writer.write_eof()
        pump.end = end


def free_port() -> int:
    """Return a port of the loopback that nobody listens at now."""
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other end gets a reset; what is unsent is lost."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def _unsent_bytes(connection: socket.socket) -> int:
    if connection.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
