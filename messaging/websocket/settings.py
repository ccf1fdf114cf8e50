"""Settings of websocket links, with the reasons for them."""

from dataclasses import dataclass, replace

from messaging.codec.frames import MIN_CHUNK_BYTES
from messaging.errors import LocalFault

BULK_SOCKETS_MAX = 16

FILES_KEPT = 256
"""Open files that `within` keeps for uses other than connections, such as the disk."""


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """Limits and timeouts of websocket links; the defaults suit a hub with a thousand learners.

    Attributes:
        chunk_bytes: Most bulk data in one frame; a slow path gets smaller frames.
        bulk_sockets: Bulk sockets per session, beside the control socket; the listener decides.
        control_capacity: Control envelopes that may wait to be sent, and as many to be received.
        bulk_capacity: Bulk envelopes that may wait to be sent, and as many to be received.
        control_inbox_bytes: Reading of control pauses while more bytes than this wait unread.
        outbox_bytes: Bulk bytes without a topic that may wait to be sent; one alone may exceed it.
        inbox_bytes: Reading of the bulk sockets pauses while more bytes than this wait unread.
        queue_delay_s: Queueing delay that bulk may cause on the path to the peer; None: bulk is
            sent as fast as the system accepts it.
        handshake_s: How long a peer may take from connecting to a session that is complete.
        close_s: How long closing may take to send queued control and to get the peer's answer.
        ping_s: Interval at which the keepalive checks whether anything arrived.
        silent_pings: A session is given up after so many checks without success.
        user_timeout_s: How long the system may wait for sent bytes to be acknowledged.
        backlog: Complete sessions that may wait to be accepted, per listener.
        connections_max: Most connections of the server, of whatever kind. Members have no other
            bound, so that memory and open files alone limit them.
        unauthenticated_max: Most connections that have not shown the secret yet; `visitors` says
            which one is evicted.
        guests_max: Most connections that have shown it and whose session is not admitted yet.
        refusals_per_s: Refusals that are reported, per second and address.
    """

    chunk_bytes: int = 1 << 19
    bulk_sockets: int = 1
    control_capacity: int = 1024
    bulk_capacity: int = 64
    control_inbox_bytes: int = 1 << 18
    outbox_bytes: int = 1 << 25
    inbox_bytes: int = 1 << 26
    queue_delay_s: float | None = 0.1
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

    def __post_init__(self) -> None:
        """Refuse settings with which no session could work."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise LocalFault(f"{name} must be positive, not {value}")
        if self.bulk_sockets > BULK_SOCKETS_MAX:
            raise LocalFault(
                f"bulk_sockets is {self.bulk_sockets}; more than {BULK_SOCKETS_MAX} help nobody"
            )
        if self.chunk_bytes < MIN_CHUNK_BYTES:
            raise LocalFault(f"chunk_bytes must be at least {MIN_CHUNK_BYTES}")

    def within(self, files: int) -> "WebsocketSettings":
        """Return settings that leave enough of a process's `files` open files for its disk.

        Connections that have shown the secret get the largest share.
        """
        connections = max(1, files // 4, files - FILES_KEPT)
        return replace(
            self,
            connections_max=min(self.connections_max, connections),
            unauthenticated_max=max(1, min(self.unauthenticated_max, connections // 4)),
            guests_max=max(1, min(self.guests_max, connections // 2)),
        )
