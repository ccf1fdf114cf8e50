"""The memory, disk and network that a run needs, estimated before it begins.

The estimate is pure arithmetic on the layout and the settings (`islands.model.memory`). Published
values are float32 whatever the model's own precision; contributions have the wire's, and so have
updates by increments. Compute sets the pace of rounds: every fragment moves once in H steps, so N/H
elements are carried per step and direction, whatever P is.

Symbols: N elements, V = 4·N bytes, P fragments, H interval in steps, τ overlap in steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.model import memory
from islands.numerics.codecs import size_bytes
from islands.numerics.outer import state_values
from islands.protocol.settings.choices import MergeRule, Pattern, Precision, Trigger
from islands.protocol.settings.gossip import neighbours_mean
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.stability import overlong_because

SNAPSHOTS_PER_FRAGMENT = 2
SLOTS = 2
"""Records of each fragment on the syncer's disk; one more is there while it is being written."""
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
SHARE_VALUES = 2
"""A learner that gossips sends φ and φ − θ to each neighbour."""


@dataclass(frozen=True, slots=True)
class LearnerBytes:
    """Bytes on one learner, on its device unless said otherwise.

    Parameters and the gradients of a step (with its temporaries, where they are known) are in the
    model's own precision; `base`, the published values that it adopted last, is float32. Snapshots
    are differences in transfer, counted on device and host. `published` is the host's copy of the
    published values, where updates are increments to them.
    """

    parameters: int
    base: int
    moments: int
    gradients: int
    snapshots: int
    published: int = 0

    @property
    def total(self) -> int:
        on_device = self.parameters + self.base + self.moments + self.gradients
        return on_device + self.snapshots + self.published


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run needs, in bytes; those per step are a mean.

    `up_per_step` is the most and `up_per_step_least` the least that a learner sends which chooses
    its precision. Adam's moments are assumed if the optimizer's state was not measured. Compute
    sets the time `pace_s` between two rounds; `exchange_bytes` is the traffic of one with one
    learner, both ways, for the largest fragment. A learner that gossips exchanges values with so
    many `neighbours` in a round, on average.
    """

    elements: int
    fragments: int
    fragments_wanted: int
    pattern: Pattern
    smallest: int
    largest: int
    learners: int
    step_time_s: float | None
    moments_known: bool
    activations_known: bool
    learner: LearnerBytes
    syncer: memory.SyncerBytes
    start_bytes: int
    up_per_step: float
    up_per_step_least: float
    down_per_step: float
    disk_per_round: int
    disk_per_step: float
    disk_bytes: int
    pace_s: float
    rounds_open: int
    exchange_bytes: int
    neighbours: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def steps_per_s(self) -> float:
        return 1.0 if self.step_time_s is None else 1 / self.step_time_s

    def host_bytes(self, learners: int) -> int:
        """Return what a host needs at least for the syncer and so many learners."""
        return round(memory.ROOM * (self.syncer.total + learners * self.learner.total))

    def round_s(self, written_bytes_per_s: float) -> float:
        """Return the seconds between two rounds, given how fast the journal's disk writes.

        Records are written one after another, so no more rounds are made than are written.
        """
        return max(self.pace_s, self.disk_per_round / written_bytes_per_s)

    def hub_bytes_per_s(self, overlap_steps: int) -> float | None:
        """Return the least bandwidth at the hub for which an exchange with all fits into τ steps.

        It is None if τ is 0: no bandwidth is enough then, because nothing is overlapped.
        """
        if overlap_steps == 0:
            return None
        return self.exchange_bytes * self.learners * self.steps_per_s / overlap_steps


def estimate(
    layout: Layout,
    settings: RunSettings,
    *,
    learners: int,
    step_time_s: float | None = None,
    trainer: memory.TrainerBytes | None = None,
) -> Estimate:
    learners = max(1, learners)
    fragments = len(layout.fragments)
    sizes = [fragment.size * VALUE_BYTES for fragment in layout.fragments]
    value = sum(sizes)
    outer = value * state_values(settings.outer)
    sent, least, published = _wire_bytes(layout, settings)
    left = value if settings.update_precision.of_increments else 0
    written = value + outer + left
    rounds_open = settings.open_rounds_max(fragments)
    trainable = sum(prod(leaf.shape) * DTYPE_BYTES.get(leaf.dtype, 4) for leaf in layout.leaves)
    at_once = sum(sorted(sizes)[-rounds_open:])
    copied = at_once // 2 if settings.precision.of_snapshots == "bfloat16" else at_once
    held = trainer or memory.TrainerBytes(
        trainable, value, memory.ADAM_MOMENTS * trainable, trainable
    )
    neighbours = neighbours_mean(settings.gossip, learners)
    shared = SHARE_VALUES * value * neighbours
    made = Estimate(
        elements=layout.size,
        fragments=fragments,
        fragments_wanted=settings.fragments,
        pattern=layout.pattern,
        smallest=min(sizes),
        largest=max(sizes),
        learners=learners,
        step_time_s=step_time_s,
        moments_known=trainer is not None,
        activations_known=held.temporaries is not None,
        learner=LearnerBytes(
            parameters=held.parameters,
            base=held.base,
            moments=held.moments,
            gradients=held.of_a_step,
            snapshots=2 * SNAPSHOTS_PER_FRAGMENT * copied,
            published=left,
        ),
        syncer=memory.syncer_memory(layout, settings, learners),
        start_bytes=value,
        up_per_step=(shared or sum(sent)) / settings.interval_steps,
        up_per_step_least=(shared or min(sum(sent), sum(least))) / settings.interval_steps,
        down_per_step=(shared or sum(published)) / settings.interval_steps,
        disk_per_round=written // fragments,
        disk_per_step=0.0 if neighbours else written / settings.interval_steps,
        disk_bytes=SLOTS * written + written // fragments,
        pace_s=settings.round_interval_steps(fragments) * (step_time_s or 1.0),
        rounds_open=rounds_open,
        exchange_bytes=max(sent) + max(published),
        neighbours=neighbours,
    )
    return replace(made, warnings=tuple(_warnings(made, settings)))


def _wire_bytes(layout: Layout, settings: RunSettings) -> Iterator[list[int]]:
    """Yield the bytes of each fragment's largest and smallest contribution, and of its update."""
    finest, coarsest = settings.precision.finest, settings.precision_coarsest
    for codec in (finest, coarsest, settings.update_precision):
        yield [
            size_bytes(fragment.size, codec, fragment.averages, settings.top_k_share)
            for fragment in layout.fragments
        ]


