"""Settings of a run. They live with the supervisor; a learner is told, never configured, twice.

Symbols of SPEC §1: H = `interval_steps`, P = `fragments`, K = `quorum`, τ = `overlap_steps`,
γ = `grace_safety`. Durations end in ``_s`` and are seconds.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from islands.errors import SettingsError

REPORTS_PER_ROUND = 8
"""Reports of progress per interval between rounds, if it is that many steps (see `pace.py`)."""


class PaceBy(StrEnum):
    """Whose compute sets the interval between rounds."""

    MEDIAN = "median"
    FASTEST = "fastest"
    SLOWEST = "slowest"


class Weighting(StrEnum):
    """How a contribution is weighted in a merge."""

    TOKENS_SQUARED_PER_STEP = "tokens_squared_per_step"
    TOKENS = "tokens"
    UNIFORM = "uniform"


class MergeRule(StrEnum):
    """How contributions become one direction."""

    RADIAL_DIRECTIONAL = "rda"
    AVERAGE = "average"


class Anchor(StrEnum):
    """Against which published value a contribution is measured."""

    CURRENT = "current"
    BASE = "base"


class Precision(StrEnum):
    """Element type of a contribution on the wire."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class OuterSettings:
    """The outer optimizer: SGD with (Nesterov) momentum on the merged direction.

    Args:
        learning_rate: η, dimensionless.
        momentum: μ, kept share of the momentum per merge.
        nesterov: look ahead along the momentum.
    """

    learning_rate: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """Every timeout of the system, for `patience` 1.

    Args:
        patience: scales all of them; 0.2 makes eviction take one second.
        heartbeat_s: interval of signs of life.
        suspect_s: silence after which a member is suspect.
        evict_s: silence after which a member is evicted.
        stalled_s: least time without a step before a stepping member is `stalled`.
        compile_s: limit of compilation.
        round_s: least time before a round without quorum is abandoned.
        final_s: limit of the closing rounds.
        resend_s: after which an unanswered pull or an unadopted update is sent again.
    """

    patience: float = 1.0
    heartbeat_s: float = 1.0
    suspect_s: float = 3.0
    evict_s: float = 5.0
    stalled_s: float = 30.0
    compile_s: float = 600.0
    round_s: float = 10.0
    final_s: float = 30.0
    resend_s: float = 2.0

    def scaled(self, duration_s: float) -> float:
        """A duration of this table, scaled by the patience of the run."""
        return duration_s * self.patience


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What all members of a run must agree on.

    Args:
        run: identity of the run; a peer of another run is refused.
        interval_steps: H, inner steps between two merges of the same fragment.
        fragments: P wanted; the plan may make fewer (SPEC §4).
        quorum: K, contributions that must have arrived before a round may close; None = all asked.
        overlap_steps: τ, steps that communication may hide behind.
        grace_safety: γ, share of the hidden time spent waiting for stragglers.
        pace_by: whose compute sets the interval.
        weighting: of contributions.
        merge: rule for tensors that are not embeddings.
        anchor: `current` is the paper's.
        staleness_max: versions by which a contribution's base may be behind.
        outer: outer optimizer.
        precision: of contributions on the wire.
        budget_tokens: tokens after which the run ends; None = until stopped.
        budget_s: seconds after which the run closes; None = no limit.
        warmup_steps: linear warm-up of the inner learning rate, in steps of the clock.
        learning_rate: peak of the inner learning rate.
        total_steps: steps of the clock at which cosine decay reaches its floor; None = constant.
        final_learning_rate_share: floor of the decay as share of the peak.
        norm_limit: a contribution is refused above this multiple of its fragment's median norm.
        timing: every timeout.
        seed: of the run.
    """

    run: str = "run"
    interval_steps: int = 24
    fragments: int = 24
    quorum: int | None = 1
    overlap_steps: int = 2
    grace_safety: float = 0.8
    pace_by: PaceBy = PaceBy.MEDIAN
    weighting: Weighting = Weighting.TOKENS_SQUARED_PER_STEP
    merge: MergeRule = MergeRule.RADIAL_DIRECTIONAL
    anchor: Anchor = Anchor.CURRENT
    staleness_max: int = 2
    outer: OuterSettings = field(default_factory=OuterSettings)
    precision: Precision = Precision.FLOAT32
    budget_tokens: int | None = None
    budget_s: float | None = None
    warmup_steps: int = 50
    learning_rate: float = 3e-3
    total_steps: int | None = None
    final_learning_rate_share: float = 0.1
    norm_limit: float = 10.0
    timing: Timing = field(default_factory=Timing)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            SettingsError: name, value and allowed range of the first wrong setting.
        """
        _at_least("interval_steps", self.interval_steps, 1)
        _at_least("fragments", self.fragments, 1)
        _at_least("overlap_steps", self.overlap_steps, 0)
        _at_least("staleness_max", self.staleness_max, 0)
        if self.quorum is not None:
            _at_least("quorum", self.quorum, 1)
        if self.budget_tokens is not None:
            _at_least("budget_tokens", self.budget_tokens, 1)
        if not 0 <= self.outer.momentum < 1:
            message = f"outer.momentum is {self.outer.momentum}; it must be in [0, 1)"
            raise SettingsError(message)
        if self.timing.patience <= 0:
            message = f"timing.patience is {self.timing.patience}; it must be above 0"
            raise SettingsError(message)

    def round_interval_steps(self, fragments: int) -> float:
        """H/P: steps between two openings of rounds, for P fragments in the plan."""
        return self.interval_steps / fragments

    def report_interval_steps(self, fragments: int) -> int:
        """Steps between two reports of progress: max(1, ⌊H/(8·P)⌋)."""
        return max(1, int(self.round_interval_steps(fragments) / REPORTS_PER_ROUND))

    def open_rounds_max(self, fragments: int) -> int:
        """Rounds open at once: min(P, max(1, ⌈τ·P/H⌉))."""
        hidden = ceil(self.overlap_steps * fragments / self.interval_steps)
        return min(fragments, max(1, hidden))


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        message = f"{name} is {value}; it must be at least {least}"
        raise SettingsError(message)
