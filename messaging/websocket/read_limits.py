"""Bounds on a connection below aiohttp's parsers: bytes of a request, and frames of a websocket.

aiohttp keeps each header that it has parsed until the request is whole, and a stranger may send a
megabyte of them. So a connection may send no more than `REQUEST_BYTES_MAX` until its request is
answered by an upgrade, and the bound on the number of strangers (`settings.unauthenticated_max`)
bounds what all of them make this process hold.

A websocket message may come in any number of pieces, each of them empty, which aiohttp reads
without end and without anybody hearing of it. No link sends pieces, so neither side reads them.
Whatever else is read waits in a bounded queue, which stops the reading.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, cast

from aiohttp import TCPConnector, web
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from messaging.websocket.connection_limits import Connection

REQUEST_BYTES_MAX = 1 << 14
"""Most bytes of a connection until its upgrade is answered: a secret of 4,096 characters, and two
names of 256 characters, each of which a URL writes as up to twelve, leave half of it free."""

FRAMES_AT_ONCE_MAX = 4096
"""Most frames in what the system hands over at once, at most 256 KiB: it has room for 3,500 of the
shortest messages, and marks are echoed no more often than chunks are sent."""

MALFORMED = "the request is malformed\n"

_HEADER_BYTES_MIN = 2
_EXTENDED = {126: 2, 127: 8}
_MASK_BYTES = 4
_STRAY_PIECE = b"\x80\x80\0\0\0\0"
"""A piece of a message that never began, for which aiohttp's reader ends the websocket."""


class Reader(Protocol):
    """aiohttp's reader of a websocket."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Parse bytes; return whether the websocket is broken."""

    def feed_eof(self) -> None: ...


class WholeMessages:
    """Passes a websocket's bytes on to aiohttp's reader, up to the first message in pieces."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._header = b""  # of a frame, as far as it has come
        self._skip = 0  # bytes of the current frame that are still to come
        self._broken = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if self._broken:
            return True, b""
        good = self._whole(data)
        if good < 0:
            return self._reader.feed_data(data)
        self._broken = True
        self._reader.feed_data(data[:good])
        return self._reader.feed_data(_STRAY_PIECE)

    def feed_eof(self) -> None:
        self._reader.feed_eof()

    def _whole(self, data: bytes) -> int:
        """Return where a frame begins that no link sends; -1 if none does."""
        if not self._header and self._skip >= len(data):  # the middle of a frame
            self._skip -= len(data)
            return -1
        held = len(self._header)
        data = self._header + data
        position, frames, size = self._skip, 0, len(data)
        while position < size:
            first = data[position]
            frames += 1
            if not first & 0x80 or not first & 0x0F or frames > FRAMES_AT_ONCE_MAX:
                return max(0, position - held)
            if position + _HEADER_BYTES_MIN > size:
                break
            short = data[position + 1] & 0x7F
            extended = _EXTENDED.get(short, 0)
            used = _HEADER_BYTES_MIN + extended
            if position + used > size:
                break
            if extended:
                short = int.from_bytes(data[position + _HEADER_BYTES_MIN : position + used])
            masked = _MASK_BYTES if data[position + 1] & 0x80 else 0
            position += used + masked + short
        self._header = data[position:]
        self._skip = max(0, position - size)
        return -1


class ServerProtocol(web.RequestHandler):
    """One connection of a hub, from its acceptance until it ends or a bulk socket takes it over."""

    def __init__(
        self,
        server: web.Server,
        connection: Connection,
        too_long: Callable[[Connection], None],
        logger: logging.Logger,
    ) -> None:
        """Call `too_long` if more bytes than an honest request has come before its upgrade."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp writes none then
            lingering_time=0.0,
            keepalive_timeout=1.0,
            logger=logger,
        )
        self.connection = connection
        self._too_long = too_long
        self._left_bytes = REQUEST_BYTES_MAX
        self._upgraded_here = False

    def data_received(self, data: bytes) -> None:
        """Count bytes until the upgrade, and ignore them if there are too many."""
        if not self._upgraded_here:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                self._too_long(self.connection)
                return
        super().data_received(data)

    def set_parser(
        self, parser: Reader, data_received_cb: Callable[[], None] | None = None
    ) -> None:
        self._upgraded_here = True
        super().set_parser(cast("Any", WholeMessages(parser)), data_received_cb)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer with a fixed text: aiohttp's own repeats the line that it could not read."""
        text = MALFORMED if status == HTTPStatus.BAD_REQUEST else message
        answer = super().handle_error(request, status, exc, text)
        if isinstance(exc, HttpProcessingError):
            exc.__traceback__ = None  # its frames hold the request, and themselves the exception
        return answer


class ClientProtocol(ResponseHandler):
    """One connection of whoever dials."""

    def set_parser(
        self,
        parser: Reader,
        payload: object,
        data_received_cb: Callable[[], None] | None = None,
    ) -> None:
        super().set_parser(WholeMessages(parser), payload, data_received_cb)


def of_whole_messages(connector: TCPConnector) -> TCPConnector:
    """Let the websockets that a connector opens refuse messages in pieces."""
    factory: Any = partial(ClientProtocol, loop=asyncio.get_running_loop())
    connector._factory = factory  # noqa: SLF001  aiohttp has no other way to choose a protocol
    return connector
