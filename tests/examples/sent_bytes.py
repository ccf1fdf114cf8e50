"""Every byte that learners send to a hub, and whether a record is in it.

    async with Tap(port_of_the_hub) as tap:
        …learners dial 127.0.0.1:tap.port…
    assert windows_in(tap.sent("europe-0"), known_windows(rows)) == []

A *window* is `WINDOW_BYTES` consecutive bytes of a record, at any offset. They are looked for at
any offset of what was sent, as it was and with the masks of websockets removed; what is compressed,
or is no frame, is refused, since nothing could be found in it. Contributions are float32, of which
the sign, 23 bits and some of the exponent are as good as random: three of them in a row, which have
the length of a window, are those of a given window by chance once in 2^75 or less often.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

import numpy as np
from numpy.typing import NDArray

from messaging.websocket.server import NAME_HEADER

WINDOW_BYTES = 12
HEAD_END = b"\r\n\r\n"
BINARY, NOTHING_AGREED = 0x80, 0x70
_NAME = re.compile(rb"^" + NAME_HEADER.encode() + rb": *(\S+)", re.MULTILINE | re.IGNORECASE)


class Tap:
    """Passes connections on to a hub, and keeps what those who dial send; names are theirs."""

    def __init__(self, hub_port: int) -> None:
        self.port = 0
        self._hub_port = hub_port
        self._streams: list[tuple[str, bytearray]] = []
        self._writers: list[tuple[str, asyncio.StreamWriter]] = []
        self._joined: list[asyncio.Task[object] | None] = []
        self._away: set[str] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for _who, writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*filter(None, self._joined), return_exceptions=True)
        for _who, writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()

    def sent(self, name: str) -> list[bytes]:
        """What one has sent, connection by connection."""
        return [bytes(data) for who, data in self._streams if who == name]

    def cut(self, name: str) -> None:
        """End the connections of one who dials, and pass none of its later ones on."""
        self._away.add(name)
        for who, writer in self._writers:
            if who == name:
                writer.transport.abort()

    def heal(self, name: str) -> None:
        self._away.discard(name)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._joined.append(asyncio.current_task())
        self._writers.append(("", writer))
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(HEAD_END)
            found = _NAME.search(head)
            name = found[1].decode() if found else ""
            kept = bytearray(head)
            self._streams.append((name, kept))
            if name not in self._away:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._hub_port)
                self._writers += [(name, writer), (name, far_writer)]
                far_writer.write(head)
                await asyncio.gather(
                    _pass_on(reader, far_writer, kept), _pass_on(far_reader, writer, bytearray())
                )
        writer.transport.abort()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            kept += data
            writer.write(data)
            await writer.drain()
    writer.close()


def contents(sent: bytes) -> Iterator[bytes]:
    """Yield the contents of the websocket frames that follow the head of a request, unmasked.

    A last frame that was cut off counts as far as it was sent.
    """
    at = sent.index(HEAD_END) + len(HEAD_END)
    while len(sent) - at >= 6:
        assert not sent[at] & NOTHING_AGREED, "compressed, or in a form that was not agreed"
        assert sent[at] & BINARY, "in pieces"
        assert sent[at + 1] & 0x80, "whoever dials masks"
        size, at = sent[at + 1] & 0x7F, at + 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            size, at = int.from_bytes(sent[at : at + wide]), at + wide
        mask, content = sent[at : at + 4], sent[at + 4 : at + 4 + size]
        repeated = np.resize(np.frombuffer(mask, np.uint8), len(content))
        yield (np.frombuffer(content, np.uint8) ^ repeated).tobytes()
        at += 4 + size


def known_windows(rows: NDArray[np.uint8]) -> set[bytes]:
    """All windows of rows of bytes, uint8[rows, bytes]."""
    offsets = range(rows.shape[1] - WINDOW_BYTES + 1)
    parts = [np.ascontiguousarray(rows[:, at : at + WINDOW_BYTES]) for at in offsets]
    return {bytes(window) for part in parts for window in part}


def windows_in(sent: list[bytes], known: set[bytes]) -> list[bytes]:
    """The windows that are found in what was sent."""
    starts = np.unique(np.frombuffer(b"".join(window[:8] for window in known), np.uint64))
    streams = [b"".join(sent), b"".join(part for one in sent for part in contents(one))]
    return [window for stream in streams for window in _found(stream, starts, known)]


def _found(stream: bytes, starts: NDArray[np.uint64], known: set[bytes]) -> Iterator[bytes]:
    for shift in range(8):
        usable = (len(stream) - shift) // 8 * 8
        if usable <= 0:
            return
        words = np.frombuffer(stream, np.uint64, usable // 8, shift)
        for at in np.flatnonzero(np.isin(words, starts)) * 8 + shift:
            if (window := stream[at : at + WINDOW_BYTES]) in known:
                yield window
