"""Journalling: how far own data was read, when the journal is written, which grants are under way.

**Positions.** A loop that reads its own data sends a cursor with each contribution: how far it had
read at the step boundary at which the contribution was taken. The cursor that is kept of a name is
the one taken at the latest boundary, among all that were merged of its newest incarnation that has
merged anything. Fragments are merged at different times: so what comes after this cursor is in no
merged value of any fragment, and what comes before it had its turn in one fragment at least. Other
fragments may lack the last steps before it, which they were to be merged with next.

A position is told only once it is durable, and no merge that would move it is under way: else a
record could be skipped, or trained on twice.

What is kept is bounded: one cursor for each learner with an open account, and for the
`DEPARTED_KEPT` others whose work was merged last, of `HELD_BYTES_MAX` in all, since every record of
the journal holds them. Where these are full, those who departed are forgotten first; then a name
keeps the cursor that it has, or none, and its records after that are read again.

**Records.** Changes are batched, so that the journal's cost stays small in any run.

A record holds all metadata: one account per learner and fragment. So changes do not each get a
record of their own:

- A fragment's record is written at once, with its new version. It makes all other changes durable
  too.
- All other changes (grants, ends of incarnations, an operator's command) wait while another record
  without a fragment is being written, and then share the next one.
- A change that nobody waits for yet, such as a grant to a learner that has tokens left, gets a
  deadline for its record; mostly a fragment's record includes it before that.
- Records of many accounts are spaced by ten times what writing one of them costs.

None of this changes what a record promises: what it covers is sent only once it is durable.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import Contribution, LeaseGranted

DEPARTED_KEPT = 64
"""Names without an open account whose cursors are kept, since they may come back."""

HELD_BYTES_MAX = 1 << 22
"""Most bytes of all cursors that are kept: of 4096 learners, 1 KiB for each."""


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A cursor, and where in an incarnation it was taken; `order` counts all that were merged."""

    incarnation: Incarnation
    processed_tokens: int
    order: int
    cursor: bytes


@dataclass(slots=True)
class Positions:
    """The newest merged cursor by name.

    `taken` counts those that ever were, and `size_bytes` is the size of those that are held.
    """

    held: dict[LearnerName, Position] = field(default_factory=dict)
    taken: int = 0
    size_bytes: int = 0

    def of(self, name: LearnerName) -> bytes:
        """Return the cursor of a name; empty if there is none."""
        held = self.held.get(name)
        return b"" if held is None else held.cursor

    def merged(
        self, contributions: Sequence[Contribution], members: Collection[LearnerName]
    ) -> list[LearnerName]:
        """Take in the contributions of a merge, and forget who departed long ago.

        Args:
            contributions: those that are merged; one without a cursor ends what is known of its
                name, if it is of a newer incarnation.
            members: the learners with an open account.

        Returns:
            Names whose cursor is not kept, for want of room.
        """
        self._make_room(contributions, members)
        refused = [one.ticket.name for one in contributions if not self._take(one)]
        departed = self._departed(members)
        for name in departed[: max(0, len(departed) - DEPARTED_KEPT)]:
            self._forget(name)
        return refused

    def _make_room(
        self, contributions: Sequence[Contribution], members: Collection[LearnerName]
    ) -> None:
        """Forget those who departed first, as far as the cursors of a merge need their room."""
        added = sum(
            len(one.cursor) - len(self.of(one.ticket.name)) for one in contributions if one.cursor
        )
        if self.size_bytes + added <= HELD_BYTES_MAX:
            return
        staying = [*members, *(one.ticket.name for one in contributions)]
        for name in self._departed(dict.fromkeys(staying)):
            if self.size_bytes + added > HELD_BYTES_MAX:
                self._forget(name)

    def _departed(self, members: Collection[LearnerName]) -> list[LearnerName]:
        """Return the names without an account, beginning with that merged longest ago."""
        departed = [name for name in self.held if name not in members]
        return sorted(departed, key=lambda name: self.held[name].order)

    def _take(self, contribution: Contribution) -> bool:
        """Take in a contribution; return whether there was room for its cursor."""
        ticket, cursor, tokens = (
            contribution.ticket,
            contribution.cursor,
            contribution.processed_tokens,
        )
        held = self.held.get(ticket.name)
        if held is not None and (ticket.incarnation, tokens) < (
            held.incarnation,
            held.processed_tokens,
        ):
            return True
        added = len(cursor) - len(self.of(ticket.name))
        if added > 0 and self.size_bytes + added > HELD_BYTES_MAX:
            return False
        self._forget(ticket.name)
        if cursor:
            self.taken += 1
            self.size_bytes += len(cursor)
            self.held[ticket.name] = Position(ticket.incarnation, tokens, self.taken, cursor)
        return True

    def _forget(self, name: LearnerName) -> None:
        held = self.held.pop(name, None)
        self.size_bytes -= 0 if held is None else len(held.cursor)

    def copy(self) -> "Positions":
        """Return a copy, which changes by itself."""
        return Positions(dict(self.held), self.taken, self.size_bytes)


