"""Commands as messages: their fields in one, and each of their arrays in one of its own.

A value that is adopted is cut: each host is sent its share alone, or has it from the syncer.
Everything else is sent whole.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, get_type_hints

import msgspec

from islands.island.agreement import End, LogEntry
from islands.learner.commands import BookCopy
from islands.protocol.errors import InvariantError
from islands.protocol.learner.actions import (
    AdoptValue,
    AllowSteps,
    LoadMoments,
    PlanSnapshots,
    ReadMoments,
    ReadValue,
    ResetMoments,
    TellPosition,
)

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(AdoptValue, AllowSteps, LoadMoments, PlanSnapshots),
        *(ReadMoments, ReadValue, ResetMoments, TellPosition, BookCopy, End),
    )
}
"""The commands that hosts agree on; learners that gossip are on one host each."""

ARRAYS = ("payload", "sent", "pieces")
"""Names of the fields that hold arrays."""


def arrays_of(entry: LogEntry) -> tuple[memoryview, ...]:
    """Return the arrays of a command, in the order in which they are sent."""
    match entry:
        case AdoptValue(sent=sent, in_shares=in_shares):
            payload = () if in_shares else (entry.payload,)
            return payload if sent is None else (*payload, sent)
        case LoadMoments(pieces):
            return pieces
        case _:
            return ()


def with_arrays(entry: LogEntry, arrays: Sequence[memoryview]) -> LogEntry:
    """Return a command with these arrays in the place of its own, in the order of `arrays_of`."""
    match entry:
        case AdoptValue(in_shares=True):
            return replace(entry, sent=arrays[0] if arrays else None)
        case AdoptValue():
            sent = arrays[1] if len(arrays) > 1 else None
            return replace(entry, payload=arrays[0], sent=sent)
        case LoadMoments():
            return replace(entry, pieces=tuple(arrays))
        case _:
            return entry


def body_of(entry: LogEntry) -> dict[str, Any]:
    """Return the fields of a command that are no arrays, as plain values."""
    plain = [each.name for each in fields(entry) if each.name not in ARRAYS]
    return {name: msgspec.to_builtins(getattr(entry, name)) for name in plain}


def entry_of(kind: str, body: dict[str, Any], arrays: Sequence[memoryview]) -> LogEntry:
    """Return the command that a message tells.

    Raises:
        InvariantError: there is no such command, or it has other fields: the hosts run different
            versions of Islands.
    """
    made = KINDS.get(kind)
    if made is None:
        raise InvariantError(f"the leader issued {kind!r}, which this host does not know")
    hints = _hints(kind)
    try:
        known = {name: msgspec.convert(value, hints[name]) for name, value in body.items()}
        empty: dict[str, object] = {}
        if made is AdoptValue:
            empty = {"payload": memoryview(b"")}
        elif made is LoadMoments:
            empty = {"pieces": ()}
        entry: LogEntry = made(**known, **empty)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InvariantError(f"the leader issued a {kind} that cannot be read: {error}") from error
    return with_arrays(entry, arrays)


@cache
def _hints(kind: str) -> dict[str, Any]:
    return get_type_hints(KINDS[kind])
