"""The learner's memory, in parts: each is written by the rules named beside it, and by no others.

| part | written by |
|---|---|
| `membership`, `leaving` | `membership.py` |
| `compute`, `accounts`, `pulls` | `steps.py` |
| `moments` | `moments_recovery.py` |
| `reporting` | `state.py`, and `due` by all rules |
| `schedule` | itself |

The rules are functions over `LearnerMemory`, which collects the actions while one event is handled.
Each rule is registered where it is defined: for the event that it handles in `EVENTS`, or for the
message in `FROM_SUPERVISOR` or `FROM_SYNCER`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from islands.protocol.identities import Incarnation, LearnerName, Lease, Phase, Version
from islands.protocol.learner.account import Account, Pulls
from islands.protocol.learner.actions import Action, AllowSteps
from islands.protocol.learner.schedule import Schedule
from islands.protocol.membership import MembershipState
from islands.protocol.messages.training import Progress
from islands.protocol.sessions import Handlers
from islands.protocol.settings.choices import LearnerWaits, Trigger
from islands.protocol.settings.run import RunSettings


@dataclass(slots=True)
class ComputeView:
    """The work that compute has done, up to the last boundary that it reported, and may do.

    Totals run over the life of the process; those of an incarnation are relative to its `origin`,
    which moves on with the totals until its first step is `allowed`: so it never reports what an
    ended incarnation did, nor a step that was running when that one ended.

    `ready` says that compute has compiled, `idle` that it takes no step, `waiting` only until a
    merge, `late` only until its next batch is read. It may not step while the run is `closing` or
    `paused`. `order` numbers the `AllowSteps`.
    """

    ready: bool = False
    idle: bool = True
    waiting: bool = False
    late: bool = False
    waiting_since_s: float = 0.0
    steps: int = 0
    tokens: int = 0
    origin_steps: int = 0
    origin_tokens: int = 0
    batch_tokens: int = 0
    step_time_s: float = 0.0
    allowed: bool = False
    quota_tokens: int = 0
    leases: tuple[Lease, ...] = ()
    order: int = 0
    closing: bool = False
    paused: bool = False

    @property
    def stopped(self) -> bool:
        """Whether it takes no step, and not only until a merge."""
        return self.idle and not self.waiting

    @property
    def own_steps(self) -> int:
        return self.steps - self.origin_steps

    @property
    def own_tokens(self) -> int:
        return self.tokens - self.origin_tokens


@dataclass(slots=True)
class Reporting:
    """The progress reports to the syncer: the last one, and whether one is due."""

    due: bool = False
    steps: int = 0
    at_s: float = 0.0


@dataclass(slots=True)
class Leaving:
    """A graceful shutdown in progress; `left` is set once the Leave messages are queued.

    It waits until `deadline_s` for the fate of its answers, until `latest_s` for its running step.
    """

    reason: str
    deadline_s: float
    latest_s: float
    left: bool = False


class MomentsStage(StrEnum):
    """The stages of the recovery of moments (`moments_recovery.py`)."""

    OPEN = "open"
    ASKING = "asking"
    KEPT = "kept"
    LOADING = "loading"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class CheckpointedMoments:
    """Moments that an earlier process of this name left on its host's disk.

    `versions` are those of the fragments that it held when it wrote them.
    """

    schema: str
    pieces: int
    versions: tuple[Version, ...]


@dataclass(slots=True)
class Moments:
    """The moments of one process.

    `schema` and `pieces` are those of its own trainer; None and 0 until there is one. `asked` are
    the pieces in flight, `arrived` those received, and `loaded_bytes` is the size of all. `kept` is
    a checkpoint on disk, not tried yet. `timed` says that a timer is set for the deadline, and
    `giving` counts the pieces that peers wait for at present.
    """

    stage: MomentsStage = MomentsStage.OPEN
    donor: LearnerName | None = None
    kept: CheckpointedMoments | None = None
    schema: str | None = None
    pieces: int = 0
    asked: dict[int, None] = field(default_factory=dict)
    arrived: dict[int, memoryview] = field(default_factory=dict)
    loaded_bytes: int = 0
    began_s: float = 0.0
    ready_s: float | None = None
    timed: bool = False
    giving: int = 0

    @property
    def waiting(self) -> bool:
        return self.stage in (MomentsStage.ASKING, MomentsStage.LOADING)

    def deadline_s(self, limit_s: float) -> float:
        """The time at which the first step waits no longer; infinite until compute is ready."""
        return inf if self.ready_s is None else max(self.began_s, self.ready_s) + limit_s

    def waited_s(self, now_s: float) -> float:
        """Seconds for which the moments alone may have delayed this process's first step."""
        if self.ready_s is None:
            return 0.0
        return now_s - max(self.began_s, self.ready_s)


