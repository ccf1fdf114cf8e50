"""Entries of a tape: a kind with its fields, stamped with the time and the writer.

Each class is a kind: its `tag` is the `kind` of a line, and stays when the class is renamed. A
field whose default is None is left out of the line unless its writer sets it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

VERSION = 1
"""Version of the format, raised when a kind is added, or a kind or field renamed or removed."""


class Entry(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
    tag_field="kind",
):
    """The content of one line of a tape; a pure state makes it, an actor stamps and writes it."""

    @property
    def kind(self) -> str:
        return kind_of(type(self))


class Notable(Entry, frozen=True):
    """An entry that is also kept in the run's folder, whichever process writes it."""


class Logged(Notable, frozen=True):
    """An entry that is also written to `run.log`, for people to read."""


@dataclass(frozen=True, slots=True)
class Record:
    """The action of every role's state that puts an entry on the tape."""

    entry: Entry


class Line(NamedTuple):
    """A stamped entry of a tape, with seconds on its writer's own clock since the run's start."""

    at_s: float
    actor: str
    entry: Entry


class Stamp(msgspec.Struct):
    """The fields with which every line begins."""

    at_s: float
    actor: str


_ENCODER = msgspec.json.Encoder()


def kind_of(entry: type[Entry]) -> str:
    return str(entry.__struct_config__.tag)


def encode_entry(at_s: float, actor: str, entry: Entry) -> bytes:
    """Encode a line canonically: time, actor and kind first, then the fields in their order."""
    stamp = _ENCODER.encode(Stamp(round(at_s, 6), actor))
    return b"%b,%b" % (stamp[:-1], _ENCODER.encode(entry)[1:])
