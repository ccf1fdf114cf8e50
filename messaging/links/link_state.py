"""Decides when to dial again, and when a silent peer is given up; pure, see `dialer`.

Back-off: the n-th retry in a row without a stable session waits first_s × 2^(n−1), at most
longest_s; a fraction of it is random, so that peers which lost the same host do not return all at
once. A session counts as stable, and the count begins anew, once it has lasted `stable_s`: a link
that flaps is dialled ever more rarely, although each dial succeeds.

Liveness: a session on which nothing arrived for `liveness_s` is closed, because a cut connection
looks exactly like an idle one. There is one timer, which is set anew only when it fires, so that
receiving costs nothing. A timer that fires late means that this process itself was paused, and that
messages which came meanwhile wait unread: the timeout starts anew. It also starts anew if this
process had no room for a message: while it does not read, it cannot hear.
"""

from dataclasses import dataclass
from math import inf

BACKOFF_FACTOR = 2.0
JITTER = 0.5
"""Fraction of a wait that is random."""
OWN_PAUSE = 0.25
"""A timer that is late by this fraction of `liveness_s` means that this process was paused."""


@dataclass(frozen=True, slots=True)
class DialSettings:
    """Timeouts of a dialled session, and its back-off.

    One attempt may take `dial_timeout_s`, and the peer may be silent for `liveness_s`. After a
    session of length `stable_s`, the wait begins again at `backoff_first_s`.
    """

    backoff_first_s: float = 0.1
    backoff_longest_s: float = 5.0
    dial_timeout_s: float = 5.0
    stable_s: float = 5.0
    liveness_s: float = inf


class Backoff:
    """Waits between attempts to open a session."""

    def __init__(self, settings: DialSettings) -> None:
        self._settings = settings
        self._attempts = 0  # in a row without a stable session

    def refused(self, jitter: float) -> float:
        """Return the seconds to wait after a failed dial; `jitter` is random, from 0 to 1."""
        settings = self._settings
        grown_s = settings.backoff_first_s * BACKOFF_FACTOR ** min(self._attempts, 64)
        self._attempts += 1
        return min(grown_s, settings.backoff_longest_s) * (1.0 - JITTER * jitter)

    def lost(self, lasted_s: float, jitter: float) -> float:
        """Return the seconds to wait after the end of a session that lasted so long."""
        if lasted_s >= self._settings.stable_s:
            self._attempts = 0
        return self.refused(jitter)


class Liveness:
    """Whether the peer of one session has been silent for too long; `check` is due at `check_s`."""

    def __init__(self, liveness_s: float, now_s: float) -> None:
        self.check_s = now_s + liveness_s
        self._liveness_s = liveness_s
        self._heard_s = now_s
        self._held = False

    def heard(self, now_s: float, *, held: bool) -> None:
        """Note an envelope; if it is `held`, nothing more is read until there is room for it."""
        self._heard_s = now_s
        self._held = held

    def check(self, now_s: float) -> str | None:
        """Set `check_s` anew, or return the reason for which the session must be closed."""
        if self._held or now_s - self.check_s >= OWN_PAUSE * self._liveness_s:
            self._heard_s = now_s
        self.check_s = self._heard_s + self._liveness_s
        if now_s >= self.check_s:
            return f"nothing heard for {now_s - self._heard_s:.3g} s"
        return None
