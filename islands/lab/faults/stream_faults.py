"""Faults of the bytes of one direction of a TCP connection on their way; no sockets here."""

from dataclasses import dataclass
from enum import StrEnum


class Cut(StrEnum):
    """The effect of a cut on bytes; the connection stays open either way."""

    NONE = "none"
    HOLD = "hold"  # as a real network, where TCP sends again: after the cut everything arrives
    LOSE = "lose"  # as no network that TCP runs over: the stream goes on with a gap


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that one direction suffers.

    Attributes:
        latency_s: How much later each byte arrives.
        jitter_s: Up to so much more, drawn for each piece read; the order of bytes stays.
        bandwidth_bytes_s: The most that passes; None: no limit.
        cut: Whether anything passes at all.
        reset_after_bytes: Once so many bytes of the connection were delivered, both its ends get a
            reset; None: never.
        close_delay_s: How much later the end of the stream is passed on.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth_bytes_s: float | None = None
    cut: Cut = Cut.NONE
    reset_after_bytes: int | None = None
    close_delay_s: float = 0.0
