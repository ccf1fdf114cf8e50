"""What several rules ask of all learners at once, kept instead of counted anew for every event.

`Census` owns the sorted names of all that are known, which of them are learners, and which of those
read data. Who is ready is kept by `pace.py`, with its rank. A learner that changed is named to
`Core.touch`, and taken in before anybody asks. `tests/syncer/test_census.py` holds all of it
against a count from scratch, over random histories.

`Witness` answers "is there a learner that …?" for a condition that is asked after every event and
seldom changes: it asks the one first of whom it was true last. Only when it is not true any more
are the others asked, from that one onwards, so that a condition which ends for one learner after
the other costs one visit each.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from islands.identities import LearnerName, Role
from islands.syncer.roster import LearnerRecord


@dataclass(slots=True)
class Census:
    """Who is known: `names` sorted, `learners` without observers, `readers` with a batch."""

    names: list[LearnerName] = field(default_factory=list)
    learners: set[LearnerName] = field(default_factory=set)
    readers: set[LearnerName] = field(default_factory=set)
    known: set[LearnerName] = field(default_factory=set)

    def take_in(self, name: LearnerName, learner: LearnerRecord | None) -> None:
        """Count a learner as it is now; None if it is not known any more."""
        if (learner is not None) != (name in self.known):
            if learner is not None:
                self.known.add(name)
                insort(self.names, name)
            else:
                self.known.discard(name)
                del self.names[bisect_left(self.names, name)]
        _keep(self.learners, name, learner is not None and learner.role is Role.LEARNER)
        _keep(self.readers, name, learner is not None and learner.progress.batch_tokens > 0)


def _keep(names: set[LearnerName], name: LearnerName, belongs: bool) -> None:  # noqa: FBT001  private, and the last of three
    if belongs:
        names.add(name)
    else:
        names.discard(name)


@dataclass(slots=True)
class Witness:
    """The last learner of whom a condition was true."""

    name: LearnerName | None = None

    def found(self, names: Sequence[LearnerName], true_of: Callable[[LearnerName], bool]) -> bool:
        """Whether a condition is true of any learner.

        Args:
            names: of all known learners, sorted.
            true_of: the condition; false of a name that is not known.
        """
        if self.name is not None and true_of(self.name):
            return True
        begin = 0 if self.name is None else bisect_left(names, self.name)
        for index in range(len(names)):
            name = names[(begin + index) % len(names)]
            if true_of(name):
                self.name = name
                return True
        self.name = None
        return False
