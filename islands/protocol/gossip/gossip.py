"""A learner's memory of gossip beside its exchanges: the roster, and how far it has come.

A learner without a syncer's merges lives through these stages:

    new ──somebody trains──▶ asking ──all its slow values are here──┐
     └──nobody trains yet: all begin with version 0──────────────────┴─▶ settled ──▶ gathered
                                                                                (at the end)

A *newcomer*, such as a restarted process, must not mix version 0 into a trained model. Before its
first step it asks learners that train for their slow values, in turn, until one has given all. What
is too far from version 0 is not taken from one alone: it asks the others, and takes it once all
agree that the model has moved so far.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from islands.protocol.identities import Incarnation, LearnerName, Status
from islands.protocol.learner.exchanges import Exchanges
from islands.protocol.messages.membership import Member
from islands.protocol.supervisor_view import SupervisorView


class Stage(StrEnum):
    """How far a learner has come."""

    NEW = "new"
    ASKING = "asking"
    SETTLED = "settled"


@dataclass(slots=True)
class Gossip:
    """What a learner that gossips knows.

    `address` is where it listens. `donor` is the learner that is asked for its slow values, since
    `asked_s`; `taken` are the fragments that came, `far` the distances of values of the next one
    that were too far, by donor, and `round` is the newest round of donors.
    `gathering` says that the run closes, and `gathered` holds the fragments whose work of all
    exchanges is measured from version 0 again.
    """

    exchanges: Exchanges
    address: str | None = None
    view: SupervisorView = field(default_factory=SupervisorView)
    stage: Stage = Stage.NEW
    donor: str = ""
    asked_s: float = 0.0
    taken: dict[int, None] = field(default_factory=dict)
    far: dict[str, float] = field(default_factory=dict)
    round: int = -1
    gathering: bool = False
    gathered: dict[int, None] = field(default_factory=dict)

    def neighbour(self, name: str) -> Member | None:
        """Return a learner of the roster by name; None if it is not there."""
        return self.view.listed.get(LearnerName(name))

    def listed(self) -> Iterable[Member]:
        """Return all learners of the roster."""
        return self.view.listed.values()

    @property
    def present(self) -> dict[str, Incarnation]:
        """The learners that train and can be reached, with their incarnations."""
        return {
            name: member.incarnation
            for name, member in self.view.listed.items()
            if member.stepped and member.address and member.status is Status.LIVE
        }
