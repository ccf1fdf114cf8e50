"""The schedules of a learner: when it snapshots, steps and adopts, and its learning-rate clock.

A run has one of four, which `schedule_of` makes from its settings: `Schedule`, the default, waits
for nobody, and adopts on arrival; `Synchronous` waits for the fleet's rounds; `OwnTurns` opens
rounds itself; `Gossip` (`islands/protocol/gossip/gossip.py`) exchanges values with other learners.
The rules call the hooks of `Schedule`. A schedule changes its own memory and appends to
`memory.actions`; the rest of the learner's memory it only reads.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from islands.protocol.gossip.events import GossipEvent
from islands.protocol.identities import WHOLE, FragmentIndex
from islands.protocol.learner.actions import EngineAction, PlanSnapshots
from islands.protocol.membership import HeartbeatContent
from islands.protocol.messages.membership import MembershipChanged
from islands.protocol.messages.training import ContributionFate, FragmentUpdate, PullFragment
from islands.protocol.settings.run import RunSettings

if TYPE_CHECKING:  # the memory holds its schedule
    from islands.protocol.learner.memory import LearnerMemory


class Schedule:
    """The default, of a learner that waits for nobody; other schedules override what differs.

    If it `announces`, the supervisor is to hear of the first step at once.
    """

    announces = False

    # --- when may the learner step? -------------------------------------------------------------

    def whole(self) -> bool:
        """Whether the schedule has all that it needs before the first step."""
        return True

    def begin(self, memory: "LearnerMemory") -> None:
        """Count from here, if that has not begun: this incarnation may step."""

    def end(self, *, sound: bool) -> None:
        """Forget what belongs to the incarnation that ends; are the local values `sound`?"""

    def until_steps(self, memory: "LearnerMemory") -> int | None:
        """Return the total of steps at which compute waits for a merge; None if it never waits."""
        return None

    def pass_over(self, memory: "LearnerMemory") -> bool:
        """Give up a merge that will not come; returns whether compute may step further."""
        return False

    # --- when is a snapshot due? ----------------------------------------------------------------

    def plan(self, memory: "LearnerMemory") -> PlanSnapshots:
        """Return the snapshots to take from now on: those pulled next, at every boundary."""
        return PlanSnapshots(memory.pulls.plan())

    def least_steps(self, memory: "LearnerMemory", pull: PullFragment) -> int:
        """Return the least total of steps that the answer to a pull must hold.

        It is one step since the base; while compute stands still, all that was done.
        """
        compute = memory.compute
        return compute.steps if compute.idle else memory.first_contribution(pull.fragment)

    def may_answer(self, memory: "LearnerMemory") -> bool:
        """Whether pulls may be answered and snapshots planned at present."""
        return True

    def why_declined(self, memory: "LearnerMemory", pull: PullFragment) -> str | None:
        return None

    def asking(self, memory: "LearnerMemory") -> tuple[FragmentIndex, ...]:
        """Return the fragments for which the next report asks for a round."""
        return ()

    # --- when is a value adopted? ---------------------------------------------------------------

    def adopt_at(self, memory: "LearnerMemory", update: FragmentUpdate) -> int:
        """Return the total of steps at which a value is to be adopted; 0 is on arrival."""
        return 0

    def instead_of_adopting(
        self, memory: "LearnerMemory", update: FragmentUpdate
    ) -> EngineAction | None:
        """Return what compute does instead of adopting a value; None if it adopts it."""
        return None

    # --- what has happened ----------------------------------------------------------------------

    def stepped(self, memory: "LearnerMemory") -> bool:
        """Note a completed step; returns whether the syncer is to hear of it at once."""
        return False

    def answered(self, round_: int, steps: int) -> None:
        """Note a contribution that holds compute's total of so many steps."""

    def adopted(self, memory: "LearnerMemory", update: FragmentUpdate) -> bool:
        """Note that a value became the base; returns whether compute may step further."""
        return False

    def rejected(self, memory: "LearnerMemory", fate: ContributionFate) -> bool:
        """Note a contribution that was not applied; returns whether compute may step further."""
        return False

    def on_gossip(self, memory: "LearnerMemory", event: GossipEvent) -> None:
        """Handle an event of gossip."""

    def on_view(self, memory: "LearnerMemory", page: MembershipChanged) -> None:
        """Handle a page of the supervisor's membership view."""

    def advance(self, memory: "LearnerMemory") -> None:
        """Do what is due after an event, whichever it was."""

    def heartbeat(self, content: HeartbeatContent) -> HeartbeatContent:
        """Return what a heartbeat says, with what the supervisor is to know of this schedule."""
        return content


