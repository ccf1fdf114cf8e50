"""When the journal is written: changes are batched, so that its cost stays small in any run.

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

from dataclasses import dataclass
from math import inf

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
