"""The supervisor's judgement by time: who is suspect, stalled or evicted, and who is restarted.

An operator's command and a newer incarnation evict as well (`membership.py`). The syncer ends an
incarnation whose reports cannot be true, or that no supervisor knows.

=====================================================  =========
silent for `suspect_s`, or its link closed              suspect
compiling for `compile_s`                               stalled
in its first steps for max(`stalled_s`, `compile_s`)    stalled
no further step for max(`stalled_s`, 5 · its step)      stalled
silent for `evict_s`                                    evicted
drained for `stalled_s` + 2 · `evict_s`                 evicted
=====================================================  =========

The first step may still compile, or wait while devices connect to one another: so it gets the time
of a compilation, and is not measured itself. After that "its step" is the longest of the last
`STEPS_KEPT`: one in ten may evaluate or save something. A learner that compiles in the middle of a
step says so with its heartbeats. Stalled is only a status: `Stalls` decides which processes are
killed for it, and when, and the syncer when a member's tokens go to others.

A supervisor whose own process was suspended has heard nobody. It moves every member's deadlines by
as much as its tick was late before it judges. After a gap of `suspect_s` or more its members have
closed their links, and may wait for `REDIAL_LONGEST_S` before they dial again: a silence with such
gaps in it, however many, evicts that much later. So a dead member is evicted in bounded time, even
if each tick is late: after (`evict_s` + `REDIAL_LONGEST_S`) / `tick_s` ticks at most.

A process that ended is **restarted** after a delay, which grows by half with each restart within
the last hour, up to a minute; after `RESTARTS_MAX` of them the supervisor gives up on the process
and says why, and the run goes on with the others. It
also gives up once a process has ended with the very same error message `ALIKE_MAX` times in a row,
or `UNTRAINED_MAX` times if a learner never stepped between: its task fails each time, or its model
does not fit. One that is killed each time before its first step, without a word, is given up after
`ALIKE_MAX`. A process that stayed up for an hour has recovered.

Reference: the restart intensity of Erlang/OTP supervisors.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from islands.protocol.identities import WHOLE, Incarnation, Phase, Role, Status
from islands.protocol.settings.run import REDIAL_LONGEST_S, Timing

TICKS_PER_HEARTBEAT = 4
"""Times that the supervisor judges its members in an interval between two heartbeats."""
STALLED_STEPS = 5
STEPS_KEPT = 16
LIMIT_GROWTH = 2.0
LONGEST_S = 6 * 3600.0
"""No limit is doubled beyond this; a limit that the settings put higher stays as it is."""


class StallPoint(StrEnum):
    """A point at which a member can be stalled."""

    COMPILATION = "compilation"
    FIRST_STEPS = "its first steps"
    STEP = "a step"


@dataclass(frozen=True, slots=True)
class Standstill:
    """The time that a member has been at a point, and after which it counts as stalled there."""

    point: StallPoint
    waited_s: float
    limit_s: float


@dataclass(slots=True)
class MemberRecord:
    """The newest incarnation of one name; times are seconds on the supervisor's clock.

    `connection` is the link over which it was heard last, and `steps_s` are the durations of its
    last steps, as far as heartbeats show them. `invited` is the person whose invitation it has
    shown; empty if it is the run's token. `redials` tells whether it may have lost its link to
    a supervisor that was suspended since it was heard. It listens at `address`, and is dialled at
    `host`.
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
    invited: str = ""

    @staticmethod
    def admitted(
        role: Role,
        name: str,
        incarnation: Incarnation,
        now_s: float,
        connection: int | None = None,
    ) -> "MemberRecord":
        """A live member whose incarnation begins, or is heard of first, at this moment."""
        record = MemberRecord(role, name, incarnation, Status.LIVE, connection, heard_s=now_s)
        record.phase_since_s = record.stepped_s = now_s
        return record

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
    return timing.scaled(timing.heartbeat_s) / TICKS_PER_HEARTBEAT


def drain_limit_s(timing: Timing) -> float:
    """Seconds in which a learner must have left after it was drained."""
    return timing.scaled(timing.stalled_s + 2 * timing.evict_s)


