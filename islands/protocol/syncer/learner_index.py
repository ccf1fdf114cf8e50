"""Totals over all learners, updated incrementally instead of counted anew for every event.

`LearnerIndex` owns the sorted names of all known peers, which of them are learners, which of those
read data, which share the budget, and the best donor of inner moments (`state_donors.py`).
`pace.py` keeps which are ready, with their ranks. A rule that changes a learner calls
`Core.touch`, and the index takes the learner in before it is next read. `tests/syncer/recount.py`
compares all of it with a count from scratch, after every event of the syncer's tests and of random
histories.

`Witness` answers "is there a learner that …?" for a condition that is asked after every event and
seldom changes: it first checks the learner for which the condition held last. Only if it no longer
holds there are the others checked, from that learner onwards, so that a condition which ends for
one learner after the other costs one visit each.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from islands.protocol.identities import TRAINING, LearnerName, Role, Status
from islands.protocol.syncer.roster import LearnerRecord

DonorRank = tuple[int, LearnerName]


@dataclass(slots=True)
class LearnerIndex:
    """Known peers: `names` sorted, `learners` without observers, `readers` with a batch.

    `sharers` are those among whom the rest of the budget is shared: also those that only join, or
    the first one to begin would be given half of it.

    `asking` holds those that ask for a round, `asking_news` those of them that have changed since
    the rounds that they ask for were looked for, and `asked_for` the fragments for which one of
    them was eligible then (`turns.py`).

    `donor` is the best donor, or None if nobody may donate. It is valid while `donor_known` is
    true: after the best one has left or changed, the next one is searched for only on demand.
    """

    names: list[LearnerName] = field(default_factory=list)
    learners: set[LearnerName] = field(default_factory=set)
    readers: set[LearnerName] = field(default_factory=set)
    sharers: set[LearnerName] = field(default_factory=set)
    asking: set[LearnerName] = field(default_factory=set)
    asking_news: set[LearnerName] = field(default_factory=set)
    asked_for: set[int] = field(default_factory=set)
    known: set[LearnerName] = field(default_factory=set)
    donor: LearnerName | None = None
    donor_rank: DonorRank | None = None
    donor_known: bool = True

    def take_in(self, name: LearnerName, learner: LearnerRecord | None) -> None:
        """Update the totals with a learner as it is now; None if it is not known any more."""
        if (learner is not None) != (name in self.known):
            if learner is not None:
                self.known.add(name)
                insort(self.names, name)
            else:
                self.known.discard(name)
                del self.names[bisect_left(self.names, name)]
        _keep(self.learners, name, learner is not None and learner.role is Role.LEARNER)
        _keep(self.readers, name, learner is not None and learner.reads)
        _keep(self.sharers, name, learner is not None and learner.shares)
        asks = learner is not None and bool(learner.asking)
        _keep(self.asking, name, asks)
        _keep(self.asking_news, name, asks)
        self._compare_donor(name, learner)

    def _compare_donor(self, name: LearnerName, learner: LearnerRecord | None) -> None:
        rank = None if learner is None or not may_donate(learner) else donor_rank(learner)
        best = self.donor_rank
        if self.donor_known and rank is not None and (best is None or rank <= best):
            self.donor, self.donor_rank = name, rank
        elif name == self.donor:  # another one may be the best now
            self.donor, self.donor_rank, self.donor_known = None, None, False

    def look_for_donor(self, learners: Mapping[LearnerName, LearnerRecord]) -> None:
        """Find the best donor among all learners."""
        self.donor, self.donor_known = best_donor(learners), True
        self.donor_rank = None if self.donor is None else donor_rank(learners[self.donor])


def may_donate(learner: LearnerRecord) -> bool:
    """Return whether a learner is connected, live, not quarantined and stepping from its base."""
    present = learner.connection is not None and learner.status is Status.LIVE
    trains = learner.role is Role.LEARNER and learner.phase in TRAINING and learner.whole
    return present and trains and not learner.quarantined and learner.progress.steps > 0


def donor_rank(learner: LearnerRecord) -> DonorRank:
    """Return the rank of a donor; the smallest is the best: most tokens, then first by name.

    Tokens are bounded by what was granted. Steps are only a learner's claim: ranked by them, a
    liar would become everybody's donor.
    """
    return -learner.progress.tokens, learner.name


def best_donor(learners: Mapping[LearnerName, LearnerRecord]) -> LearnerName | None:
    """Return the donor with most tokens in its incarnation, whose moments have seen most."""
    able = (donor_rank(learner) for learner in learners.values() if may_donate(learner))
    best = min(able, default=None)
    return None if best is None else best[1]


def _keep(names: set[LearnerName], name: LearnerName, belongs: bool) -> None:  # noqa: FBT001  private, and the last of three
    if belongs:
        names.add(name)
    else:
        names.discard(name)


@dataclass(slots=True)
class Witness:
    """The last learner for which a condition was true."""

    name: LearnerName | None = None

    def found(self, names: Sequence[LearnerName], true_of: Callable[[LearnerName], bool]) -> bool:
        """Return whether a condition is true of any learner.

        Args:
            names: all known names, sorted.
            true_of: the condition; it must be false for a name that is not known.
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
