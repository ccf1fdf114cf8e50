"""The envelope: a message from one actor to another, in one process or across hosts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from messaging.errors import LocalFault

_T = TypeVar("_T")
_TAG = "__message_tag__"

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


def message(tag: str) -> Callable[[type[_T]], type[_T]]:
    """Mark a frozen slotted dataclass as one that may be the body of an envelope.

    Args:
        tag: its name on the wire, which stays when the class is renamed.
    """

    def marked(kind: type[_T]) -> type[_T]:
        setattr(kind, _TAG, tag)
        return kind

    return marked


def tag_of(kind: type) -> str:
    """Return the name of a type of message on the wire."""
    tag = vars(kind).get(_TAG)
    if not isinstance(tag, str):
        raise LocalFault(f"{kind.__name__!r} is no message: it has no tag for the wire")
    return tag


def is_message(kind: type) -> bool:
    """Whether `message` made a class."""
    return _TAG in vars(kind)
