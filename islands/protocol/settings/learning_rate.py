"""The inner learning rate as a function of the run's clock.

The clock counts steps of the fleet, not of one learner: H/P per opened round, which the syncer
counts and journals. So learners that join late, or step slower or faster, use the same rate as the
others. Between two values from the syncer, a learner advances the clock by its own steps, scaled to
the fleet's (`protocol/learner/learning_rate_clock.py`).
"""

from math import cos, pi

from islands.protocol.settings.run import RunSettings


def learning_rate(settings: RunSettings, clock: float) -> float:
    """Linear warm-up, then cosine decay to a floor; constant without `total_steps`.

    Args:
        settings: `learning_rate` η, `warmup_steps` w, `total_steps` T,
            `final_learning_rate_share` f.
        clock: step t ≥ 0.

    Returns:
        η·(t+1)/(w+1) for t < w, else η·(f + (1−f)·(1 + cos(π·(t−w)/(T−w)))/2), and η·f after T.
    """
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if clock < warmup:
        return peak * (clock + 1) / (warmup + 1)
    if settings.total_steps is None:
        return peak
    floor = settings.final_learning_rate_share
    span = max(1.0, settings.total_steps - warmup)
    progress = min(1.0, (clock - warmup) / span)
    return peak * (floor + (1 - floor) * (1 + cos(pi * progress)) / 2)
