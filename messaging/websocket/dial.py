"""Opens sessions with listeners in other processes; a failed dial says in a sentence why."""

import asyncio
import base64
import hashlib
import json
import secrets
import socket
import ssl
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, unquote

import aiohttp
from aiohttp import (
    ClientSession,
    ClientTimeout,
    ClientWSTimeout,
    WSMsgType,
)
from aiohttp.client_exceptions import (
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientResponseError,
    WSServerHandshakeError,
)
from yarl import URL

from messaging.codec.frames import Codec
from messaging.errors import DialDenied, DialFailed, LocalFault
from messaging.websocket.bulk_protocol import BulkProtocol
from messaging.websocket.door import (
    GO,
    NAME_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    READY,
    SESSION_HEADER,
    SOCKET_HEADER,
)
from messaging.websocket.security import Keyring, Secret
from messaging.websocket.settings import BULK_SOCKETS_MAX, WebsocketSettings
from messaging.websocket.threshold import of_whole_messages
from messaging.websocket.wire import Wire, dialled, tune

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_PORTS = {"ws": 80, "wss": 443}

_STATUS = {
    401: "{place} wants another secret than it was shown: give this process the hub's token",
    404: "nobody listens at {name!r} on {place}: is the last part of the address right?",
    409: "{place} gave up waiting for the rest of the session",
    410: "nobody listens at {name!r} on {place} any more",
    426: "{place} speaks another version of this program: install the same on both sides",
    503: "{place} has too many sessions that wait at {name!r}; it may be starting or overloaded",
}

_DENIALS = (401, 426)
"""Statuses for which a retry gets the same answer."""


def check_address(address: str) -> URL:
    """Return the URL of a listener."""
    try:
        url = URL(address)
        port = url.port
    except ValueError as error:
        raise LocalFault(f"{address!r} is no address: {error}") from error
    if url.user is not None or url.password is not None or url.query_string or url.fragment:
        raise LocalFault(  # the address is not repeated: it may hold a secret
            "an address must hold no user, password, query or token, for addresses end up in "
            "logs; give the secret by itself"
        )
    if url.scheme not in _PORTS or not url.host or not port or len(url.path) < len("/x"):
        raise LocalFault(f"{address!r} is no address; write ws://host:port/name or wss://…")
    return url


class Way(NamedTuple):
    """The way to a listener.

    Attributes:
        url: The address that is dialled.
        shown: Value of the `Authorization` header; None: nothing is shown.
        certified: Name that the listener's certificate must hold; None: that of the URL.
    """

    url: URL
    shown: str | None
    certified: str | None


