"""The page of a run that goes on, on the HTTP server that its hub has anyway.

Whoever shows the page's key, or the run's token, is a viewer: the key follows from the token, and
lets nobody do anything but look. The page's own files hold nothing of the run, and need no key.
Browsers of other sites are refused in three ways: the key is no cookie, the name in `Host` must be
one of this machine, and a websocket's `Origin` must be the page's.

A viewer is sent the tape's newest part, and then what comes, as lines of JSON. The files are read
on when it has read what was sent before; one that reads nothing for `SEND_S` is closed. What a
viewer sends ends its websocket.
"""

import asyncio
import gzip
import hashlib
import hmac
import socket
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web

from islands.files.whole_files import replace_file
from islands.page import messages
from islands.page.site_files import KINDS, PAGE, SERVED, content_of
from islands.page.tapes import RunTapes
from islands.protocol.identities import SUPERVISOR
from islands.run.hosting.process_runtime import token_of
from islands.run.records.figures import RunFigures
from islands.run.records.run_curves import curves_of
from messaging.clock import WallClock
from messaging.websocket.security import Secret, is_named
from messaging.websocket.server import Refused, Visit

if TYPE_CHECKING:
    from islands.run.coordinator import Coordinator

PATH = "/page/"
PROTOCOL = "islands.page"
ADDRESS_FILE = "page.url"
VIEWERS_MOST = 16
NEWEST_BYTES = 2**21
"""Bytes of the newest part of each tape that a viewer is sent at first."""
INTERVAL_S = 0.5
"""Time between two looks at the tapes."""
FIGURES_S = 1.0
"""Least time between two computations of the figures, which all viewers share."""
SEND_S = 20.0
CHUNK_BYTES = 2**18
"""Bytes of one message, unless one entry is longer."""
HEARTBEAT_S = 20.0
KEY_CHARACTERS = 32

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class LiveRun:
    """The run of a hub in this process, as its page asks about it."""

    def __init__(self, hub: "Coordinator") -> None:
        self._hub = hub
        self.folder = hub.settings.folder

    @property
    def elapsed_s(self) -> float:
        return self._hub.elapsed_s

    def about(self) -> messages.Message:
        """Return what does not change."""
        return messages.of_run(self.folder, self._hub.spec, self._hub.plan)

    def counted(self) -> tuple[RunFigures, float]:
        """Return the figures, and the seconds on the run's own clock."""
        return self._hub.folder.figures, self._hub.wall_s

    def figures(self, at_s: float) -> messages.Message:
        return messages.live_figures(self._hub, at_s)


def show_page(hub: "Coordinator") -> str:
    """Serve the page of a hub's run; return the sentence that tells where."""
    token = token_of(hub.settings.connecting)
    dialled = hub.network.url(SUPERVISOR)
    site = PageSite(LiveRun(hub), token, (urlsplit(dialled).hostname or "",))
    hub.network.serve(site)
    parts = urlsplit(dialled.replace("ws", "http", 1))
    address = f"{parts.scheme}://{parts.netloc}{PATH}{f'#{site.key}' if site.key else ''}"
    with suppress(OSError):  # a full disk: the address is shown here as well
        replace_file(hub.settings.folder / ADDRESS_FILE, f"{address}\n".encode())
    return f"watch the run in a browser, read-only: {address}"