def _of_sparse(settings: RunSettings) -> list[str]:
    """Return what goes badly with contributions of which few values are sent (protocol §14.3)."""
    if settings.precision is not Precision.TOP_K:
        return []
    found = []
    if settings.outer.momentum > 0:
        found.append(
            f"precision is top_k and outer.momentum is {settings.outer.momentum:g}: momentum "
            "repeats each of the few values that a round has, and error feedback sends what is "
            "left of it again; 0 goes with it"
        )
    if settings.merge is MergeRule.RADIAL_DIRECTIONAL:
        found.append(
            "precision is top_k and merge is rda: contributions that share few positions are "
            "nearly orthogonal, so it makes their sum up to √M times as long as average does"
        )
    return found


def _warnings(made: Estimate, settings: RunSettings) -> list[str]:
    found = []
    if settings.budget_tokens is None and settings.budget_s is None:
        found.append("neither budget_tokens nor budget_s is set: the run goes on until stopped")
    found += settings.rate_doubts
    if made.neighbours:
        return found
    if settings.quorum_least > made.learners:
        found.append(
            f"quorum is {settings.quorum} and there are {made.learners} learners: no round closes "
            "before more join"
        )
    found += _of_sparse(settings)
    turns = settings.trigger is Trigger.LEARNER
    merged = 1 if turns else made.learners
    overlong = overlong_because(settings.outer, settings.merge, merged)
    if overlong is not None:
        found.append(overlong)
    if turns and settings.staleness_max < made.learners:
        found.append(
            f"staleness_max is {settings.staleness_max} and {made.learners} learners are merged "
            "one after the other: a base that is older is replaced, and the work since then is "
            f"lost, so it should be at least {made.learners}"
        )
    return found
