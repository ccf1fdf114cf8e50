"""The HTTP side of a listening process: admission of connections, and eviction when too many come.

Every connection counts from the moment the system has it, before any handshake of TLS. A connection
that belongs to no session after `handshake_s` is closed, whatever it does or does not send. When
there are too many, `visitors` decides which one is evicted. A connection that has shown the secret
is never evicted for a stranger: when a thousand peers connect at once, as after a restart, each of
them must get through, or none of them would.

A request is checked before anything is upgraded, in this order: nothing secret in its URL, the
secret, the version of this protocol, the names. The answer to a refused request is a status and one
sentence, after which the connection closes. A session is made of one control socket, over which the
server sends the session's number, and bulk sockets that name that number. Bulk sockets are taken
over from aiohttp (see `bulk_protocol`), so neither side sends on them before both have confirmed
the takeover on the control socket; only then is the session offered to the listener.

A request for "/", as of a browser or a health check, only gets the answer that a hub is here. One
that dials no listener may be for a site of this process, such as a page, or its metrics.
"""

import asyncio
import json
import logging
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from aiohttp import WSCloseCode, web
from aiohttp.http_exceptions import HttpProcessingError

from messaging.codec.frames import Codec
from messaging.websocket.bulk_protocol import BulkProtocol
from messaging.websocket.security import Keyring, RefusalReport, Secret
from messaging.websocket.settings import WebsocketSettings
from messaging.websocket.threshold import REQUEST_BYTES_MAX, HubProtocol
from messaging.websocket.visitors import TrustLevel, Visitors, place_of
from messaging.websocket.wire import BROKEN, Wire, accepted, tune

PROTOCOL = "1"
PROTOCOL_HEADER = "Islands-Protocol"
NAME_HEADER = "Islands-Name"
SESSION_HEADER = "Islands-Session"
SOCKET_HEADER = "Islands-Socket"
NAME_CHARACTERS_MAX = 256

GREETING = "islands hub\n"
GO, READY = "go", "ready"
"""Texts with which first the dialler, then the server confirms that its bulk sockets are ready."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A connection as a site sees it.

    Attributes:
        stay: Lets the connection stay beyond `handshake_s`, with the trust level of a guest.
        ending: Is set when this server ends, and every answer with it.
    """

    stay: Callable[[], None]
    ending: asyncio.Event


Site = Callable[[web.BaseRequest, Visit], Awaitable[web.StreamResponse] | None]
"""Answers requests that dial no listener, such as those of a browser; None leaves one to the door.
It may raise `Refused`. It sees requests before they have shown the secret."""

Welcome = Callable[[tuple[str, str], Wire, list[BulkProtocol], Callable[[], None]], asyncio.Event]
"""Takes a complete session: names of listener and peer, control, bulks, and a callback for the
admission of the peer. It returns an event that is set when the session has ended."""


class Room(Enum):
    """Whether a listener can take another session."""

    FREE = auto()
    FULL = auto()
    ENDED = auto()
    UNKNOWN = auto()


class Refused(Exception):  # noqa: N818 (it says what has happened)
    """A request is refused.

    Attributes:
        status: HTTP status of the answer.
        expected: Whether honest peers send such requests now and then, so that none is reported.
    """

    def __init__(self, status: HTTPStatus, sentence: str, *, expected: bool = False) -> None:
        super().__init__(sentence)
        self.status = status
        self.expected = expected


@dataclass(slots=True)
class Session:
    """A session, whose bulk sockets come one by one; `admit` raises all its connections' trust."""

    path: str
    bulks: list[BulkProtocol | None]
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    risers: list[Callable[[], None]] = field(default_factory=list)

    def admit(self) -> None:
        """Give all connections of the session the trust level of a member."""
        for rise in self.risers:
            rise()


