"""Links between processes and hosts, over websockets; see `messaging.links.link.Network`.

One HTTP server per process serves all its listeners: the name of a listener is a URL path. A
process that only dials never opens a server.
"""

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus

from messaging.actors.scope import Scope
from messaging.codec.frames import CHUNK_PREFIX_BYTES, Codec
from messaging.codec.limits import Limits
from messaging.codec.tensors import BufferPool
from messaging.errors import DialFailed, LocalFault
from messaging.links.link import BacklogListener
from messaging.websocket.acceptor import Acceptor, bind
from messaging.websocket.bulk_protocol import BulkProtocol
from messaging.websocket.dial import Connector
from messaging.websocket.link import WebsocketLink
from messaging.websocket.read_scheduler import ReadScheduler
from messaging.websocket.security import Judge, Keyring, Secret, only_loopback
from messaging.websocket.server import Refused, SessionServer, Site, path_of
from messaging.websocket.settings import WebsocketSettings
from messaging.websocket.wire import Wire

LISTEN_BACKLOG = 128
"""Connections that the system queues until they are accepted: those that were accepted and have
shown the secret meanwhile are no strangers any more when the next ones come."""


class WebsocketListener(BacklogListener[WebsocketLink]):
    """A name of this process that others can dial; see `Network.listen`."""

    def __init__(
        self,
        name: str,
        address: str,
        network: "WebsocketNetwork",
        backlog: int,
        *,
        guests: bool,
    ) -> None:
        super().__init__(address, backlog)
        self.guests = guests
        self.name = name
        self._network = network

    def close(self) -> None:
        super().close()
        self._network.forget_listener(self)