RESENDS = 2
"""After the time of so many retransmissions, what was sent and is not decided counts as lost."""


@dataclass
class Synchronous(Schedule):
    """The schedule of a learner that waits for the fleet's rounds, in compute's totals of steps.

    With H, P and τ of protocol §1, round r is **due** H/P own steps after round r − 1: the
    contribution holds exactly the steps up to there. Its value is adopted exactly τ steps later,
    and until that has arrived the learner takes no further step. So all learners stay within τ
    steps of one another, as in DiLoCo (τ = 0) and Streaming DiLoCo (τ > 0).

    A round that was merged without this learner is adopted on arrival, and the next one is due H/P
    steps later. A contribution that was not applied is not waited for. A later round for which the
    learner is asked while it waits is due then.

    Reference: DiLoCo (arXiv 2311.08105), algorithm 1; Streaming DiLoCo (arXiv 2501.18512), §2.

    Args:
        interval_steps: H.
        fragments: P.
        overlap_steps: τ, below H.
        settled: the newest round up to which none is waited for any more.
        beyond: later rounds that are not waited for, whose values overtook those of earlier ones.
        anchor: a round, and the total at which it was due, from which other rounds are counted;
            None until the learner may step.
    """

    interval_steps: int
    fragments: int
    overlap_steps: int
    settled: int = -1
    beyond: set[int] = field(default_factory=set)
    anchor: tuple[int, int] | None = None

    # --- rounds ---------------------------------------------------------------------------------

    def due(self, round_: int) -> int:
        """Return the total of steps that the contribution to a round holds: anchor + ⌈n·H/P⌉."""
        assert self.anchor is not None, "rounds are due once the learner may step"
        first, steps = self.anchor
        return steps - (first - round_) * self.interval_steps // self.fragments

    def settle(self, round_: int, steps: int, under_way: Collection[int] = ()) -> None:
        """Wait no more for a round, nor for those before it whose fate is not `under_way`.

        If compute's total of `steps` is below where it was due, the next one is counted from there.
        """
        if round_ <= self.settled or round_ in self.beyond:
            return
        self.beyond.add(round_)
        self._count_from(round_, steps)
        last = max(self.beyond)
        while self.settled < last and not (
            self.settled + 1 in under_way and self.settled + 1 not in self.beyond
        ):
            self.settled += 1
            self.beyond.discard(self.settled)

    def _count_from(self, round_: int, steps: int) -> None:
        """Count rounds from this one, if it is over or answered before it was due."""
        if self.anchor is not None and steps < self.due(round_):
            self.anchor = round_, steps

    @property
    def limit_steps(self) -> int | None:
        """The total after which the learner takes no step, unless a further round is settled."""
        return None if self.anchor is None else self.due(self.settled + 1) + self.overlap_steps

    def snapshots(self) -> dict[int, int]:
        """Return, by fragment, the totals of the snapshots to take before the limit."""
        limit_steps = self.limit_steps
        if limit_steps is None:
            return {}
        first = self.settled + 1
        within_reach = (first + i for i in range(self.fragments))
        return {r % self.fragments: self.due(r) for r in within_reach if self.due(r) <= limit_steps}

    # --- the schedule ---------------------------------------------------------------------------

    def begin(self, memory: "LearnerMemory") -> None:
        if self.anchor is None:
            self.anchor = self.settled, memory.compute.steps

    def end(self, *, sound: bool) -> None:
        self.settled, self.anchor = -1, None
        self.beyond.clear()

    def until_steps(self, memory: "LearnerMemory") -> int | None:
        """Return τ steps after the oldest round that is waited for was due.

        It is one step after the base at least, and reaches to the adoption of a value that is here.
        """
        limit_steps = self.limit_steps
        if limit_steps is None:
            return None
        oldest = self.settled + 1
        fragment = oldest % memory.fragments
        queue = memory.accounts[fragment].queue
        here = [queued.at_steps for queued in queue if queued.update.round == oldest]
        return max(limit_steps, memory.first_contribution(fragment), *here)

    def pass_over(self, memory: "LearnerMemory") -> bool:
        """Wait no more for rounds that passed this learner by, if the value of a later one is here.

        If it has contributed to the oldest, it waits for the fate until all messages were repeated.
        """
        if not memory.compute.waiting:
            return False
        oldest, timing = self.settled + 1, memory.settings.timing
        here = [queued.update.round for account in memory.accounts for queued in account.queue]
        if oldest in here:
            return True
        waited_s = memory.now_s - memory.compute.waiting_since_s
        patient = waited_s < timing.scaled(RESENDS * timing.resend_s)
        if patient and oldest in memory.under_way():
            return False
        later = [round_ for round_ in (*here, *sorted(self.beyond)) if round_ > oldest]
        if later:
            self.settle(min(later) - 1, memory.compute.steps)
        return bool(later)

    def plan(self, memory: "LearnerMemory") -> PlanSnapshots:
        """Return those that rounds within reach are due to hold, and those that are pulled."""
        if self.anchor is None or memory.compute.stopped:
            return super().plan(memory)
        pulled = memory.pulls.wanted.items()
        due = self.snapshots() | {index: self.least_steps(memory, one) for index, one in pulled}
        return PlanSnapshots(tuple(map(FragmentIndex, due)), tuple(due.values()))

    def least_steps(self, memory: "LearnerMemory", pull: PullFragment) -> int:
        if self.anchor is None or memory.compute.stopped:
            return super().least_steps(memory, pull)
        due = max(self.due(pull.ticket.round), memory.first_contribution(pull.fragment))
        return min(due, memory.compute.steps) if memory.compute.waiting else due

    def adopt_at(self, memory: "LearnerMemory", update: FragmentUpdate) -> int:
        """Return τ steps after its round was due, if this learner contributed to that."""
        if memory.compute.closing:
            return 0
        contributed = update.merged is not None and update.merged.round == update.round
        if self.anchor is None or not contributed:
            return 0
        return self.due(update.round) + self.overlap_steps

    def answered(self, round_: int, steps: int) -> None:
        """Count from a round that was answered before it was due, as those before it were over."""
        self._count_from(round_, steps)

    def adopted(self, memory: "LearnerMemory", update: FragmentUpdate) -> bool:
        self.settle(update.round, memory.compute.steps, memory.under_way())
        return True

    def rejected(self, memory: "LearnerMemory", fate: ContributionFate) -> bool:
        self.settle(fate.ticket.round, memory.compute.steps, memory.under_way())
        return True


