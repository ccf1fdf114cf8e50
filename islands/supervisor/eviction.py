"""When a member is suspect, stalled or evicted. Only the supervisor judges this.

=====================================================  =========
silent for `suspect_s`, or its link closed              suspect
compiling for `compile_s`                               stalled
in its first steps for max(`stalled_s`, `compile_s`)    stalled
no further step for max(`stalled_s`, 5 · its step)      stalled
silent for `evict_s`                                    evicted
=====================================================  =========

Nobody knows how long a step takes before one was measured, and the first one may still compile, or
let devices find one another: so it has the time of a compilation, and is not measured itself. Then
a learner's step is the longest of the last `STEPS_KEPT`: one in ten may evaluate or save something.
A learner that compiles in the middle of a step says so with its heartbeats.

Being stalled is a word. Who is killed for it, and when, is decided in `stalls.py`.

Liveness (is it heard), participation (does it contribute) and staleness (how old is what it holds)
are three different figures; only the first one evicts.

A supervisor that was paused itself has heard nobody. It sees that from the gap between two ticks
of its own, and moves everybody's deadlines by the gap before it judges: an overdue timer runs
before the heartbeats that queued up behind it.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from islands.identities import Incarnation, Phase, Role, Status
from islands.settings.run import Timing
from islands.supervisor.names import IncarnationLines

STALLED_STEPS = 5
STEPS_KEPT = 16


class StallPoint(StrEnum):
    """Where a member may stand still."""

    COMPILATION = "compilation"
    FIRST_STEPS = "its first steps"
    STEP = "a step"


@dataclass(frozen=True, slots=True)
class Standstill:
    """How long a member has been at a place, and from when on it is stalled there."""

    place: StallPoint
    waited_s: float
    limit_s: float


@dataclass(slots=True)
class MemberRecord:
    """One name, in its newest incarnation. Times are seconds on the supervisor's clock.

    `steps_s` are the times of its last steps, as far as heartbeats show them. `lines` are those of
    the name (`names.py`).
    """

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
    stepped: bool = False
    steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    address: str | None = None
    epoch: int = 0
    lines: IncarnationLines = field(default_factory=IncarnationLines)

    def heard(self, phase: Phase, step: int, now_s: float) -> None:
        """A heartbeat arrived."""
        self.heard_s = now_s
        if phase is not self.phase:
            self.phase, self.phase_since_s, self.stepped_s = phase, now_s, now_s
        if step <= self.step:
            return
        if self.stepped:
            self.steps_s.append((now_s - self.stepped_s) / (step - self.step))
        self.step, self.stepped_s, self.stepped = step, now_s, True

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
    found = standstill(member, timing, now_s)
    return Status.STALLED if found is not None and found.waited_s >= found.limit_s else Status.LIVE


def standstill(member: MemberRecord, timing: Timing, now_s: float) -> Standstill | None:
    """Since when a member has been where it may be stalled; None where it rests by intention."""
    stalled_s, compile_s = timing.scaled(timing.stalled_s), timing.scaled(timing.compile_s)
    if member.phase is Phase.COMPILING:
        return Standstill(StallPoint.COMPILATION, now_s - member.phase_since_s, compile_s)
    if member.phase is not Phase.STEPPING:
        return None
    waited_s = now_s - member.stepped_s
    if not member.steps_s:
        return Standstill(StallPoint.FIRST_STEPS, waited_s, max(stalled_s, compile_s))
    limit_s = max(stalled_s, STALLED_STEPS * max(member.steps_s))
    return Standstill(StallPoint.STEP, waited_s, limit_s)
