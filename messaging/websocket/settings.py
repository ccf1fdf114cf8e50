"""Settings of websocket links, with the reasons for them."""

from dataclasses import dataclass, replace

FILES_KEPT = 256
"""Open files that `within` keeps for uses other than connections, such as the disk."""


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """Limits and timeouts of websocket links; the defaults suit a hub with a thousand learners.

    Attributes:
        chunk_bytes: Most bulk data in one frame; a slow path gets smaller frames.
        control_capacity: Control envelopes that may wait to be sent, and as many to be received.
        bulk_capacity: Bulk envelopes that may wait to be sent, and as many to be received.
        control_inbox_bytes: Reading of control pauses while more bytes than this wait unread.
        outbox_bytes: Bulk bytes without a topic that may wait to be sent; one alone may exceed it.
        inbox_bytes: Reading of the bulk socket pauses while more bytes than this wait unread.
        queue_delay_s: Queueing delay that bulk may cause on the path to the peer.
        handshake_s: How long a peer may take from connecting to a session that is complete.
        close_s: How long closing may take to send queued control and to get the peer's answer.
        ping_s: Interval at which the keepalive checks whether anything arrived.
        silent_pings: A session is given up after so many checks without success.
        user_timeout_s: How long the system may wait for sent bytes to be acknowledged.
        backlog: Complete sessions that may wait to be accepted, per listener.
        connections_max: Most connections of the server, of whatever kind. Members have no other
            bound, so that memory and open files alone limit them.
        unauthenticated_max: Most connections that have not shown the secret yet;
            `connection_limits` says which one is evicted.
        guests_max: Most connections that have shown it and whose session is not admitted yet.
        refusals_per_s: Refusals that are reported, per second and address.
    """

    chunk_bytes: int = 1 << 19
    control_capacity: int = 1024
    bulk_capacity: int = 64
    control_inbox_bytes: int = 1 << 18
    outbox_bytes: int = 1 << 25
    inbox_bytes: int = 1 << 26
    queue_delay_s: float = 0.1
    handshake_s: float = 5.0
    close_s: float = 2.0
    ping_s: float = 5.0
    silent_pings: int = 5
    user_timeout_s: float = 30.0
    backlog: int = 1024
    connections_max: int = 1 << 20
    unauthenticated_max: int = 512
    guests_max: int = 4096
    refusals_per_s: int = 10

    def within(self, files: int) -> "WebsocketSettings":
        """Return settings that leave enough of a process's `files` open files for its disk.

        Connections that have shown the secret get the largest part.
        """
        connections = max(1, files // 4, files - FILES_KEPT)
        return replace(
            self,
            connections_max=min(self.connections_max, connections),
            unauthenticated_max=max(1, min(self.unauthenticated_max, connections // 4)),
            guests_max=max(1, min(self.guests_max, connections // 2)),
        )
