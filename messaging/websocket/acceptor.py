"""Listening sockets: every connection is handed on the moment that the system has it.

The loop's own servers hand a connection on when it has shaken hands, which under TLS may be never.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

ACCEPTED_AT_ONCE = 64
"""Connections of one socket, before others have the loop."""

PORT_TRIES = 16
"""Ports that are tried until one is free at all addresses of a name."""

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE_S = 1.0
"""For how long nobody is accepted when this process may open no more files."""

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listen at all addresses of a name, at one and the same port.

    Args:
        host: name or address; "" is every address of this machine.
        port: 0 is any that is free at all of them.
        backlog: connections that the system keeps until they are accepted.

    Raises:
        OSError: It cannot be done; `errno` says why.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    places = list(dict.fromkeys((family, place) for family, _, _, _, place in found))
    for _ in range(PORT_TRIES - 1):
        try:
            return _bind_all(places, port, backlog)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _bind_all(places, port, backlog)


def _bind_all(
    places: Sequence[tuple[int, tuple[object, ...]]], port: int, backlog: int
) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for index, (family, place) in enumerate(places):
            try:
                sockets.append(_bind_one(family, (place[0], port, *place[2:]), backlog))
            except OSError as error:
                last = index == len(places) - 1
                if error.errno not in _ABSENT or (last and not sockets):
                    raise
                continue  # a name may have addresses of a kind that this machine has not
            port = port or sockets[0].getsockname()[1]
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _bind_one(family: int, place: tuple[object, ...], backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)  # noqa: FBT003  of the standard library
        listening.bind(place)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening


class Acceptor:
    """Hands on what others connect to these sockets.

    Args:
        sockets: that listen.
        take: given every connection, and the address that it comes from.
        exhausted: called when the system gives this process no connection, with the reason.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        take: Callable[[socket.socket, str], None],
        exhausted: Callable[[OSError], None],
    ) -> None:
        """Accept from now on."""
        self._loop = asyncio.get_running_loop()
        self._sockets = tuple(sockets)
        self._take = take
        self._exhausted = exhausted
        self._pause: asyncio.TimerHandle | None = None
        self._read_all()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept nobody any more."""
        self._rest()
        for listening in self._sockets:
            listening.close()
        self._sockets = ()

    def _rest(self) -> None:
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
                self._rest()
                self._pause = self._loop.call_later(PAUSE_S, self._read_all)
                self._exhausted(error)
                return
            connection.setblocking(False)  # noqa: FBT003  of the standard library
            self._take(connection, str(address[0]))
