"""The schedule of own turns (`trigger: learner`): a learner asks for rounds itself.

A **turn** at a fragment begins when a value becomes the base, or when a contribution was not
applied. It is **due** H steps later; then the learner asks for a round in its reports until it is
pulled. The snapshot is taken at exactly that step. The syncer gives each learner its H with every
value, since it may follow the learner's speed.

A learner that waits (`learner_waits: at_tau`) stands still where a turn is due, until the value
that contains its own contribution has arrived, or until it hears that there will be none. It waits
for nobody else. While the syncer is away it stands still, and asks again over its next link.

Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from islands.protocol.identities import WHOLE, FragmentIndex
from islands.protocol.learner.account import Account
from islands.protocol.learner.actions import PlanSnapshots
from islands.protocol.learner.schedule import Schedule
from islands.protocol.messages.training import ContributionFate, FragmentUpdate, PullFragment
from islands.protocol.settings.choices import LearnerWaits
from islands.protocol.settings.run import RunSettings

if TYPE_CHECKING:  # the memory holds its schedule
    from islands.protocol.learner.core import Core


@dataclass(slots=True)
class Turns:
    """The totals at which this learner's turns are due, in compute's totals of steps.

    Args:
        interval_steps: H of the run's settings.
        waits: whether the learner stands still until its value has arrived.
        given_steps: by fragment, the H that the syncer gave with the base.
        refused_steps: by fragment, the total when the last contribution was not applied.
    """

    interval_steps: int
    waits: bool
    given_steps: dict[int, int] = field(default_factory=dict)
    refused_steps: dict[int, int] = field(default_factory=dict)

    def end(self) -> None:
        """Forget all turns, as an incarnation ends."""
        self.given_steps.clear()
        self.refused_steps.clear()

    def adopted(self, fragment: int, given_steps: int) -> None:
        """Begin a turn at a fragment, whose base came with this H, if it was given."""
        self.given_steps[fragment] = given_steps or self.interval_steps
        self.refused_steps.pop(fragment, None)

    def refused(self, fragment: int, steps: int) -> None:
        """Begin a turn anew at this total: the last contribution was not applied."""
        self.refused_steps[fragment] = steps

    def due(self, fragment: int, base_steps: int) -> int:
        """Return the total at which the turn is due of a fragment adopted at `base_steps`."""
        begun = max(base_steps, self.refused_steps.get(fragment, 0))
        return begun + self.given_steps.get(fragment, self.interval_steps)

    def due_all(self, accounts: Sequence[Account], origin_steps: int) -> list[int]:
        """Return when the turns at all fragments are due, in their order."""
        return [
            self.due(fragment, origin_steps + account.base_steps)
            for fragment, account in enumerate(accounts)
        ]

    def until_steps(self, due: Iterable[int]) -> int | None:
        """Return the total at which the learner stands still; None if it does not wait."""
        return min(due) if self.waits else None

    def asking(self, due: Iterable[int], steps: int) -> tuple[FragmentIndex, ...]:
        """Return the fragments for which to ask for a round at this total."""
        return tuple(FragmentIndex(index) for index, at in enumerate(due) if steps >= at)


class OwnTurns(Schedule):
    """The schedule of a learner that opens rounds itself.

    Attributes:
        turns: when they are due.
    """

    def __init__(self, settings: RunSettings) -> None:
        waits = settings.learner_waits is LearnerWaits.AT_TAU
        self.turns = Turns(settings.interval_steps, waits)

    def _due(self, core: "Core") -> list[int]:
        return self.turns.due_all(core.accounts, core.compute.origin_steps)

    def end(self, *, sound: bool) -> None:
        """Forget all turns."""
        self.turns.end()

    def until_steps(self, core: "Core") -> int | None:
        """Return where the first turn is due, if the learner waits."""
        return self.turns.until_steps(self._due(core))

    def plan(self, core: "Core") -> PlanSnapshots:
        """Return one of each fragment, where its turn is due."""
        if core.compute.stopped:
            return super().plan(core)
        due = self._due(core)
        return PlanSnapshots(tuple(map(FragmentIndex, range(len(due)))), tuple(due))

    def least_steps(self, core: "Core", pull: PullFragment) -> int:
        """Return the total at which the fragment's turn is due."""
        if core.compute.stopped:
            return super().least_steps(core, pull)
        base_steps = core.compute.origin_steps + core.accounts[pull.fragment].base_steps
        return self.turns.due(pull.fragment, base_steps)

    def why_declined(self, core: "Core", pull: PullFragment) -> str | None:
        """Decline a pull of a fragment for which no round is asked, before the end."""
        ending = core.run.closing or core.leaving is not None
        asked = ending or pull.fragment in self.asking(core)
        return None if asked else "its turn is not due"

    def asking(self, core: "Core") -> tuple[FragmentIndex, ...]:
        """Return the fragments whose turn is due."""
        if core.phase not in WHOLE:
            return ()
        return self.turns.asking(self._due(core), core.compute.steps)

    def stepped(self, core: "Core") -> bool:
        """Report at once where a turn is due."""
        return core.compute.steps in self._due(core)

    def adopted(self, core: "Core", update: FragmentUpdate) -> bool:
        """Begin a turn."""
        self.turns.adopted(update.fragment, update.interval_steps)
        return True

    def rejected(self, core: "Core", fate: ContributionFate) -> bool:
        """Begin a turn, if the contribution was the last one from this base."""
        ticket = fate.ticket.epoch, fate.ticket.round
        own = any(sent.ticket == ticket for sent in core.accounts[fate.fragment].sent)
        if own:
            self.turns.refused(fate.fragment, core.compute.steps)
        return own
