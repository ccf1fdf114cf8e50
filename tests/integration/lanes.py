"""Envelopes that carry the same bytes on either lane of a link.

A payload takes the bulk lane, and no other; on the control lane bytes are part of the message.
"""

from messaging.envelope import Envelope, message
from messaging.links.link import Lane
from tests.messaging.doubles import Probe, probe


@message
class Spoken:
    """Body of an envelope that carries its bytes itself."""

    data: bytes


MESSAGE_TYPES = (Probe, Spoken)
"""What a network must know to carry these envelopes."""


def carrying(data: bytes, lane: Lane, number: int) -> Envelope:
    """Make an envelope for this lane; bulk without bytes has no payload at all."""
    if lane is Lane.CONTROL:
        return Envelope("near", "far", number, Spoken(data))
    return probe(number, (memoryview(data),) if data else ())
