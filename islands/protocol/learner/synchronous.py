"""The synchronous schedule (`learner_waits: at_tau`): a learner waits for the fleet's merges.

Rounds are counted in own steps. With H, P and τ of protocol §1, round r is **due** H/P steps after
round r − 1: the contribution holds exactly the steps up to there. Its value is adopted exactly τ
steps later, and until that has arrived the learner takes no further step. So all learners stay
within τ steps of one another, as in DiLoCo (τ = 0) and Streaming DiLoCo (τ > 0).

A round that was merged without this learner is adopted on arrival, and the next one is due H/P
steps later. A contribution that was not applied is not waited for. A later round for which the
learner is asked while it waits is due then.

Reference: DiLoCo (arXiv 2311.08105), algorithm 1; Streaming DiLoCo (arXiv 2501.18512), §2.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.actions import PlanSnapshots
from islands.protocol.learner.memory import LearnerMemory
from islands.protocol.learner.schedule import Schedule
from islands.protocol.messages.training import ContributionFate, FragmentUpdate, PullFragment

RESENDS = 2
"""After the time of so many retransmissions, what was sent and is not decided counts as lost."""


@dataclass
class Synchronous(Schedule):
    """The schedule of a learner that waits for the fleet's rounds, in compute's totals of steps.

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

    def begin(self, memory: LearnerMemory) -> None:
        if self.anchor is None:
            self.anchor = self.settled, memory.compute.steps

    def end(self, *, sound: bool) -> None:
        self.settled, self.anchor = -1, None
        self.beyond.clear()

    def until_steps(self, memory: LearnerMemory) -> int | None:
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

    def pass_over(self, memory: LearnerMemory) -> bool:
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

    def plan(self, memory: LearnerMemory) -> PlanSnapshots:
        """Return those that rounds within reach are due to hold, and those that are pulled."""
        if self.anchor is None or memory.compute.stopped:
            return super().plan(memory)
        pulled = memory.pulls.wanted.items()
        due = self.snapshots() | {index: self.least_steps(memory, one) for index, one in pulled}
        return PlanSnapshots(tuple(map(FragmentIndex, due)), tuple(due.values()))

    def least_steps(self, memory: LearnerMemory, pull: PullFragment) -> int:
        if self.anchor is None or memory.compute.stopped:
            return super().least_steps(memory, pull)
        due = max(self.due(pull.ticket.round), memory.first_contribution(pull.fragment))
        return min(due, memory.compute.steps) if memory.compute.waiting else due

    def adopt_at(self, memory: LearnerMemory, update: FragmentUpdate) -> int:
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

    def adopted(self, memory: LearnerMemory, update: FragmentUpdate) -> bool:
        self.settle(update.round, memory.compute.steps, memory.under_way())
        return True

    def rejected(self, memory: LearnerMemory, fate: ContributionFate) -> bool:
        self.settle(fate.ticket.round, memory.compute.steps, memory.under_way())
        return True
