"""Rules about bounds: finite values (I3), contribution memory (I5), queues (I7), an orderly end."""

from collections.abc import Iterator
from math import inf, isfinite

from islands.lab.checker.evidence import History, Limits
from islands.lab.checker.spans import bad_disk_spans, frozen_spans, overlap_s
from islands.protocol.identities import SYNCER, Role
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.member_entries import Admitted, ProcessEnded, ProcessStarted
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import Finished, Merged
from islands.protocol.tape.simulation_entries import (
    SECOND_SYNCER,
    Fault,
    Final,
    LeftOver,
    ProcessKilled,
)

FLOAT32_BYTES = 4

DISK_GONE_S = 2.0
"""How long after its disk was mended a process may end that could not use it."""


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
    """No process fails, and the run ends for all, with the values that were merged last.

    A process may end for want of its disk, and of two syncers the older one.
    """
    excuses = _Excuses(history)
    for at_s, actor, entry in history.lines:
        excuses.take(actor, entry)
        if isinstance(entry, ProcessEnded) and entry.error:
            if not excuses.excused(entry.name, entry.error, at_s):
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


class _Excuses:
    """The ends that faults explain, as far as entries were taken in."""

    def __init__(self, history: History) -> None:
        self._bad_disks = bad_disk_spans(history)
        self._frozen = frozen_spans(history)
        self._epochs: dict[str, float] = {SYNCER: inf}
        """Of each syncer's last start; infinite until it tells which one it took."""

    def take(self, actor: str, entry: Entry) -> None:
        """Note the syncers that begin, and the epochs that they have taken."""
        if isinstance(entry, Fault) and entry.fault == SECOND_SYNCER:
            self._epochs.update(dict.fromkeys(entry.names, inf))
        elif isinstance(entry, ProcessStarted) and entry.name in self._epochs:
            self._epochs[entry.name] = inf
        elif isinstance(entry, Started) and actor in self._epochs:
            self._epochs[actor] = entry.epoch

    def excused(self, name: str, error: str, at_s: float) -> bool:
        """Whether a process had to end with this error at this time."""
        match error.partition("(")[0]:
            case "DiskError":
                return any(self._gone(name, span, at_s) for span in self._bad_disks.get(name, []))
            case "FencedError":
                others = [epoch for other, epoch in self._epochs.items() if other != name]
                return max(others, default=0.0) >= self._epochs.get(name, inf)
            case _:
                return False

    def _gone(self, name: str, span: tuple[float, float], at_s: float) -> bool:
        """Whether a disk was bad, or so shortly before that its process has only ended now."""
        begun_s, mended_s = span
        latest_s = mended_s + DISK_GONE_S + overlap_s(self._frozen, name, begun_s, at_s)
        return begun_s <= at_s <= latest_s