SECONDS_PER_ACCOUNT = 5e-7
"""Cost of a record [M: 0.1 µs to encode an account on the loop's thread, 0.4 µs at most on the
worker's]."""

ACCOUNT_BYTES = 100
"""So many bytes of a cursor cost a record as much as an account [M: 2 ns to encode a byte on the
loop's thread, 0.3 to hash it, and its write]."""

DISTANCE = 10
"""Spacing of records without a fragment, in costs: they take at most a tenth of the time."""

BLOCKED_S = 10.0
"""A record that waits for longer is told of: nothing is merged meanwhile."""

CHEAP_S = 1e-3
"""Records that cost less than this need no spacing."""


@dataclass(slots=True)
class RecordSchedule:
    """The next record without a fragment; `due_s` is its deadline, None if none is needed."""

    due_s: float | None = None
    written_s: float = -inf

    def want(self, by_s: float = -inf) -> None:
        """Ask for a record by a time, or at once if no time is given."""
        self.due_s = by_s if self.due_s is None else min(self.due_s, by_s)

    def written(self, now_s: float | None = None) -> None:
        """Note that a record is written, which holds all changes; at a time if it is by itself."""
        self.due_s = None
        if now_s is not None:
            self.written_s = now_s

    def at_s(self, accounts: int) -> float | None:
        """Return when to write, provided that no other record without a fragment is under way."""
        if self.due_s is None:
            return None
        cost_s = accounts * SECONDS_PER_ACCOUNT
        distance_s = DISTANCE * cost_s if cost_s >= CHEAP_S else 0.0
        return max(self.due_s, self.written_s + distance_s)


