"""What changes in an outer optimizer from merge to merge: its rate, and its momentum.

A function of the number n of merges that the fragment has had before, and of the settings alone::

    p   = min(1, n / schedule_merges)
    η_n = η                                   constant
        = η (1 − (1 − s) p)                   linear, s the final share
        = η (s + (1 − s)(1 + cos πp) / 2)     cosine
    μ_n = μ min(1, n / momentum_warmup)
    v   = 0 before the merge                  where n is a multiple of restart_every

The count is part of the optimizer's state. So it is journalled with the value it belongs to, and a
restart goes on with the same bits. The warm-up counts from the start of the run, not from a
restart of the momentum.

Reference:
    Momentum warm-up and restarts: Pier (arXiv 2511.17849); protocol §14. The forms are ours.
"""

from dataclasses import dataclass
from math import cos, pi

from islands.protocol.errors import InvariantError
from islands.protocol.settings.outer import OuterSchedule, OuterSettings


@dataclass(frozen=True, slots=True)
class Course:
    """The settings that a rate and a momentum follow; see the module's docstring."""

    momentum_warmup: int = 0
    restart_every: int | None = None
    schedule: OuterSchedule = OuterSchedule.CONSTANT
    schedule_merges: int = 1
    final_share: float = 0.1

    @classmethod
    def of(cls, settings: OuterSettings) -> "Course | None":
        """Make the course that the settings describe; None if nothing changes from merge to merge.

        Raises:
            InvariantError: A schedule lacks its number of merges; check the settings first.
        """
        constant = settings.schedule is OuterSchedule.CONSTANT
        if constant and not settings.momentum_warmup and settings.restart_every is None:
            return None
        if not constant and settings.schedule_merges is None:
            raise InvariantError(f"a {settings.schedule} schedule needs a number of merges")
        return cls(
            settings.momentum_warmup,
            settings.restart_every,
            settings.schedule,
            settings.schedule_merges or 1,
            float(settings.final_learning_rate_share),
        )

    def rate(self, learning_rate: float, merges: int) -> float:
        """Return η_n after so many merges."""
        progress = min(1.0, merges / self.schedule_merges)
        fallen = 1 - self.final_share
        match self.schedule:
            case OuterSchedule.CONSTANT:
                return learning_rate
            case OuterSchedule.LINEAR:
                return learning_rate * (1 - fallen * progress)
            case OuterSchedule.COSINE:
                return learning_rate * (self.final_share + fallen * (1 + cos(pi * progress)) / 2)

    def momentum(self, momentum: float, merges: int) -> float:
        """Return μ_n after so many merges."""
        if merges >= self.momentum_warmup:
            return momentum
        return momentum * merges / self.momentum_warmup

    def restarts(self, merges: int) -> bool:
        """Whether the momentum starts from 0 at the merge after so many."""
        return self.restart_every is not None and merges % self.restart_every == 0
