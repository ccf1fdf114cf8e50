"""The load of a run on its links, in closed form, beside simulated figures and never for them.

N values, P fragments, H steps between two merges of a fragment, τ steps of overlap, s seconds of a
step, B bits per second of a learner's link each way, u and d bits of a value on its way up and
down, l seconds of one message.

- *Who waits* for the value that contains its contribution stands still for w = e − τ·s, if that is
  above 0, once in H/P steps; an exchange takes e = (u + d)·N/(P·B) + 4·l: the report of the step,
  the pull, the contribution and the value are one message each, of which two are large.
- *Who does not wait* is late for no merge as long as a fragment travels within H/P steps each way,
  B ≥ max(u, d)·N/(H·s), and its exchange fits into τ − 1 steps, (u + d)·N/(P·B) + 4·l ≤ (τ − 1)·s:
  of the τ steps that hide it, one may pass until the learner's next boundary. Below that some are
  late; how many depends on how the learners' steps happen to lie.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import erf, prod, sqrt

from islands.numerics.codecs import size_bytes
from islands.protocol.settings.choices import LearnerWaits, Precision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing

MESSAGES = 4
"""Of an exchange, one after another."""

POINTS = 4000
TAIL = 8.0
"""Standard deviations beyond which a step's time is not integrated."""

BLOCK = 1 << 20
BITS = 8
RING_BITS = 16.0
"""Of a gradient that goes round a ring."""
GIGA, THOUSAND = 1e9, 1e3


@dataclass(frozen=True, slots=True)
class Job:
    """A model and how long its step takes.

    Attributes:
        parameters: N.
        step_s: s.
        latency_s: l.
    """

    parameters: float
    step_s: float
    latency_s: float = 0.0


def bits_up(settings: RunSettings) -> float:
    """Return the bits of a contribution for each value of the model."""
    return _bits(settings, settings.precision.finest)


def bits_down(settings: RunSettings) -> float:
    """Return the bits of an update for each value of the model."""
    return _bits(settings, Precision(settings.update_precision.value))


def _bits(settings: RunSettings, precision: Precision) -> float:
    """Return the bits that travel; merged moments go beside, exactly where values are coarse."""
    moments = [(BLOCK, 2 * BLOCK)] if settings.merge_moments else []
    values = 2 * BLOCK if moments else BLOCK
    return BITS * size_bytes(values, precision, moments, settings.top_k_share) / BLOCK


def period_s(settings: RunSettings, job: Job, gbit_s: float) -> float:
    """Return the seconds from one merge to the next, over all fragments, of a learner that waits.

    Of one that does not, they are those of its steps, or of the link if that is too narrow.
    """
    own_s = settings.round_interval_steps(settings.fragments) * job.step_s
    bits = job.parameters / settings.fragments
    if settings.learner_waits is LearnerWaits.AT_TAU:
        exchange_s = (bits_up(settings) + bits_down(settings)) * bits / (GIGA * gbit_s)
        exchange_s += MESSAGES * job.latency_s
        return own_s + max(0.0, exchange_s - settings.overlap_steps_max * job.step_s)
    return max(own_s, max(bits_up(settings), bits_down(settings)) * bits / (GIGA * gbit_s))


def needed_gbit_s(settings: RunSettings, job: Job, utilisation: float) -> float:
    """Return the bandwidth with which a learner comes to a utilisation at the least.

    Args:
        settings: of the run.
        job: the model.
        utilisation: share of what an unlimited link allows, above 0 and below 1.

    Returns:
        Gbit/s, each way; infinite if latency alone costs more. Where learners never wait it is that
        with which nobody is late, for any utilisation.
    """
    interval_s = settings.round_interval_steps(settings.fragments) * job.step_s
    fragment = job.parameters / settings.fragments
    up, down = bits_up(settings), bits_down(settings)
    if settings.learner_waits is LearnerWaits.AT_TAU:
        hidden_s = settings.overlap_steps_max * job.step_s
        left_s = interval_s * (1 / utilisation - 1) + hidden_s - MESSAGES * job.latency_s
        return (up + down) * fragment / (GIGA * left_s) if left_s > 0 else float("inf")
    sustained = max(up, down) * fragment / (GIGA * interval_s)
    room = max(1, settings.overlap_steps_max - 1)
    left_s = room * job.step_s - MESSAGES * job.latency_s
    return max(sustained, (up + down) * fragment / (GIGA * left_s)) if left_s > 0 else float("inf")


def ring_step_s(job: Job, members: int, gbit_s: float) -> float:
    """Return the seconds of a data-parallel step whose gradients go round a ring of links.

    s + 2(M − 1)/M · 16 N/B + 2(M − 1)·l: the least that an all-reduce takes, nothing hidden.
    """
    turns = 2 * (members - 1)
    sent_s = turns / members * RING_BITS * job.parameters / (GIGA * gbit_s)
    return job.step_s + sent_s + turns * job.latency_s


def syncer_gbit_s(
    settings: RunSettings, job: Job, learners: int, shards: int
) -> tuple[float, float]:
    """Return the load of a syncer's own link if it were cut into shards, in and out, in Gbit/s.

    M · bits · N/(H·s) over the shards: each has as large a share of every fragment as the others.
    It is a formula only: a run has one syncer.
    """
    each = learners * job.parameters / (settings.interval_steps * job.step_s) / GIGA / shards
    return bits_up(settings) * each, bits_down(settings) * each


def gbit_text(gbit_s: float) -> str:
    """Return a bandwidth as text, to three digits; whole numbers from a thousand on."""
    return f"{gbit_s:,.0f}" if THOUSAND <= gbit_s < float("inf") else f"{gbit_s:.3g}"


# --- in lock-step ------------------------------------------------------------------------------


def lock_step(timing: Timing) -> RunSettings:
    """Return the settings of data-parallel training as actors: all merge before the next step.

    There is no collective in the actors' protocol. What stands for the all-reduce of gradients is
    DiLoCo at H = 1: each learner takes one step, sends what it changed, and stands still until the
    average of all has arrived. So the waiting is that of the protocol. The bytes are those of a
    hub: 16 bits up and 32 down for each value, where a ring sends 2(M − 1)/M · 16 bits
    (`ring_step_s`).
    """
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
