"""When the journal is written, so that its cost stays a small part of any run.

A record holds all metadata: one account per learner and fragment. So it is not written for each
thing that happens:

- A fragment's record is written at once, with its new version. It makes all else durable too.
- All else (grants, ends of incarnations, an operator's word) waits while another record without a
  fragment is under way, and then goes into one together.
- What nobody waits for yet, such as a grant to a learner that has tokens left, is given a time by
  which it must be written, and mostly travels with a fragment's record before that.
- Records of many accounts keep a distance of ten times what writing one down costs.

None of this changes what a record promises: what it covers is sent when it is durable.
"""

from dataclasses import dataclass
from math import inf

SECONDS_PER_ACCOUNT = 5e-7
"""Of a record [M: 0.1 µs on the loop's thread to encode one, 0.4 µs at most on the worker's]."""

DISTANCE = 10
"""Records without a fragment take at most a tenth of the time."""

CHEAP_S = 1e-3
"""A record that costs less than this needs no distance."""


@dataclass(slots=True)
class Records:
    """The next record without a fragment: `due_s` is by when, None if there is nothing to write."""

    due_s: float | None = None
    written_s: float = -inf

    def want(self, by_s: float = -inf) -> None:
        """Something is to be durable by then; at once, if no time is given."""
        self.due_s = by_s if self.due_s is None else min(self.due_s, by_s)

    def at_s(self, accounts: int) -> float | None:
        """When to write, if no other record without a fragment is under way then."""
        if self.due_s is None:
            return None
        cost_s = accounts * SECONDS_PER_ACCOUNT
        distance_s = DISTANCE * cost_s if cost_s >= CHEAP_S else 0.0
        return max(self.due_s, self.written_s + distance_s)
