"""Data-parallel training as actors: every step is merged with all others before the next begins.

There is no collective in the actors' protocol. What stands for the all-reduce of gradients is
DiLoCo at H = 1: each learner takes one step, sends what it changed, and stands still until the
average of all has arrived. So the waiting is that of the protocol. The bytes are those of a hub:
16 bits up and 32 down for each value, where a ring sends 2(M − 1)/M · 16 bits
(`formulas.ring_step_s`).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import erf, prod, sqrt

from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing

POINTS = 4000
TAIL = 8.0
"""Standard deviations beyond which a step's time is not integrated."""


def lock_step(timing: Timing) -> RunSettings:
    """Return the settings of a run in lock-step."""
    return replace(PRESETS[Preset.DILOCO], interval_steps=1, outer=OuterSettings(), timing=timing)


def goodput_of_waiting(speeds: Sequence[float], noise: float) -> float:
    """Return goodput where all wait for the slowest at each step, in closed form.

    The mean of a step's time over learners, over the mean of the longest of their steps:
    E[max] = ∫ 1 − Π Φ((x − sᵢ)/(σ·sᵢ)) dx from 0 on.

    Args:
        speeds: sᵢ, by how many times the steps of each learner are longer.
        noise: σ, standard deviation of a step's time, as a share of the mean.
    """
    mean = sum(speeds) / len(speeds)
    if not noise:
        return mean / max(speeds)
    end = max(speeds) * (1 + TAIL * noise)
    width = end / POINTS
    longest = sum(
        1 - prod(_normal(((index + 0.5) * width - speed) / (noise * speed)) for speed in speeds)
        for index in range(POINTS)
    )
    return mean / (longest * width)


def _normal(x: float) -> float:
    """Return Φ(x), the share of a normal distribution that is below x."""
    return (1 + erf(x / sqrt(2))) / 2
