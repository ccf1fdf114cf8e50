"""What can be set about websocket links, and why it is set as it is."""

from dataclasses import dataclass, replace

from messaging.codec.frames import MIN_CHUNK_BYTES
from messaging.errors import LocalFault

BULK_SOCKETS_MAX = 16

FILES_KEPT = 256
"""Of the files that a process may open: for all that is not a connection, such as its disk."""


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """How websocket links behave; the defaults suit a hub with a thousand learners.

    Attributes:
        chunk_bytes: Most bulk data in one frame; a way that is slow gets smaller ones.
        bulk_sockets: Bulk sockets per session, beside the one for control; the listener decides.
        control_capacity: Control envelopes that may wait to be sent, and to be received.
        bulk_capacity: The same for bulk envelopes.
        control_inbox_bytes: Once so many bytes of control wait unread, no more is read.
        outbox_bytes: Of bulk without a topic that may wait to be sent beside another envelope.
        inbox_bytes: Once so many bytes of bulk wait unread, no more is read from the sockets.
        queue_delay_s: How much longer than the least possible bulk may make the way to the peer;
            None sends as fast as the system takes it.
        handshake_s: How long a peer may take from connecting to a session that is complete.
        close_s: How long closing may take to send what waits and to hear the peer's answer.
        ping_s: How often the backstop looks whether anything was heard.
        silent_pings: After so many looks in vain a session is given up.
        user_timeout_s: How long the system may wait for sent bytes to be acknowledged.
        backlog: Complete sessions that may wait to be accepted, per listener.
        connections_max: Connections of the server, of whatever kind. Those that showed the secret
            have no other bound, so that members are bounded by memory and open files alone.
        unauthenticated_max: Those of them that have not shown the secret yet; who gives way is said
            in `visitors`.
        guests_max: Those that have shown it, and have not been admitted by whom they came to.
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
        """Refuse settings under which no session could work.

        Raises:
            LocalFault: A value is out of range.
        """
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
        """The same with so few connections that a process of so many open files can use its disk.

        Most of them are left to those that have shown the secret.
        """
        connections = max(1, files // 4, files - FILES_KEPT)
        return replace(
            self,
            connections_max=min(self.connections_max, connections),
            unauthenticated_max=max(1, min(self.unauthenticated_max, connections // 4)),
            guests_max=max(1, min(self.guests_max, connections // 2)),
        )
