"""The learner's own turns: how many steps it does from a base before it asks for a round.

Where learners open rounds (`trigger: learner`), a **turn** at a fragment begins when a value
becomes the base, or when a contribution was not applied. It is **due** H steps later; then the
learner asks for a round in its reports until it is pulled. The snapshot is taken at exactly that
step. The syncer tells each learner its H with every value, since it may follow the learner's speed.

A learner that waits (`learner_waits: at_tau`) stands still where a turn is due, until the value
that contains its own contribution has arrived, or until it hears that there will be none. It waits
for nobody else. While the syncer is away it stands still, and asks again over its next link.

Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.account import Account


@dataclass(slots=True)
class Turns:
    """When this learner's turns are due, in compute's totals of steps.

    Args:
        interval_steps: H of the run's settings.
        waits: whether the learner stands still until its value has arrived.
        told_steps: by fragment, the H that the syncer told with the base.
        refused_steps: by fragment, the total when the last contribution was not applied.
    """

    interval_steps: int
    waits: bool
    told_steps: dict[int, int] = field(default_factory=dict)
    refused_steps: dict[int, int] = field(default_factory=dict)

    def end(self) -> None:
        """Forget all turns, as an incarnation ends."""
        self.told_steps.clear()
        self.refused_steps.clear()

    def adopted(self, fragment: int, told_steps: int) -> None:
        """Begin a turn at a fragment, whose base came with this H, if it was told."""
        self.told_steps[fragment] = told_steps or self.interval_steps
        self.refused_steps.pop(fragment, None)

    def refused(self, fragment: int, steps: int) -> None:
        """Begin a turn anew at this total: the last contribution was not applied."""
        self.refused_steps[fragment] = steps

    def due(self, fragment: int, base_steps: int) -> int:
        """Return the total at which the turn is due of a fragment adopted at `base_steps`."""
        begun = max(base_steps, self.refused_steps.get(fragment, 0))
        return begun + self.told_steps.get(fragment, self.interval_steps)

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
