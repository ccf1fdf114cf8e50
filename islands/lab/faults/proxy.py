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
import socket
from collections.abc import Callable
from typing import Self

from islands.lab.faults.connection import PIECE_BYTES, Connection, Pump, Way, reset
from islands.lab.faults.stream_faults import Faults


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
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
        queue_bytes: int = 1 << 20,
        client_of: Callable[[int], str] | None = None,
    ) -> None:
        """Prepare; nothing is bound before `start`.

        Args:
            target_host: Where connections are passed on to.
            target_port: Its port.
            host: Where to listen.
            port: Where to listen; 0: any that is free.
            seed: Decides jitter, which bits are flipped and which frames come twice.
            queue_bytes: How far each direction reads ahead of what it delivers.
            client_of: Names who dials, by its port; without it, nobody has a name.
        """
        self.host = host
        self.port = port
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
        """Listen."""
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
        """Reset every connection that there is now."""
        for connection in self.connections:
            connection.reset()

    async def wait(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        """Wait until something holds of this proxy; it is asked after each step.

        Raises:
            TimeoutError: It did not come to hold in time.
        """
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
