"""The HTTP side of a listening process: admission of connections, and eviction when too many come.

Every connection counts from the moment the system has it, before any handshake of TLS. A connection
that belongs to no session after `handshake_s` is closed, whatever it does or does not send. When
there are too many, `connection_limits` decides which one is evicted. A connection that has shown
the secret is never evicted for a stranger: when a thousand peers connect at once, as after a
restart, each of them must get through, or none of them would.

A request is checked before anything is upgraded, in this order: nothing secret in its URL, the
secret, the version of this protocol, the names. The answer to a refused request is a status and one
sentence, after which the connection closes. A session is made of a control socket, over which the
server sends the session's number, and a bulk socket that names that number. The bulk socket is
taken over from aiohttp (see `bulk_protocol`), so neither side sends on it before both have
confirmed the takeover on the control socket; only then is the session offered to the listener.

A request for "/", as of a browser or a health check, only gets the answer that a hub is here. One
that dials no listener may be for a site of this process, such as a page, or its metrics.
"""

import asyncio
import json
import logging
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from aiohttp import WSCloseCode, web
from aiohttp.http_exceptions import HttpProcessingError

from messaging.codec.frames import Codec
from messaging.websocket.bulk_protocol import BulkProtocol
from messaging.websocket.connection_limits import Connection, ConnectionLimits, TrustLevel
from messaging.websocket.read_limits import REQUEST_BYTES_MAX, ServerProtocol
from messaging.websocket.security import Judge, Keyring, RefusalReport, Secret, token_in
from messaging.websocket.settings import WebsocketSettings
from messaging.websocket.wire import BROKEN, Wire, accepted, tune

PROTOCOL = "1"
PROTOCOL_HEADER = "Islands-Protocol"
NAME_HEADER = "Islands-Name"
SESSION_HEADER = "Islands-Session"
REASON_HEADER = "Islands-Reason"
NAME_CHARACTERS_MAX = 256

GREETING = "islands hub\n"
GO, READY = "go", "ready"
"""Texts with which first the dialler, then the server confirms that its bulk socket is ready."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A connection as a site sees it; `ending` is set when this server ends.

    `stay` lets the connection stay beyond `handshake_s`, with the trust level of a guest.
    """

    stay: Callable[[], None]
    ending: asyncio.Event


Site = Callable[[web.BaseRequest, Visit], Awaitable[web.StreamResponse] | None]
"""Answers requests that dial no listener, such as those of a browser, or returns None. It may raise
`Refused`. It sees requests before they have shown the secret."""

Welcome = Callable[[tuple[str, str], Wire, BulkProtocol, Callable[[], None]], asyncio.Event]
"""Takes a complete session: names of listener and peer, its sockets, and a callback for the
admission of the peer. It returns an event that is set when the session has ended."""


