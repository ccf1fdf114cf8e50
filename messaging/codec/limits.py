"""Limits on what a peer may send, and a check of a document before anything is allocated for it.

msgpack trusts a length before it sees the bytes, makes a list of the claimed size, and nests as
deep as the document claims: a few kilobytes can claim gigabytes. `check_document` therefore walks
the bytes first. It allocates nothing but a stack of at most `depth` counters and stops at the first
breach. It is one loop without function calls, because a peer decides how often it iterates.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from messaging.errors import FrameError


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one peer may send.

    The defaults serve peers that know nothing of each other yet; a process that knows how large
    its own messages can be sets limits of its own.

    Attributes:
        frame_bytes: Largest websocket message; a payload comes in several.
        header_bytes: Largest size of an encoded envelope without its payload.
        depth: Deepest nesting of lists and maps in that document.
        items: Most values in that document, keys of maps included.
        name_characters: Longest name of an actor or of a message type.
        payload_bytes: Largest size of all buffers of one envelope together.
        payloads: Largest payload by message type, 0 for types not named; None: no further bound.
    """

    frame_bytes: int = (1 << 20) + 64
    header_bytes: int = 1 << 16
    depth: int = 16
    items: int = 8192
    name_characters: int = 256
    payload_buffers: int = 64
    payload_bytes: int = 1 << 26
    payloads: Mapping[str, int] | None = None

    def payload_of(self, kind: str) -> int:
        """Return the largest payload that a message of this type may have, in bytes."""
        if self.payloads is None:
            return self.payload_bytes
        return min(self.payload_bytes, self.payloads.get(kind, 0))


# What follows a type byte: how many bytes hold the length, the length if none do, and whether it
# counts bytes (0), elements (1) or pairs (2). None stands for a type that is refused.
_Form = tuple[int, int, int]


def _forms() -> tuple[_Form | None, ...]:
    """Return the form of a value for each first byte, according to the msgpack specification."""
    forms: list[_Form | None] = [None] * 256  # 0xC1 is unused; extension types are refused
    for first in (*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3):  # integers, nil, booleans
        forms[first] = (0, 0, 0)
    for length in range(16):  # short maps and lists
        forms[0x80 + length] = (0, length, 2)
        forms[0x90 + length] = (0, length, 1)
    for length in range(32):  # short strings
        forms[0xA0 + length] = (0, length, 0)
    for step, width in enumerate((1, 2, 4, 8)):  # integers
        forms[0xCC + step] = forms[0xD0 + step] = (0, width, 0)
    for step, width in enumerate((1, 2, 4)):  # bytes and strings
        forms[0xC4 + step] = forms[0xD9 + step] = (width, 0, 0)
    for step, width in enumerate((2, 4)):  # numbers, lists, maps
        forms[0xCA + step] = (0, 2 * width, 0)
        forms[0xDC + step] = (width, 0, 1)
        forms[0xDE + step] = (width, 0, 2)
    return tuple(forms)


_FORMS = _forms()


def check_document(data: bytes, limits: Limits) -> None:
    """Check one msgpack document against the limits without decoding it."""
    end = len(data)
    if end > limits.header_bytes:
        raise FrameError(f"a document of {end} bytes; at most {limits.header_bytes} are allowed")
    forms, most_items, most_depth = _FORMS, limits.items, limits.depth
    position = items = 0
    outer: list[int] = []
    left = 1  # values still to come in the current list or map; `outer` has those around it
    while left or outer:
        if not left:
            left = outer.pop()
            continue
        left -= 1
        items += 1
        if items > most_items:
            raise FrameError(f"a document of more than {most_items} values")
        if position >= end:
            raise FrameError("a document that is cut short")
        form = forms[data[position]]
        if form is None:
            raise FrameError(f"a value of the unused type {data[position]:#04x}")
        width, length, counted = form
        position += 1
        if width:
            length = int.from_bytes(data[position : position + width], "big")
            position += width
        if not counted:
            position += length
        elif length:
            length *= counted
            if length > end - position:  # each value takes at least one byte
                raise FrameError("a list or map that claims more values than there are bytes")
            outer.append(left)
            left = length
            if len(outer) > most_depth:
                raise FrameError(f"a document nested deeper than {most_depth}")
    if position > end:
        raise FrameError("a document that is cut short")
    if position != end:
        raise FrameError(f"{end - position} bytes follow the document")
