"""Backpressure on snapshots: how many may be in transit from the device to the host.

Ordinarily the copy of a snapshot overlaps the next step, so two of a fragment are in transit at
times: those of the running step and of the next. Copies are done one after another, so where they
take longer than steps, a copy begun too early delays all others. Then each fragment has at most one
in transit, and a boundary begins only as many as keep the transfer busy until the next boundary,
the most urgent first. So memory is bounded, and every copy that was begun arrives.
"""

from collections import deque
from dataclasses import dataclass, field

COPIES_MAX = 2
"""Snapshots of one fragment that may be in transit at once."""

LAG_ORDINARY_STEPS = 1
"""Steps that are dispatched while a copy is in transit, if copies keep up with steps."""


@dataclass(slots=True)
class SnapshotCopies:
    """The snapshots in transit.

    `under_way` holds, by fragment, the totals of steps at which they were taken. `steps` is the
    total at the last boundary, and `lag_steps` how many steps were dispatched while the copy that
    arrived last was in transit. While compute stands still this lag is too small, so it decreases
    only with the next step: otherwise all fragments would be copied at once, and the one asked for
    next would wait behind all of them. `room` is the limit for all fragments together while copies
    lag; it follows from how many `arrived` during the step before.
    """

    steps: int = 0
    lag_steps: int = 0
    newest_lag_steps: int = 0
    room: int = COPIES_MAX
    arrived: int = 0
    under_way: dict[int, deque[int]] = field(default_factory=dict)

    def may_begin(self, fragment: int, steps: int) -> bool:
        """Whether one more snapshot of a fragment may be taken at a boundary."""
        if steps != self.steps:
            self.lag_steps = self.newest_lag_steps
            self.room, self.arrived = COPIES_MAX + self.arrived, 0
        self.steps = steps
        mine = len(self.under_way.get(fragment, ()))
        if self.lag_steps <= LAG_ORDINARY_STEPS:
            return mine < COPIES_MAX
        return mine == 0 and sum(map(len, self.under_way.values())) < self.room

    def begin(self, fragment: int, steps: int) -> None:
        """Note that the copy of a snapshot has begun."""
        self.under_way.setdefault(fragment, deque()).append(steps)

    def arrive(self, fragment: int) -> None:
        """Note that a fragment's oldest snapshot in transit has reached the host."""
        self.arrived += 1
        self.newest_lag_steps = self.steps - self.under_way[fragment].popleft()
        self.lag_steps = max(self.lag_steps, self.newest_lag_steps)
