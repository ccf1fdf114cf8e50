"""A TCP proxy that breaks what passes through it, by order and by seed.

In a test:

    async with FaultProxy("127.0.0.1", port) as proxy:
        link = await network.dial(f"ws://127.0.0.1:{proxy.port}/hub", local="near")
        proxy.inject(Faults(latency_s=0.1), Way.UP)

*Up* is from who dialled to the target, *down* is back. Each direction reads ahead by no more than
`queue_bytes`, so a direction that is slow or cut slows its sender, as a network does. The end of a
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
from enum import StrEnum
from typing import Self

from islands.lab.faults.stream_faults import Cut, Faults

PIECE_BYTES = 1 << 16
_BANDWIDTH_STEP_S = 0.01
_BANDWIDTH_BURST_S = 0.05
_KERNEL_POLL_S = 0.0005
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset and forgets what is unsent


class Way(StrEnum):
    """A direction."""

    UP = "up"
    DOWN = "down"


class FaultProxy:
    """Listens, dials the target once for each connection, and passes bytes between the two.

    Attributes:
        host: Where it listens.
        port: Where it listens; known once it is started.
        connections: All that there ever were, in order.
    """

    def __init__(
        self,
        target_host: str,
        target_port: int,
        *,
        seed: int = 0,
        queue_bytes: int = 1 << 20,
        client_of: Callable[[int], str] | None = None,
    ) -> None:
        """Prepare; nothing is bound before `start`.

        Args:
            target_host: Where connections are passed on to.
            target_port: Its port.
            seed: Decides jitter.
            queue_bytes: How far each direction reads ahead of what it delivers.
            client_of: Names who dials, by its port; without it, nobody has a name.
        """
        self.host = "127.0.0.1"
        self.port = 0
        self.connections: list[Connection] = []
        self._target = (target_host, target_port)
        self._seed = seed
        self._queue_bytes = queue_bytes
        self._faults = dict.fromkeys(Way, Faults())
        self._of_clients: dict[str, dict[Way, Faults]] = {}
        self._client_of = client_of
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._progress = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        listening = socket.create_server((self.host, self.port), backlog=256)
        # Small: what waits in the kernel has no latency, and heeds no cut.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=listening)

    async def stop(self) -> None:
        """Listen no more, and reset every connection."""
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            connection.reset()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._server is not None:
            await self._server.wait_closed()

    def inject(self, faults: Faults, *ways: Way) -> None:
        """Let all connections, those to come too, suffer faults; by default both ways."""
        for way in ways or tuple(Way):
            self._faults[way] = faults
            for connection in self.connections:
                connection.inject(faults, way)

    def inject_client(self, client: str, faults: Faults, *ways: Way) -> None:
        """Let all connections of one client, those to come too, suffer faults instead."""
        for way in ways or tuple(Way):
            self._of_clients.setdefault(client, dict(self._faults))[way] = faults
            for connection in self.connections:
                if connection.client == client:
                    connection.inject(faults, way)

    def heal_client(self, client: str) -> None:
        """Let a client suffer no more than the others do."""
        self._of_clients.pop(client, None)
        for way, faults in self._faults.items():
            for connection in self.connections:
                if connection.client == client:
                    connection.inject(faults, way)

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
            far = await _dial(*self._target)
        except OSError:
            reset(writer)
            return
        number = len(self.connections)
        client = ""
        if self._client_of is not None:
            client = self._client_of(writer.get_extra_info("peername")[1])
        suffered = self._of_clients.get(client, self._faults)

        def make_pump(
            source: asyncio.StreamReader, destination: asyncio.StreamWriter, way: Way
        ) -> Pump:
            _prepare(destination)
            return Pump(
                source,
                destination,
                faults=suffered[way],
                seed=f"{self._seed} {number} {way}",
                queue_bytes=self._queue_bytes,
                notify=self._notify,
            )

        connection = Connection((reader, writer), far, make_pump, client)
        self.connections.append(connection)
        self._notify()
        await connection.run()


async def _dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)  # noqa: FBT003 (the name of the standard library)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
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
    """One direction of one connection.

    Attributes:
        faults: What it suffers now.
        read_bytes: Taken from the sender so far.
        delivered_bytes: Given to the receiver's socket so far.
        lost_bytes: Swallowed by a cut, or for a receiver that is gone.
        end: How the stream ended, once that was passed on.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        faults: Faults,
        seed: str,
        queue_bytes: int,
        notify: Callable[[], None],
    ) -> None:
        """Join a reader to a writer; `notify` is called after each step."""
        self.faults = faults
        self.read_bytes = 0
        self.delivered_bytes = 0
        self.lost_bytes = 0
        self.end: End | None = None
        self._reader = reader
        self._writer = writer
        self._jitter = random.Random(f"{seed} jitter")
        self._queue: deque[tuple[float, bytes | End]] = deque()
        self._queue_bytes = queue_bytes
        self._queued_bytes = 0
        self._last_due_s = 0.0
        self._free_s = 0.0
        self._notify = notify
        self._changed = asyncio.Event()

    def inject(self, faults: Faults) -> None:
        """Suffer these faults from now on; what has been read keeps the delay it was given."""
        self.faults = faults
        self._stir()

    async def read_all(self) -> None:
        """Take what the sender sends until it ends, no further ahead than the queue allows."""
        while True:  # until the sender ends
            await self._wait(lambda: self._queued_bytes < self._queue_bytes)
            try:
                data = await self._reader.read(PIECE_BYTES)
            except ConnectionError:
                self._put(End.RESET, 0.0)
                return
            if not data:
                self._put(End.CLOSED, self.faults.close_delay_s)
                return
            self.read_bytes += len(data)
            self._put(data, 0.0)

    async def deliver_all(self) -> End:
        """Give the receiver what was taken, when its time has come; return how it ended."""
        while True:  # until the end was passed on
            await self._wait(lambda: bool(self._queue))
            due_s, data = self._queue[0]
            while (wait_s := due_s - _now_s()) > 0:
                await self._pause(wait_s)
            if isinstance(data, End):
                await self._wait(lambda: self.faults.cut is Cut.NONE)
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
            await self._wait(lambda: self.faults.cut is not Cut.HOLD)
            if self.faults.cut is Cut.LOSE or self._writer.is_closing():
                self.lost_bytes += len(rest)
                self._stir()
                return
            faults = self.faults
            size, pause_s = self._share(len(rest), faults)
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

    def _share(self, size: int, faults: Faults) -> tuple[int, float]:
        """Return how much may pass at once, and how long to wait afterwards."""
        if faults.bandwidth_bytes_s is None:
            return size, 0.0
        size = min(size, max(1, int(faults.bandwidth_bytes_s * _BANDWIDTH_STEP_S)))
        now_s = _now_s()
        earliest_s = max(self._free_s, now_s - _BANDWIDTH_BURST_S)
        self._free_s = earliest_s + size / faults.bandwidth_bytes_s
        return size, self._free_s - now_s

    def _put(self, data: bytes | End, delay_s: float) -> None:
        faults = self.faults
        delay_s += faults.latency_s
        if faults.jitter_s > 0:
            delay_s += faults.jitter_s * self._jitter.random()
        self._last_due_s = max(self._last_due_s, _now_s() + delay_s)
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
        before, end_s = self.faults, _now_s() + seconds
        while self.faults is before and (wait_s := end_s - _now_s()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()


class ResetOrdered(Exception):  # noqa: N818 -- no error: what the faults asked for
    """The faults ask for a reset of the connection."""


class Connection:
    """One connection through the proxy.

    Attributes:
        up: From who dialled to the target.
        down: Back.
        client: Name of who dialled; empty if nobody knows.
        ended: Whether both directions are over.
        was_reset: Whether the faults reset it.
    """

    def __init__(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        make_pump: Callable[[asyncio.StreamReader, asyncio.StreamWriter, Way], Pump],
        client: str = "",
    ) -> None:
        self.client = client
        self.up = make_pump(near[0], far[1], Way.UP)
        self.down = make_pump(far[0], near[1], Way.DOWN)
        self.ended = False
        self.was_reset = False
        self._writers = (near[1], far[1])
        self._tasks: list[asyncio.Task[None]] = []

    def pump(self, way: Way) -> Pump:
        return self.up if way is Way.UP else self.down

    def inject(self, faults: Faults, *ways: Way) -> None:
        """Let this connection alone suffer faults from now on; by default both ways."""
        for way in ways or tuple(Way):
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


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other end gets a reset; what is unsent is lost."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _unsent_bytes(connection: socket.socket) -> int:
    if connection.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
