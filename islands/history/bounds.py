"""Rules about bounds: finite values (I3), contribution memory (I5), queues (I7), an orderly end."""

from collections.abc import Iterator
from math import isfinite

from islands.history.evidence import History, Limits
from islands.identities import SYNCER, Role
from islands.tape.member_entries import Admitted, ProcessEnded
from islands.tape.round_entries import Finished, Merged
from islands.tape.simulation_entries import Fault, Final, LeftOver, ProcessKilled

FLOAT32_BYTES = 4

DISK_FAULTS = ("full disk", "disk error")
SECOND_SYNCER = "second syncer"


def values_are_finite(history: History, _limits: Limits) -> Iterator[str]:
    """All measures of merges and all final values are finite."""
    for at_s, _, entry in history.lines:
        if isinstance(entry, Merged):
            measured = [*entry.norms, entry.direction_norm, entry.cosine]
            if any(value is None or not isfinite(value) for value in measured):
                yield f"fragment {entry.fragment}: merging {entry.version} measured {measured}"
        elif isinstance(entry, Final) and not entry.finite:
            yield f"the run ended with values that are not finite, at {at_s:.3f} s"


def contributions_fit(history: History, limits: Limits) -> Iterator[str]:
    """Waiting contributions take at most open rounds × admitted learners × the largest fragment."""
    admitted = (e for _, _, e in history.lines if isinstance(e, Admitted))
    names = {e.name: None for e in admitted if e.role is Role.LEARNER}
    largest = FLOAT32_BYTES * max(limits.fragment_elements)
    most = limits.open_rounds_max * len(names) * largest
    for _, _, entry in history.lines:
        if isinstance(entry, ProcessEnded | ProcessKilled):
            held = entry.waiting_bytes_most or 0
            if held > most:
                yield f"{entry.name} held {held} bytes, allowed are {most}"


def mailboxes_are_short(history: History, limits: Limits) -> Iterator[str]:
    """No mailbox ever held more messages than its limit."""
    for _, _, entry in history.lines:
        if isinstance(entry, ProcessEnded | ProcessKilled):
            most = entry.mailbox_most or 0
            if most > limits.mailbox_most:
                yield f"the mailbox of {entry.name} held {most} messages"


def run_ends(history: History, limits: Limits) -> Iterator[str]:
    """No process fails, and the run ends for all, with the values that were merged last."""
    excused: dict[str, None] = {}
    for _, _, entry in history.lines:
        if isinstance(entry, Fault):
            excused.update(_excused_by(entry))
        elif isinstance(entry, ProcessEnded) and entry.error:
            if _kind_of_end(entry.name, entry.error) in excused:
                continue
            yield f"{entry.name} failed: {entry.error}"
        elif isinstance(entry, LeftOver):
            yield f"{entry.name} did not end"
    if not limits.must_finish:
        return
    finished = [e for _, _, e in history.effective if isinstance(e, Finished)]
    final = [e for _, _, e in history.lines if isinstance(e, Final)]
    if not finished or not final:
        yield "the run did not end"
        return
    newest: dict[int, str] = {}
    for _, _, entry in history.effective:
        if isinstance(entry, Merged):
            newest[entry.fragment] = entry.digest
    for index, digest in newest.items():
        if final[-1].digests[index] != digest:
            yield f"fragment {index} ended with other values than were merged last"


def _excused_by(fault: Fault) -> dict[str, None]:
    """The ends that a fault explains: a process without its disk, and one of two syncers."""
    if fault.fault in DISK_FAULTS:
        return {_kind_of_end(name, "DiskError("): None for name in fault.names}
    if fault.fault == SECOND_SYNCER:
        return {_kind_of_end(name, "FencedError("): None for name in (SYNCER, *fault.names)}
    return {}


def _kind_of_end(name: str, error: str) -> str:
    return f"{name}: {error.partition('(')[0]}"
