"""Settings of a run: the supervisor keeps them, and members get them from it alone.

Symbols of protocol §1: H = `interval_steps`, P = `fragments`, K = `quorum`, τ = `overlap_steps`,
γ = `grace_safety`. Durations end in ``_s`` and are seconds.
"""

from dataclasses import dataclass, field
from math import ceil, cos, inf, pi
from typing import Annotated

from islands.protocol.errors import SettingsError
from islands.protocol.identities import NAME, NAME_FORM
from islands.protocol.settings.choices import (
    Adoption,
    Automatic,
    LearnerWaits,
    MergeRule,
    PaceBy,
    Pattern,
    Precision,
    Trigger,
    UpdatePrecision,
    Weighting,
)
from islands.protocol.settings.combinations import refusals
from islands.protocol.settings.gossip import GossipSettings, check_graph
from islands.protocol.settings.outer import OuterSettings, check_taken
from islands.protocol.settings.setting import ADVANCED, Setting, check_ranges, make_choices

REPORTS_PER_ROUND = 8
"""Progress reports per interval between two rounds (`rounds.py`); fewer if it has fewer steps."""

OVERLAP_LEAST = 2
OVERLAP_SHARE = 4
"""A measured τ is at least `OVERLAP_LEAST`, and at most that or H / `OVERLAP_SHARE`."""
WELL_STEPS = 100
TOP_K_SHARE = 1 / 32
WARMUP_SHARE = 0.3
WARMUP_MOST = 400
WARMUP_UNKNOWN = 100
"""Steps of warm-up where the length of the run is not known."""

INCREMENTS_KEPT = 8
"""Newest increments of a fragment that the syncer keeps."""


