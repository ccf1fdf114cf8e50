"""Strangers' bytes for `tests.benchmarks.hostile`: everything that may come before the secret."""

import asyncio
from typing import Any

from messaging.codec.frames import Codec
from messaging.websocket.connection_limits import Connection
from messaging.websocket.read_limits import ServerProtocol
from messaging.websocket.security import Secret
from messaging.websocket.server import SessionServer
from messaging.websocket.settings import WebsocketSettings
from tests.benchmarks.drawn_messages import damaged
from tests.benchmarks.hostile_trial import Trial

SECRET = Secret("a-secret-that-no-stranger-knows")
HOLDING = 0.9
"""Share of connections that a stranger leaves open."""

REQUEST = (
    b"GET /supervisor HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Authorization: Bearer a guess at the secret\r\nIslands-Protocol: 1\r\nIslands-Name: x\r\n\r\n"
)


class Pipe(asyncio.Transport):
    """A connection of a stranger, as the hub's transport."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, opened: dict["Pipe", None], trial: Trial
    ) -> None:
        super().__init__()
        self._trial = trial
        self.protocol: ServerProtocol | None = None
        self._loop = loop
        self._opened = opened
        opened[self] = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  as its base
        return ("10.0.0.1", 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._trial.bytes_sent += len(data)

    def is_closing(self) -> bool:
        return self not in self._opened

    def pause_reading(self) -> None:
        """Nothing is read by itself."""

    resume_reading = pause_reading

    def close(self) -> None:
        if self in self._opened and self.protocol is not None:
            del self._opened[self]
            self._loop.call_soon(self.protocol.connection_lost, None)

    abort = close


class Strangers:
    """A crowd of strangers at the door of one hub, of whom most never leave by themselves."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._number = 0
        self._opened: dict[Pipe, None] = {}
        self._told = 0

    async def run(self) -> None:
        """Send all input, then wait until the last one was shown out."""
        trial, chance = self._trial, self._trial.chance
        server = SessionServer(
            WebsocketSettings(),
            SECRET,
            Codec([]),
            judge=lambda _: None,
            check_listener=lambda _: None,
            welcome=self._welcome,
            report=self._note,
        )
        sweeping = asyncio.create_task(server.sweep())
        await asyncio.sleep(0)
        trial.begin()
        for number in range(trial.inputs):
            pipe = self._connect(server)
            assert pipe.protocol is not None, "it was just made"
            with trial.own():
                pieces = self._pieces()
            for piece in pieces:
                if not pipe.is_closing():
                    pipe.protocol.data_received(piece)
            if chance.random() > HOLDING:
                pipe.close()
            if number % 8 == 0:
                await asyncio.sleep(0.001)
            trial.look()
        trial.measuring = False
        ended_s = asyncio.get_running_loop().time()
        while self._opened:  # noqa: ASYNC110  the server closes them
            await asyncio.sleep(0.5)
        trial.end_s = asyncio.get_running_loop().time() - ended_s
        trial.stored_bytes = self._told
        counted = len(server._limits)  # noqa: SLF001
        if counted:
            trial.problems.append(f"{counted} connections are counted, and none is there")
        sweeping.cancel()

    def _welcome(self, *_: object) -> asyncio.Event:
        self._trial.problems.append("a stranger opened a session")
        return asyncio.Event()

    def _note(self, sentence: str) -> None:
        self._told += len(sentence)

    def _connect(self, server: SessionServer) -> Pipe:
        """Connect as the system would, less the socket."""
        self._number += 1
        pipe = Pipe(asyncio.get_running_loop(), self._opened, self._trial)
        address = f"10.0.{self._number % 250}.1"
        connection = Connection(address, asyncio.get_running_loop().time(), pipe.abort)
        pipe.protocol = server.protocol_of(connection)
        evicted = server._limits.add(connection)  # noqa: SLF001
        pipe.protocol.connection_made(pipe)
        server._evict(evicted)  # noqa: SLF001
        return pipe

    def _pieces(self) -> list[bytes]:
        chance = self._trial.chance
        match chance.randrange(7):
            case 0:
                return [chance.randbytes(chance.choice((1, 100, 5000, 60_000)))]
            case 1:
                return [REQUEST]
            case 2:
                return [damaged(REQUEST, chance)]
            case 3:
                begin = b"GET /supervisor HTTP/1.1\r\n"
                size = chance.choice((1, 100, 4000, 8000))
                return [begin, *(b"H%d: %s\r\n" % (n, b"x" * size) for n in range(100))]
            case 4:
                return [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * chance.choice((2, 100, 5000))]
            case 5:
                cut = chance.randrange(len(REQUEST))
                return [REQUEST[:cut], b"a:b\r\n" * chance.choice((1, 100, 3000))]
            case _:
                body = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                return [body, *[b"1;%s\r\nx\r\n" % (b"e" * chance.choice((0, 1000)))] * 50]