class Complaints(logging.Logger):
    """The logger for aiohttp: notes a malformed request in a sentence, reports all else as a bug.

    By itself aiohttp would log a traceback with the malformed line, which may hold a secret.
    """

    def __init__(self, note: Callable[[str, str], None]) -> None:
        super().__init__("islands.door")
        self._note = note

    def debug(self, *_: object, **__: object) -> None:
        """Ignore the message: a peer has gone, or speaks no HTTP at all."""

    def exception(self, msg: object, *args: object, exc_info: object = None, **_: object) -> None:
        """Report a request that could not be read, or not be answered."""
        if isinstance(exc_info, HttpProcessingError):
            self._note(str(args[0]) if args else "unknown", "its request is malformed")
            return
        context = {"message": str(msg) % args, "exception": exc_info}
        asyncio.get_running_loop().call_exception_handler(context)


class Door(web.Server):
    """HTTP server of one process; the acceptor passes each connection to `take`."""

    def __init__(
        self,
        settings: WebsocketSettings,
        secret: Secret | Keyring | None,
        codec: Codec,
        *,
        tls: ssl.SSLContext | None = None,
        room: Callable[[str], Room],
        welcome: Welcome,
        report: Callable[[str], None],
    ) -> None:
        """Make an HTTP server; it serves each connection that is passed to `take`.

        Args:
            settings: Limits and timeouts.
            secret: Peers must show it; None lets every peer in.
            codec: Knows the longest message that is taken.
            tls: TLS context of the server; None: connections use no TLS.
            room: Returns whether the listener of that name can take another session.
            welcome: Takes complete sessions.
            report: Called with a sentence about each refusal.
        """
        super().__init__(self._answer)
        self._settings = settings
        self._secret = secret
        self._codec = codec
        self._tls = tls
        self._room = room
        self._welcome = welcome
        self._report = RefusalReport(report, settings.refusals_per_s)
        self._visitors = Visitors(
            settings.connections_max, settings.unauthenticated_max, settings.guests_max
        )
        self._complaints = Complaints(self._note)
        self._came = 0
        self._addresses: dict[int, str] = {}
        self._cuts: dict[int, Callable[[], None]] = {}
        self._numbers: dict[web.RequestHandler, int] = {}
        self._sessions: dict[str, Session] = {}
        self._ending = asyncio.Event()
        self.sites: list[Site] = []

    def take(self, connection: socket.socket, address: str) -> Coroutine[Any, Any, None] | None:
        """Count a connection; evict another one or this one if there are too many.

        Returns:
            The coroutine that serves the connection; None if this one was evicted.
        """
        self._came += 1
        number = self._came
        self._addresses[number] = address
        self._cuts[number] = lambda: _cut(connection)
        now_s = asyncio.get_running_loop().time()
        self._let_go(self._visitors.come(number, place_of(address), now_s))
        if number not in self._cuts:
            connection.close()
            return None
        return self._serve(number, connection)

    async def _serve(self, number: int, connection: socket.socket) -> None:
        """Complete the TLS handshake, if there is TLS, then let aiohttp handle requests."""
        loop, settings = asyncio.get_running_loop(), self._settings
        handler = HubProtocol(self, self._show_out_talker, self._complaints)
        self._numbers[handler] = number
        try:
            tune(connection, settings.user_timeout_s)
            await loop.connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else settings.handshake_s,
            )
        except OSError as error:  # TLS failed, the peer has gone, or the connection was evicted
            if number in self._cuts and self._tls is not None:
                self._note(self._addresses[number], f"no TLS handshake: {type(error).__name__}")
            self._numbers.pop(handler, None)  # `connection_lost` is not called without a connection
            self._leave(number)
            connection.close()

    @property
    def visitors(self) -> tuple[int, int]:
        """How many connections there are, and how many of them have not shown the secret."""
        return len(self._visitors), self._visitors.count(TrustLevel.STRANGER)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Register the transport of a connection, which `take` has counted, after its handshake."""
        super().connection_made(handler, transport)
        number = self._numbers[handler]
        if number in self._cuts:
            self._cuts[number] = transport.abort
        else:  # it was evicted meanwhile
            transport.abort()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        self._leave(self._numbers.pop(handler, 0))
        super().connection_lost(handler, exc)

    async def sweep(self) -> None:
        """Close connections that open no session in time; runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:  # until cancelled
            await asyncio.sleep(self._settings.handshake_s / 5)
            for number in self._visitors.late(loop.time() - self._settings.handshake_s):
                self._show_out(number, f"no session within {self._settings.handshake_s:g} s")

    def _let_go(self, number: int | None) -> None:
        """Close the connection that must be evicted, unless it is None."""
        if number is None:
            return
        stranger = self._visitors.trust(number) is TrustLevel.STRANGER
        why = "that open no session" if stranger else "whose sessions nobody has admitted"
        self._show_out(number, f"too many connections, {len(self._visitors)} of them, {why}")

    def _show_out(self, number: int, sentence: str) -> None:
        self._note(self._addresses[number], sentence)
        cut = self._cuts[number]
        self._leave(number)
        cut()

    def _show_out_talker(self, handler: HubProtocol) -> None:
        """Close a connection that sent more before its upgrade than any honest request has."""
        number = self._numbers.get(handler, 0)
        if number in self._cuts:
            self._show_out(number, f"a request of more than {REQUEST_BYTES_MAX} bytes")

    def _leave(self, number: int) -> None:
        self._visitors.leave(number)
        self._addresses.pop(number, None)
        self._cuts.pop(number, None)

    def _rise(self, request: web.BaseRequest, trust: TrustLevel) -> None:
        self._let_go(self._visitors.rise(self._numbers.get(request.protocol, 0), trust))

    def _note(self, address: str, sentence: str) -> None:
        self._report.refused(address, sentence, asyncio.get_running_loop().time())

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if _is_harmless(request):
            return _last_answer(HTTPStatus.OK, GREETING)
        try:
            visit = Visit(partial(self._stay, request), self._ending)
            for site in self.sites:
                if (answering := site(request, visit)) is not None:
                    return await answering
            path = self._judge(request)
            self._rise(request, TrustLevel.GUEST)
            if SESSION_HEADER in request.headers:
                return await self._take_bulk(request, path)
            return await self._take_control(request, path)
        except Refused as refused:
            if not refused.expected:
                self._note(request.remote or "unknown", str(refused))
            headers = {PROTOCOL_HEADER: PROTOCOL}
            if refused.status is HTTPStatus.UNAUTHORIZED:
                headers["WWW-Authenticate"] = "Bearer"
            return _last_answer(refused.status, f"{refused}\n", headers)
        except BROKEN:  # the peer has gone while it was upgraded, and reads no answer
            return _last_answer(HTTPStatus.BAD_REQUEST, "")

    def _stay(self, request: web.BaseRequest) -> None:
        self._visitors.settle(self._numbers.get(request.protocol, 0))
        self._rise(request, TrustLevel.GUEST)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  of aiohttp
        """End all answers: those of sites at once, the others after a timeout."""
        self._ending.set()
        await super().shutdown(timeout)

    def _judge(self, request: web.BaseRequest) -> str:
        """Check a request, and return the name that it dials."""
        if request.query_string or "@" in request.path:
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                "an address must hold nothing but a name; a secret belongs into a header, for "
                "addresses end up in logs",
            )
        authorization = request.headers.get("Authorization")
        if self._secret is not None and not self._secret.admits(authorization):
            how = "no secret" if authorization is None else "a wrong secret"
            raise Refused(HTTPStatus.UNAUTHORIZED, f"{how} was shown")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Refused(
                HTTPStatus.UPGRADE_REQUIRED, "this is an Islands hub, which speaks websocket only"
            )
        version = request.headers.get(PROTOCOL_HEADER)
        if version != PROTOCOL:
            raise Refused(
                HTTPStatus.UPGRADE_REQUIRED,
                f"this hub speaks links of version {PROTOCOL}, the peer {version or 'no'} version",
            )
        return unquote(request.path.removeprefix("/"))

    def _websocket(self) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(
            timeout=self._settings.close_s,
            autoclose=False,
            autoping=False,
            compress=False,
            max_msg_size=self._codec.message_bytes,
        )
        websocket.headers[PROTOCOL_HEADER] = PROTOCOL
        return websocket

    async def _take_control(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        peer = unquote(request.headers.get(NAME_HEADER, ""))
        if not 0 < len(peer) <= NAME_CHARACTERS_MAX or not peer.isprintable():
            raise Refused(HTTPStatus.BAD_REQUEST, "the peer gives no name, or none that can be")
        self._expect_room(path)
        websocket = self._websocket()
        await websocket.prepare(request)
        control = accepted(websocket, request)
        number = secrets.token_urlsafe(16)
        session = Session(path, [None] * self._settings.bulk_sockets)
        self._sessions[number] = session
        try:
            await websocket.send_str(json.dumps({"session": number, "bulk": len(session.bulks)}))
            async with asyncio.timeout(self._settings.handshake_s):
                if (await websocket.receive()).data == GO:
                    await session.complete.wait()
            if not session.complete.is_set():
                await self._give_up(session, control)
                return websocket
            await websocket.send_str(READY)
            bulks = [bulk for bulk in session.bulks if bulk is not None]
            self._settle(request, session)
            await self._welcome((path, peer), control, bulks, session.admit).wait()
        except (TimeoutError, *BROKEN):
            await self._give_up(session, control)
        finally:
            del self._sessions[number]
            session.ended.set()
        return websocket

    def _expect_room(self, path: str) -> None:
        """Refuse a request that dials a name at which no session can be accepted."""
        match self._room(path):
            case Room.UNKNOWN:
                raise Refused(HTTPStatus.NOT_FOUND, f"nobody listens at {path[:80]!r}")
            case Room.ENDED:
                sentence = f"nobody listens at {path!r} any more"
                raise Refused(HTTPStatus.GONE, sentence, expected=True)
            case Room.FULL:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"too many sessions wait at {path!r}")

    async def _give_up(self, session: Session, control: Wire) -> None:
        for bulk in session.bulks:
            if bulk is not None:
                bulk.abort()
        reason = "the session was not completed"
        await control.hang_up(self._settings.close_s, WSCloseCode.POLICY_VIOLATION, reason)

    async def _take_bulk(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        session = self._sessions.get(request.headers[SESSION_HEADER])
        index = request.headers.get(SOCKET_HEADER, "")
        if session is None or session.path != path or session.complete.is_set():
            raise Refused(HTTPStatus.CONFLICT, "no such session waits for bulk sockets")
        if not index.isdigit() or int(index) >= len(session.bulks) or session.bulks[int(index)]:
            raise Refused(HTTPStatus.CONFLICT, "no such bulk socket is waited for")
        websocket = self._websocket()
        await websocket.prepare(request)
        transport = request.transport
        if transport is None:
            return websocket
        bulk = BulkProtocol(transport, request.protocol, masks=False)
        if session.ended.is_set() or session.bulks[int(index)] is not None:
            bulk.abort()
            return websocket
        self._settle(request, session)
        session.bulks[int(index)] = bulk
        if all(session.bulks):
            session.complete.set()
        await session.ended.wait()
        return websocket

    def _settle(self, request: web.BaseRequest, session: Session) -> None:
        """Assign a connection to a session, whose admission raises its trust level."""
        self._visitors.settle(self._numbers.get(request.protocol, 0))
        session.risers.append(lambda: self._rise(request, TrustLevel.MEMBER))


def _cut(connection: socket.socket) -> None:
    """Shut down a connection, but leave its socket open, because a transport may own it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def path_of(name: str) -> str:
    return "/" + quote(name, safe="")


def _is_harmless(request: web.BaseRequest) -> bool:
    """Whether a request only checks that a server is there, as a health check does."""
    asks = request.method == "GET" and request.path_qs == "/"
    wants = "Upgrade" in request.headers or "Authorization" in request.headers
    return asks and not wants


def _last_answer(
    status: HTTPStatus, text: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return an answer after which the server closes the connection."""
    response = web.Response(status=status, text=text, headers=headers)
    response.headers["Connection"] = "close"
    response.force_close()
    return response
