"""Rules about inner moments: where a process's come from, and that none waits long for them."""

from collections.abc import Iterator

from islands.history.entries import (
    MomentsFresh,
    MomentsGiven,
    MomentsTaken,
    ProcessStarted,
    Told,
)
from islands.history.evidence import History, Limits

ROUNDING_S = 1e-5
"""What rounding may add to a wait."""


def steps_follow_moments(history: History, _: Limits) -> Iterator[str]:
    """A process says once where its moments come from, and does not step before."""
    settled: dict[str, bool] = {}
    for entry in history.entries:
        if isinstance(entry, ProcessStarted):
            settled[entry.name] = False
        elif entry.actor not in settled:
            continue  # nothing tells when its process began
        elif isinstance(entry, MomentsTaken | MomentsFresh):
            if settled[entry.actor]:
                yield f"{entry.actor} settled for moments twice, again at {entry.at_s:.3f} s"
            settled[entry.actor] = True
        elif isinstance(entry, Told) and entry.tokens > 0 and not settled[entry.actor]:
            yield f"{entry.actor} stepped before {entry.at_s:.3f} s and has not said from where"
            settled[entry.actor] = True


def moments_are_given(history: History, _: Limits) -> Iterator[str]:
    """What one takes another has given, piece by piece, after it had stepped itself."""
    stepped: dict[str, None] = {}
    given: dict[tuple[str, str], dict[int, None]] = {}
    for entry in history.entries:
        if isinstance(entry, Told) and entry.tokens > 0:
            stepped[entry.actor] = None
        elif isinstance(entry, MomentsGiven):
            if entry.actor not in stepped or entry.actor == entry.to:
                yield f"{entry.actor} gave moments to {entry.to} and had none"
            given.setdefault((entry.actor, entry.to), {})[entry.piece] = None
        elif isinstance(entry, MomentsTaken):
            pieces = given.get((entry.donor, entry.actor), {})
            missing = [piece for piece in range(entry.pieces) if piece not in pieces]
            if missing:
                yield f"{entry.actor} took pieces {missing} that {entry.donor} never gave"


def nobody_waits_for_moments(history: History, limits: Limits) -> Iterator[str]:
    """However a donor fares, a first step is put off for no longer than was promised."""
    for entry in history.entries:
        if not isinstance(entry, MomentsTaken | MomentsFresh):
            continue
        if entry.waited_s > limits.moments_wait_s + ROUNDING_S:
            yield f"{entry.actor} waited {entry.waited_s} s for moments"
