"""How long a round waits for stragglers after its quorum is complete.

The time that τ overlapped steps hide, less what the exchange itself takes, is free: no learner
waits for an update that arrives within it. A share γ of it is spent on waiting, at most one step:

    grace = min(ξ_step, γ · max(0, τ·ξ_step − ξ_quorum − ξ_sync))

ξ_step: seconds per step of the pace-setting learner; ξ_quorum: from opening a round to its K-th
arrival; ξ_sync: from closing a round to the K-th report of adoption. All three are measured on the
syncer's clock; until all are known, grace is 0.

Reference: Decoupled DiLoCo (arXiv 2604.21428), Eq. 3.
Deviation: γ is unpublished; its default of 0.8 is ours.
"""

from dataclasses import dataclass
from math import ceil

from islands.protocol.moving_average import MovingAverage

WARN_EVERY_S = 60.0


@dataclass(slots=True)
class Durations:
    """The three measured times of Eq. 3, in seconds."""

    step_s: MovingAverage
    quorum_s: MovingAverage
    sync_s: MovingAverage

    @classmethod
    def unknown(cls) -> "Durations":
        """Return durations of which none is measured yet."""
        return cls(MovingAverage(), MovingAverage(), MovingAverage())


def overlap_needed(durations: Durations) -> int | None:
    """Return the τ that hides an exchange; None while its times are unknown."""
    step_s, quorum_s = durations.step_s.value, durations.quorum_s.value
    sync_s = durations.sync_s.value
    if not step_s or quorum_s is None or sync_s is None:
        return None
    return ceil((quorum_s + sync_s) / step_s) + 1


def grace_s(durations: Durations, *, overlap_steps: int, safety: float) -> float:
    """Return the seconds to wait after the K-th arrival (see the module's docstring)."""
    step_s = durations.step_s.value
    quorum_s = durations.quorum_s.value
    sync_s = durations.sync_s.value
    if step_s is None or quorum_s is None or sync_s is None:
        return 0.0
    hidden_s = max(0.0, overlap_steps * step_s - quorum_s - sync_s)
    return min(step_s, safety * hidden_s)


@dataclass(frozen=True, slots=True)
class OverlapShortfall:
    """The exchange takes longer than the overlapped steps hide; `steps_needed` would hide it."""

    exchange_s: float
    hidden_s: float
    steps_needed: int


@dataclass(slots=True)
class GraceWatch:
    """Watches for a grace that stays 0 because the exchange takes longer than τ steps.

    Then only the K fastest answers are merged: the operator should know, and may choose a larger τ
    or a better network.
    """

    since_s: float | None = None
    warned_s: float | None = None

    def look(
        self, durations: Durations, *, overlap_steps: int, patient_s: float, now_s: float
    ) -> OverlapShortfall | None:
        """Return the shortfall, if it has lasted for `patient_s`; at most once a minute.

        Without overlap there is never a grace, and so nothing to warn of.
        """
        needed = overlap_needed(durations)
        if needed is None or overlap_steps == 0:
            return None
        hidden_s = overlap_steps * (durations.step_s.value or 0.0)
        exchange_s = (durations.quorum_s.value or 0.0) + (durations.sync_s.value or 0.0)
        if exchange_s < hidden_s:
            self.since_s = None
            return None
        if self.since_s is None:
            self.since_s = now_s
        lately = self.warned_s is not None and now_s - self.warned_s < WARN_EVERY_S
        if now_s - self.since_s < patient_s or lately:
            return None
        self.warned_s = now_s
        return OverlapShortfall(exchange_s, hidden_s, needed)
