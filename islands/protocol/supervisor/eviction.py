"""The supervisor judges when a member is suspect, stalled or evicted; nobody else does.

=====================================================  =========
silent for `suspect_s`, or its link closed              suspect
compiling for `compile_s`                               stalled
in its first steps for max(`stalled_s`, `compile_s`)    stalled
no further step for max(`stalled_s`, 5 · its step)      stalled
silent for `evict_s`                                    evicted
drained for `stalled_s` + 2 · `evict_s`                 evicted
=====================================================  =========

No step time is known before one was measured, and the first step may still compile, or wait while
devices connect to one another: so it gets the time of a compilation, and is not measured itself.
After that "its step" is the longest of the last `STEPS_KEPT`: one in ten may evaluate or save
something. A learner that compiles in the middle of a step says so with its heartbeats.

Stalled is only a status: `Stalls` decides which processes are killed for it, and when, and the
syncer when a member's tokens go to others (`islands/protocol/syncer/standstill.py`). A learner that
obeys a drain waits for 2 · `evict_s` at most; its step may take as long as it would without being
stalled.

Liveness (is it heard), participation (does it contribute) and staleness (how old is what it holds)
are three different figures; only the first one evicts.

A supervisor whose own process was suspended has heard nobody. It detects that by the gap between
two of its ticks, and moves every member's deadlines by as much as the second tick was late before
it judges: an overdue timer runs before the heartbeats that queued up behind it. After a gap of
`suspect_s` or more its members have closed their links, and may wait for as long as
`REDIAL_LONGEST_S` before they dial again: a silence with such gaps in it, however many, evicts that
much later. So of a silence no gap excuses its first `tick_s`, and a dead member is evicted in
bounded time, even if each tick of the supervisor is late: after (`evict_s` + `REDIAL_LONGEST_S`) /
`tick_s` ticks at most.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from islands.protocol.identities import WHOLE, Incarnation, Phase, Role, Status
from islands.protocol.settings.run import REDIAL_LONGEST_S, Timing
from islands.protocol.supervisor.names import Lineages

TICKS_PER_HEARTBEAT = 4
"""Times that the supervisor judges its members in an interval between two heartbeats."""
STALLED_STEPS = 5
STEPS_KEPT = 16

LIMIT_GROWTH = 2.0

LONGEST_S = 6 * 3600.0
"""No limit is doubled beyond this; a limit that the settings put higher stays as it is."""


class StallPoint(StrEnum):
    """The places at which a member can be stalled."""

    COMPILATION = "compilation"
    FIRST_STEPS = "its first steps"
    STEP = "a step"


@dataclass(frozen=True, slots=True)
class Standstill:
    """The time that a member has been at a place, and after which it counts as stalled there."""

    place: StallPoint
    waited_s: float
    limit_s: float


@dataclass(slots=True)
class MemberRecord:
    """The newest incarnation of one name; times are seconds on the supervisor's clock.

    `connection` is the link over which it was heard last, `steps_s` are the durations of its last
    steps, as far as heartbeats show them, and `lines` those of the name (`names.py`). `redials`
    tells whether it may have lost its link to a supervisor that was suspended since it was heard.
    It listens at `address`, and is dialled at `host`.
    """

    role: Role
    name: str
    incarnation: Incarnation
    status: Status
    connection: int | None
    heard_s: float
    redials: bool = False
    phase: Phase = Phase.JOINING
    phase_since_s: float = 0.0
    step: int = 0
    stepped_s: float = 0.0
    stepped: bool = False
    steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    address: str | None = None
    host: str | None = None
    epoch: int = 0
    lines: Lineages = field(default_factory=Lineages)

    def heard(self, phase: Phase, step: int, now_s: float) -> None:
        """Take in a heartbeat's phase and step, and measure the steps since the one before."""
        self.heard_s, self.redials = now_s, False
        if phase is not self.phase:
            self.phase, self.phase_since_s, self.stepped_s = phase, now_s, now_s
        if step <= self.step:
            return
        if self.stepped:
            self.steps_s.append((now_s - self.stepped_s) / (step - self.step))
        self.step, self.stepped_s, self.stepped = step, now_s, True

    @property
    def reach(self) -> tuple[str | None, str | None, bool]:
        """Where learners that gossip reach this one, and whether it trains."""
        return self.address, self.host, self.stepped and self.phase in WHOLE

    def shift(self, gap_s: float, timing: Timing) -> None:
        """Move all times by as much as the supervisor's tick is late, which was suspended."""
        if gap_s >= timing.scaled(timing.suspect_s):
            self.redials = True
        late_s = gap_s - tick_s(timing)
        self.heard_s += late_s
        self.stepped_s += late_s
        self.phase_since_s += late_s


def tick_s(timing: Timing) -> float:
    """Seconds between two ticks of the supervisor."""
    return timing.scaled(timing.heartbeat_s) / TICKS_PER_HEARTBEAT


def drain_limit_s(timing: Timing) -> float:
    """Seconds in which a learner must have left after it was drained."""
    return timing.scaled(timing.stalled_s + 2 * timing.evict_s)


def judge(member: MemberRecord, timing: Timing, now_s: float) -> Status:
    """A member's status now, by the table above; one that has ended stays ended."""
    if member.status in (Status.EVICTED, Status.LEFT):
        return member.status
    silent_s = now_s - member.heard_s
    redial_s = REDIAL_LONGEST_S if member.redials else 0.0
    if silent_s >= timing.scaled(timing.evict_s + redial_s):
        return Status.EVICTED
    if silent_s >= timing.scaled(timing.suspect_s) or member.connection is None:
        return Status.SUSPECT
    found = standstill(member, timing, now_s)
    return Status.STALLED if found is not None and found.waited_s >= found.limit_s else Status.LIVE


def standstill(member: MemberRecord, timing: Timing, now_s: float) -> Standstill | None:
    """The time that a member has been where it can be stalled; None in phases of intended rest."""
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


@dataclass(slots=True)
class Stalls:
    """The kills of one launched process for being stalled, by place.

    No fixed limit is right for every model and machine. A process that needs longer than its limit
    would be killed at the same place at every start; a compilation begins anew each time, since the
    cache keeps only finished ones. So each kill of a process at a place doubles its limit there,
    and the crash loop ends with the first start that has enough time. The doubled limits are kept
    for the life of the run: otherwise a step that is long once an hour or once a day, such as one
    with an evaluation, would be killed each time. No limit grows beyond `LONGEST_S`, so that a
    device that hangs now and then is always found. Processor time is no sign of life: a process
    that waits for a device or a peer for ever may keep its processor busy while it waits.

    `killed` is the incarnation that was killed last.
    """

    kills: dict[StallPoint, int] = field(default_factory=dict)
    killed: Incarnation | None = None

    def limit_s(self, found: Standstill) -> float:
        """The longest time that this process may spend where it is now."""
        grown_s = found.limit_s * LIMIT_GROWTH ** self.kills.get(found.place, 0)
        return max(found.limit_s, min(grown_s, LONGEST_S))

    def kill_because(self, found: Standstill, incarnation: Incarnation) -> str | None:
        """The reason to kill an incarnation now, given once per incarnation; None to spare it."""
        if incarnation == self.killed or found.waited_s < self.limit_s(found):
            return None
        self.killed = incarnation
        if self.limit_s(found) < LONGEST_S:
            self.kills[found.place] = self.kills.get(found.place, 0) + 1
        return (
            f"stalled in {found.place.value} for {found.waited_s:,.0f} s; "
            f"the next start has {self.limit_s(found):,.0f} s there"
        )
