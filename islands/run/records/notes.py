"""The filter and rate limit of the notes that members send to the run's folder.

A note is an entry of a member's own tape, and whoever holds the token may send any note. Therefore

1. a member writes under its own name, and only the kinds that its role decides (`NOTED`): a learner
   admits and evicts nobody, and merges nothing;
2. learners and observers may write a burst of `BURST` notes and then one a second, none of them
   long: notes beyond that are dropped, counted and reported. A syncer holds the key, and is not
   limited.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from islands.protocol.identities import Role
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.protocol.tape.kinds import NOTABLE, kinds_of

BURST = 64
PER_S = 1.0
CHARACTERS_MAX = 16_384
NAMES_MAX = 4096
"""Beyond this many, the buckets of names that were quiet for a minute go first, then the oldest."""

EVALUATIONS = (processes.Evaluation, processes.EvaluationFailed)
FAULTS = (processes.Failed, processes.Unsendable)

SUPERVISORS_OWN = kinds_of(
    *(members.Admitted, members.Recognised, members.Evicted, members.Left, members.Commanded),
    *(members.GaveUp, members.Killed, members.StoodStill),
    *(members.ProcessStarted, members.ProcessEnded),
    *EVALUATIONS,
)
"""Kinds that only the process with the run's folder, or an observer, may decide."""

NOTED: Mapping[Role, frozenset[str]] = {
    Role.LEARNER: kinds_of(
        *(learners.MomentsKept, learners.MomentsReset),
        *(learners.MomentsTaken, learners.MomentsFresh, *FAULTS),
    ),
    Role.OBSERVER: kinds_of(*EVALUATIONS, *FAULTS),
    Role.SYNCER: NOTABLE - SUPERVISORS_OWN,
    Role.SUPERVISOR: frozenset(),
}


@dataclass(slots=True)
class _TokenBucket:
    notes: float
    at_s: float
    dropped: int = 0

    def fill(self, now_s: float) -> None:
        self.notes = min(BURST, self.notes + PER_S * (now_s - self.at_s))
        self.at_s = now_s


@dataclass(slots=True)
class NoteBudget:
    """The token buckets that limit how many notes each member may write."""

    purses: dict[str, _TokenBucket] = field(default_factory=dict)

    def take(self, name: str, role: Role, kind: str, characters: int, now_s: float) -> int | None:
        """Take a note into account, and decide whether it is kept.

        Return None if it is dropped; else how many were dropped since the last one was kept.
        """
        if role is Role.SYNCER:
            return 0 if kind in NOTED[role] else None
        if name not in self.purses:
            self._forget(now_s)
        purse = self.purses.setdefault(name, _TokenBucket(BURST, now_s))
        purse.fill(now_s)
        if kind not in NOTED[role] or characters > CHARACTERS_MAX or purse.notes < 1:
            purse.dropped += 1
            return None
        purse.notes -= 1
        dropped, purse.dropped = purse.dropped, 0
        return dropped

    def _forget(self, now_s: float) -> None:
        """Drop buckets that are full again, as a new one would be the same, then the oldest."""
        if len(self.purses) < NAMES_MAX:
            return
        for name, purse in list(self.purses.items()):
            purse.fill(now_s)
            if purse.notes >= BURST:
                del self.purses[name]
        while len(self.purses) >= NAMES_MAX:
            del self.purses[next(iter(self.purses))]
