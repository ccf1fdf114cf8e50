"""What the syncer knows of one learner."""

from collections import deque
from dataclasses import dataclass, field

from islands.messages import Incarnation, LearnerName, Phase, Progress, Role, Status, Version

ANSWERED_REMEMBERED = 64
"""Tickets per learner whose repeated answers are recognised as duplicates of the link."""

STRIKES_MAX = 3
STRIKE_WINDOW_S = 600.0


@dataclass(slots=True)
class LearnerRecord:
    """One incarnation. `connection` numbers its link; None while the link is down."""

    name: LearnerName
    role: Role
    incarnation: Incarnation
    progress: Progress
    connection: int | None
    status: Status = Status.LIVE
    unanswered: dict[int, float] = field(default_factory=dict)
    answered: deque[int] = field(default_factory=lambda: deque(maxlen=ANSWERED_REMEMBERED))
    sent: dict[int, tuple[Version, float]] = field(default_factory=dict)
    strikes: list[float] = field(default_factory=list)
    quarantined: bool = False

    @property
    def phase(self) -> Phase:
        """What it said it is doing."""
        return self.progress.phase

    @property
    def reachable(self) -> bool:
        """Whether its link to this syncer is up and the supervisor has not ended it."""
        ended = self.status in (Status.EVICTED, Status.LEFT)
        return self.connection is not None and not ended

    def holds(self, fragment: int) -> Version | None:
        """The version of a fragment that it reported as its base."""
        return self.progress.fragments[fragment].version

    def strike(self, now_s: float) -> bool:
        """Count a strike; True if this one quarantines the learner."""
        recent = [at_s for at_s in self.strikes if now_s - at_s < STRIKE_WINDOW_S]
        self.strikes = [*recent, now_s]
        newly = len(self.strikes) >= STRIKES_MAX and not self.quarantined
        self.quarantined = self.quarantined or newly
        return newly
