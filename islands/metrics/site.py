"""The site of a process's metrics: `/metrics`, `/status`, `/healthz` and `/readyz`.

===========  ======================================================================================
`/metrics`   Prometheus' text; 501 where prometheus-client is not installed
`/status`    the same samples as JSON
`/healthz`   200 whenever the event loop answers
`/readyz`    200 when the process can do its work, else 503 with the reason
===========  ======================================================================================

Who may read them is decided in `access.py`. Nothing is counted for them: the
state is read when it is asked for, at most once in `KEPT_S`, however many ask.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec
from aiohttp import web

from islands.metrics.access import refusal
from islands.metrics.catalogue import BY_NAME, Sample
from islands.metrics.samples import finite
from islands.protocol.errors import not_installed
from messaging.clock import LoopClock
from messaging.websocket.door import Visit
from messaging.websocket.security import Keyring, Secret

KEPT_S = 0.5
METRICS, STATUS, HEALTH, READY = "/metrics", "/status", "/healthz", "/readyz"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
TOLD = {
    HTTPStatus.UNAUTHORIZED: "show the run's token: Authorization: Bearer TOKEN\n",
    HTTPStatus.MISDIRECTED_REQUEST: "without the run's token, ask for localhost by its name\n",
}


class Source(Protocol):
    """What is read of one process."""

    async def refresh(self) -> None:
        """Read what takes a disk or a network; it must take bounded time, and not raise."""

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of now."""

    def unready_because(self) -> str:
        """Return why the process cannot do its work yet; empty if it can."""


class MetricsSite:
    """Answers the requests for a process's metrics; see `messaging.websocket.door.Site`.

    Args:
        source: what is read.
        secret: the secret of the process; see `refusal`.
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
        self._exposition: Callable[[], bytes] | None = None
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._one = asyncio.Lock()

    def __call__(self, request: web.BaseRequest, _: Visit) -> Awaitable[web.StreamResponse] | None:
        """Answer a request for one of the pages; None if the path is none of them."""
        page = self._pages.get(request.path)
        return None if page is None else self._answer(request, page)

    async def _answer(
        self, request: web.BaseRequest, page: Callable[[], Awaitable[web.Response]]
    ) -> web.StreamResponse:
        refused = refusal(request, self._secret)
        if refused is not None:
            answer = _text(TOLD[refused], refused)
            answer.headers["WWW-Authenticate"] = "Bearer"
        elif request.method not in ("GET", "HEAD"):
            answer = _text("only GET\n", HTTPStatus.METHOD_NOT_ALLOWED)
        else:
            answer = await page()
        answer.headers.update({"Cache-Control": "no-store", "Connection": "close"})
        answer.force_close()
        return answer

    async def _metrics(self) -> web.Response:
        if self._exposition is None:
            try:
                from islands.metrics.collector import exposition_of
            except ImportError:
                told = not_installed("/metrics", "prometheus_client")
                return _text(f"{told}\n", HTTPStatus.NOT_IMPLEMENTED)
            self._exposition = exposition_of(self._source.samples)
        return web.Response(body=await self._kept_of(METRICS, self._exposition), headers=_is(TEXT))

    async def _status(self) -> web.Response:
        body = await self._kept_of(STATUS, lambda: encode(self._source))
        return web.Response(body=body, headers=_is(JSON))

    async def _kept_of(self, path: str, make: Callable[[], bytes]) -> bytes:
        """Return a page's content, which is made anew once it is older than `KEPT_S`."""
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


def encode(source: Source, placed: Sequence[Mapping[str, object]] = ()) -> bytes:
    """Return the status of a source as JSON, as docs/metrics.md documents it.

    `run` and `learners` have the metrics of a run and of its learners by short names, and `samples`
    has all of them. A value that is no finite number is null. `islands` are those that engines have
    `placed`.
    """
    run: dict[str, object] = {}
    learners: dict[str, dict[str, object]] = {}
    samples: list[dict[str, object]] = []
    for sample in source.samples():
        metric = BY_NAME[sample.name]
        labels = dict(zip(metric.labels, sample.labels, strict=True))
        value = finite(sample.value)
        samples.append({"name": sample.name, "labels": dict(labels), "value": value})
        group, _, name = sample.name.removeprefix("islands_").removesuffix("_total").partition("_")
        if group in ("run", "learner"):
            place = run if group == "run" else learners.setdefault(labels.pop("learner"), {})
            told = labels if metric.tells_words else {"_".join((name, *labels.values())): value}
            place.update(told)
    status: dict[str, object] = {"unready": source.unready_because(), "run": run}
    status |= {"learners": learners, "samples": samples}
    return msgspec.json.encode(status | {"islands": placed} if placed else status)


class _ToldSample(msgspec.Struct):
    name: str
    labels: dict[str, str]
    value: float | None


class _Told(msgspec.Struct):
    unready: str
    samples: list[_ToldSample]


def decode(content: bytes) -> list[Sample]:
    """Return the samples of a page of `/status` that this version knows."""
    return [
        Sample(each.name, float("nan") if each.value is None else each.value, labels)
        for each in msgspec.json.decode(content, type=_Told).samples
        if each.name in BY_NAME
        for labels in [tuple(each.labels.get(label, "") for label in BY_NAME[each.name].labels)]
    ]


def _text(text: str, status: HTTPStatus) -> web.Response:
    return web.Response(status=status, text=text)


def _is(kind: str) -> dict[str, str]:
    return {"Content-Type": kind, "X-Content-Type-Options": "nosniff"}
