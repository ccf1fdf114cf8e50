"""The envelope: a message from one actor to another, in one process or across hosts."""

from dataclasses import dataclass

NOMINAL_HEADER_BYTES = 256
"""Assumed size, in accounting, of the header of an envelope which has not been encoded."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message with its addresses.

    Inside one process an envelope is passed by reference: neither the body nor the payload is
    copied, and by convention nobody modifies them.

    Attributes:
        sender: Name of the actor that sent it.
        recipient: Name of the actor that is to handle it.
        id: Number given by the sender, unique among the sender's envelopes of one incarnation.
        body: A frozen slotted dataclass that both sides have registered with their codec.
        payload: Bulk bytes that belong to the body, such as a fragment's values.
    """

    sender: str
    recipient: str
    id: int
    body: object
    payload: tuple[memoryview, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of this envelope on a wire: its payload and a nominal header."""
        if not self.payload:
            return NOMINAL_HEADER_BYTES
        return NOMINAL_HEADER_BYTES + sum(buffer.nbytes for buffer in self.payload)