class Refused(Exception):  # noqa: N818 (it says what has happened)
    """A request is refused, by an answer of this HTTP status.

    It is `expected` if honest peers send such requests now and then, so that none is reported.
    `headers` are added to the answer.
    """

    def __init__(
        self,
        status: HTTPStatus,
        sentence: str,
        *,
        expected: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.expected = expected
        self.headers = headers


@dataclass(slots=True)
class _Session:
    """A session whose bulk socket may still be missing."""

    path: str
    connections: list[Connection]
    bulk: BulkProtocol | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class _HttpLogger(logging.Logger):
    """The logger for aiohttp: notes a malformed request in a sentence, reports all else as a bug.

    By itself aiohttp would log a traceback with the malformed line, which may hold a secret.
    """

    def __init__(self, note: Callable[[str, str], None]) -> None:
        super().__init__("islands.http")
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


class SessionServer(web.Server):
    """HTTP server of one process; the acceptor passes each connection to `accept`."""

    def __init__(
        self,
        settings: WebsocketSettings,
        secret: Secret | Keyring | None,
        codec: Codec,
        *,
        tls: ssl.SSLContext | None = None,
        judge: Judge,
        check_listener: Callable[[str], None],
        welcome: Welcome,
        report: Callable[[str], None],
    ) -> None:
        """Make an HTTP server, without TLS unless a context is given.

        Peers must show the secret, or a token whose holder `judge` knows; without a secret every
        other peer is let in too. `check_listener` raises `Refused` if
        the listener of a name takes no further session, and `welcome` takes complete sessions.
        """
        super().__init__(self._answer)
        self.sites: list[Site] = []
        self._settings = settings
        self._secret = secret
        self._codec = codec
        self._tls = tls
        self._know_holder = judge
        self._check_listener = check_listener
        self._welcome = welcome
        self._report = RefusalReport(report, settings.refusals_per_s)
        self._limits = ConnectionLimits(
            settings.connections_max, settings.unauthenticated_max, settings.guests_max
        )
        self._logger = _HttpLogger(self._note)
        self._sessions: dict[str, _Session] = {}
        self._ending = asyncio.Event()

    def accept(self, raw: socket.socket, address: str) -> Coroutine[Any, Any, None] | None:
        """Count a connection; evict another one or this one if there are too many.

        Returns the coroutine that serves the connection; None if this one was evicted.
        """
        connection = Connection(address, asyncio.get_running_loop().time(), lambda: _cut(raw))
        self._evict(self._limits.add(connection))
        if connection not in self._limits:
            raw.close()
            return None
        return self._serve(connection, raw)

    async def _serve(self, connection: Connection, raw: socket.socket) -> None:
        """Complete the TLS handshake, if there is TLS, then let aiohttp handle requests."""
        loop, settings = asyncio.get_running_loop(), self._settings
        try:
            tune(raw, settings.user_timeout_s)
            await loop.connect_accepted_socket(
                partial(self.protocol_of, connection),
                raw,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else settings.handshake_s,
            )
        except OSError as error:  # TLS failed, the peer has gone, or the connection was evicted
            if connection in self._limits and self._tls is not None:
                self._note(connection.address, f"no TLS handshake: {type(error).__name__}")
            self._limits.remove(connection)
            raw.close()

    def protocol_of(self, connection: Connection) -> ServerProtocol:
        return ServerProtocol(self, connection, self._close_talker, self._logger)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Register the transport of a connection, which `accept` has counted."""
        super().connection_made(handler, transport)
        connection = _connection_of(handler)
        if connection in self._limits:
            connection.cut = transport.abort
        else:  # it was evicted during its handshake
            transport.abort()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        self._limits.remove(_connection_of(handler))
        super().connection_lost(handler, exc)

    async def sweep(self) -> None:
        """Close connections that open no session in time; runs until cancelled."""
        loop, handshake_s = asyncio.get_running_loop(), self._settings.handshake_s
        while True:  # until cancelled
            await asyncio.sleep(handshake_s / 5)
            for connection in self._limits.late(loop.time() - handshake_s):
                self._close(connection, f"no session within {handshake_s:g} s")

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  of aiohttp
        """End all answers: those of sites at once, the others after a timeout."""
        self._ending.set()
        await super().shutdown(timeout)

    # ------------------------------------------------------------------------------ connections

    def _evict(self, connection: Connection | None) -> None:
        if connection is not None:
            stranger = connection.trust is TrustLevel.STRANGER
            why = "that open no session" if stranger else "whose sessions nobody has admitted"
            count = len(self._limits)
            self._close(connection, f"too many connections, {count} of them, {why}")

    def _close(self, connection: Connection, sentence: str) -> None:
        self._note(connection.address, sentence)
        self._limits.remove(connection)
        connection.cut()

    def _close_talker(self, connection: Connection) -> None:
        """Close a connection that sent more before its upgrade than any honest request has."""
        if connection in self._limits:
            self._close(connection, f"a request of more than {REQUEST_BYTES_MAX} bytes")

    def _promote(self, connection: Connection, trust: TrustLevel) -> None:
        self._evict(self._limits.promote(connection, trust))

    def _stay(self, connection: Connection) -> None:
        self._limits.join_session(connection)
        self._promote(connection, TrustLevel.GUEST)

    def _note(self, address: str, sentence: str) -> None:
        self._report.refused(address, sentence, asyncio.get_running_loop().time())

    # --------------------------------------------------------------------------------- requests

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if _is_harmless(request):
            return _last_answer(HTTPStatus.OK, GREETING)
        connection = _connection_of(request.protocol)
        try:
            visit = Visit(partial(self._stay, connection), self._ending)
            for site in self.sites:
                if (answering := site(request, visit)) is not None:
                    return await answering
            path, holder = self._judge(request)
            self._promote(connection, TrustLevel.GUEST)
            if SESSION_HEADER in request.headers:
                return await self._take_bulk(request, path)
            return await self._take_control(request, path, holder)
        except Refused as refused:
            if not refused.expected:
                self._note(request.remote or "unknown", str(refused))
            headers = {PROTOCOL_HEADER: PROTOCOL, **refused.headers}
            if refused.status is HTTPStatus.UNAUTHORIZED:
                headers["WWW-Authenticate"] = "Bearer"
            return _last_answer(refused.status, f"{refused}\n", headers)
        except BROKEN:  # the peer has gone while it was upgraded, and reads no answer
            return _last_answer(HTTPStatus.BAD_REQUEST, "")

    def _judge(self, request: web.BaseRequest) -> tuple[str, object | None]:
        """Check a request; return the name that it dials, and who holds the token that it shows."""
        if request.query_string or "@" in request.path:
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                "an address must hold nothing but a name; a secret belongs into a header, for "
                "addresses end up in logs",
            )
        holder = self._holder(request.headers.get("Authorization"))
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
        return unquote(request.path.removeprefix("/")), holder

    def _holder(self, authorization: str | None) -> object | None:
        if self._secret is not None and self._secret.admits(authorization):
            return None
        holder = self._know_holder(token_in(authorization))
        if isinstance(holder, str):
            headers = {REASON_HEADER: quote(holder)}
            raise Refused(HTTPStatus.UNAUTHORIZED, holder, headers=headers)
        if holder is None and self._secret is not None:
            how = "no secret" if authorization is None else self._secret.another
            raise Refused(HTTPStatus.UNAUTHORIZED, f"{how} was shown")
        return holder

    async def _upgrade(self, request: web.BaseRequest) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(
            timeout=self._settings.close_s,
            autoclose=False,
            autoping=False,
            compress=False,
            max_msg_size=self._codec.message_bytes,
        )
        websocket.headers[PROTOCOL_HEADER] = PROTOCOL
        await websocket.prepare(request)
        return websocket

    async def _take_control(
        self, request: web.BaseRequest, path: str, holder: object | None
    ) -> web.StreamResponse:
        peer = unquote(request.headers.get(NAME_HEADER, ""))
        if not 0 < len(peer) <= NAME_CHARACTERS_MAX or not peer.isprintable():
            raise Refused(HTTPStatus.BAD_REQUEST, "the peer gives no name, or none that can be")
        self._check_listener(path)
        websocket = await self._upgrade(request)
        token = "" if holder is None else token_in(request.headers.get("Authorization"))
        control = accepted(websocket, request, holder, token)
        connection = _connection_of(request.protocol)
        session, number = _Session(path, [connection]), secrets.token_urlsafe(16)
        self._sessions[number] = session
        try:
            await websocket.send_str(json.dumps({"session": number}))
            async with asyncio.timeout(self._settings.handshake_s):
                if (await websocket.receive()).data == GO:
                    await session.complete.wait()
            if session.bulk is None or not session.complete.is_set():
                await self._give_up(session, control)
                return websocket
            await websocket.send_str(READY)
            self._limits.join_session(connection)
            admit = partial(self._admit, session)
            await self._welcome((path, peer), control, session.bulk, admit).wait()
        except (TimeoutError, *BROKEN):
            await self._give_up(session, control)
        finally:
            del self._sessions[number]
            session.ended.set()
        return websocket

    def _admit(self, session: _Session) -> None:
        for connection in session.connections:
            self._promote(connection, TrustLevel.MEMBER)

    async def _give_up(self, session: _Session, control: Wire) -> None:
        if session.bulk is not None:
            session.bulk.abort()
        reason = "the session was not completed"
        await control.hang_up(self._settings.close_s, WSCloseCode.POLICY_VIOLATION, reason)

    async def _take_bulk(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        session = self._sessions.get(request.headers[SESSION_HEADER])
        if session is None or session.path != path or session.bulk is not None:
            raise Refused(HTTPStatus.CONFLICT, "no such session waits for a bulk socket")
        websocket = await self._upgrade(request)
        if request.transport is None:
            return websocket
        bulk = BulkProtocol(request.transport, request.protocol, masks=False)
        if session.ended.is_set() or session.bulk is not None:
            bulk.abort()
            return websocket
        connection = _connection_of(request.protocol)
        self._limits.join_session(connection)
        session.connections.append(connection)
        session.bulk = bulk
        session.complete.set()
        await session.ended.wait()
        return websocket


def _connection_of(handler: asyncio.BaseProtocol | None) -> Connection:
    assert isinstance(handler, ServerProtocol), "made by `protocol_of`"
    return handler.connection


def _cut(raw: socket.socket) -> None:
    """Shut down a connection, but leave its socket open, because a transport may own it."""
    with suppress(OSError):
        raw.shutdown(socket.SHUT_RDWR)


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
