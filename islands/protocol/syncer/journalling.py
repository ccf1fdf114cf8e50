"""Journalling: when the journal is written, and which grants are under way.

A record holds all metadata: one account per learner and fragment. So a fragment's record, which is
written at once with its new version, makes all other changes durable too. All other changes
(grants, ends of incarnations, an operator's command) wait for the next record. A change that nobody
waits for yet, such as a grant to a learner that has tokens left, gets a deadline for its record.
Records of many accounts are spaced by ten times what writing one of them costs.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from islands.protocol.identities import LearnerName
from islands.protocol.messages.training import LeaseGranted

SECONDS_PER_ACCOUNT = 5e-7
"""Cost of a record [M: 0.1 µs to encode an account on the loop's thread, 0.4 µs at most on the
worker's]."""

DISTANCE = 10
"""Spacing of records without a fragment, in costs: they take at most a tenth of the time."""

BLOCKED_S = 10.0
"""A record that waits for longer is reported: nothing is merged meanwhile."""

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

    `journalling` holds the number and the fragment of each record being written. `grants` holds the
    grants that are not durable yet, each with the number of its record once that is written, and
    `written_grants` the content of each such record, oldest first: a grant may be renewed
    repeatedly before it is durable, and only what is durable is sent. `ungranted` are the learners
    that may need tokens or data since the last grants, `hungry` those that could not be given a
    whole batch, and `unspent` shows that tokens are left (`closing.py`). Up to `counted_s` time
    counts against the budget. At `waiting_s` the disk last took a record, or was given the
    oldest of those that wait.
    """

    counted_s: float
    records: RecordSchedule = field(default_factory=RecordSchedule)
    journalling: deque[tuple[int, int | None]] = field(default_factory=deque)
    grants: dict[LearnerName, int | None] = field(default_factory=dict)
    written_grants: deque[tuple[int, dict[LearnerName, LeaseGranted]]] = field(
        default_factory=deque
    )
    ungranted: dict[LearnerName, None] = field(default_factory=dict)
    hungry: dict[LearnerName, None] = field(default_factory=dict)
    unspent: tuple[LearnerName, LearnerName | None] | None = None
    waiting_s: float = 0.0
    changes: int = 0

    @property
    def lag_s(self) -> float:
        """For how long the oldest record has waited to become durable, at the last event."""
        return self.counted_s - self.waiting_s if self.journalling else 0.0

    @property
    def blocked(self) -> bool:
        """Whether the disk has taken nothing for so long that a person should look at it."""
        return self.lag_s >= BLOCKED_S

    @property
    def all_durable(self) -> bool:
        return not self.journalling and self.records.due_s is None

    def write(
        self, sequence: int, fragment: int | None, grant_of: Callable[[LearnerName], LeaseGranted]
    ) -> None:
        """Note that a record is being written: it holds all grants that no record has yet."""
        held = [name for name, covered in self.grants.items() if covered is None]
        self.grants.update(dict.fromkeys(held, sequence))
        if held:
            self.written_grants.append((sequence, {name: grant_of(name) for name in held}))
        if not self.journalling:
            self.waiting_s = self.counted_s
        self.journalling.append((sequence, fragment))
        self.changes += 1

    def take_durable(self, sequence: int) -> list[int]:
        """Take out the records up to a number, which are durable; return their fragments."""
        fragments, self.waiting_s = [], self.counted_s
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
        names = sorted(self.ungranted)
        self.ungranted.clear()
        return names

    def may_need(self, name: LearnerName) -> None:
        self.ungranted[name] = None

    def granted(self, name: LearnerName) -> None:
        self.grants[name] = None
        self.changes += 1

    def set_hungry(self, name: LearnerName, *, hungry: bool) -> None:
        if hungry:
            self.hungry[name] = None
        else:
            self.hungry.pop(name, None)

    def gave_back(self, name: LearnerName) -> None:
        self.grants.pop(name, None)
        self.hungry.pop(name, None)
        self.ungranted.update(self.hungry)
        self.changes += 1

    def show_unspent(self, reader: LearnerName, holder: LearnerName | None) -> None:
        self.unspent = reader, holder

    def forget_unspent(self) -> None:
        self.unspent = None

    def count_until(self, now_s: float) -> float:
        """Return the time that has passed since the last call."""
        passed_s, self.counted_s = now_s - self.counted_s, now_s
        return passed_s
