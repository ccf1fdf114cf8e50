"""Which snapshots may be taken while earlier ones are on their way from the device to the host.

Ordinarily the copy of a snapshot overlaps the next step, so two of a fragment are on their way at
times: of the running step and of the next. Copies follow one another, so where they take longer
than steps whatever is begun too early only makes all others later: then each fragment has one on
its way at most, and a boundary begins no more than keeps the way to the host busy until the next
one, the most urgent first. So memory is bounded, and every copy that was begun arrives.
"""

from collections import deque
from dataclasses import dataclass, field

COPIES_MAX = 2
"""Snapshots of one fragment that may be on their way."""

LAG_ORDINARY_STEPS = 1
"""Steps that are dispatched while a copy that keeps up with them is on its way."""


@dataclass(slots=True)
class SnapshotCopies:
    """Snapshots on their way, by fragment: the totals of steps at which they were taken.

    `steps` is the total at the last boundary, `lag_steps` how many were dispatched while the copy
    that arrived last was on its way. While compute stands still that says too little, so it becomes
    less with the next step only: or all fragments would be copied at once, and what is asked for
    next after all of them. `room` is for how many there is room in all while copies lag,
    by those that `arrived` during the step before.
    """

    steps: int = 0
    lag_steps: int = 0
    newest_lag_steps: int = 0
    room: int = COPIES_MAX
    arrived: int = 0
    under_way: dict[int, deque[int]] = field(default_factory=dict)

    def may_begin(self, fragment: int, steps: int) -> bool:
        """Whether there is room for one more snapshot of a fragment at a boundary."""
        if steps != self.steps:
            self.lag_steps = self.newest_lag_steps
            self.room, self.arrived = COPIES_MAX + self.arrived, 0
        self.steps = steps
        mine = len(self.under_way.get(fragment, ()))
        if self.lag_steps <= LAG_ORDINARY_STEPS:
            return mine < COPIES_MAX
        return mine == 0 and sum(map(len, self.under_way.values())) < self.room

    def begin(self, fragment: int, steps: int) -> None:
        """A snapshot is on its way."""
        self.under_way.setdefault(fragment, deque()).append(steps)

    def arrive(self, fragment: int) -> None:
        """The oldest snapshot of a fragment is on the host."""
        self.arrived += 1
        self.newest_lag_steps = self.steps - self.under_way[fragment].popleft()
        self.lag_steps = max(self.lag_steps, self.newest_lag_steps)
