"""Books: how far own data was read, and when the journal is written.

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

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import Contribution
from islands.protocol.syncer.rounds import Round, Stage

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


def being_merged(rounds: Iterable[Round], name: LearnerName) -> bool:
    """Return whether a round that has closed, and is not durable yet, holds a cursor of a name."""
    for round_ in rounds:
        admitted = None if round_.stage is Stage.COLLECTING else round_.arrived.get(name)
        if admitted is not None and admitted.contribution.cursor:
            return True
    return False


SECONDS_PER_ACCOUNT = 5e-7
"""Cost of a record [M: 0.1 µs to encode an account on the loop's thread, 0.4 µs at most on the
worker's]."""

ACCOUNT_BYTES = 100
"""So many bytes of a cursor cost a record as much as an account [M: 2 ns to encode a byte on the
loop's thread, 0.3 to hash it, and its write]."""

DISTANCE = 10
"""Spacing of records without a fragment, in costs: they take at most a tenth of the time."""

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

    def at_s(self, accounts: int) -> float | None:
        """Return when to write, provided that no other record without a fragment is under way."""
        if self.due_s is None:
            return None
        cost_s = accounts * SECONDS_PER_ACCOUNT
        distance_s = DISTANCE * cost_s if cost_s >= CHEAP_S else 0.0
        return max(self.due_s, self.written_s + distance_s)
