"""What the run's folder takes of the notes of its members: each its own kinds, and so many.

A note is an entry of a member's own tape, and whoever holds the token may send what it likes. So

1. a member writes under its own name, and only kinds that its role decides (`NOTED`): a learner
   admits and evicts nobody, and merges nothing;
2. learners and observers write `BURST` notes at once and one a second for ever, none of them long:
   what is beyond that is dropped, counted and told; a syncer holds the key, and is not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from islands.identities import Role
from islands.tape.kinds import NOTABLE, kinds_of
from islands.tape.learner_entries import MomentsFresh, MomentsReset, MomentsTaken
from islands.tape.member_entries import (
    Admitted,
    Commanded,
    Evicted,
    GaveUp,
    Killed,
    Left,
    ProcessEnded,
    ProcessStarted,
    Recognised,
    StoodStill,
)
from islands.tape.process_entries import EvaluationFailed, Failed, Unsendable

BURST = 64
PER_S = 1.0
CHARACTERS_MAX = 16_384
NAMES_MAX = 4096
"""Beyond these, names that have been quiet for a minute are forgotten, then the oldest."""

SUPERVISORS_OWN = kinds_of(
    *(Admitted, Recognised, Evicted, Left, Commanded, GaveUp, Killed, StoodStill),
    *(ProcessStarted, ProcessEnded, EvaluationFailed),
)
"""Kinds that are decided where the run's folder lies, or by an observer."""

NOTED: Mapping[Role, frozenset[str]] = {
    Role.LEARNER: kinds_of(MomentsReset, MomentsTaken, MomentsFresh, Failed, Unsendable),
    Role.OBSERVER: kinds_of(EvaluationFailed, Failed, Unsendable),
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
    """How many notes each member may still write."""

    purses: dict[str, _TokenBucket] = field(default_factory=dict)

    def take(self, name: str, role: Role, kind: str, characters: int, now_s: float) -> int | None:
        """Count a note.

        Args:
            name: of the member that wrote it.
            role: of it.
            kind: of the entry.
            characters: of its fields.
            now_s: of the clock of whoever counts.

        Returns:
            None if the note is dropped; else how many were dropped since the last one was taken.
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
        """A purse that is full again says nothing that a new one would not say."""
        if len(self.purses) < NAMES_MAX:
            return
        for name, purse in list(self.purses.items()):
            purse.fill(now_s)
            if purse.notes >= BURST:
                del self.purses[name]
        while len(self.purses) >= NAMES_MAX:
            del self.purses[next(iter(self.purses))]
