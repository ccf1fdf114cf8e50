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
from yarl import URL

from messaging.codec.frames import Codec
from messaging.errors import DialDenied, DialFailed, LocalFault
from messaging.plain_text import plain
from messaging.websocket import server
from messaging.websocket.bulk_protocol import BulkProtocol
from messaging.websocket.read_limits import of_whole_messages
from messaging.websocket.security import Keyring, Secret
from messaging.websocket.settings import WebsocketSettings
from messaging.websocket.wire import Wire, dialled, tune

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_PORTS = {"ws": 80, "wss": 443}

_STATUS = {
    401: "{where} wants another secret than it was shown: give this process the hub's token",
    404: "nobody listens at {name!r} on {where}: is the last part of the address right?",
    409: "{where} gave up waiting for the rest of the session",
    410: "nobody listens at {name!r} on {where} any more",
    426: "{where} speaks another version of this program: install the same on both sides",
    503: "{where} has too many sessions that wait at {name!r}; it may be starting or overloaded",
}

REASON_MAX = 300
"""Most characters of a reason for a refusal that are shown."""

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


class Target(NamedTuple):
    """Where and how a listener is dialled: the `Authorization` header `shown` to it, if any.

    Its certificate must hold the name `certified`; None: that of the URL.
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
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the HTTP client that dials."""
        if self._session is not None:
            await self._session.close()

    async def call(self, address: str, local: str) -> tuple[str, Wire, BulkProtocol]:
        """Open a session; return the listener's name, the control socket and the bulk socket."""
        try:
            url = check_address(address)
        except LocalFault as fault:
            raise DialFailed(str(fault)) from fault
        control: list[Wire] = []
        try:
            async with asyncio.timeout(self._settings.handshake_s):
                bulk = await self._open(self._target(url), local, control)
        except BaseException as error:
            for wire in control:
                wire.abort()
                await wire.hang_up(self._settings.close_s)  # no wait: it was aborted before
            sentence = explain(error, url, self._settings.handshake_s)
            if sentence is None:
                raise
            denied = isinstance(error, aiohttp.WSServerHandshakeError) and error.status in _DENIALS
            raise (DialDenied if denied else DialFailed)(sentence) from error
        return unquote(url.raw_path.rpartition("/")[2]), control[0], bulk

    def _target(self, url: URL) -> Target:
        secret, address = self._secret, str(url)
        host = None if secret is None else secret.host(address)
        shown = None if secret is None else secret.header(address)
        if host is None:
            return Target(url, shown, None)
        return Target(url.with_host(host), shown, url.host if url.scheme == "wss" else None)

    async def _open(self, target: Target, local: str, control: list[Wire]) -> BulkProtocol:
        """Open both sockets; the one for control is in `control` as soon as it is open."""
        url = target.url
        headers = {server.PROTOCOL_HEADER: server.PROTOCOL}
        headers[server.NAME_HEADER] = quote(local, safe="")
        if target.shown is not None:
            headers["Authorization"] = target.shown
        websocket = await self._client().ws_connect(
            url,
            headers=headers,
            server_hostname=target.certified,
            ssl=self._tls or True,
            autoclose=False,
            autoping=False,
            compress=0,
            max_msg_size=self._codec.message_bytes,
            timeout=aiohttp.ClientWSTimeout(ws_close=self._settings.close_s),
        )
        control.append(dialled(websocket))
        headers[server.SESSION_HEADER] = _session_of(await websocket.receive(), url)
        bulk = await self._open_bulk(target, headers)
        try:
            await websocket.send_str(server.GO)
            ready = (await websocket.receive()).data == server.READY
        except BaseException:
            bulk.abort()
            raise
        if not ready:
            bulk.abort()
            raise DialFailed(f"{_host_of(url)} gave up the session while it was opened")
        return bulk

    async def _open_bulk(self, target: Target, headers: dict[str, str]) -> BulkProtocol:
        """Open a websocket and take over its connection."""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
        }
        response = await self._client().get(
            target.url,
            headers=headers | asked,
            server_hostname=target.certified,
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
            raise _refused(response)
        return BulkProtocol(
            connection.transport, connection.protocol, masks=True, on_lost=response.close
        )

    def _client(self) -> aiohttp.ClientSession:
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
            self._session = aiohttp.ClientSession(
                trace_configs=[tracing],
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        connection = socket.socket(family, kind, protocol)
        tune(connection, self._settings.user_timeout_s)
        return connection


async def _refuse_redirect(
    _: aiohttp.ClientSession, __: object, params: aiohttp.TraceRequestRedirectParams
) -> None:
    """Refuse a redirect: a hub sends none, so this server is none or is after the secret."""
    raise _refused(params.response)


def _refused(response: aiohttp.ClientResponse) -> aiohttp.WSServerHandshakeError:
    return aiohttp.WSServerHandshakeError(
        response.request_info,
        response.history,
        status=response.status,
        headers=response.headers,
    )


def _session_of(message: aiohttp.WSMessage, url: URL) -> str:
    """Return the session's number, which is in the server's first message."""
    try:
        if message.type is aiohttp.WSMsgType.TEXT:
            number = json.loads(message.data)["session"]
            if isinstance(number, str):
                return number
    except (ValueError, TypeError, KeyError) as error:
        raise DialFailed(
            f"{_host_of(url)} is no Islands hub: its first words are others"
        ) from error
    raise DialFailed(f"{_host_of(url)} is no Islands hub, or closed while it was dialled")


def _host_of(url: URL) -> str:
    return f"{url.host}:{url.port}"


def explain(error: BaseException, url: URL, waited_s: float) -> str | None:
    """Return a sentence on why dialling failed; None if the error is not about dialling."""
    where, name = _host_of(url), unquote(url.raw_path.rpartition("/")[2])
    match error:
        case DialFailed():
            return str(error)
        case aiohttp.WSServerHandshakeError() if server.PROTOCOL_HEADER in (error.headers or {}):
            sentence = _STATUS.get(error.status, "{where} refused with HTTP status {status}")
            reason = None if error.headers is None else error.headers.get(server.REASON_HEADER)
            if reason is not None:
                sentence, name = "{where} refused: {name}", plain(unquote(reason), REASON_MAX)
            return sentence.format(where=where, name=name, status=error.status)
        case aiohttp.WSServerHandshakeError():
            return f"{where} is no Islands hub: it answered with HTTP status {error.status}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name {url.host!r} is not known: is it spelled right, and is DNS there?"
        case ssl.SSLCertVerificationError():
            return _untrusted(error, where)
        case aiohttp.ClientConnectorError():
            return _unconnected(error.os_error, where, error)
        case TimeoutError():
            return (
                f"no answer from {where} within {waited_s:g} s: is it running, and does a "
                "firewall let this through?"
            )
        case aiohttp.ClientResponseError():
            return f"{where} is no Islands hub, or it wants TLS (wss://): {error.message}"
        case aiohttp.ClientError() | OSError():
            return _broken(error, url, where)
        case _:
            return None


def _unconnected(error: OSError, where: str, whole: BaseException) -> str:
    certificate = getattr(whole, "certificate_error", error)
    if isinstance(certificate, ssl.SSLCertVerificationError):
        return _untrusted(certificate, where)
    if isinstance(error, ssl.SSLError):
        return (
            f"{where} speaks no TLS, or none that fits; without TLS its address is ws://: {error}"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens at {where}: is the hub running, and is the port right?"
    return f"{where} cannot be reached: {error.strerror or error}"


def _untrusted(error: BaseException, where: str) -> str:
    why = getattr(error, "verify_message", "") or str(error)
    return (
        f"the certificate of {where} is not trusted ({why}): give this process the authority that "
        "signed it, and dial the name that it is made for"
    )


def _broken(error: BaseException, url: URL, where: str) -> str:
    if url.scheme == "wss":
        return (
            f"{where} ended the connection during the TLS handshake or right after it: does it "
            f"demand a client certificate? Then give this process one with its key. ({error})"
        )
    return f"{where} ended the connection without an answer; it may want TLS (wss://). ({error})"