DURATION = Setting(above=0, below=inf)
RARE_DURATION = Setting(above=0, below=inf, advanced=True)


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
        final_s: time limit of the closing rounds, and then of the wait for observers.
        resend_s: time after which an unanswered pull or an unadopted update is retransmitted.
    """

    patience: Annotated[float, DURATION] = 1.0
    heartbeat_s: Annotated[float, RARE_DURATION] = 1.0
    suspect_s: Annotated[float, RARE_DURATION] = 3.0
    evict_s: Annotated[float, RARE_DURATION] = 5.0
    stalled_s: Annotated[float, RARE_DURATION] = 30.0
    compile_s: Annotated[float, RARE_DURATION] = 600.0
    round_s: Annotated[float, RARE_DURATION] = 10.0
    final_s: Annotated[float, RARE_DURATION] = 30.0
    resend_s: Annotated[float, RARE_DURATION] = 2.0

    def scaled(self, duration_s: float) -> float:
        return duration_s * self.patience


REDIAL_LONGEST_S = 5.0
"""Longest wait of a member between two attempts to reach its supervisor, for patience 1."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings that all members of a run must agree on.

    The defaults here are those of Decoupled DiLoCo; a run has its preset's (`presets.py`).

    Args:
        run: name of the run; a peer of another run is refused.
        interval_steps: H, inner steps between two merges of the same fragment.
        fragments: P, wanted number of fragments; a small model is cut into fewer.
        piece_bytes_min: bytes in float32 of the smallest piece that a fragment may consist of; a
            lower value cuts a small model into more fragments.
        pattern: which tensors share a fragment: `balanced` makes fragments of equal size, `layers`
            gives each of them consecutive layers, `strided` every P-th layer.
        quorum: K, contributions that must have arrived before a round may close; None = all asked,
            `auto` = all that answer about as fast as the others, for a bounded time.
        overlap_steps: τ, steps behind which communication may be hidden; `auto` = as many as an
            exchange takes, at least 2, and a quarter of the interval at most.
        grace_safety: γ, share of the hidden time spent waiting for stragglers.
        pace_by: which learner's step time sets the interval between rounds.
        weighting: how a contribution is weighted in a merge.
        merge: rule for tensors that are not embeddings: `rda` merges length and direction apart,
            `average` takes the weighted average.
        merge_moments: whether the moments of the inner optimizer are averaged with the parameters,
            so that all learners step in one direction: AdamW then sends twice as much, as its
            second moments follow from how the averaged first ones change.
        adoption: whether a published value replaces the local one (`overwrite`, as in the paper),
            is mixed with it (`mix`, as in Streaming DiLoCo), or local progress since the newest
            contribution in it is kept (`delay_corrected`).
        local_share: α, share of the local value that `adoption: mix` keeps.
        learner_waits: whether a learner stands still τ steps after its contribution until the value
            that contains it has arrived (`at_tau`, as DiLoCo does), or never.
        trigger: what opens a round: the `pace` of all learners, which are then asked together, or a
            `learner` that has done its H steps, which is asked alone, merged at once, and gets the
            value; so do who joins, and whose base is too old.
        staleness_max: most versions by which a contribution's base may be behind; 0 leaves out a
            learner whose step is longer than a round.
        outer: settings of the outer optimizer.
        gossip: with whom learners exchange values directly, instead of being merged by a syncer.
        precision: element type of contributions on the wire; `int8`, `fp4` and `two_bit` have
            about 8, 4 and 2 bits per value; `top_k` sends the largest values alone, 14 bits each.
            With `adaptive` each learner sends the finest one whose exchanges are hidden behind τ
            steps.
        top_k_share: share of each 4,096 values that `top_k` sends.
        error_feedback: with such a precision, send later what was lost by rounding.
        update_precision: element type of updates on the wire: `float32` sends whole values, `int8`
            and `fp4` what changed, in about 8 and 4 bits per value; what that leaves is sent later.
        budget_tokens: tokens after which the run ends; None = until stopped.
        budget_s: seconds of training after which the run closes, from the first step on and without
            pauses; None = no limit.
        warmup_steps: linear warm-up of the inner learning rate in steps of the clock; `auto` = 30 %
            of `total_steps`, and 400 at most.
        learning_rate: peak of the inner learning rate.
        total_steps: steps of the clock at which cosine decay reaches its floor; None = constant.
            With a budget of tokens, decay ends with that, whatever the number.
        final_learning_rate_share: floor of the decay as share of the peak.
        norm_limit: a contribution is scaled down to this multiple of its fragment's median norm.
        timing: settings of all timeouts.
        seed: seed of the initial parameters, and of all randomness in the run.
    """

    run: Annotated[str, Setting(by_preset=False)] = "run"
    interval_steps: Annotated[int, Setting(least=1, resumable=True)] = 24
    fragments: Annotated[int, Setting(least=1)] = 24
    piece_bytes_min: Annotated[int, Setting(least=4, by_preset=False, advanced=True)] = 64 * 1024
    pattern: Annotated[Pattern, ADVANCED] = Pattern.BALANCED
    quorum: Annotated[int | Automatic | None, Setting(least=1, resumable=True, with_gossip=1)] = 1
    overlap_steps: Annotated[int | Automatic, Setting(least=0, resumable=True)] = 2
    grace_safety: Annotated[
        float, Setting(least=0, most=1, resumable=True, with_gossip=0.8, advanced=True)
    ] = 0.8
    pace_by: Annotated[
        PaceBy, Setting(resumable=True, with_gossip=PaceBy.MEDIAN, advanced=True)
    ] = PaceBy.MEDIAN
    weighting: Annotated[
        Weighting, Setting(resumable=True, with_gossip=Weighting.UNIFORM, advanced=True)
    ] = Weighting.TOKENS_SQUARED_PER_STEP
    merge: Annotated[MergeRule, Setting(resumable=True, with_gossip=MergeRule.AVERAGE)] = (
        MergeRule.RADIAL_DIRECTIONAL
    )
    merge_moments: Annotated[bool, Setting(with_gossip=False)] = False
    adoption: Annotated[Adoption, Setting(with_gossip=Adoption.OVERWRITE)] = Adoption.OVERWRITE
    local_share: Annotated[float, Setting(least=0, most=1, advanced=True)] = 0.5
    learner_waits: Annotated[
        LearnerWaits, Setting(with_gossip=LearnerWaits.NEVER, advanced=True)
    ] = LearnerWaits.NEVER
    trigger: Annotated[Trigger, Setting(with_gossip=Trigger.PACE, advanced=True)] = Trigger.PACE
    staleness_max: Annotated[int, Setting(least=0, advanced=True)] = 2
    outer: Annotated[OuterSettings, Setting(with_gossip=OuterSettings())] = field(
        default_factory=OuterSettings
    )
    gossip: Annotated[GossipSettings, ADVANCED] = field(default_factory=GossipSettings)
    precision: Annotated[Precision, Setting(with_gossip=Precision.FLOAT32)] = Precision.FLOAT32
    top_k_share: Annotated[float, Setting(above=0, most=1, advanced=True)] = TOP_K_SHARE
    error_feedback: Annotated[bool, ADVANCED] = True
    update_precision: Annotated[UpdatePrecision, Setting(with_gossip=UpdatePrecision.FLOAT32)] = (
        UpdatePrecision.FLOAT32
    )
    budget_tokens: Annotated[int | None, Setting(least=1, resumable=True)] = None
    budget_s: Annotated[float | None, Setting(above=0, below=inf, resumable=True)] = None
    warmup_steps: Annotated[int | Automatic, Setting(least=0, resumable=True, by_preset=False)] = (
        Automatic.AUTO
    )
    learning_rate: Annotated[
        float, Setting(above=0, below=inf, resumable=True, by_preset=False)
    ] = 3e-3
    total_steps: Annotated[int | None, Setting(least=1, resumable=True, by_preset=False)] = None
    final_learning_rate_share: Annotated[
        float, Setting(least=0, most=1, resumable=True, by_preset=False, advanced=True)
    ] = 0.1
    norm_limit: Annotated[
        float, Setting(above=0, below=inf, resumable=True, by_preset=False, advanced=True)
    ] = 10.0
    timing: Annotated[Timing, Setting(resumable=True, by_preset=False)] = field(
        default_factory=Timing
    )
    seed: Annotated[int, Setting(least=0)] = 0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.run):
            raise SettingsError(f"run is {self.run!r}; it {NAME_FORM}")
        groups = {"": self, "outer.": self.outer, "gossip.": self.gossip, "timing.": self.timing}
        for prefix, group in groups.items():
            make_choices(group, prefix)
            check_ranges(group, prefix)
        check_taken(self.outer)
        check_graph(self.gossip)
        for sentence in refusals(self):
            raise SettingsError(sentence)

    def round_interval_steps(self, fragments: int) -> float:
        """H/P, the steps between two openings of rounds, for the P fragments of the plan."""
        return self.interval_steps / fragments

    def report_interval_steps(self, fragments: int) -> int:
        """Steps between two progress reports: max(1, ⌊H/(8·P)⌋)."""
        return max(1, int(self.interval_steps / fragments / REPORTS_PER_ROUND))

    @property
    def precision_coarsest(self) -> Precision:
        adapts = self.precision is Precision.ADAPTIVE
        return self.coarsest_adaptive if adapts else self.precision

    @property
    def coarsest_adaptive(self) -> Precision:
        """The coarsest precision that a pull names; two bits only with error feedback."""
        return Precision.TWO_BIT if self.error_feedback else Precision.FP4

    @property
    def rebases(self) -> bool:
        """Whether contributions are measured against the current value, and not their own base.

        One that is merged alone would else undo all that was merged since its base.
        """
        return self.trigger is Trigger.PACE

    @property
    def values_kept(self) -> int:
        """Versions of a fragment whose values the syncer keeps; the newest is not durable yet."""
        return 2 + (self.staleness_max if self.rebases else 0)

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
        """Most rounds open at once with the largest τ; where learners open them, one a fragment."""
        if self.trigger is Trigger.LEARNER:
            return fragments
        return self.open_rounds(fragments, self.overlap_steps_max)

    def clock_after(self, clock: float, *, steps: float, processed_tokens: int) -> float:
        """The fleet's learning-rate clock after so many further steps of the fleet.

        With a budget of tokens, the clock runs to `total_steps` as that is used up: how many steps
        that takes depends on who trains, how fast, and who is away.
        """
        if self.total_steps is None or self.budget_tokens is None:
            return clock + steps
        return self.total_steps * min(1.0, processed_tokens / self.budget_tokens)

    @property
    def warmup(self) -> float:
        """Steps of warm-up: the number given, or `auto`'s.

        Learners disagree most in their first steps, and estimates of second moments lag behind
        gradients that drift (`docs/quality.md`).
        """
        if self.warmup_steps is not Automatic.AUTO:
            return self.warmup_steps
        if self.total_steps is None:
            return WARMUP_UNKNOWN
        return min(WARMUP_SHARE * self.total_steps, WARMUP_MOST)

    @property
    def rate_doubts(self) -> tuple[str, ...]:
        """What of the learning rate is surely not meant, as sentences."""
        total, doubts = self.total_steps, []
        if total is not None and self.warmup > total:
            doubts.append(
                f"warmup_steps is {self.warmup:g} and total_steps is {total}: the learning rate "
                "never comes to its peak"
            )
        if total is not None and self.budget_tokens is None and not self.final_learning_rate_share:
            doubts.append(
                f"final_learning_rate_share is 0 and there is no budget of tokens: from step "
                f"{total} (total_steps) on the learning rate is 0, and nothing is learned"
            )
        return tuple(doubts)

    def learning_rate_at(self, clock: float) -> float:
        """Linear warm-up, then cosine decay to a floor; constant without `total_steps`.

        The clock counts steps of the fleet, not of one learner (`clock_after`), so learners that
        join late, or step slower or faster, use the same rate as the others.

        Returns:
            η·(t+1)/(w+1) for t < w, else η·(f + (1−f)·(1 + cos(π·(t−w)/(T−w)))/2), and η·f after T,
            with `learning_rate` η, `warmup` w, `total_steps` T and
            `final_learning_rate_share` f.
        """
        peak, warmup = self.learning_rate, self.warmup
        if clock < warmup:
            return peak * (clock + 1) / (warmup + 1)
        if self.total_steps is None:
            return peak
        floor = self.final_learning_rate_share
        span = max(1.0, self.total_steps - warmup)
        progress = min(1.0, (clock - warmup) / span)
        return peak * (floor + (1 - floor) * (1 + cos(pi * progress)) / 2)
