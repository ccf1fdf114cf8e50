"""The network among the hosts of an island, and how each is named to people."""

import os
import socket

from islands.protocol.messages.registry import MULTIHOST_TYPES
from islands.run.hosting.process_runtime import network_of, token_of
from islands.settings.groups import ConnectOptions
from islands.settings.run_spec import RunPlan
from islands.settings.wire_limits import STATE_PIECE_BYTES, limits_of
from messaging.codec.limits import Limits
from messaging.websocket.network import WebsocketNetwork


def network_among_hosts(connecting: ConnectOptions, plan: RunPlan) -> WebsocketNetwork:
    """Make the network that connects the hosts, which all hold the run's token."""
    run = limits_of(plan.layout)
    limits = Limits(
        frame_bytes=run.frame_bytes,
        header_bytes=run.header_bytes,
        items=run.items,
        payload_bytes=max(run.payload_bytes, STATE_PIECE_BYTES),
    )
    return network_of(connecting, token=token_of(connecting), limits=limits, types=MULTIHOST_TYPES)


def own_name() -> str:
    """Return the name of this process for people."""
    return f"{socket.gethostname()}, process {os.getpid()}"
