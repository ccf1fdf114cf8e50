"""The schedule of own turns (`trigger: learner`): a learner asks for rounds itself.

A **turn** at a fragment begins when a value becomes the base, or when a contribution was not
applied. It is **due** H steps later; then the learner asks for a round in its reports until it is
pulled. The snapshot is taken at exactly that step.

A learner that waits (`learner_waits: at_tau`) takes no step where a turn is due, until the value
that contains its own contribution has arrived, or until it hears that there will be none.

Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import WHOLE, FragmentIndex
from islands.protocol.learner.actions import PlanSnapshots
from islands.protocol.learner.memory import LearnerMemory
from islands.protocol.learner.schedule import Schedule
from islands.protocol.messages.training import ContributionFate, FragmentUpdate, PullFragment


@dataclass
class OwnTurns(Schedule):
    """The schedule of a learner that opens rounds itself, in compute's totals of steps.

    Args:
        interval_steps: H of the run's settings.
        waits: whether the learner takes no step until its value has arrived.
        refused_steps: by fragment, the total when the last contribution was not applied.
    """

    interval_steps: int
    waits: bool
    refused_steps: dict[int, int] = field(default_factory=dict)

    def due(self, memory: LearnerMemory, fragment: int) -> int:
        base_steps = memory.compute.origin_steps + memory.accounts[fragment].base_steps
        begun = max(base_steps, self.refused_steps.get(fragment, 0))
        return begun + self.interval_steps

    def _due(self, memory: LearnerMemory) -> list[int]:
        return [self.due(memory, fragment) for fragment in range(memory.fragments)]

    def end(self, *, sound: bool) -> None:
        self.refused_steps.clear()

    def until_steps(self, memory: LearnerMemory) -> int | None:
        return min(self._due(memory)) if self.waits else None

    def plan(self, memory: LearnerMemory) -> PlanSnapshots:
        if memory.compute.stopped:
            return super().plan(memory)
        due = self._due(memory)
        return PlanSnapshots(tuple(map(FragmentIndex, range(len(due)))), tuple(due))

    def least_steps(self, memory: LearnerMemory, pull: PullFragment) -> int:
        if memory.compute.stopped:
            return super().least_steps(memory, pull)
        return self.due(memory, pull.fragment)

    def why_declined(self, memory: LearnerMemory, pull: PullFragment) -> str | None:
        """Decline a pull of a fragment for which no round is asked, before the end."""
        ending = memory.ending
        asked = ending or pull.fragment in self.asking(memory)
        return None if asked else "its turn is not due"

    def asking(self, memory: LearnerMemory) -> tuple[FragmentIndex, ...]:
        if memory.phase not in WHOLE:
            return ()
        due = enumerate(self._due(memory))
        return tuple(FragmentIndex(index) for index, at in due if memory.compute.steps >= at)

    def stepped(self, memory: LearnerMemory) -> bool:
        return memory.compute.steps in self._due(memory)

    def adopted(self, memory: LearnerMemory, update: FragmentUpdate) -> bool:
        self.refused_steps.pop(update.fragment, None)
        return True

    def rejected(self, memory: LearnerMemory, fate: ContributionFate) -> bool:
        """Begin a turn, if the contribution was the last one from this base."""
        ticket = fate.ticket.epoch, fate.ticket.round
        own = any(sent.ticket == ticket for sent in memory.accounts[fate.fragment].sent)
        if own:
            self.refused_steps[fate.fragment] = memory.compute.steps
        return own
