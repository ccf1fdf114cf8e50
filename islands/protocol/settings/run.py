"""Settings of a run: the supervisor keeps them, and members get them from it alone.

Symbols of protocol §1: H = `interval_steps`, P = `fragments`, K = `quorum`, τ = `overlap_steps`,
γ = `grace_safety`. Durations end in ``_s`` and are seconds.
"""

import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import ceil, inf
from typing import Literal

from islands.protocol.errors import SettingsError
from islands.protocol.settings.combinations import (
    Adoption,
    Anchor,
    MergeRule,
    why_lossy,
    why_unsupported,
)
from islands.protocol.settings.gossip import (
    FOR_SYNCERS,
    GossipSettings,
    check_gossip,
    why_not_gossip,
)
from islands.protocol.settings.outer import OuterSettings, check_outer
from islands.protocol.settings.patterns import Pattern
from islands.protocol.settings.turns import SendTo, Trigger, why_turns_unsupported
from islands.protocol.settings.update_precision import UpdatePrecision

__all__ = [
    "TOP_K_SHARE",
    "Adoption",
    "Anchor",
    "Automatic",
    "LearnerWaits",
    "MergeRule",
    "OuterSettings",
    "PaceBy",
    "Pattern",
    "Precision",
    "RunSettings",
    "SendTo",
    "SnapshotPrecision",
    "Timing",
    "Trigger",
    "UpdatePrecision",
    "Weighting",
]

REPORTS_PER_ROUND = 8
"""Progress reports per interval between rounds; fewer if it has fewer steps (see `pace.py`)."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LEAST = {
    "interval_steps": 1,
    "fragments": 1,
    "piece_bytes_min": 4,
    "quorum": 1,
    "overlap_steps": 0,
    "staleness_max": 0,
    "budget_tokens": 1,
    "warmup_steps": 0,
    "total_steps": 1,
    "seed": 0,
}
ABOVE_ZERO = ("budget_s", "learning_rate", "norm_limit")
OVERLAP_LEAST = 2
OVERLAP_SHARE = 4
"""A measured τ is at least `OVERLAP_LEAST`, and at most that or H / `OVERLAP_SHARE`."""
WELL_STEPS = 100
TOP_K_SHARE = 1 / 32
TRIM_BELOW = 0.5
SHARES = ("grace_safety", "final_learning_rate_share", "local_share")


class Automatic(StrEnum):
    """The value of a setting that is derived from measured times during the run."""

    AUTO = "auto"


class PaceBy(StrEnum):
    """Which learner's step time sets the interval between rounds."""

    MEDIAN = "median"
    FASTEST = "fastest"
    SLOWEST = "slowest"


class Weighting(StrEnum):
    """How a contribution is weighted in a merge."""

    TOKENS_SQUARED_PER_STEP = "tokens_squared_per_step"
    TOKENS = "tokens"
    UNIFORM = "uniform"


class LearnerWaits(StrEnum):
    """Whether a learner stands still until the merge of its contribution has arrived."""

    NEVER = "never"
    AT_TAU = "at_tau"


SnapshotPrecision = Literal["float32", "bfloat16"]
"""Element type in which a contribution leaves its device."""


class Precision(StrEnum):
    """Element type of a contribution on the wire; a setting may leave the choice to the learner.

    A codec is a member here, an entry of `islands.numerics.quantize.QUANTIZERS`, and nothing else.
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    FP4 = "fp4"
    TWO_BIT = "two_bit"
    TOP_K = "top_k"
    ADAPTIVE = "adaptive"

    @property
    def finest(self) -> "Precision":
        """The precision of the largest contributions that this setting allows."""
        return Precision.FLOAT32 if self is Precision.ADAPTIVE else self

    @property
    def of_snapshots(self) -> SnapshotPrecision:
        """Element type in which the device hands a contribution over."""
        return "bfloat16" if self is Precision.BFLOAT16 else "float32"

    @property
    def on_host(self) -> bool:
        """Whether contributions are encoded on the host, before they are sent."""
        return self not in (Precision.FLOAT32, Precision.BFLOAT16)

    @property
    def coarse(self) -> bool:
        """Whether contributions lose so much that moments of an optimizer must not be sent so."""
        return self.on_host and self is not Precision.ADAPTIVE

    @property
    def adaptive_level(self) -> bool:
        """Whether a learner whose precision is adaptive may choose this one; finest come first."""
        return self not in (Precision.TOP_K, Precision.ADAPTIVE)


@dataclass(frozen=True, slots=True)
class Timing:
    """Every timeout of the system, for `patience` 1.

    Args:
        patience: factor on all timeouts; 0.2 makes eviction take one second.
        heartbeat_s: interval between heartbeats.
        suspect_s: silence after which a member is suspect.
        evict_s: silence after which a member is evicted.
        stalled_s: least time without a step before a stepping member is `stalled`.
        compile_s: time limit of compilation.
        round_s: least time before a round without quorum is abandoned.
        final_s: time limit of the closing rounds.
        resend_s: time after which an unanswered pull or an unadopted update is retransmitted.
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


