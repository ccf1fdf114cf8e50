"""Agreement on what an island's hosts carry out at which boundary, for which none of them waits.

All hosts of an island take the same steps of one program, and come to the same boundaries, which
each counts from 0. What a boundary does (adopt, take a snapshot, allow steps) must be the same on
all hosts, as parts of it are collective operations of their devices. So:

1. Rank 0 leads. It numbers the commands of its actor, and sends them to all (`CommandLog`).
2. Each host tells up to which number it holds all commands with their arrays.
3. When rank 0 comes to boundary b, it decides the *word* of boundary b + 2: the number up to which
   all hosts hold the commands just then (`Leader`).
4. Each host carries out, at a boundary, the commands up to the word of that boundary. The words of
   the first two boundaries are 0, so every host knows a word before it has to.

No step waits for a command that is on its way: a host whose link is slow delays what its island
adopts, and never its steps. While no step may be taken, a host waits at its next boundary for the
word of it, and rank 0 gives one whenever there is news. A rank that dies ends the island, and the
next incarnation begins with an empty log.
"""

from collections import deque
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass, field

from islands.learner.compute import Arrival, BookCopy, enqueue
from islands.protocol.learner.actions import AdoptValue, EngineAction

AHEAD = 2
"""So many boundaries before it is carried out, a word is sent."""

ARRIVALS_KEPT = 1024
"""Newest boundaries of which rank 0 remembers what it came to them for."""


@dataclass(frozen=True, slots=True)
class End:
    """No boundary follows the one that carries this out."""


LogEntry = EngineAction | BookCopy | End


class Leader:
    """Rank 0's words, for one boundary after the other."""

    def __init__(self) -> None:
        self.boundary = 0
        self._told: deque[int] = deque([0] * AHEAD)
        self._done = 0

    def arrive(self, held: int) -> tuple[int, int, int]:
        """Come to the next boundary, when all hosts hold the commands up to number `held`.

        Return the word of this boundary, the later one whose word this decides, and that word.
        """
        self._told.append(max(held, self._told[-1]))
        self._done = self._told.popleft()
        self.boundary += 1
        return self._done, self.boundary - 1 + AHEAD, self._told[-1]

    def has_news(self, held: int) -> bool:
        """Whether a further boundary leads to a command: one is agreed, or all hosts hold one."""
        return max(held, self._told[-1]) > self._done


class Follower:
    """The words that a follower has received."""

    def __init__(self) -> None:
        self.boundary = 0
        self._words = dict.fromkeys(range(AHEAD), 0)

    def on_word(self, boundary: int, upto: int) -> None:
        self._words[boundary] = upto

    @property
    def knows(self) -> bool:
        """Whether the word of the next boundary is known."""
        return self.boundary in self._words

    def arrive(self) -> int:
        """Come to the next boundary, whose word is known; returns the word."""
        upto = self._words.pop(self.boundary)
        self.boundary += 1
        return upto


@dataclass(slots=True)
class CommandLog:
    """Commands that wait to be numbered, and those that are numbered and not carried out.

    At most one value per fragment is numbered at a time. Others wait, where a newer value replaces
    an older one, so a step that takes long or hangs keeps a bounded number of values in memory on
    every host.
    """

    issued: int = 0
    waiting: list[LogEntry] = field(default_factory=list)
    under_way: dict[int, LogEntry] = field(default_factory=dict)

    def put(self, entry: LogEntry) -> None:
        if isinstance(entry, BookCopy | End):
            self.waiting.append(entry)
        else:
            queue: MutableSequence[EngineAction] = self.waiting  # type: ignore[assignment]  # a wider one
            enqueue(queue, entry)

    def issue(self) -> list[tuple[int, LogEntry]]:
        """Number the commands that may go out now, in their order."""
        issued = []
        while self.waiting and not self._blocked(self.waiting[0]):
            entry = self.waiting.pop(0)
            self.issued += 1
            self.under_way[self.issued] = entry
            issued.append((self.issued, entry))
        return issued

    def take(self, upto: int) -> list[LogEntry]:
        """Take the commands up to a word out of those under way, in their order."""
        numbers = [number for number in self.under_way if number <= upto]
        return [self.under_way.pop(number) for number in numbers]

    def drain(self) -> list[LogEntry]:
        """Take out all that was not carried out, in its order."""
        left = [*self.under_way.values(), *self.waiting]
        self.under_way.clear()
        self.waiting.clear()
        return left

    def _blocked(self, entry: LogEntry) -> bool:
        return isinstance(entry, AdoptValue) and any(
            isinstance(other, AdoptValue) and other.fragment == entry.fragment
            for other in self.under_way.values()
        )


class Holdings:
    """Up to which command each host holds all that it needs."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._held = dict.fromkeys(ranks, 0)

    def on_held(self, rank: int, held: int) -> None:
        """Take in what a follower holds; an older report changes nothing."""
        self._held[rank] = max(held, self._held[rank])

    def common(self, issued: int) -> int:
        """Return the number up to which all hosts hold commands."""
        return min([issued, *self._held.values()])


class Itinerary:
    """The newest boundaries that a host came to, and for what, to be compared with other hosts'.

    What all hosts agree on decides what each boundary is for. So whoever tells another purpose or
    another number of steps for the same boundary has taken another way through its loop. Only
    equal numbers of boundaries are compared, so it does not matter who is ahead.
    """

    def __init__(self) -> None:
        self._newest: deque[Arrival] = deque(maxlen=ARRIVALS_KEPT)

    def note(self, arrival: Arrival) -> None:
        self._newest.append(arrival)

    def differing(self, theirs: Arrival) -> Arrival | None:
        """Return this host's own arrival if it differs; None if it is equal, or not known."""
        if not self._newest:
            return None
        index = theirs.boundary - self._newest[0].boundary
        if not 0 <= index < len(self._newest):
            return None
        own = self._newest[index]
        return None if own == theirs else own