@dataclass(slots=True)
class Journalling:
    """Records and grants under way from the books to the journal, and from there to learners.

    `positions` are those of `Durable` that are durable, so that they may be sent; `cursors_full` is
    whether a cursor was not kept since this start. `journalling` holds the number and the fragment
    of each record being written. `grants` holds the grants that are not durable yet, each with the
    number of its record once that is written, and `written_grants` the content of each such record,
    oldest first: a grant may be renewed repeatedly before it is durable, and only what is durable
    is sent. `ungranted` are the learners that may need tokens or data since the last grants,
    `hungry` those that could not be given a whole batch, and `unspent` shows that tokens are left
    (`closing.py`). Up to `counted_s` time counts against the budget. `lag_s` is for how long the
    record `oldest` has been the oldest of those that are not durable.
    """

    counted_s: float
    positions: Positions
    cursors_full: bool = False
    records: RecordSchedule = field(default_factory=RecordSchedule)
    journalling: deque[tuple[int, int | None]] = field(default_factory=deque)
    grants: dict[LearnerName, int | None] = field(default_factory=dict)
    written_grants: deque[tuple[int, dict[LearnerName, LeaseGranted]]] = field(
        default_factory=deque
    )
    ungranted: dict[LearnerName, None] = field(default_factory=dict)
    hungry: dict[LearnerName, None] = field(default_factory=dict)
    unspent: tuple[LearnerName, LearnerName | None] | None = None
    oldest: int | None = None
    oldest_s: float = 0.0
    lag_s: float = 0.0
    changes: int = 0

    def look(self, now_s: float) -> None:
        """Measure for how long the oldest record has waited to become durable."""
        oldest = self.journalling[0][0] if self.journalling else None
        if oldest is None or oldest != self.oldest:
            self.oldest, self.oldest_s = oldest, now_s
        self.lag_s = now_s - self.oldest_s

    @property
    def blocked(self) -> bool:
        """Whether the disk has taken nothing for so long that a person should look at it."""
        return self.lag_s >= BLOCKED_S

    @property
    def all_durable(self) -> bool:
        """Whether no record is being written or waits to be written."""
        return not self.journalling and self.records.due_s is None

    def write(
        self,
        sequence: int,
        fragment: int | None,
        grant_of: Callable[[LearnerName], LeaseGranted],
    ) -> None:
        """Note that a record is being written: it holds all grants that no record has yet."""
        held = [name for name, covered in self.grants.items() if covered is None]
        self.grants.update(dict.fromkeys(held, sequence))
        if held:
            self.written_grants.append((sequence, {name: grant_of(name) for name in held}))
        self.journalling.append((sequence, fragment))
        self.changes += 1

    def take_durable(self, sequence: int) -> list[int]:
        """Take out the records up to a number, which are durable; return their fragments."""
        fragments = []
        while self.journalling and self.journalling[0][0] <= sequence:
            _, fragment = self.journalling.popleft()
            if fragment is not None:
                fragments.append(fragment)
        self.changes += 1
        return fragments

    def take_grants(self, sequence: int) -> dict[LearnerName, LeaseGranted]:
        """Take out the newest grants that records up to a number hold, by name."""
        durable: dict[LearnerName, LeaseGranted] = {}
        while self.written_grants and self.written_grants[0][0] <= sequence:
            durable.update(self.written_grants.popleft()[1])
        for name in durable:
            covered = self.grants.get(name)
            if covered is not None and covered <= sequence:
                del self.grants[name]
        return dict(sorted(durable.items()))

    def take_ungranted(self) -> list[LearnerName]:
        """Take out the learners that may need tokens or data, by name."""
        names = sorted(self.ungranted)
        self.ungranted.clear()
        return names

    def may_need(self, name: LearnerName) -> None:
        """Examine a learner with the next grants."""
        self.ungranted[name] = None

    def granted(self, name: LearnerName) -> None:
        """Note a grant, which is sent once it is durable."""
        self.grants[name] = None
        self.changes += 1

    def set_hungry(self, name: LearnerName, *, hungry: bool) -> None:
        """Note whether a learner lacks tokens for a batch."""
        if hungry:
            self.hungry[name] = None
        else:
            self.hungry.pop(name, None)

    def gave_back(self, name: LearnerName) -> None:
        """Note that what a learner had may be granted to those that lack tokens."""
        self.grants.pop(name, None)
        self.hungry.pop(name, None)
        self.ungranted.update(self.hungry)
        self.changes += 1

    def show_unspent(self, reader: LearnerName, holder: LearnerName | None) -> None:
        """Remember who showed that tokens are left, to be checked first the next time."""
        self.unspent = reader, holder

    def forget_unspent(self) -> None:
        """Look for tokens that are left among all."""
        self.unspent = None

    def refuse_cursor(self) -> bool:
        """Note that a cursor is not kept; True for the first one since this start."""
        first, self.cursors_full = not self.cursors_full, True
        return first

    def count_until(self, now_s: float) -> float:
        """Return the time that has passed since the last call."""
        passed_s, self.counted_s = now_s - self.counted_s, now_s
        return passed_s
