"""The state of the fetch of version 0; `commits.py` has its rules."""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import Kept

SEEDS_AT_ONCE = 4
"""Fragments of version 0 that are on their way at once: each is one more copy at its sender."""


@dataclass(slots=True)
class Seeding:
    """The fetch of version 0 from one learner, with the digests of arrived fragments by index.

    `told` are the values that the learner said to have kept, if it is asked for those.

    A version 0 that was read from a file has no such learner, and is complete from the start.

    Fragments are asked for in order, the first of them at once and each further one when another
    has arrived; `asked` is the number of those that were.

    Once complete, the fragments are journalled one after the other, since a record names no version
    whose value neither it nor an earlier record holds; `journalled` is the index of the one being
    written. `times` counts the requests repeated since the learner `had` sent so many fragments.
    """

    name: LearnerName
    incarnation: Incarnation
    asked_s: float
    digests: dict[int, str] = field(default_factory=dict)
    refused: bool = False
    told: tuple[Kept, ...] = ()
    journalled: int | None = None
    times: int = 0
    had: int = 0
    asked: int = 0

    def ask_further(self, fragments: int) -> range:
        """Return the fragments that are to be asked for now, and count them as asked for."""
        first = self.asked
        self.asked = max(first, min(fragments, len(self.digests) + SEEDS_AT_ONCE))
        return range(first, self.asked)
