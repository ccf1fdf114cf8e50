"""Viewers of a run's page for `tests.benchmarks.hostile`: they have its key, and read as they like.

They come over real sockets, since what is measured is what a hub holds for one that does not read.
"""

import asyncio
import socket
import time
from base64 import b64encode
from collections import deque
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from islands.page.server import PROTOCOL, PageSite, key_of
from islands.page.site_files import SERVED
from islands.protocol.messages.registry import MESSAGE_TYPES
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret
from tests.benchmarks.drawn_messages import damaged
from tests.benchmarks.hostile_trial import Trial
from tests.page.run_folder import StoppedRun, lengthen, make_run

SECRET = Secret("a-secret-that-viewers-may-know")
OPEN_MOST = 48
"""Connections that the viewers hold at once: three times as many as may look on."""

LONG_BYTES = 3 * 2**20
"""Length of the tape: more than a viewer is told of it."""

EACH_S = 0.02
"""Time in which a hub answers, before the next one asks."""

GONE_S = 10.0
"""Time after the end in which the last one has gone."""

READING = 0.5
"""Share of viewers that read what they are sent."""


class Viewers:
    """A crowd with the page's key, of which a part asks for all and reads nothing."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._open: deque[tuple[socket.socket, bool]] = deque()
        self._told = 0

    async def run(self) -> None:
        """Ask for everything, then end the hub while some still look on."""
        with TemporaryDirectory() as name:
            folder = make_run(Path(name) / "run", 5)
            lengthen(folder, LONG_BYTES)
            network = WebsocketNetwork(MESSAGE_TYPES, secret=SECRET, report=self._note)
            await network.open("127.0.0.1", 0)
            site = PageSite(StoppedRun(folder), SECRET)
            network.serve(site)
            try:
                await self._look_on(network.port)
                began_s = time.monotonic()
            finally:
                await network.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(GONE_S):
                    while site.viewers:  # noqa: ASYNC110  nobody tells when a viewer has gone
                        await asyncio.sleep(0.01)
            self._trial.end_s = time.monotonic() - began_s
            self._trial.stored_bytes = self._told
            if site.viewers:
                self._trial.problems.append(f"{site.viewers} viewers are counted after the end")
            for viewer, _ in self._open:
                viewer.close()

    async def _look_on(self, port: int) -> None:
        trial = self._trial
        trial.begin()
        for _ in range(trial.inputs):
            with trial.own():
                self._come(port)
            await asyncio.sleep(EACH_S)
            with trial.own():
                self._read()
            trial.look()
        trial.measuring = False

    def _come(self, port: int) -> None:
        """Connect, ask for something, and leave one of those that came before."""
        if len(self._open) >= OPEN_MOST:
            self._open.popleft()[0].close()
        viewer = socket.create_connection(("127.0.0.1", port))
        viewer.settimeout(0)
        with suppress(BlockingIOError, OSError):
            viewer.sendall(self._request())
        self._open.append((viewer, self._trial.chance.random() < READING))

    def _read(self) -> None:
        for viewer, reads in self._open:
            with suppress(BlockingIOError, OSError):
                while reads and (text := viewer.recv(2**20)):
                    self._trial.bytes_sent += len(text)

    def _note(self, sentence: str) -> None:
        self._told += len(sentence)

    def _request(self) -> bytes:
        chance = self._trial.chance
        match chance.randrange(8):
            case 0 | 1:
                packed = "Accept-Encoding: gzip\r\n" if chance.random() < 0.5 else ""
                return _get(chance.choice(sorted(SERVED)), packed)
            case 2:
                return _get(chance.choice(("nothing", "../secret", "?key=x", "vendor/")))
            case 3:
                shown = chance.choice((SECRET.header(), f"Bearer {key_of(SECRET)}", "Bearer x"))
                return _get("key", f"Authorization: {shown}\r\n")
            case 4:
                return damaged(_watching(), chance)
            case 5:
                said = chance.choice((b"\x81\x81abcdx", b"\x82\xfe\xff\xffabcd", b"\x89\x80abcd"))
                return _watching() + said * chance.choice((1, 100, 1000))
            case _:
                return _watching()


def _get(name: str, headers: str = "") -> bytes:
    return f"GET /page/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode()


def _watching() -> bytes:
    wanted = b64encode(b"0123456789abcdef").decode()
    return _get(
        "live",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {wanted}\r\n"
        f"Sec-WebSocket-Protocol: {PROTOCOL}, {key_of(SECRET)}\r\n",
    )
