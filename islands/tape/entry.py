"""What every entry of a tape is: a kind with its fields, stamped with its time and its writer.

The class is the kind: its name in small letters, with underscores, is the `kind` of a line, unless
that word means something else in the code. A field that is None unless its writer sets it does not
stand on the line at all.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

VERSION = 1
"""Of the format: raised when a kind is added, or a kind or field is renamed or goes."""


def _kind(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Entry(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
    tag_field="kind",
    tag=_kind,
):
    """What one line of a tape tells; a pure state makes it, an actor stamps and writes it."""

    @property
    def kind(self) -> str:
        """The word for it on the tape."""
        return kind_of(type(self))


class Notable(Entry, frozen=True):
    """An entry that goes to the run's folder, whichever process it comes from."""


class Logged(Notable, frozen=True):
    """An entry that a person wants to know about."""


@dataclass(frozen=True, slots=True)
class Record:
    """The action of every role's state that puts an entry on the tape."""

    entry: Entry


class Line(NamedTuple):
    """An entry as it stands on a tape.

    Attributes:
        at_s: on the writer's own monotonic clock, from the start of the run; never compared
            between hosts.
        actor: who wrote it.
        entry: what it tells.
    """

    at_s: float
    actor: str
    entry: Entry


class Stamp(msgspec.Struct):
    """With what every line begins."""

    at_s: float
    actor: str


_ENCODER = msgspec.json.Encoder()


def kind_of(entry: type[Entry]) -> str:
    """The word on the tape for a type of entry."""
    return str(entry.__struct_config__.tag)


def encode_entry(at_s: float, actor: str, entry: Entry) -> bytes:
    """One line in its one form: time, actor and kind first, then the fields in their order."""
    stamp = _ENCODER.encode(Stamp(round(at_s, 6), actor))
    return b"%b,%b" % (stamp[:-1], _ENCODER.encode(entry)[1:])
