"""Rules about inner moments: their origin in each process, and the longest wait for them."""

from collections.abc import Iterator

from islands.lab.checker.evidence import History, Limits
from islands.lab.checker.spans import frozen_spans, overlap_s
from islands.protocol.tape.learner_entries import (
    DISK,
    MomentsFresh,
    MomentsGiven,
    MomentsKept,
    MomentsTaken,
    Reported,
)
from islands.protocol.tape.member_entries import ProcessStarted
from islands.protocol.tape.process_entries import Exit

ROUNDING_S = 1e-5
"""Tolerance for the rounding of a wait."""


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
