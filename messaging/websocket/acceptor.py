"""Listening sockets that pass on every connection as soon as the system has it.

The loop's own servers pass on a connection only after its handshake, which under TLS may never end.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

ACCEPTED_AT_ONCE = 64
"""Connections accepted from one socket before the acceptor yields to the loop."""

PORT_TRIES = 16
"""How many ports are tried to find one that is free at all addresses of a name."""

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE_S = 1.0
"""How long accepting pauses when this process may open no more files."""

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listen at all addresses of a name ("": of this machine), at one port (0: any that is free).

    The system queues up to `backlog` connections until they are accepted.
    """
    entries = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in entries))
    for _ in range(PORT_TRIES - 1):
        try:
            return _bind_all(addresses, port, backlog)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _bind_all(addresses, port, backlog)


def _bind_all(
    addresses: Sequence[tuple[int, tuple[object, ...]]], port: int, backlog: int
) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for index, (family, address) in enumerate(addresses):
            try:
                sockets.append(_bind_one(family, (address[0], port, *address[2:]), backlog))
            except OSError as error:
                last = index == len(addresses) - 1
                if error.errno not in _ABSENT or (last and not sockets):
                    raise
                continue  # a name may have addresses of a family that this machine lacks
            port = port or sockets[0].getsockname()[1]
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _bind_one(family: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)  # noqa: FBT003  of the standard library
        listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening


class Acceptor:
    """Accepts connections on listening sockets, and passes each with its address to `accept`.

    `exhausted` is called with the error when the system has no file or memory for a connection.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        accept: Callable[[socket.socket, str], None],
        exhausted: Callable[[OSError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = tuple(sockets)
        self._accept = accept
        self._exhausted = exhausted
        self._pause: asyncio.TimerHandle | None = None
        self._read_all()

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop accepting, and close the sockets."""
        self._stop_reading()
        for listening in self._sockets:
            listening.close()
        self._sockets = ()

    def _stop_reading(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())

    def _read_all(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._read, listening)

    def _read(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._stop_reading()
                self._pause = self._loop.call_later(PAUSE_S, self._read_all)
                self._exhausted(error)
                return
            connection.setblocking(False)  # noqa: FBT003  of the standard library
            self._accept(connection, str(address[0]))
