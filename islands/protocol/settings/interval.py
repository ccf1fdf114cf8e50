"""The interval H between two merges of a fragment, as a function of the run's clock.

Early steps disagree most, so short intervals are worth most at the start, and later on longer ones
save traffic. Without `interval_first_steps` the interval is H throughout.

Reference: the quadratic synchronization rule, H ∝ 1/rate² (arXiv 2310.14423), for `by_rate`.
"""

from typing import assert_never

from islands.protocol.settings.learning_rate import learning_rate
from islands.protocol.settings.run import IntervalGrowth, RunSettings


def interval_steps_at(settings: RunSettings, clock: float) -> float:
    """Return the interval between two merges of a fragment, in steps.

    Args:
        settings: `interval_steps` H, `interval_first_steps` h, `interval_growth` and
            `interval_growth_steps` g; the schedule of the learning rate η(t) with peak η.
        clock: step t ≥ 0.

    Returns:
        Of `linear`: h + (H − h)·min(1, t/g). Of `by_rate`: h·(η/η(t))², at most H; h during the
        warm-up.
    """
    first, longest = settings.interval_first_steps, settings.interval_steps
    if first is None:
        return longest
    match settings.interval_growth:
        case IntervalGrowth.LINEAR:
            return first + (longest - first) * min(1.0, clock / settings.interval_growth_steps)
        case IntervalGrowth.BY_RATE:
            if clock < settings.warmup_steps:
                return first
            rate = learning_rate(settings, clock)
            room = longest / first
            return first * min(room, (settings.learning_rate / max(rate, 1e-30)) ** 2)
        case _:
            assert_never(settings.interval_growth)
