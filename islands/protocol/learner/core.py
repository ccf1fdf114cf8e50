"""The learner's memory, and the few operations on it that several rules share.

`Core` is plain data plus the list of actions being collected while one event is handled. The rules
are functions over it: `membership.py` (admission, and which syncer to follow), `training.py` (steps
and adoptions), `answering.py` (pulls).

Totals of compute run over the life of the process; those of an incarnation are relative to its
`origin`. A new incarnation never reports what an ended one did: its origin keeps moving up to the
current totals until its first step is allowed, past a step that was still running when the old
incarnation ended.
"""

from collections import deque
from dataclasses import dataclass, field

from islands.protocol.gossip.gossip import Gossip, Stage
from islands.protocol.identities import WHOLE, FragmentIndex, Incarnation, Lease, Phase
from islands.protocol.learner.account import Account
from islands.protocol.learner.actions import Action, AllowSteps, PlanSnapshots
from islands.protocol.learner.adaptation import Adaptation
from islands.protocol.learner.moments import Moments
from islands.protocol.learner.pulls import Pulls
from islands.protocol.learner.synchrony import Synchrony
from islands.protocol.learner.turns import Turns
from islands.protocol.membership import MembershipState
from islands.protocol.messages.training import FragmentUpdate, Kept, Progress
from islands.protocol.settings.run import RunSettings

DECIDED_KEPT = 32
"""How many answers that were not applied are remembered; a departure need not wait for these."""


@dataclass(slots=True)
class Leaving:
    """A graceful shutdown in progress; `left` is set once the Leave messages are queued.

    The learner waits until `deadline_s` for the fate of its answers to pulls, and until `latest_s`
    for its own running step.
    """

    reason: str
    deadline_s: float
    latest_s: float
    left: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """An update that waits for a boundary, with the total of steps that compute was told for it."""

    update: FragmentUpdate
    at_steps: int


