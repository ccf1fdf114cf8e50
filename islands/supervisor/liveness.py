"""When a member is suspect, stalled or evicted. Only the supervisor judges this.

========================================================  =========
silent for `suspect_s`, or its link closed                 suspect
stepping, but no step for max(`stalled_s`, 5 · its step)   stalled
compiling for longer than `compile_s`                      stalled
silent for `evict_s`                                       evicted
========================================================  =========

Liveness (is it heard), participation (does it contribute) and staleness (how old is what it holds)
are three different figures; only the first one evicts.

A supervisor that was paused itself has heard nobody. It sees that from the gap between two ticks
of its own, and moves everybody's deadlines by the gap before it judges: an overdue timer runs
before the heartbeats that queued up behind it.
"""

from dataclasses import dataclass

from islands.config import Timing
from islands.identities import Incarnation, Phase, Role, Status

STALLED_STEPS = 5


@dataclass(slots=True)
class MemberRecord:
    """One name, in its newest incarnation. Times are seconds on the supervisor's clock."""

    role: Role
    name: str
    incarnation: Incarnation
    status: Status
    connection: int | None
    heard_s: float
    phase: Phase = Phase.JOINING
    phase_since_s: float = 0.0
    step: int = 0
    stepped_s: float = 0.0
    step_time_s: float = 0.0
    address: str | None = None
    epoch: int = 0

    def heard(self, phase: Phase, step: int, now_s: float) -> None:
        """A heartbeat arrived."""
        self.heard_s = now_s
        if phase is not self.phase:
            self.phase, self.phase_since_s, self.stepped_s = phase, now_s, now_s
        if step > self.step:
            self.step_time_s = (now_s - self.stepped_s) / (step - self.step)
            self.step, self.stepped_s = step, now_s

    def shift(self, gap_s: float) -> None:
        """We were paused for so long: nothing can have been heard meanwhile."""
        self.heard_s += gap_s
        self.stepped_s += gap_s
        self.phase_since_s += gap_s


def judge(member: MemberRecord, timing: Timing, now_s: float) -> Status:
    """A member's status now, by the table above. What has ended stays ended."""
    if member.status in (Status.EVICTED, Status.LEFT):
        return member.status
    silent_s = now_s - member.heard_s
    if silent_s >= timing.scaled(timing.evict_s):
        return Status.EVICTED
    if silent_s >= timing.scaled(timing.suspect_s) or member.connection is None:
        return Status.SUSPECT
    patient_s = max(timing.scaled(timing.stalled_s), STALLED_STEPS * member.step_time_s)
    if member.phase is Phase.STEPPING and now_s - member.stepped_s >= patient_s:
        return Status.STALLED
    compiling_s = now_s - member.phase_since_s
    if member.phase is Phase.COMPILING and compiling_s >= timing.scaled(timing.compile_s):
        return Status.STALLED
    return Status.LIVE
