"""The spans of time for which a fault lasted, from the entries that begin and end it."""

from collections.abc import Iterable, Mapping
from math import inf

from islands.lab.checker.evidence import History
from islands.protocol.tape.member_entries import ProcessStarted
from islands.protocol.tape.simulation_entries import (
    DISK_MENDED,
    FAILING,
    FREEZE,
    FULL,
    SLOW_DISK,
    THAW,
    Fault,
)

DISK_FAULTS = (FULL, FAILING)
DISK_SOUND = (DISK_MENDED, SLOW_DISK)
"""What ends them: a disk has one fault at a time, and a slow one is neither full nor fails."""

Spans = Mapping[str, list[tuple[float, float]]]
"""Begin and end of each span in seconds of the tape, by the name of whom it struck."""


def frozen_spans(history: History) -> Spans:
    """Return when each process was frozen: a new start of a process ends its freeze as well."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for at_s, _, entry in history.lines:
        if isinstance(entry, Fault) and entry.fault == FREEZE:
            begin(spans, entry.names, at_s)
        elif isinstance(entry, Fault) and entry.fault == THAW:
            end(spans, entry.names, at_s)
        elif isinstance(entry, ProcessStarted):
            end(spans, [entry.name], at_s)
    return spans


def bad_disk_spans(history: History) -> Spans:
    """Return when the disk of each process was full or failed."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for at_s, _, entry in history.lines:
        if isinstance(entry, Fault) and entry.fault in DISK_FAULTS:
            begin(spans, entry.names, at_s)
        elif isinstance(entry, Fault) and entry.fault in DISK_SOUND:
            end(spans, entry.names, at_s)
    return spans


def begin(spans: dict[str, list[tuple[float, float]]], names: Iterable[str], at_s: float) -> None:
    """Open a span of each name that has no open one."""
    for name in names:
        own = spans.setdefault(name, [])
        if not own or own[-1][1] < inf:
            own.append((at_s, inf))


def end(spans: dict[str, list[tuple[float, float]]], names: Iterable[str], at_s: float) -> None:
    """Close the open spans of these names."""
    for name in names:
        own = spans.get(name, [])
        if own and own[-1][1] == inf:
            own[-1] = (own[-1][0], at_s)


def overlap_s(spans: Spans, name: str, from_s: float, to_s: float) -> float:
    """Return for how long the spans of a name lasted between two times."""
    return sum(
        max(0.0, min(ended_s, to_s) - max(begun_s, from_s))
        for begun_s, ended_s in spans.get(name, [])
    )
