"""Contributions that come in shares, over several links of one learner, until they are whole.

The hosts of an island send each its own share (`messages.shares`); the message of the learner
itself, the *head*, has one, too. They come in any order. A share claims its elements when it
arrives, and is placed once a worker has copied it; the contribution is whole when the head is here
and every element is placed. To the rules of the syncer it arrives in that moment, as one.

What a share may claim is bounded: elements of the fragment that no other share has claimed, of a
few contributions of each learner. Memory is taken for a contribution when its first share is
claimed, and each share is freed when it is placed. What is superseded, or belonged to a link that
is gone, is forgotten.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from islands.protocol.errors import MalformedError
from islands.protocol.identities import FragmentIndex, LearnerName, Ticket
from islands.protocol.messages.shares import RANGES_MAX, ContributionShare
from islands.protocol.messages.training import Contribution
from islands.protocol.ranges import Ranges, size_of

ASSEMBLIES_MAX = 4
"""Contributions of one learner that may be incomplete: answers to two pulls, each twice."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Which contribution a share belongs to; each answer to a ticket has its own number."""

    ticket: Ticket
    number: int
    fragment: FragmentIndex
    precision: str

    @classmethod
    def of(cls, message: Contribution | ContributionShare) -> "Answer":
        """The contribution that a message belongs to."""
        return cls(message.ticket, message.answer, message.fragment, message.precision)


@dataclass(slots=True)
class Assembly:
    """One contribution of so many elements, of which `claimed` are here or being copied.

    `placed` counts those that have been copied to `buffer`, and `head` is the learner's message
    with the connection over which it came.
    """

    size: int
    claimed: list[tuple[int, int]] = field(default_factory=list)
    placed: int = 0
    head: tuple[int, Contribution] | None = None
    buffer: memoryview | None = field(default=None, repr=False)

    def claim(self, ranges: Ranges) -> bool:
        """Claim elements; return False if a share with all of them was claimed before.

        Raises:
            MalformedError: They are no ascending ranges of the value, or some are claimed.
        """
        check_ranges(ranges, self.size)
        held = [self._overlap(*each) for each in ranges]
        if sum(held) == size_of(ranges):
            return False
        if any(held):
            raise MalformedError("it has elements that another share has, and others")
        if len(self.claimed) + len(ranges) > RANGES_MAX:
            raise MalformedError(f"with it, its contribution has more than {RANGES_MAX} ranges")
        self.claimed = sorted([*self.claimed, *ranges])
        return True

    def give_back(self, ranges: Ranges) -> None:
        """Let others claim elements whose bytes were not what their sender told."""
        self.claimed = [each for each in self.claimed if each not in ranges]

    @property
    def whole(self) -> bool:
        """Whether the head and all elements are here."""
        return self.head is not None and self.placed == self.size

    def _overlap(self, start: int, stop: int) -> int:
        """Return how many elements of a range are claimed."""
        at = max(0, bisect_left(self.claimed, (start, start)) - 1)
        found = 0
        for low, high in self.claimed[at:]:
            if low >= stop:
                break
            found += max(0, min(stop, high) - max(start, low))
        return found


def check_ranges(ranges: Ranges, size: int) -> None:
    """Refuse ranges that are no share of a value of so many elements.

    Raises:
        MalformedError: they are none, too many, empty, not ascending, or outside of the value.
    """
    if not 0 < len(ranges) <= RANGES_MAX:
        raise MalformedError(f"it has {len(ranges)} ranges, and may have 1 to {RANGES_MAX}")
    end = 0
    for start, stop in ranges:
        if not end <= start < stop <= size:
            raise MalformedError(f"({start}, {stop}) is no range of {size} elements after {end}")
        end = stop


class Assemblies:
    """The contributions of all learners that are not whole yet, a few of each."""

    def __init__(self) -> None:
        """Hold none."""
        self._of: dict[LearnerName, dict[Answer, Assembly]] = {}

    def __len__(self) -> int:
        """Return how many are held."""
        return sum(map(len, self._of.values()))

    def claim(self, answer: Answer, size: int, ranges: Ranges) -> Assembly | None:
        """Claim elements of a contribution for a share that has arrived.

        Args:
            answer: which contribution.
            size: number of its elements, from the syncer's own layout.
            ranges: the elements.

        Returns:
            What the share is to be copied into; None if its elements came before.

        Raises:
            MalformedError: the share cannot belong to it; nothing is kept of it.
        """
        mine = self._of.get(answer.ticket.name, {})
        found = mine.get(answer) or Assembly(size)
        if not found.claim(ranges):
            return None
        if answer not in mine:
            self._of[answer.ticket.name] = mine
            mine[answer] = found
            while len(mine) > ASSEMBLIES_MAX:
                del mine[next(iter(mine))]
        return found

    def take_head(self, connection: int, head: Contribution) -> None:
        """Take in the message of the learner itself, whose share was claimed; the first stands."""
        found = self._of.get(head.ticket.name, {}).get(Answer.of(head))
        if found is not None and found.head is None:
            found.head = connection, head

    def take_whole(self, answer: Answer) -> Assembly | None:
        """Take out a contribution if it is whole."""
        mine = self._of.get(answer.ticket.name, {})
        found = mine.get(answer)
        if found is None or not found.whole:
            return None
        self._drop(answer.ticket.name, answer)
        return found

    def forget(self, name: LearnerName) -> None:
        """Forget all of a learner's, whose link is gone."""
        self._of.pop(name, None)

    def _drop(self, name: LearnerName, answer: Answer) -> None:
        mine = self._of[name]
        del mine[answer]
        if not mine:
            del self._of[name]
