"""The sources of samples: what a hub, and a syncer in a process of its own, read of themselves.

A hub asks a syncer that is a process of its own, so that one address has all of a run. What may
block (a disk that hangs, a syncer that is away) is waited for `PATIENCE_S`.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from ssl import SSLContext
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from islands.layout.leaves import VALUE_BYTES
from islands.metrics.catalogue import BY_NAME, Sample
from islands.metrics.notices import notices_sent
from islands.metrics.samples import run_samples, syncer_samples
from islands.metrics.site import METRICS, MetricsSite, Source
from islands.protocol.identities import BLOCKED, Phase
from islands.run.hosting.process_runtime import say, token_of
from islands.run.run_end import has_live_syncer
from islands.run.run_status import run_status_of
from islands.settings.groups import ConnectOptions
from islands.sinks.processes import sink_processes
from islands.syncer.actor import SyncerActor
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import client_tls

if TYPE_CHECKING:
    from islands.run.coordinator import Coordinator

PATIENCE_S = 1.0
ANSWER_BYTES_MOST = 1 << 18
RESERVE_BYTES_LEAST = 1 << 30
RESERVED_RECORDS = 4
"""Whole values of the model for which the disk of a run's folder should have room."""
OF_SYNCER = ("islands_journal_", "islands_ledger_", "islands_rounds_")
"""What a hub takes over of a syncer's samples: its version is its own."""


def process_samples(*, ready: bool) -> Iterator[Sample]:
    yield Sample("islands_build_info", 1, (version("islands"),))
    yield Sample("islands_ready", ready)


class Reading:
    """A function that is called on a thread, one call at a time, and is waited for in part."""

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read
        self._task: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Call it, unless the call before still goes on, and wait a while for its end."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(asyncio.to_thread(self._read))
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(asyncio.shield(self._task), PATIENCE_S)


class HubSource(Source):
    """A hub: its run, its learners, the disk of its folder, and its syncer wherever that is."""

    def __init__(self, hub: "Coordinator") -> None:
        self._hub = hub
        self._peer = SyncerElsewhere(hub.settings.connecting)
        self._disk: list[Sample] = []
        self._reading = Reading(self._read)

    async def refresh(self) -> None:
        """Read the disk, and ask the syncer if it is another process."""
        await asyncio.gather(self._reading.run(), self._ask())

    def samples(self) -> Iterator[Sample]:
        hub, syncer = self._hub, self._hub.syncer
        yield from process_samples(ready=not self.unready_because())
        yield from run_samples(run_status_of(hub))
        yield from self._disk
        if syncer is None:
            yield Sample("islands_syncer_up", self._peer.up)
            yield from self._peer.samples
        else:
            yield Sample("islands_syncer_up", syncer.begun)
            if syncer.begun:
                yield from syncer_samples(syncer.state)

    def unready_because(self) -> str:
        core = self._hub.cluster.core
        if core is None:
            return "the supervisor begins"
        if not has_live_syncer(core):
            return "there is no live syncer"
        return BLOCKED if core.blocked else ""

    def status(self) -> Mapping[str, object]:
        return {**super().status(), **run_status_of(self._hub).fields()}

    async def _ask(self) -> None:
        core = self._hub.cluster.core
        addresses = () if core is None else core.addresses()
        if self._hub.syncer is None:
            await self._peer.ask(addresses[0] if addresses else None)

    def _read(self) -> None:
        found = os.statvfs(self._hub.settings.folder)
        value = VALUE_BYTES * sum(each.size for each in self._hub.plan.layout.fragments)
        folder = self._hub.folder
        reserve = max(RESERVE_BYTES_LEAST, RESERVED_RECORDS * value)
        self._disk = [
            Sample("islands_disk_free_bytes", found.f_bavail * found.f_frsize),
            Sample("islands_disk_size_bytes", found.f_blocks * found.f_frsize),
            Sample("islands_disk_reserve_bytes", reserve),
            Sample("islands_disk_failing", bool(folder.trouble)),
            Sample("islands_disk_lost_entries_total", folder.lost),
        ]


class SyncerElsewhere:
    """The samples of a syncer in another process, which is asked for them."""

    def __init__(self, connecting: ConnectOptions) -> None:
        self._connecting = connecting
        token = token_of(connecting)
        self._headers = {} if token is None else {"Authorization": token.header()}
        self._tls: SSLContext | None = None
        self.samples: list[Sample] = []

    @property
    def up(self) -> bool:
        return bool(self.samples)

    async def ask(self, address: str | None) -> None:
        """Ask for the samples; whatever goes wrong, there are none then."""
        self.samples = []
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            if address is not None:
                text = await self._get(address)
                found = [
                    one for each in text_string_to_metric_families(text) for one in each.samples
                ]
                self.samples = [
                    Sample(one.name, one.value, tuple(one.labels.values()))
                    for one in found
                    if one.name.startswith(OF_SYNCER) and one.name in BY_NAME
                ]

    async def _get(self, address: str) -> str:
        scheme, _, rest = address.partition("://")
        url = f"{'https' if scheme == 'wss' else 'http'}://{rest.partition('/')[0]}{METRICS}"
        if scheme == "wss" and self._tls is None:
            own = self._connecting
            self._tls = client_tls(own.tls_ca, own.tls_certificate, own.tls_key)
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
            session.get(url, ssl=self._tls or True, allow_redirects=False) as answer,
        ):
            answer.raise_for_status()
            text = b""
            while len(text) < ANSWER_BYTES_MOST and (part := await answer.content.readany()):
                text += part
            return text.decode()


class SyncerSource(Source):
    """A syncer that is a process of its own."""

    def __init__(self, syncer: SyncerActor) -> None:
        self._syncer = syncer

    def samples(self) -> Iterator[Sample]:
        yield from process_samples(ready=not self.unready_because())
        if self._syncer.begun:
            yield from syncer_samples(self._syncer.state)

    def unready_because(self) -> str:
        if not self._syncer.begun:
            return "the journal is being read"
        return BLOCKED if self._syncer.state.phase is Phase.BLOCKED else ""


@asynccontextmanager
async def metrics_served(hub: "Coordinator") -> AsyncIterator[None]:
    """Serve a hub's metrics while the block lasts, and send notices and records that are wanted."""
    source, settings = HubSource(hub), hub.settings
    site = MetricsSite(source, token_of(settings.connecting))
    hub.network.serve(site)
    hub.status = lambda: msgspec.json.encode({**source.status(), "islands": hub.placed()})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sink_processes(settings.sinks, hub.folder.path, say))
        if settings.on_event is not None:
            run = hub.spec.settings.run
            await stack.enter_async_context(notices_sent(settings.on_event, hub.folder, run, say))
        yield


def serve_syncer(
    network: WebsocketNetwork, syncer: SyncerActor, connecting: ConnectOptions
) -> None:
    network.serve(MetricsSite(SyncerSource(syncer), token_of(connecting)))
