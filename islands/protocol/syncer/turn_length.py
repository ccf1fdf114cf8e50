"""How many steps a learner does in its turn: all learners are to take the same time over theirs."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, inf

from islands.protocol.settings.run import RunSettings, Trigger
from islands.protocol.syncer.roster import LearnerRecord

ROUNDING_STEPS = 1e-6
"""By how much the product of an interval and a share of speed may be off."""


@dataclass(slots=True)
class FastestStep:
    """The step time of the fastest learner, found once per event and not once per value sent."""

    step_s: float | None = None

    def among(self, trained: Iterable[LearnerRecord]) -> float:
        """Return the least step time that is known among learners; infinite if none is."""
        if self.step_s is None:
            self.step_s = min((one.step_s for one in trained if one.step_s > 0), default=inf)
        return self.step_s

    def forget(self) -> None:
        """Look anew when it is needed next, since an event may change step times."""
        self.step_s = None


def set_turn(
    settings: RunSettings,
    interval_steps: float,
    learner: LearnerRecord,
    fastest: FastestStep,
    trained: Iterable[LearnerRecord],
) -> bool:
    """Set the H that a learner is told with a value; returns whether its speed changed it.

    Args:
        settings: the run's settings; H is told only where learners open rounds.
        interval_steps: H of the run.
        learner: the record of the learner.
        fastest: what is known of the fastest learner.
        trained: the learners among which that one is looked for.
    """
    if settings.trigger is not Trigger.LEARNER:
        return False
    before, share = learner.turn_steps, 1.0
    if settings.interval_by_speed:
        share = speed_share(learner.step_s, fastest.among(trained))
    learner.turn_steps = max(1, floor(interval_steps * share + ROUNDING_STEPS))
    return settings.interval_by_speed and learner.turn_steps != before


def speed_share(step_s: float, fastest_s: float) -> float:
    """Return a learner's speed as share of the fastest one's, so that H_m = ⌊H · share⌋.

    Args:
        step_s: its step time in seconds; while that is 0, unknown, its share is 1.
        fastest_s: step time of the fastest learner, infinite if it is unknown.

    Reference:
        Asynchronous Local-SGD (arXiv 2401.09135), dynamic local updates (DyLU).
    """
    return min(1.0, fastest_s / step_s) if step_s > 0 else 1.0


def done_share(steps: int, turn_steps: int) -> float:
    """Return how much of a turn was done: the learning-rate clock goes on by no more than that.

    Args:
        steps: steps of a contribution.
        turn_steps: H that its sender was told; 0, as after a restart, counts as all done.
    """
    return min(1.0, steps / turn_steps) if turn_steps else 1.0
