"""Metrics of a hub and of a syncer, which are served at the port that others dial."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from islands.metrics.notices import notices_sent
from islands.metrics.site import MetricsSite
from islands.metrics.sources import HubSource, SyncerSource
from islands.run.hosting.process_runtime import say, token_of
from islands.settings.groups import ConnectOptions
from islands.sinks.processes import sink_processes
from islands.syncer.actor import SyncerActor
from messaging.websocket.network import WebsocketNetwork

if TYPE_CHECKING:
    from islands.run.coordinator import Coordinator


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
