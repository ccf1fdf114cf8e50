"""Rules about bounds: finite values (I3), memory (I5), queues (I7), moments, an orderly end."""

from collections.abc import Iterator
from math import inf, isfinite

from islands.lab.checker.evidence import (
    History,
    Limits,
    bad_disk_spans,
    frozen_spans,
    overlap_s,
)
from islands.protocol.identities import SYNCER, Role
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.learner_entries import (
    DISK,
    MomentsFresh,
    MomentsGiven,
    MomentsKept,
    MomentsTaken,
    Reported,
)
from islands.protocol.tape.member_entries import Admitted, ProcessEnded, ProcessStarted, Promoted
from islands.protocol.tape.process_entries import Exit, Started
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

ROUNDING_S = 1e-5
"""Tolerance for the rounding of a wait."""


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


def steps_follow_moments(history: History, _limits: Limits) -> Iterator[str]:
    """A process records the origin of its moments exactly once, and does not step before."""
    settled: dict[str, bool] = {}
    for at_s, actor, entry in history.lines:
        if isinstance(entry, ProcessStarted):
            settled[entry.name] = False
        elif actor not in settled:
            continue  # the tape does not show when its process began
        elif isinstance(entry, MomentsTaken | MomentsFresh):
            if settled[actor]:
                yield f"{actor} settled for moments twice, again at {at_s:.3f} s"
            settled[actor] = True
        elif isinstance(entry, Reported) and entry.tokens > 0 and not settled[actor]:
            yield f"{actor} stepped before {at_s:.3f} s and has not said from where"
            settled[actor] = True


def moments_are_given(history: History, _limits: Limits) -> Iterator[str]:
    """All pieces that a process takes were given to it by its donor, which had stepped before.

    Both since they began: moments end with their process. From its own disk a learner takes those
    that it saved, in its course or at an orderly end.
    """
    stepped: dict[str, None] = {}
    saved: dict[str, None] = {}
    given: dict[tuple[str, str], dict[int, None]] = {}
    for _, actor, entry in history.lines:
        if isinstance(entry, ProcessStarted):
            stepped.pop(entry.name, None)
            given = {pair: pieces for pair, pieces in given.items() if pair[1] != entry.name}
        elif isinstance(entry, Reported) and entry.tokens > 0:
            stepped[actor] = None
        elif isinstance(entry, MomentsGiven):
            if actor not in stepped or actor == entry.to:
                yield f"{actor} gave moments to {entry.to} and had none"
            given.setdefault((actor, entry.to), {})[entry.piece] = None
        elif isinstance(entry, Exit) or (isinstance(entry, MomentsKept) and not entry.error):
            saved[actor] = None
        elif isinstance(entry, MomentsTaken) and entry.donor == DISK:
            if actor not in saved:
                yield f"{actor} took moments from its disk, where it had saved none"
        elif isinstance(entry, MomentsTaken):
            pieces = given.get((entry.donor, actor), {})
            missing = [piece for piece in range(entry.pieces) if piece not in pieces]
            if missing:
                yield f"{actor} took pieces {missing} that {entry.donor} never gave"


def nobody_waits_for_moments(history: History, limits: Limits) -> Iterator[str]:
    """No process waits for moments longer than the limit, whatever happens to its donor.

    For as long as it was itself frozen while it waited, it may wait longer.
    """
    frozen = frozen_spans(history)
    for at_s, actor, entry in history.lines:
        if not isinstance(entry, MomentsTaken | MomentsFresh):
            continue
        frozen_s = overlap_s(frozen, actor, at_s - entry.waited_s, at_s)
        if entry.waited_s > limits.moments_wait_s + frozen_s + ROUNDING_S:
            yield f"{actor} waited {entry.waited_s} s for moments"


def run_ends(history: History, limits: Limits) -> Iterator[str]:
    """No process fails, and the run ends for all, with the values that were merged last.

    A process may end for want of its disk, and of two syncers the older one.
    """
    excuses = _Excuses(history)
    for at_s, actor, entry in history.lines:
        excuses.note(actor, entry)
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
    """The ends that faults explain, by the entries noted so far."""

    def __init__(self, history: History) -> None:
        self._bad_disks = bad_disk_spans(history)
        self._frozen = frozen_spans(history)
        self._copied = False
        self._epochs: dict[str, float] = {SYNCER: inf}
        """The epoch of each syncer's last start; infinite until the tape says it."""

    def note(self, actor: str, entry: Entry) -> None:
        if isinstance(entry, Promoted):
            self._copied = True
            self._epochs[entry.name] = inf
        elif isinstance(entry, Fault) and entry.fault == SECOND_SYNCER:
            self._epochs.update(dict.fromkeys(entry.names, inf))
        elif isinstance(entry, ProcessStarted) and entry.name in self._epochs:
            self._epochs[entry.name] = inf
        elif isinstance(entry, Started) and actor in self._epochs:
            self._epochs[actor] = entry.epoch

    def excused(self, name: str, error: str, at_s: float) -> bool:
        match error.partition("(")[0]:
            case "DiskError":
                return any(self._gone(name, span, at_s) for span in self._bad_disks.get(name, []))
            case "FencedError" | "OutdatedError" | "RefusedError" if self._copied:
                return name in self._epochs
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
