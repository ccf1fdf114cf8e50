"""All kinds of entries, and the decoding of a tape's lines into them.

The union is collected from the modules that declare entries, so that no kind is listed twice.
"""

from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Union

import msgspec

from islands.protocol.errors import TapeError
from islands.protocol.tape import (
    gossip_entries,
    learner_entries,
    member_entries,
    process_entries,
    round_entries,
    simulation_entries,
)
from islands.protocol.tape.entry import VERSION, Entry, Line, Notable, Stamp, kind_of
from islands.protocol.tape.process_entries import TapeBegan

MODULES = (
    process_entries,
    member_entries,
    round_entries,
    learner_entries,
    gossip_entries,
    simulation_entries,
)
"""Modules that declare entries, in the order of the docs."""


def _entries_of(module: ModuleType) -> list[type[Entry]]:
    found = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in found if issubclass(one, Entry) and one.__module__ == module.__name__]


ENTRIES = tuple(entry for module in MODULES for entry in _entries_of(module))
"""Every type of entry."""


def kinds_of(*entries: type[Entry]) -> frozenset[str]:
    return frozenset(map(kind_of, entries))


NOTABLE = kinds_of(*(entry for entry in ENTRIES if issubclass(entry, Notable)))
"""Kinds of entries that are also kept in the run's folder, whichever process writes them."""

_BY_KIND = {kind_of(entry): entry for entry in ENTRIES}

if TYPE_CHECKING:
    AnyEntry = Entry
else:
    AnyEntry = Union[ENTRIES]  # noqa: UP007  the types are collected, not written out

_STAMP = msgspec.json.Decoder(Stamp)
_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(AnyEntry)


def read(lines: Iterable[bytes]) -> list[Line]:
    found: list[Line] = []
    for number, line in enumerate(lines, start=1):
        try:
            stamp = _STAMP.decode(line)
            entry = _ENTRY.decode(line)
        except msgspec.MsgspecError as error:
            raise TapeError(f"line {number} of the tape is damaged: {error}") from error
        if number == 1 and not isinstance(entry, TapeBegan):
            raise TapeError(
                "the tape does not begin with its version: its beginning is missing, or an islands "
                f"wrote it that is older than version {VERSION}; this one cannot read it"
            )
        if isinstance(entry, TapeBegan) and entry.version != VERSION:
            raise TapeError(
                f"line {number} begins a tape of version {entry.version}, and this islands reads "
                f"version {VERSION}: read it with the islands that wrote it"
            )
        found.append(Line(stamp.at_s, stamp.actor, entry))
    return found


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Entry]:
    return msgspec.json.Decoder(_BY_KIND[kind])


def decode_fields(kind: str, fields: str) -> Entry:
    """Decode an entry of a known kind from its fields as a JSON object; ignore unknown fields."""
    return _decoder(kind).decode(fields)