@dataclass
class OwnTurns(Schedule):
    """The schedule of a learner that opens rounds itself, in compute's totals of steps.

    A **turn** at a fragment begins when a value becomes the base, or when a contribution was not
    applied. It is **due** H steps later; then the learner asks for a round in its reports until it
    is pulled. The snapshot is taken at exactly that step.

    A learner that waits (`learner_waits: at_tau`) takes no step where a turn is due, until the
    value that contains its own contribution has arrived, or until it hears that there will be none.

    Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.

    Args:
        interval_steps: H of the run's settings.
        waits: whether the learner takes no step until its value has arrived.
        refused_steps: by fragment, the total when the last contribution was not applied.
    """

    interval_steps: int
    waits: bool
    refused_steps: dict[int, int] = field(default_factory=dict)

    def due(self, memory: "LearnerMemory", fragment: int) -> int:
        base_steps = memory.compute.origin_steps + memory.accounts[fragment].base_steps
        begun = max(base_steps, self.refused_steps.get(fragment, 0))
        return begun + self.interval_steps

    def _due(self, memory: "LearnerMemory") -> list[int]:
        return [self.due(memory, fragment) for fragment in range(memory.fragments)]

    def end(self, *, sound: bool) -> None:
        self.refused_steps.clear()

    def until_steps(self, memory: "LearnerMemory") -> int | None:
        return min(self._due(memory)) if self.waits else None

    def plan(self, memory: "LearnerMemory") -> PlanSnapshots:
        if memory.compute.stopped:
            return super().plan(memory)
        due = self._due(memory)
        return PlanSnapshots(tuple(map(FragmentIndex, range(len(due)))), tuple(due))

    def least_steps(self, memory: "LearnerMemory", pull: PullFragment) -> int:
        if memory.compute.stopped:
            return super().least_steps(memory, pull)
        return self.due(memory, pull.fragment)

    def why_declined(self, memory: "LearnerMemory", pull: PullFragment) -> str | None:
        """Decline a pull of a fragment for which no round is asked, before the end."""
        ending = memory.ending
        asked = ending or pull.fragment in self.asking(memory)
        return None if asked else "its turn is not due"

    def asking(self, memory: "LearnerMemory") -> tuple[FragmentIndex, ...]:
        if memory.phase not in WHOLE:
            return ()
        due = enumerate(self._due(memory))
        return tuple(FragmentIndex(index) for index, at in due if memory.compute.steps >= at)

    def stepped(self, memory: "LearnerMemory") -> bool:
        return memory.compute.steps in self._due(memory)

    def adopted(self, memory: "LearnerMemory", update: FragmentUpdate) -> bool:
        self.refused_steps.pop(update.fragment, None)
        return True

    def rejected(self, memory: "LearnerMemory", fate: ContributionFate) -> bool:
        """Begin a turn, if the contribution was the last one from this base."""
        ticket = fate.ticket.epoch, fate.ticket.round
        own = any(sent.ticket == ticket for sent in memory.accounts[fate.fragment].sent)
        if own:
            self.refused_steps[fate.fragment] = memory.compute.steps
        return own