@dataclass(slots=True)
class Core:
    """All that a learner knows.

    `steps` and `tokens` are compute's totals at the last boundary that it reported. `adopting`
    holds, per fragment, the updates that wait for a boundary. `ready` says that compute has
    compiled, `idle` that it stands still, `allowed` that this incarnation has been allowed a step,
    `closing` that the run ends, `paused` that an operator paused it, and `quarantined` that the
    syncer applies nothing of this incarnation. `waiting` says that
    compute stands still only until a merge, `late` only until its next batch is read; `synchrony`
    is None if learners wait for no round of the fleet, `turns` if they open none of their own,
    `adaptation` if the precision is given, and `gossip` if a syncer merges. `order` numbers the
    `AllowSteps` commands. `decided` holds the (epoch, round) of answers that were not applied.
    `offered` maps each fragment whose seed was sent over this link to epoch and attempt of the
    request. `kept` are the values that ended incarnations adopted, by fragment. `now_s` is the time
    of the event being handled; `giving` counts the pieces of moments that peers wait for.
    `positioned` says that this process was told where its loop reads again.
    """

    settings: RunSettings
    membership: MembershipState
    accounts: list[Account]
    pulls: Pulls
    order: int = 0
    closing: bool = False
    paused: bool = False
    quarantined: bool = False
    leaving: Leaving | None = None
    decided: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=DECIDED_KEPT))
    ready: bool = False
    idle: bool = True
    waiting: bool = False
    late: bool = False
    waiting_since_s: float = 0.0
    allowed: bool = False
    steps: int = 0
    tokens: int = 0
    origin_steps: int = 0
    origin_tokens: int = 0
    batch_tokens: int = 0
    step_time_s: float = 0.0
    quota_tokens: int = 0
    leases: tuple[Lease, ...] = ()
    adopting: dict[int, list[Queued]] = field(default_factory=dict)
    planned: PlanSnapshots = field(default_factory=lambda: PlanSnapshots(()))
    reported_steps: int = 0
    reported_s: float = 0.0
    offered: dict[int, tuple[int, int]] = field(default_factory=dict)
    kept: list[Kept | None] = field(default_factory=list)
    report_due: bool = False
    moments: Moments = field(default_factory=Moments)
    synchrony: Synchrony | None = None
    gossip: Gossip | None = None
    adaptation: Adaptation | None = None
    turns: Turns | None = None
    giving: int = 0
    positioned: bool = False
    now_s: float = 0.0
    actions: list[Action] = field(default_factory=list)

    @property
    def incarnation(self) -> Incarnation | None:
        """The incarnation under which this learner is admitted; None if it is not."""
        return self.membership.incarnation

    @property
    def epoch_seen(self) -> int:
        """The highest epoch of a syncer that welcomed this learner."""
        return self.membership.epoch_seen

    @property
    def fragments(self) -> int:
        """P, the number of fragments in the plan."""
        return len(self.accounts)

    @property
    def phase(self) -> Phase:
        """What this learner is doing."""
        if self.incarnation is None:
            return Phase.JOINING
        if not self.ready:
            return Phase.COMPILING
        if self.healing or any(account.version is None for account in self.accounts):
            return Phase.HEALING
        if not self.idle:
            return Phase.STEPPING
        if self.closing or self.leaving is not None:
            return Phase.FINISHED
        if self.paused:
            return Phase.PAUSED
        return Phase.WAITING if self.waiting or self.late else Phase.STARVED

    @property
    def healing(self) -> bool:
        """Whether the first step waits for a peer's moments or, in gossip, for its values."""
        new = self.gossip is not None and self.gossip.stage is not Stage.SETTLED
        return self.moments.waiting or new

    def allow_steps(self, until_tokens: int, leases: tuple[Lease, ...]) -> None:
        """Let compute step until it has processed so many tokens; replaces any earlier limit."""
        self.order += 1
        self.actions.append(AllowSteps(until_tokens, leases, self.order, self.until_steps))

    @property
    def until_steps(self) -> int | None:
        """The total of steps at which compute is to wait for a merge; None if it never waits.

        To contribute, a learner needs a step since it adopted its base; and where the value that it
        waits for is here, it may step on to where that is to be adopted.
        """
        synchrony = self.synchrony
        if self.turns is not None:
            return self.turns.until_steps(self.turns.due_all(self.accounts, self.origin_steps))
        if synchrony is None or synchrony.until_steps is None:
            return None
        oldest = synchrony.settled + 1
        fragment = oldest % self.fragments
        here = [one for one in self.adopting.get(fragment, []) if one.update.round == oldest]
        queued = [one.at_steps for one in here]
        return max(synchrony.until_steps, self.first_contribution(fragment), *queued)

    @property
    def asking(self) -> tuple[FragmentIndex, ...]:
        """The fragments for which this learner asks for a round, as its turn is due."""
        if self.turns is None or self.phase not in WHOLE:
            return ()
        due = self.turns.due_all(self.accounts, self.origin_steps)
        return self.turns.asking(due, self.steps)

    def under_way(self) -> set[int]:
        """Return the rounds of this syncer that were contributed to and have no fate yet."""
        sent = (one for account in self.accounts for one in account.sent)
        return {one.round for one in sent if one.epoch == self.epoch_seen}

    def first_contribution(self, fragment: int) -> int:
        """Return the least total of steps with which the learner has something to contribute."""
        return self.origin_steps + self.accounts[fragment].base_steps + 1

    def progress(self, incarnation: Incarnation) -> Progress:
        """The progress report of this incarnation, as of the last boundary."""
        steps = self.steps - self.origin_steps
        tokens = self.tokens - self.origin_tokens
        return Progress(
            name=self.membership.name,
            incarnation=incarnation,
            phase=self.phase,
            steps=steps,
            tokens=tokens,
            step_time_s=self.step_time_s,
            batch_tokens=self.batch_tokens if self.ready else 0,
            quota_tokens=self.quota_tokens,
            fragments=tuple(account.progress for account in self.accounts),
            leases=self.leases,
            due=self.asking,
        )