@dataclass(slots=True)
class LearnerMemory:
    """All that a learner knows; `now_s` is the time of the event that is handled."""

    settings: RunSettings
    membership: MembershipState
    accounts: list[Account]
    pulls: Pulls
    schedule: Schedule
    moments: Moments = field(default_factory=Moments)
    compute: ComputeView = field(default_factory=ComputeView)
    reporting: Reporting = field(default_factory=Reporting)
    leaving: Leaving | None = None
    now_s: float = 0.0
    actions: list[Action] = field(default_factory=list)

    @property
    def incarnation(self) -> Incarnation | None:
        return self.membership.incarnation

    @property
    def epoch_seen(self) -> int:
        return self.membership.epoch_seen

    @property
    def fragments(self) -> int:
        return len(self.accounts)

    @property
    def phase(self) -> Phase:
        compute = self.compute
        if self.incarnation is None:
            return Phase.JOINING
        if not compute.ready:
            return Phase.COMPILING
        if self.healing or any(account.version is None for account in self.accounts):
            return Phase.HEALING
        if not compute.idle:
            return Phase.STEPPING
        if self.ending:
            return Phase.FINISHED
        if compute.paused:
            return Phase.PAUSED
        return Phase.WAITING if compute.waiting or compute.late else Phase.STARVED

    @property
    def healing(self) -> bool:
        """Whether the first step waits for a peer's moments, or for what the schedule needs."""
        return self.moments.waiting or not self.schedule.whole()

    @property
    def ending(self) -> bool:
        return self.compute.closing or self.leaving is not None

    @property
    def hands_over(self) -> bool:
        """Whether rounds are opened for what a learner has left as it leaves."""
        settings = self.settings
        if settings.gossip.on or settings.trigger is Trigger.LEARNER:
            return False
        return settings.learner_waits is LearnerWaits.NEVER

    def allow_steps(self, until_tokens: int, leases: tuple[Lease, ...]) -> None:
        """Let compute step until it has processed so many tokens; replaces any earlier limit."""
        self.compute.order += 1
        until_steps = self.schedule.until_steps(self)
        self.actions.append(AllowSteps(until_tokens, leases, self.compute.order, until_steps))

    def under_way(self) -> set[int]:
        """Return the rounds of this syncer that were contributed to and have no fate yet."""
        sent = (one for account in self.accounts for one in account.sent)
        return {one.round for one in sent if one.epoch == self.epoch_seen}

    def first_contribution(self, fragment: int) -> int:
        """Return the least total of steps with which the learner has something to contribute."""
        return self.compute.origin_steps + self.accounts[fragment].base_steps + 1

    def progress(self, incarnation: Incarnation) -> Progress:
        """Return the progress report of this incarnation, as of the last boundary."""
        compute = self.compute
        return Progress(
            name=self.membership.name,
            incarnation=incarnation,
            phase=self.phase,
            steps=compute.own_steps,
            tokens=compute.own_tokens,
            step_time_s=compute.step_time_s,
            batch_tokens=compute.batch_tokens if compute.ready else 0,
            quota_tokens=compute.quota_tokens,
            fragments=tuple(account.progress for account in self.accounts),
            leases=compute.leases,
            due=self.schedule.asking(self),
        )


EVENTS: Handlers[LearnerMemory, []] = Handlers()
"""The handlers of a learner's events, but for those of gossip."""

FROM_SUPERVISOR: Handlers[LearnerMemory, []] = Handlers()
"""The handlers of what the supervisor sends to a learner."""

FROM_SYNCER: Handlers[LearnerMemory, []] = Handlers()
"""The handlers of what the syncer sends to a learner, but for published values."""