@dataclass(slots=True)
class FleetClock:
    """The fleet's clock as one learner estimates it.

    The fleet's clock counts H/P steps per opened round, so it is the pace-setting learner's step
    count; with a budget of tokens it is the part of that which is used up
    (`RunSettings.clock_after`). Every update carries it, and between two of them own steps count,
    up to the next value that is due:

        clock = carried + min(own steps since it was carried, H/P)

    So while the syncer is away the learning rate stands, and steps go on. Of one syncer's values
    the highest counts, for updates may overtake each other. A new syncer's values count from its
    first one on, even if its journal lags behind the last syncer's.

    `due_steps` is H/P. `value` is the latest of the syncer of `epoch`, None before the first, and
    `at_steps` are the own steps at which it was adopted.
    """

    due_steps: float
    epoch: int = 0
    value: float | None = None
    at_steps: int = 0

    def begin_anew(self) -> None:
        """Follow the next value, whatever its epoch, as that of a new syncer."""
        self.epoch = -1

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        old = self.value is not None and clock <= self.value
        if epoch < self.epoch or (epoch == self.epoch and old):
            return
        self.epoch, self.value, self.at_steps = epoch, clock, steps

    def at(self, steps: int) -> float:
        if self.value is None:
            return float(steps)
        return self.value + min(steps - self.at_steps, self.due_steps)


@dataclass(slots=True)
class GossipClock:
    """Own steps, moved on by every round that others came to first.

    So a slow learner, or one that joined late, has the learning rate of the others.
    """

    ahead: float = 0.0

    def carried(self, clock: float, *, epoch: int, steps: int) -> None:
        self.ahead = max(self.ahead, clock - steps)

    def begin_anew(self) -> None:
        """Do nothing: no value of the clock is older than another."""

    def at(self, steps: int) -> float:
        return steps + self.ahead


def clock_of(settings: RunSettings, fragments: int) -> FleetClock | GossipClock:
    """Return the clock by which a learner of a run of P `fragments` derives its learning rate."""
    due_steps = settings.round_interval_steps(fragments)
    return GossipClock() if settings.gossip.on else FleetClock(due_steps)
