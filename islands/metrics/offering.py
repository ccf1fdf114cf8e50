"""Metrics are offered by a hub and by a syncer at the port that others dial, by others if asked."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from islands.metrics.notices import telling
from islands.metrics.samples import MemberView
from islands.metrics.site import METRICS, MetricsSite, encode
from islands.metrics.sources import HubSource, MemberSource, SyncerSource
from islands.protocol.identities import Role
from islands.protocol.settings.addresses import split_address
from islands.run.hosting.process_runtime import say, token_of
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.sinks.feeding import fed
from islands.syncer.actor import SyncerActor
from messaging.websocket.network import WebsocketNetwork

if TYPE_CHECKING:
    from islands.learner.actor import LearnerActor
    from islands.observer.actor import ObserverActor
    from islands.run.coordinator import Coordinator


@asynccontextmanager
async def offered(hub: "Coordinator") -> AsyncIterator[None]:
    """Offer a hub's metrics while the block lasts, and tell events and sinks that are wanted."""
    source, settings = HubSource(hub), hub.settings
    site = MetricsSite(source, token_of(settings.connecting))
    hub.network.serve(site)
    hub.status = lambda: encode(source, hub.placed())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fed(settings.sinks, hub.folder.path, say))
        if settings.on_event is not None:
            run = hub.spec.settings.run
            await stack.enter_async_context(telling(settings.on_event, hub.folder, run, say))
        yield


def offer_syncer(
    network: WebsocketNetwork,
    syncer: SyncerActor,
    listening: ListenOptions,
    connecting: ConnectOptions,
) -> None:
    """Offer the metrics of a syncer that is a process of its own."""
    source = SyncerSource(syncer, listening, connecting)
    network.serve(MetricsSite(source, token_of(connecting)))


@asynccontextmanager
async def offered_at(
    address: str | None, look: Callable[[], MemberView], connecting: ConnectOptions
) -> AsyncIterator[None]:
    """Offer a member's metrics at an address of its own while the block lasts; None: not at all.

    Raises:
        LocalFault: the address cannot be bound, or needs a token.
    """
    if address is None:
        yield
        return
    token = token_of(connecting)
    network = WebsocketNetwork([], secret=token, report=say)
    host, port = split_address("metrics", address)
    try:
        await network.open(host, port)
        network.serve(MetricsSite(MemberSource(look, connecting), token))
        say(f"metrics at port {network.port}, {METRICS}")
        yield
    finally:
        await network.close()


def learner_view(learner: "LearnerActor") -> MemberView:
    """Return what a learner is and does now."""
    core = learner.state.core
    return MemberView(
        Role.LEARNER.value,
        learner.name,
        core.phase,
        supervisor_up=core.membership.supervisor_up,
        syncer_up=core.membership.syncer_up,
        admitted=core.incarnation is not None,
        steps=core.compute.steps,
        tokens=core.compute.tokens,
        sent_bytes=learner.bytes_up,
        received_bytes=learner.bytes_down,
    )


def observer_view(observer: "ObserverActor") -> MemberView:
    """Return what an observer is and does now."""
    membership = observer.state.membership
    return MemberView(
        Role.OBSERVER.value,
        observer.name,
        observer.state.phase,
        supervisor_up=membership.supervisor_up,
        syncer_up=membership.syncer_up,
        admitted=membership.incarnation is not None,
    )