class Connector:
    """Opens the websockets of sessions; each network has one caller, on one loop."""

    def __init__(
        self,
        settings: WebsocketSettings,
        secret: Secret | Keyring | None,
        tls: ssl.SSLContext | None,
        codec: Codec,
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._tls = tls
        self._codec = codec
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close the HTTP client that dials."""
        if self._session is not None:
            await self._session.close()

    async def call(self, address: str, local: str) -> tuple[str, Wire, list[BulkProtocol]]:
        """Open the sockets of a session.

        Returns:
            The listener's name, the control socket, the bulk sockets.
        """
        try:
            url = check_address(address)
        except LocalFault as fault:
            raise DialFailed(str(fault)) from fault
        bulks: list[BulkProtocol] = []
        control: list[Wire] = []
        try:
            async with asyncio.timeout(self._settings.handshake_s):
                await self._open_all(self._way(url), local, control, bulks)
        except BaseException as error:
            for bulk in bulks:
                bulk.abort()
            for wire in control:
                wire.abort()
                await wire.hang_up(self._settings.close_s)  # no wait: it was aborted before
            sentence = explain(error, url, self._settings.handshake_s)
            if sentence is None:
                raise
            denied = isinstance(error, WSServerHandshakeError) and error.status in _DENIALS
            raise (DialDenied if denied else DialFailed)(sentence) from error
        return unquote(url.raw_path.rpartition("/")[2]), control[0], bulks

    def _way(self, url: URL) -> Way:
        """Return where an address is dialled, what is shown there, and whose certificate it has."""
        secret, address = self._secret, str(url)
        host = None if secret is None else secret.host(address)
        shown = None if secret is None else secret.header(address)
        if host is None:
            return Way(url, shown, None)
        return Way(url.with_host(host), shown, url.host if url.scheme == "wss" else None)

    async def _open_all(
        self, way: Way, local: str, control: list[Wire], bulks: list[BulkProtocol]
    ) -> None:
        url = way.url
        headers = {PROTOCOL_HEADER: PROTOCOL, NAME_HEADER: quote(local, safe="")}
        if way.shown is not None:
            headers["Authorization"] = way.shown
        websocket = await self._client().ws_connect(
            url,
            headers=headers,
            server_hostname=way.certified,
            ssl=self._tls or True,
            autoclose=False,
            autoping=False,
            compress=0,
            max_msg_size=self._codec.message_bytes,
            timeout=ClientWSTimeout(ws_close=self._settings.close_s),
        )
        control.append(dialled(websocket))
        number, count = _session_of(await websocket.receive(), url)
        for index in range(count):
            told = {SESSION_HEADER: number, SOCKET_HEADER: str(index)}
            bulks.append(await self._open_bulk(way, headers | told))
        await websocket.send_str(GO)
        if (await websocket.receive()).data != READY:
            raise DialFailed(f"{_place(url)} gave up the session while it was opened")

    async def _open_bulk(self, way: Way, headers: dict[str, str]) -> BulkProtocol:
        """Open a websocket and take over its connection."""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
        }
        response = await self._client().get(
            way.url,
            headers=headers | asked,
            server_hostname=way.certified,
            ssl=self._tls or True,
            allow_redirects=False,
        )
        connection = response.connection
        digest = hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()
        proof = response.headers.get("Sec-WebSocket-Accept")
        if (
            response.status != HTTPStatus.SWITCHING_PROTOCOLS
            or proof != base64.b64encode(digest).decode()
            or connection is None
            or connection.transport is None
            or connection.protocol is None
        ):
            response.close()
            raise WSServerHandshakeError(
                response.request_info,
                response.history,
                status=response.status,
                headers=response.headers,
            )
        return BulkProtocol(
            connection.transport, connection.protocol, masks=True, on_lost=response.close
        )

    def _client(self) -> ClientSession:
        if self._session is None:
            connector = of_whole_messages(
                aiohttp.TCPConnector(
                    limit=0,
                    force_close=True,
                    use_dns_cache=False,  # each dial resolves the name again
                    socket_factory=self._socket,
                )
            )
            tracing = aiohttp.TraceConfig()
            tracing.on_request_redirect.append(_refuse_redirect)
            self._session = ClientSession(
                trace_configs=[tracing],
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=ClientTimeout(total=None),
            )
        return self._session

    def _socket(self, place: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = place
        connection = socket.socket(family, kind, protocol)
        tune(connection, self._settings.user_timeout_s)
        return connection


async def _refuse_redirect(
    _: ClientSession, __: object, params: aiohttp.TraceRequestRedirectParams
) -> None:
    """Refuse a redirect: a hub sends none, so this server is none or is after the secret."""
    raise WSServerHandshakeError(
        params.response.request_info,
        params.response.history,
        status=params.response.status,
        headers=params.response.headers,
    )


def _session_of(message: aiohttp.WSMessage, url: URL) -> tuple[str, int]:
    """Read the server's first message: the session's number, and how many bulk sockets it has."""
    try:
        if message.type is WSMsgType.TEXT:
            told = json.loads(message.data)
            number, count = told["session"], told["bulk"]
            if isinstance(number, str) and 0 < int(count) <= BULK_SOCKETS_MAX:
                return number, int(count)
    except (ValueError, TypeError, KeyError) as error:
        raise DialFailed(f"{_place(url)} is no Islands hub: its first words are others") from error
    raise DialFailed(f"{_place(url)} is no Islands hub, or closed while it was dialled")


def _place(url: URL) -> str:
    return f"{url.host}:{url.port}"


def explain(error: BaseException, url: URL, waited_s: float) -> str | None:
    """Return a sentence on why dialling failed; None if the error is not about dialling."""
    place, name = _place(url), unquote(url.raw_path.rpartition("/")[2])
    match error:
        case DialFailed():
            return str(error)
        case WSServerHandshakeError() if PROTOCOL_HEADER in (error.headers or {}):
            sentence = _STATUS.get(error.status, "{place} refused with HTTP status {status}")
            return sentence.format(place=place, name=name, status=error.status)
        case WSServerHandshakeError():
            return f"{place} is no Islands hub: it answered with HTTP status {error.status}"
        case ClientConnectorDNSError():
            return f"the name {url.host!r} is not known: is it spelled right, and is DNS there?"
        case ssl.SSLCertVerificationError():
            return _untrusted(error, place)
        case ClientConnectorError():
            return _unconnected(error.os_error, place, error)
        case TimeoutError():
            return (
                f"no answer from {place} within {waited_s:g} s: is it running, and does a "
                "firewall let this through?"
            )
        case ClientResponseError():
            return f"{place} is no Islands hub, or it wants TLS (wss://): {error.message}"
        case ClientError() | OSError():
            return _broken(error, url, place)
        case _:
            return None


def _unconnected(error: OSError, place: str, whole: BaseException) -> str:
    certificate = getattr(whole, "certificate_error", error)
    if isinstance(certificate, ssl.SSLCertVerificationError):
        return _untrusted(certificate, place)
    if isinstance(error, ssl.SSLError):
        return (
            f"{place} speaks no TLS, or none that fits; without TLS its address is ws://: {error}"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens at {place}: is the hub running, and is the port right?"
    return f"{place} cannot be reached: {error.strerror or error}"


def _untrusted(error: BaseException, place: str) -> str:
    why = getattr(error, "verify_message", "") or str(error)
    return (
        f"the certificate of {place} is not trusted ({why}): give this process the authority that "
        "signed it, and dial the name that it is made for"
    )


def _broken(error: BaseException, url: URL, place: str) -> str:
    if url.scheme == "wss":
        return (
            f"{place} ended the connection during the TLS handshake or right after it: does it "
            f"demand a client certificate? Then give this process one with its key. ({error})"
        )
    return f"{place} ended the connection without an answer; it may want TLS (wss://). ({error})"