class PageSite:
    """Answers the requests for the page of one run.

    Everybody on this machine may look at a run without a token. `names` are further names of this
    machine.
    """

    def __init__(self, run: LiveRun, token: Secret | None, names: Iterable[str] = ()) -> None:
        self._run = run
        self._token = token
        self.key = None if token is None else key_of(token)
        self._names = {*own_names(), *(name.lower() for name in names if name)}
        self._viewers = 0
        self._wall = WallClock()
        self._figures: tuple[float, bytes] = (float("-inf"), b"")
        self._beginning = asyncio.Lock()

    @property
    def viewers(self) -> int:
        return self._viewers

    def __call__(
        self, request: web.BaseRequest, visit: Visit
    ) -> Awaitable[web.StreamResponse] | None:
        """Answer a request for the page; None if it is for something else."""
        path = request.rel_url.raw_path
        if path != PATH.rstrip("/") and not path.startswith(PATH):
            return None
        if request.query_string:
            raise Refused(
                HTTPStatus.BAD_REQUEST, "the page takes no query; its key stands behind #"
            )
        if request.method != "GET":
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "the page can only be looked at")
        self._check_host(request)
        name = path.removeprefix(PATH)
        if path == PATH.rstrip("/"):
            return _answer(web.Response(status=308, headers={"Location": PATH}))
        if name == "live":
            return self._watch(request, visit)
        if name == "key":
            return _answer(self._tell_key(request))
        if name and name not in SERVED:
            raise Refused(HTTPStatus.NOT_FOUND, "the page has no such file", expected=True)
        return _answer(_file(name or PAGE, request))

    def _check_host(self, request: web.BaseRequest) -> None:
        host = request.headers.get("Host", "")
        if not is_named(host, self._names, by_address=True):
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"{host[:80]!r} is no name of this machine; use its address, or tell the hub the "
                "name by --advertise",
            )

    def _tell_key(self, request: web.BaseRequest) -> web.Response:
        if self._token is None or self.key is None:
            return web.Response(text="")
        header = request.headers.get("Authorization")
        _, _, shown = (header or "").partition(" ")
        if not (self._token.admits(header) or _equal(shown, self.key)):
            how = "no key" if header in (None, "") else "neither the page's key nor the run's token"
            raise Refused(HTTPStatus.UNAUTHORIZED, f"{how} was shown", expected=header is None)
        return web.Response(text=self.key)

    def _watch(self, request: web.BaseRequest, visit: Visit) -> Awaitable[web.StreamResponse]:
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
            raise Refused(HTTPStatus.FORBIDDEN, "another site asks for the page")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Refused(HTTPStatus.UPGRADE_REQUIRED, "the run is told over a websocket only")
        _, _, shown = request.headers.get("Sec-WebSocket-Protocol", "").partition(",")
        if self.key is not None and not _equal(shown.strip(), self.key):
            raise Refused(HTTPStatus.UNAUTHORIZED, "the page's key was not shown")
        if self._viewers >= VIEWERS_MOST:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{VIEWERS_MOST} viewers look at the run already"
            )
        return self._serve(request, visit)

    # --- a viewer -----------------------------------------------------------------------------

    async def _serve(self, request: web.BaseRequest, visit: Visit) -> web.StreamResponse:
        self._viewers += 1
        try:
            viewer = web.WebSocketResponse(
                protocols=(PROTOCOL,), heartbeat=HEARTBEAT_S, compress=False, max_msg_size=1024
            )
            await viewer.prepare(request)
            visit.stay()
            with suppress(TimeoutError):  # it reads nothing: the connection is cut below
                await self._follow(viewer, visit)
            closing = WSCloseCode.GOING_AWAY if visit.ending.is_set() else WSCloseCode.OK
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await viewer.close(code=closing)
            if request.transport is not None:
                request.transport.abort()
            return viewer
        finally:
            self._viewers -= 1

    async def _follow(self, viewer: web.WebSocketResponse, visit: Visit) -> None:
        tapes = RunTapes(self._run.folder, NEWEST_BYTES)
        async with self._beginning:  # one at a time, so that many viewers cost no more memory
            lines = await self._all(tapes)
            sent = self._figures[1]
            waiting = await asyncio.to_thread(_spooled, lines, self._run.folder)
            del lines
        with waiting:
            while text := await asyncio.to_thread(_next_of, waiting):
                await _send(viewer, text)
        while not await _spoke(viewer, INTERVAL_S):
            lines = [line for _, line in await asyncio.to_thread(tapes.read)]
            figures = self._figures_now()
            for text in _messages(lines if figures is sent else [*lines, figures]):
                await _send(viewer, text)
            sent = figures
            if visit.ending.is_set():
                return

    async def _all(self, tapes: RunTapes) -> list[bytes]:
        entries = await asyncio.to_thread(tapes.read)
        now_s = self._wall.now_s()
        origin_s = now_s - self._run.elapsed_s
        curves = await asyncio.to_thread(curves_of, self._run.folder, messages.CURVE_BYTES)
        counted, wall_s = self._run.counted()
        states = messages.of_states(counted, tapes.names, now_s, wall_s)
        about = {**self._run.about(), "whole": tapes.whole}
        first = (about, messages.of_curves(counted, curves, origin_s))
        lines = [*map(messages.encoded, first), *messages.in_time(entries, states)]
        return [*lines, self._figures_now()]

    def _figures_now(self) -> bytes:
        now_s = self._wall.now_s()
        if not 0 <= now_s - self._figures[0] < FIGURES_S:
            self._figures = now_s, messages.encoded(self._run.figures(now_s))
        return self._figures[1]


def _spooled(lines: Sequence[bytes], folder: Path) -> IO[bytes]:
    """Return a file without a name in a folder, from which lines are read on as a viewer reads.

    On a disk that is full, or in a folder that is gone, they are kept in memory.
    """
    text = [line + b"\n" for line in lines]
    with suppress(OSError), ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(TemporaryFile(dir=folder))
        file.writelines(text)
        file.seek(0)
        stack.pop_all()
        return file
    return BytesIO(b"".join(text))


def _next_of(waiting: IO[bytes]) -> bytes:
    return b"".join(waiting.readlines(CHUNK_BYTES)).rstrip(b"\n")


async def _send(viewer: web.WebSocketResponse, text: bytes) -> None:
    async with asyncio.timeout(SEND_S):
        await viewer.send_str(text.decode(errors="replace"))


def _messages(lines: Iterable[bytes]) -> Iterable[bytes]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"\n".join(batch)
            batch, size = [], 0
    if batch:
        yield b"\n".join(batch)


async def _spoke(viewer: web.WebSocketResponse, within_s: float) -> bool:
    """Whether the viewer closed its websocket or sent anything, which none does, within a time."""
    try:
        message = await viewer.receive(timeout=within_s)
    except TimeoutError:
        return False
    return message.type not in (WSMsgType.PING, WSMsgType.PONG)


# --- answers ----------------------------------------------------------------------------------


async def _answer(response: web.Response) -> web.StreamResponse:
    """Return an answer with the headers of the page, after which the connection ends."""
    response.headers.update(HEADERS)
    response.force_close()
    return response


def _file(name: str, request: web.BaseRequest) -> web.Response:
    kind = KINDS[Path(name).suffix]
    if "gzip" not in request.headers.get("Accept-Encoding", "gzip"):
        raise Refused(HTTPStatus.NOT_ACCEPTABLE, "the page's files are sent packed by gzip only")
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return web.Response(body=_packed(name), content_type=kind, charset="utf-8", headers=headers)


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(content_of(name), mtime=0)


def key_of(token: Secret) -> str:
    """Return the key of the page of a run with this token, from which the token does not follow."""
    made = hmac.new(token.header().encode(), PROTOCOL.encode(), hashlib.sha256)
    return made.hexdigest()[:KEY_CHARACTERS]


def _equal(shown: str, wanted: str) -> bool:
    """Compare in constant time; a header may hold any bytes."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), wanted.encode())


def own_names() -> list[str]:
    name = socket.gethostname().lower()
    return [name, name.partition(".")[0], f"{name.partition('.')[0]}.local"]
