"""The site of a process's metrics: `/metrics`, `/status`, `/healthz` and `/readyz`.

===========  ======================================================================================
`/metrics`   Prometheus' text, with the process's own figures (`process_cpu_seconds_total` …)
`/status`    of a hub, the status of its run as JSON
`/healthz`   200 whenever the event loop answers
`/readyz`    200 when the process can do its work, else 503 with the reason
===========  ======================================================================================

The state is read when it is asked for, at most once in `KEPT_S`, however many ask.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from islands.metrics.catalogue import Sample, families
from islands.protocol.settings.addresses import is_loopback
from messaging.clock import LoopClock
from messaging.websocket.security import Keyring, Secret, is_named
from messaging.websocket.server import Refused, Visit

KEPT_S = 0.5
METRICS, STATUS, HEALTH, READY = "/metrics", "/status", "/healthz", "/readyz"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class Source(Collector, ABC):
    """What is read of one process."""

    async def refresh(self) -> None:
        """Read what takes a disk or a network; it must take bounded time, and not raise."""

    @abstractmethod
    def samples(self) -> Iterator[Sample]:
        """Yield the samples of now."""

    @abstractmethod
    def unready_because(self) -> str:
        """Return why the process cannot do its work yet; empty if it can."""

    def status(self) -> Mapping[str, object]:
        return {"unready": self.unready_because()}

    def collect(self) -> Iterable[Family]:
        return families(self.samples())


class MetricsSite:
    """Answers the requests for a process's metrics; see `messaging.websocket.server.Site`.

    Without a secret the process listens on loopback alone.
    """

    def __init__(self, source: Source, secret: Secret | Keyring | None) -> None:
        self._source = source
        self._secret = secret
        self._clock = LoopClock()
        self._pages: dict[str, Callable[[], Awaitable[web.Response]]] = {
            METRICS: self._metrics,
            STATUS: self._status,
            HEALTH: self._health,
            READY: self._ready,
        }
        self._registry = CollectorRegistry()
        self._registry.register(source)
        ProcessCollector(registry=self._registry)
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._one = asyncio.Lock()

    def __call__(self, request: web.BaseRequest, _: Visit) -> Awaitable[web.StreamResponse] | None:
        page = self._pages.get(request.path)
        if page is None:
            return None
        self._check(request)
        return self._answer(page)

    def _check(self, request: web.BaseRequest) -> None:
        """Refuse who neither shows the secret nor is on this machine, under a name of loopback.

        Under another name, which was made to lead to this machine, a page of elsewhere could read
        it in a browser here; but it cannot make a browser show the secret.
        """
        shown = request.headers.get("Authorization")
        if request.method not in ("GET", "HEAD"):
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "metrics can only be looked at")
        if self._secret is not None and shown is not None:
            if not self._secret.admits(shown):
                raise Refused(HTTPStatus.UNAUTHORIZED, "a wrong token was shown")
        elif not is_loopback(request.remote or ""):
            how = "show the run's token: Authorization: Bearer TOKEN"
            raise Refused(HTTPStatus.UNAUTHORIZED, how, expected=True)
        elif not is_named(request.headers.get("Host", ""), ()):
            how = "without the run's token, ask for localhost by its name"
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, how)

    async def _answer(self, page: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        answer = await page()
        answer.headers.update({"Cache-Control": "no-store", "Connection": "close"})
        answer.force_close()
        return answer

    async def _metrics(self) -> web.Response:
        body = await self._kept_of(METRICS, partial(generate_latest, self._registry))
        return web.Response(body=body, headers=_is(TEXT))

    async def _status(self) -> web.Response:
        body = await self._kept_of(STATUS, lambda: msgspec.json.encode(self._source.status()))
        return web.Response(body=body, headers=_is(JSON))

    async def _kept_of(self, path: str, make: Callable[[], bytes]) -> bytes:
        async with self._one:
            made_s, body = self._kept.get(path, (-KEPT_S, b""))
            if self._clock.now_s() - made_s >= KEPT_S:
                await self._source.refresh()
                body = make()
                self._kept[path] = self._clock.now_s(), body
            return body

    async def _health(self) -> web.Response:
        return _text("ok\n", HTTPStatus.OK)

    async def _ready(self) -> web.Response:
        because = self._source.unready_because()
        if because:
            return _text(f"{because}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return _text("ready\n", HTTPStatus.OK)


def _text(text: str, status: HTTPStatus) -> web.Response:
    return web.Response(status=status, text=text)


def _is(kind: str) -> dict[str, str]:
    return {"Content-Type": kind, "X-Content-Type-Options": "nosniff"}
