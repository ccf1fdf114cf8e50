"""One open websocket of either side, and its close, with or without the peer's cooperation."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientWebSocketResponse, WSCloseCode, web

from messaging.errors import LocalFault

WebSocket = web.WebSocketResponse | ClientWebSocketResponse

FRAME_SHORT_MAX = 125
FRAME_MEDIUM_MAX = 2**16 - 1

BROKEN = (OSError, ClientError)
"""What aiohttp raises when a connection is gone."""

KEEPALIVE_S = 20
"""So often the system asks an idle peer whether it is there; a NAT may forget after a minute."""


@dataclass(frozen=True, slots=True)
class Wire:
    """An open websocket of aiohttp, dialled from `host`; None if this process dialled it.

    `abort` ends the connection at once, whatever waits in its buffers. `holder` is what is known of
    who holds the `token` that was shown, if it is not the secret that all share.
    """

    socket: WebSocket
    abort: Callable[[], None]
    host: str | None = None
    holder: object | None = None
    token: str = field(default="", repr=False)

    async def hang_up(self, timeout_s: float, code: int = WSCloseCode.OK, reason: str = "") -> None:
        """Close the websocket; abort it if the peer does not answer within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.socket.close(code=code, message=reason.encode())
        except (TimeoutError, *BROKEN):
            self.abort()
        except BaseException:
            self.abort()
            raise


def frame_bytes(size: int, *, masked: bool) -> int:
    """Bytes of a websocket frame with `size` bytes of content (RFC 6455, section 5.2)."""
    extended = 0 if size <= FRAME_SHORT_MAX else 2 if size <= FRAME_MEDIUM_MAX else 8
    return 2 + extended + (4 if masked else 0) + size


def dialled(websocket: ClientWebSocketResponse) -> Wire:
    return Wire(websocket, lambda: _cut(websocket.get_extra_info("socket")))


def accepted(
    websocket: web.WebSocketResponse, request: web.BaseRequest, holder: object | None, token: str
) -> Wire:
    def abort() -> None:
        if request.transport is not None:
            request.transport.abort()

    return Wire(websocket, abort, request.remote, holder, token)


def tune(connection: object, user_timeout_s: float) -> None:
    """Disable Nagle's algorithm, keep the connection alive, give up unacknowledged bytes."""
    if not hasattr(connection, "setsockopt"):
        raise LocalFault(f"{connection!r} is no socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):  # as the system spells them
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEPALIVE_S)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        timeout_ms = int(user_timeout_s * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)


def _cut(connection: object) -> None:
    number = connection.fileno() if hasattr(connection, "fileno") else -1
    if number < 0:
        return
    try:
        # Transports do not offer this; a copy of the descriptor shares the connection.
        with socket.socket(fileno=os.dup(number)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already