def judge(member: MemberRecord, timing: Timing, now_s: float) -> Status:
    """A member's status now, by the table above; one that has ended stays ended."""
    if member.status.ended:
        return member.status
    silent_s = now_s - member.heard_s
    redial_s = REDIAL_LONGEST_S if member.redials else 0.0
    if silent_s >= timing.scaled(timing.evict_s + redial_s):
        return Status.EVICTED
    if silent_s >= timing.scaled(timing.suspect_s) or member.connection is None:
        return Status.SUSPECT
    stall = standstill(member, timing, now_s)
    return Status.STALLED if stall is not None and stall.waited_s >= stall.limit_s else Status.LIVE


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
    """The kills of one launched process for being stalled, by point; `killed` was the last one.

    No fixed limit is right for every model and machine: a process that needs longer would be killed
    at the same point at every start. So each kill doubles its limit there, for the life of the run,
    and the crash loop ends with the first start that has enough time. No limit grows beyond
    `LONGEST_S`, so that a device that hangs now and then is always noticed.
    """

    kills: dict[StallPoint, int] = field(default_factory=dict)
    killed: Incarnation | None = None

    def limit_s(self, stall: Standstill) -> float:
        grown_s = stall.limit_s * LIMIT_GROWTH ** self.kills.get(stall.point, 0)
        return max(stall.limit_s, min(grown_s, LONGEST_S))

    def kill_because(self, stall: Standstill, incarnation: Incarnation) -> str | None:
        """The reason to kill an incarnation now, given once per incarnation; None to spare it."""
        if incarnation == self.killed or stall.waited_s < self.limit_s(stall):
            return None
        self.killed = incarnation
        if self.limit_s(stall) < LONGEST_S:
            self.kills[stall.point] = self.kills.get(stall.point, 0) + 1
        return (
            f"stalled in {stall.point.value} for {stall.waited_s:,.0f} s; "
            f"the next start has {self.limit_s(stall):,.0f} s there"
        )


FIRST_DELAY_S = 0.2
DELAY_GROWTH = 1.5
DELAY_MAX_S = 60.0
HOUR_S = 3600.0
RESTARTS_MAX = 20
"""Most restarts within an hour."""
ALIKE_MAX = 6
UNTRAINED_MAX = 3


@dataclass(slots=True)
class Restarts:
    """Restarts of one process; `times_s` are those of the last hour, with their delays included.

    `words` is the error message of its last end, and `alike` how many ends in a row had it.
    """

    times_s: list[float] = field(default_factory=list)
    gave_up_because: str = ""
    """The limit that it exceeded, in words; empty if none."""
    words: str = ""
    alike: int = 0
    untrained: int = 0
    """The ends in a row that came before the first step of their start."""
    incarnation: Incarnation | None = None
    """The incarnation under which it had been admitted when it ended last."""

    @property
    def given_up(self) -> bool:
        return bool(self.gave_up_because)

    def next_delay_s(
        self, now_s: float, patience: float, words: str = "", *, trained: bool = True
    ) -> float | None:
        """Seconds to wait before the next restart; None to give up.

        `words` is the error message with which it ended, "" if there was none, and `trained` says
        whether it did what it was started for: a learner has taken a step.
        """
        if self.given_up:
            return None
        self.times_s = [at_s for at_s in self.times_s if now_s - at_s < HOUR_S * patience]
        if not self.times_s:
            self.alike = self.untrained = 0
        again = words == self.words and (bool(words) or not trained)
        self.alike = self.alike + 1 if again else 1
        self.untrained = 0 if trained else self.untrained + 1 if again else 1
        self.words = words
        if self.alike >= ALIKE_MAX or (words and self.untrained >= UNTRAINED_MAX):
            before = " before its first step" if self.untrained == self.alike else ""
            how = "with the same words" if words else "without a word"
            self.gave_up_because = f"ended {self.alike} times in a row {how}{before}"
            return None
        if len(self.times_s) >= RESTARTS_MAX:
            self.gave_up_because = f"ended more than {RESTARTS_MAX} times within an hour"
            return None
        delay_s = patience * min(DELAY_MAX_S, FIRST_DELAY_S * DELAY_GROWTH ** len(self.times_s))
        self.times_s.append(now_s + delay_s)
        return delay_s
