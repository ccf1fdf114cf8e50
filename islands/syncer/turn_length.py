"""How many steps a learner does in its turn: all learners are to take the same time over theirs."""

from collections.abc import Iterable
from math import floor

from islands.settings.run import RunSettings, Trigger
from islands.syncer.roster import LearnerRecord

ROUNDING_STEPS = 1e-6
"""By how much the product of an interval and a share of speed may be off."""


def set_turn(
    settings: RunSettings,
    interval_steps: float,
    learner: LearnerRecord,
    trained: Iterable[LearnerRecord],
) -> bool:
    """Set the H that a learner is told with a value; returns whether its speed changed it.

    Args:
        settings: the run's settings; H is told only where learners open rounds.
        interval_steps: H of the run at this time.
        learner: the record of the learner.
        trained: the learners among which the fastest one is looked for.
    """
    if settings.trigger is not Trigger.LEARNER:
        return False
    before, share = learner.turn_steps, 1.0
    if settings.interval_by_speed:
        share = speed_share(learner.step_s, (one.step_s for one in trained))
    learner.turn_steps = max(1, floor(interval_steps * share + ROUNDING_STEPS))
    return settings.interval_by_speed and learner.turn_steps != before


def speed_share(step_s: float, others_s: Iterable[float]) -> float:
    """Return a learner's speed as share of the fastest one's, so that H_m = ⌊H · share⌋.

    Args:
        step_s: its step time in seconds; while that is 0, unknown, its share is 1.
        others_s: step times of the others; those that are unknown do not count.

    Reference:
        Asynchronous Local-SGD (arXiv 2401.09135), dynamic local updates (DyLU).
    """
    fastest_s = min((one for one in others_s if one > 0), default=step_s)
    return min(1.0, fastest_s / step_s) if step_s > 0 else 1.0