REDIAL_LONGEST_S = 5.0
"""Longest wait of a member between two attempts to reach its supervisor, for patience 1."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What all members of a run must agree on.

    Args:
        run: name of the run; a peer of another run is refused.
        interval_steps: H, inner steps between two merges of the same fragment.
        fragments: P, wanted number of fragments; a small model is cut into fewer.
        piece_bytes_min: bytes in float32 of the smallest piece that a fragment may consist of; a
            lower value cuts a small model into more fragments.
        pattern: which tensors share a fragment: `balanced` makes fragments of equal size, `layers`
            gives each of them consecutive layers, `strided` every P-th layer.
        quorum: K, contributions that must have arrived before a round may close; None = all asked,
            `auto` = those that come soon enough to be worth their wait.
        overlap_steps: τ, steps behind which communication may be hidden; `auto` = as many as an
            exchange takes, at least 2, and a quarter of the interval at most.
        grace_safety: γ, share of the hidden time spent waiting for stragglers.
        pace_by: which learner's step time sets the interval between rounds.
        weighting: how a contribution is weighted in a merge.
        merge: rule for tensors that are not embeddings: `rda` merges length and direction apart,
            `average` takes the weighted average. For less trusted fleets, and for all tensors:
            `median` and `trimmed_mean` take each coordinate's, without weights.
        trim: share of the contributions that `trimmed_mean` drops at either end of a coordinate; of
            three or more it drops at least one.
        merge_moments: whether the moments of the inner optimizer are averaged with the parameters,
            so that all learners step in one direction: AdamW then sends twice as much, as its
            second moments follow from how the averaged first ones change.
        anchor: published value against which a contribution is measured: the `current` one, as in
            the paper, or its own `base`.
        adoption: whether a published value replaces the local one (`overwrite`, as in the paper),
            is mixed with it (`mix`, as in Streaming DiLoCo), or local progress since the newest
            contribution in it is kept (`delay_corrected`).
        local_share: α, share of the local value that `adoption: mix` keeps.
        learner_waits: whether a learner stands still τ steps after its contribution until the value
            that contains it has arrived (`at_tau`, as DiLoCo does), or never.
        trigger: what opens a round: the `pace` of all learners, which are then asked together, or a
            `learner` that has done its H steps, which is asked alone and merged at once.
        interval_by_speed: with `trigger: learner`, whether a learner's H is that of the fastest one
            times its share of that one's speed, so that all take the same time over theirs.
        send_to: who gets a new value: `all` learners, or the `contributors` to it. Whoever joins,
            or has a base that is too old, gets it in any case.
        staleness_max: most versions by which a contribution's base may be behind.
        outer: settings of the outer optimizer.
        gossip: with whom learners exchange values directly, instead of being merged by a syncer.
        precision: element type of contributions on the wire; `int8`, `fp4` and `two_bit` have
            about 8, 4 and 2 bits per value; `top_k` sends the largest values alone, 14 bits each.
            With `adaptive` each learner sends the finest one whose exchanges are hidden behind τ
            steps, and answers only some pulls if none is.
        top_k_share: share of each 4,096 values that `top_k` sends.
        error_feedback: with such a precision, send later what was lost by rounding.
        update_precision: element type of updates on the wire: `float32` sends whole values, `int8`
            and `fp4` what changed, in about 8 and 4 bits per value; what that leaves is sent later.
        budget_tokens: tokens after which the run ends; None = until stopped.
        budget_s: seconds of training after which the run closes, from the first step on and without
            pauses; None = no limit.
        warmup_steps: linear warm-up of the inner learning rate, in steps of the clock.
        learning_rate: peak of the inner learning rate.
        total_steps: steps of the clock at which cosine decay reaches its floor; None = constant.
        final_learning_rate_share: floor of the decay as share of the peak.
        norm_limit: a contribution is rejected above this multiple of its fragment's median norm;
            one that is alone in its round is scaled down to it, up to the square of this multiple.
        timing: settings of all timeouts.
        seed: seed of the initial parameters, and of all randomness in the run.
        record_contributions: whether the syncer keeps all that it merges in the run's folder, for
            `islands replay`; --dry-run tells the size.
    """

    run: str = "run"
    interval_steps: int = 24
    fragments: int = 24
    piece_bytes_min: int = 64 * 1024
    pattern: Pattern = Pattern.BALANCED
    quorum: int | Automatic | None = 1
    overlap_steps: int | Automatic = 2
    grace_safety: float = 0.8
    pace_by: PaceBy = PaceBy.MEDIAN
    weighting: Weighting = Weighting.TOKENS_SQUARED_PER_STEP
    merge: MergeRule = MergeRule.RADIAL_DIRECTIONAL
    trim: float = 0.25
    merge_moments: bool = False
    anchor: Anchor = Anchor.CURRENT
    adoption: Adoption = Adoption.OVERWRITE
    local_share: float = 0.5
    learner_waits: LearnerWaits = LearnerWaits.NEVER
    trigger: Trigger = Trigger.PACE
    interval_by_speed: bool = False
    send_to: SendTo = SendTo.ALL
    staleness_max: int = 2
    outer: OuterSettings = field(default_factory=OuterSettings)
    gossip: GossipSettings = field(default_factory=GossipSettings)
    precision: Precision = Precision.FLOAT32
    top_k_share: float = TOP_K_SHARE
    error_feedback: bool = True
    update_precision: UpdatePrecision = UpdatePrecision.FLOAT32
    budget_tokens: int | None = None
    budget_s: float | None = None
    warmup_steps: int = 50
    learning_rate: float = 3e-3
    total_steps: int | None = None
    final_learning_rate_share: float = 0.1
    norm_limit: float = 10.0
    timing: Timing = field(default_factory=Timing)
    seed: int = 0
    record_contributions: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            SettingsError: name, value and allowed range of the first wrong setting.
        """
        if not RUN_NAME.fullmatch(self.run):
            message = (
                f"run is {self.run!r}; it must be 1 to 64 letters, digits, points, dashes or "
                "underscores, and begin with a letter or digit"
            )
            raise SettingsError(message)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value is not Automatic.AUTO and not value >= least:
                raise SettingsError(f"{name} is {value}; it must be at least {least}")
        for name in ABOVE_ZERO:
            _above_zero(name, getattr(self, name))
        check_outer(self.outer)
        self._check_gossip()
        unsupported = why_unsupported(self.merge, self.outer, self.adoption, self.anchor)
        if unsupported is not None:
            raise SettingsError(unsupported)
        for name in SHARES:
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise SettingsError(f"{name} is {value}; it must be in [0, 1]")
        unsupported = why_turns_unsupported(
            *(self.trigger, self.send_to, self.merge, self.adoption, self.anchor),
            by_speed=self.interval_by_speed,
            alone=self.quorum == 1,
            overlaps=self.overlap_steps != 0 and self.learner_waits is LearnerWaits.AT_TAU,
        )
        if unsupported is not None:
            raise SettingsError(unsupported)
        if not 0 < self.trim < TRIM_BELOW:
            raise SettingsError(f"trim is {self.trim}; it must be above 0, and below {TRIM_BELOW}")
        if not 0 < self.top_k_share <= 1:
            message = f"top_k_share is {self.top_k_share}; it must be above 0, and at most 1"
            raise SettingsError(message)
        if self.precision is Precision.TOP_K:
            lossy = why_lossy(self.adoption, error_feedback=self.error_feedback)
            if lossy is not None:
                raise SettingsError(f"precision is top_k, and {lossy}")
        self._check_waiting()
        self._check_adaptive()
        if self.record_contributions and self.update_precision.of_increments:
            message = (
                f"record_contributions is set and update_precision is {self.update_precision}; a "
                "replay redoes whole values only, so update_precision must be float32 with it"
            )
            raise SettingsError(message)
        if self.merge_moments and self.anchor is Anchor.BASE:
            message = (
                "anchor is base; where merge_moments is set it must be current, for an old base "
                "says nothing of present moments"
            )
            raise SettingsError(message)
        self._check_timing()

    def _check_gossip(self) -> None:
        check_gossip(self.gossip)
        told = {name: getattr(self, name) for name in FOR_SYNCERS}
        wrong = why_not_gossip(self.gossip, told)
        if wrong is not None:
            raise SettingsError(wrong)

    def _check_waiting(self) -> None:
        waits = self.learner_waits is LearnerWaits.AT_TAU
        if waits and self.overlap_steps is Automatic.AUTO:
            message = "overlap_steps is auto; where learner_waits is at_tau it must be a number"
            raise SettingsError(message)
        if waits and self.overlap_steps_max >= self.interval_steps:
            message = (
                f"overlap_steps is {self.overlap_steps}; where learner_waits is at_tau it must be "
                f"below interval_steps, {self.interval_steps}"
            )
            raise SettingsError(message)

    def _check_adaptive(self) -> None:
        if self.precision is not Precision.ADAPTIVE:
            return
        if self.learner_waits is LearnerWaits.AT_TAU:
            message = (
                "precision is adaptive; where learner_waits is at_tau every learner answers every "
                "pull, so name a precision"
            )
            raise SettingsError(message)
        if self.trigger is Trigger.LEARNER:
            message = (
                "precision is adaptive; where trigger is learner a learner is pulled only when it "
                "asks, and leaves out no pull, so name a precision"
            )
            raise SettingsError(message)
        if self.overlap_steps == 0:
            message = (
                "precision is adaptive and overlap_steps is 0: no exchange is hidden behind no "
                "steps; set overlap_steps to 1 or more, or name a precision"
            )
            raise SettingsError(message)

    def _check_timing(self) -> None:
        timing = self.timing
        for field_ in fields(timing):
            _above_zero(f"timing.{field_.name}", getattr(timing, field_.name))
        for later, earlier in (("suspect_s", "heartbeat_s"), ("evict_s", "suspect_s")):
            value, least = getattr(timing, later), getattr(timing, earlier)
            if value < least:
                message = f"timing.{later} is {value}; it must be at least {earlier}, {least}"
                raise SettingsError(message)

    def round_interval_steps(self, fragments: int) -> float:
        """H/P, the steps between two openings of rounds, for the P fragments of the plan."""
        return self.interval_steps / fragments

    def report_interval_steps(self, fragments: int) -> int:
        """Steps between two progress reports: max(1, ⌊H/(8·P)⌋)."""
        return max(1, int(self.interval_steps / fragments / REPORTS_PER_ROUND))

    @property
    def precision_coarsest(self) -> Precision:
        """The precision of the smallest contributions; two bits only with error feedback."""
        if self.precision is not Precision.ADAPTIVE:
            return self.precision
        return Precision.TWO_BIT if self.error_feedback else Precision.FP4

    @property
    def values_kept(self) -> int:
        """Versions of a fragment whose values the syncer keeps, the newest of them not durable yet.

        Contributions are measured against older ones only where the anchor is the current value.
        """
        return 2 + (self.staleness_max if self.anchor is Anchor.CURRENT else 0)

    @property
    def feeds_back(self) -> bool:
        """Whether a learner sends later what its codec loses."""
        return self.precision.on_host and self.error_feedback

    @property
    def keeps_residuals(self) -> bool:
        """Whether what is lost is kept apart; else it stays in the local value, if it is kept."""
        return self.feeds_back and self.adoption is Adoption.OVERWRITE

    @property
    def well_steps(self) -> int:
        """Steps after which a learner whose loss was not finite counts as healthy again."""
        return max(WELL_STEPS, self.interval_steps)

    @property
    def quorum_least(self) -> int:
        """Least number of contributions with which a round may close.

        Where learners wait, those that have no quota left must not hold the others up.
        """
        waits = self.learner_waits is LearnerWaits.AT_TAU
        return self.quorum if isinstance(self.quorum, int) and not waits else 1

    @property
    def overlap_steps_max(self) -> int:
        """τ, or its upper limit if it is measured."""
        if self.overlap_steps is Automatic.AUTO:
            return max(OVERLAP_LEAST, self.interval_steps // OVERLAP_SHARE)
        return self.overlap_steps

    def open_rounds(self, fragments: int, overlap_steps: int) -> int:
        """Most rounds open at once with this τ: min(P, max(1, ⌈τ·P/H⌉))."""
        hidden = ceil(overlap_steps * fragments / self.interval_steps)
        return min(fragments, max(1, hidden))

    def open_rounds_max(self, fragments: int) -> int:
        """Most rounds open at once with the largest τ.

        Where learners open them, each fragment may have one.
        """
        if self.trigger is Trigger.LEARNER:
            return fragments
        return self.open_rounds(fragments, self.overlap_steps_max)


def _above_zero(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < inf:
        raise SettingsError(f"{name} is {value}; it must be above 0, and finite")
