"""The learner's memory, and the few operations on it that several rules share.

`Core` is plain data plus the list of actions being collected while one event is handled. The rules
are functions over it: `membership.py` (who admits it, whom it follows), `training.py` (steps and
adoptions), `answering.py` (pulls).

Totals of compute run over the life of the process; those of an incarnation are relative to its
`origin`. What an ended incarnation did is never reported by the next one: the origin moves along
until the new one is allowed its first step, past a step that was still running at the end.
"""

from collections import deque
from dataclasses import dataclass, field

from islands.actors.membership import MembershipState
from islands.identities import FragmentIndex, Incarnation, Lease, Phase
from islands.learner.account import Account
from islands.learner.actions import Action, AllowSteps
from islands.learner.moments import Moments
from islands.learner.pulls import Pulls
from islands.messages.training import FragmentUpdate, Progress
from islands.settings.run import RunSettings

DECIDED_KEPT = 32


@dataclass(slots=True)
class Leaving:
    """It is to go; `left` once it has said so.

    It waits until `deadline_s` for what was asked of it, and until `latest_s` for its own steps.
    """

    reason: str
    deadline_s: float
    latest_s: float
    left: bool = False


@dataclass(slots=True)
class Core:
    """All that a learner knows.

    `steps` and `tokens` are totals of compute at the last boundary that it told of. `adopting` are
    the updates per fragment that wait for a boundary. `ready` says that compute has compiled,
    `idle` that it stands still, `allowed` that this incarnation has been allowed a step, and
    `closing` that the run ends. `paused` is an operator's will. `order` counts what compute was
    allowed. `decided` are the (epoch, round) of answers that were not applied. `offered` are the
    seeds, by fragment, that went out over this link, with epoch and attempt of the request.
    `now_s` is the time of the event at hand, `giving` counts pieces of moments that peers wait for.
    """

    settings: RunSettings
    membership: MembershipState
    accounts: list[Account]
    pulls: Pulls
    order: int = 0
    closing: bool = False
    paused: bool = False
    leaving: Leaving | None = None
    decided: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=DECIDED_KEPT))
    ready: bool = False
    idle: bool = True
    allowed: bool = False
    steps: int = 0
    tokens: int = 0
    origin_steps: int = 0
    origin_tokens: int = 0
    batch_tokens: int = 0
    step_time_s: float = 0.0
    quota_tokens: int = 0
    leases: tuple[Lease, ...] = ()
    adopting: dict[int, list[FragmentUpdate]] = field(default_factory=dict)
    planned: tuple[FragmentIndex, ...] = ()
    reported_steps: int = 0
    reported_s: float = 0.0
    offered: dict[int, tuple[int, int]] = field(default_factory=dict)
    report_due: bool = False
    moments: Moments = field(default_factory=Moments)
    giving: int = 0
    now_s: float = 0.0
    actions: list[Action] = field(default_factory=list)

    @property
    def incarnation(self) -> Incarnation | None:
        """What this learner is admitted under, if it is."""
        return self.membership.incarnation

    @property
    def epoch_seen(self) -> int:
        """The highest epoch of a syncer that welcomed this learner."""
        return self.membership.epoch_seen

    @property
    def fragments(self) -> int:
        """P: fragments in the plan."""
        return len(self.accounts)

    @property
    def phase(self) -> Phase:
        """What this learner is doing."""
        if self.incarnation is None:
            return Phase.JOINING
        if not self.ready:
            return Phase.COMPILING
        if self.moments.waiting or any(account.version is None for account in self.accounts):
            return Phase.HEALING
        if not self.idle:
            return Phase.STEPPING
        if self.closing or self.leaving is not None:
            return Phase.FINISHED
        return Phase.PAUSED if self.paused else Phase.STARVED

    def allow_steps(self, until_tokens: int, leases: tuple[Lease, ...]) -> None:
        """Let compute step until so many tokens, whatever it was allowed before."""
        self.order += 1
        self.actions.append(AllowSteps(until_tokens, leases, self.order))

    def progress(self, incarnation: Incarnation) -> Progress:
        """The report of this incarnation at the last boundary."""
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
        )