class WebsocketNetwork:
    """Sessions over websockets, dialled from and accepted in this process.

    A listening process that has given out tokens beside the secret sets `judge`, which knows them.
    """

    def __init__(
        self,
        message_types: Sequence[type],
        *,
        settings: WebsocketSettings | None = None,
        secret: Secret | Keyring | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Make a network that can dial; `open` lets it listen too.

        The message types may be the body of an envelope, on both sides. The secret is shown when
        dialling, and demanded when dialled; a keyring has another one for each peer. Without
        `server_tls` it listens without TLS; without `client_tls` it dials wss:// with the system's
        authorities. `report` is called with a sentence about each peer that is refused or
        misbehaves.
        """
        self.judge: Judge = lambda _: None
        self._settings = settings or WebsocketSettings()
        self._secret = secret
        self._server_tls = server_tls
        self._codec = Codec(message_types)
        self.allow(limits or Limits())
        self._report = report or (lambda _: None)
        self._pool = BufferPool()
        self._turns = ReadScheduler()
        self._caller = Connector(self._settings, secret, client_tls, self._codec)
        self._listeners: dict[str, WebsocketListener] = {}
        self._ended: set[str] = set()  # names whose listener was closed, and that have no new one
        self._links: dict[WebsocketLink, None] = {}
        self._scope = Scope("websockets", self._task_failed)
        self._acceptor: Acceptor | None = None
        self._http: SessionServer | None = None
        self._advertised = ""
        self.port = 0

    def allow(self, limits: Limits) -> None:
        """Limit what peers may send, in sessions that are opened from now on."""
        if self._settings.chunk_bytes + CHUNK_PREFIX_BYTES > limits.frame_bytes:
            raise LocalFault(
                f"chunks of {self._settings.chunk_bytes} bytes exceed the largest frame, "
                f"{limits.frame_bytes} bytes"
            )
        self._codec.limits = limits

    async def open(self, host: str, port: int, *, advertise: str | None = None) -> None:
        """Let others dial this process, at `host` and `port` (0: any that is free).

        They dial `advertise` instead, if it is given, as `host` or `host:port`.
        """
        if self._acceptor is not None:
            raise LocalFault(f"this process listens at {self._advertised} already")
        if self._secret is None and not only_loopback(host):
            raise LocalFault(
                f"{host} can be reached from other machines, and there is no secret: give one, or "
                "listen at 127.0.0.1"
            )
        self._http = SessionServer(
            self._settings,
            self._secret,
            self._codec,
            tls=self._server_tls,
            judge=self._judge,
            check_listener=self._check_listener,
            welcome=self._welcome,
            report=self._report,
        )
        try:
            sockets = await bind(host, port, LISTEN_BACKLOG)
        except OSError as error:
            raise LocalFault(_cannot_bind(error, host, port)) from error
        self._acceptor = Acceptor(sockets, self._take, self._exhausted)
        self.port = self._acceptor.port
        self._advertised = _advertised(advertise, host, self.port)
        if self._server_tls is None and not only_loopback(host):
            self._report(
                f"others reach this process at {self._advertised} without TLS: whoever is on the "
                "way can read its secret and change what is sent; give it a certificate, or keep "
                "it to a network that you trust"
            )
        self._scope.spawn(self._http.sweep(), "sweep")
        self._scope.spawn(self._end_refused(), "tokens")

    def serve(self, site: Site) -> None:
        """Let a site answer requests that dial no listener; `open` must have been called."""
        assert self._http is not None, "nobody can reach a network that was not opened"
        self._http.sites.append(site)

    def url(self, name: str) -> str:
        if self._acceptor is None:
            raise LocalFault(f"nobody can dial {name!r}: this network was not opened")
        scheme = "ws" if self._server_tls is None else "wss"
        return f"{scheme}://{self._advertised}{path_of(name)}"

    def listen(self, address: str, *, guests: bool = False) -> WebsocketListener:
        """Let others dial a name of this process, at `url(address)`."""
        if address in self._listeners:
            raise LocalFault(f"somebody listens at {address!r} already")
        listener = WebsocketListener(
            address, self.url(address), self, self._settings.backlog, guests=guests
        )
        self._listeners[address] = listener
        self._ended.discard(address)
        return listener

    async def dial(self, address: str, *, local: str) -> WebsocketLink:
        if self._scope.closed:
            raise DialFailed("this network is closed")
        remote, control, bulk = await self._caller.call(address, local)
        return self._link(local, remote, control, bulk)

    def end_refused(self) -> None:
        """End the sessions whose token was judged well when they began, and is refused now."""
        for link in [link for link in self._links if link.holder is not None]:
            if isinstance(refusal := self.judge(link.token), str):
                link.close(refusal)

    async def _end_refused(self) -> None:
        while True:  # until cancelled
            await asyncio.sleep(self._settings.handshake_s / 5)
            self.end_refused()

    async def close(self) -> None:
        """Stop listening, and end every session after its queued control is sent."""
        for listener in list(self._listeners.values()):
            listener.close()
        if self._acceptor is not None:
            self._acceptor.close()
        links = list(self._links)
        for link in links:
            link.close("the process ends")
        for link in links:
            await link.ended.wait()
        await self._scope.close()
        if self._http is not None:
            await self._http.shutdown(self._settings.close_s)
        await self._caller.close()

    def forget_listener(self, listener: WebsocketListener) -> None:
        if self._listeners.get(listener.name) is listener:
            del self._listeners[listener.name]
            self._ended.add(listener.name)

    def _take(self, connection: socket.socket, address: str) -> None:
        assert self._http is not None, "made before anything is accepted"
        serving = self._http.accept(connection, address)
        if serving is not None:
            self._scope.spawn(serving, f"from-{address}")

    def _judge(self, token: str) -> object | None:
        return self.judge(token)

    def _exhausted(self, error: OSError) -> None:
        self._report(
            f"nobody can be accepted for a while: {error.strerror}; let this process open more "
            "files (ulimit -n, LimitNOFILE)"
        )

    def _check_listener(self, name: str) -> None:
        listener = self._listeners.get(name)
        if listener is None and name in self._ended:
            sentence = f"nobody listens at {name!r} any more"
            raise Refused(HTTPStatus.GONE, sentence, expected=True)
        if listener is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"nobody listens at {name[:80]!r}")
        if not listener.room:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"too many sessions wait at {name!r}")

    def _welcome(
        self,
        names: tuple[str, str],
        control: Wire,
        bulk: BulkProtocol,
        admitted: Callable[[], None],
    ) -> asyncio.Event:
        listener = self._listeners.get(names[0])
        link = self._link(*names, control, bulk, admitted)
        if listener is None or not listener.offer(link):
            link.close(f"nobody accepts sessions at {names[0]!r}")
        elif not listener.guests:
            link.admit()
        return link.ended

    def _link(
        self,
        local: str,
        remote: str,
        control: Wire,
        bulk: BulkProtocol,
        admitted: Callable[[], None] | None = None,
    ) -> WebsocketLink:
        link = WebsocketLink(
            (local, remote),
            control,
            bulk,
            codec=self._codec,
            settings=self._settings,
            allocate=self._pool.allocate,
            turns=self._turns,
            admitted=admitted,
            report=self._report,
        )
        self._links[link] = None
        self._scope.spawn(self._carry(link), f"{local}-{remote}")
        return link

    async def _carry(self, link: WebsocketLink) -> None:
        try:
            await link.run()
        finally:
            del self._links[link]

    def _task_failed(self, name: str, error: BaseException) -> None:
        context = {"message": f"{name} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def _cannot_bind(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use by another program: stop that, or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: listen at 0.0.0.0 or one of its own"
    if error.errno == errno.EACCES:
        return f"this user may not listen at {host}:{port}: choose a port above 1023"
    return f"{host}:{port} cannot be listened at: {error.strerror or error}"


def _advertised(advertise: str | None, host: str, port: int) -> str:
    if advertise is not None:
        bare = advertise.count(":") != 1 and not advertise.endswith("]") and "]:" not in advertise
        if bare or advertise.endswith("]"):
            return f"{_bracketed(advertise)}:{port}"
        return advertise
    try:
        everywhere = not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    return f"{_bracketed(_own_address(host) if everywhere else host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _own_address(everywhere: str) -> str:
    """Return the address from which this machine reaches others, without sending anything.

    It is an IPv6 address for `::`, because a server bound to that has no other.
    """
    ip6 = ":" in everywhere
    try:
        with socket.socket(socket.AF_INET6 if ip6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # addresses reserved for documentation
            probe.connect(("2001:db8::1" if ip6 else "192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
