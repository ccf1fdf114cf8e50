"""The envelope: a message from one actor to another, in one process or across hosts."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

from messaging.errors import LocalFault

_T = TypeVar("_T")
_MARK = "__message__"

NOMINAL_HEADER_BYTES = 256
"""Assumed size, in accounting, of the header of an envelope which has not been encoded."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message with its addresses.

    Inside one process an envelope is passed by reference: neither the body nor the payload is
    copied, and by convention nobody modifies them.

    Attributes:
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


@dataclass_transform(frozen_default=True)
def message(kind: type[_T]) -> type[_T]:
    """Make a class a frozen slotted dataclass that may be the body of an envelope, by its name."""
    frozen = dataclass(frozen=True, slots=True)(kind)
    setattr(frozen, _MARK, True)
    return frozen


def tag_of(kind: type) -> str:
    """Return the name of a type of message on the wire."""
    if not is_message(kind):
        raise LocalFault(f"{kind.__name__!r} is no message: it has no tag for the wire")
    return kind.__name__


def is_message(kind: type) -> bool:
    return _MARK in vars(kind)
