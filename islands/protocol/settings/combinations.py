"""Settings that exclude one another, each rule with the sentence that refuses."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from islands.protocol.settings.choices import Adoption, Automatic, LearnerWaits, Precision, Trigger
from islands.protocol.settings.outer import DELAYED_NESTEROV
from islands.protocol.settings.setting import facts_of

if TYPE_CHECKING:  # its checks ask for the rules
    from islands.protocol.settings.run import RunSettings


def refusals(run: "RunSettings") -> Iterator[str]:
    """Yield a sentence for each rule that the settings of a run break."""
    if run.gossip.on:
        for name, fact in facts_of(type(run)).items():
            value, needed = getattr(run, name), fact.with_gossip
            if needed is not None and value != needed:
                yield (
                    f"{name} is {value}, which is for merges of a syncer; where learners gossip "
                    f"leave it out, with preset: gossip (it is {needed} there)"
                )
    waits, by_learners = run.learner_waits is LearnerWaits.AT_TAU, run.trigger is Trigger.LEARNER
    # --- the outer step ---
    if run.outer.kind == DELAYED_NESTEROV and run.outer.delay_merges is None:
        yield (
            f"outer.optimizer is {run.outer.optimizer}; it needs outer.delay_merges, the merges of "
            "a fragment that enter the momentum together, such as the number of learners"
        )
    # --- who opens a round ---
    if by_learners and run.quorum != 1:
        yield (
            "quorum is not 1; where trigger is learner it must be 1, for each contribution is "
            "merged as it arrives"
        )
    if by_learners and waits and run.overlap_steps != 0:
        yield (
            "overlap_steps is not 0; where trigger is learner it must be 0 if learners wait, each "
            "for a value of its own"
        )
    # --- learners that wait ---
    if waits and run.overlap_steps is Automatic.AUTO:
        yield "overlap_steps is auto; where learner_waits is at_tau it must be a number"
    if waits and run.overlap_steps_max >= run.interval_steps:
        yield (
            f"overlap_steps is {run.overlap_steps}; where learner_waits is at_tau it must be below "
            f"interval_steps, {run.interval_steps}"
        )
    # --- what is kept beside the values ---
    if run.merge_moments and by_learners:
        yield (
            "merge_moments is true; where trigger is learner it must be false, for an old base "
            "says nothing of present moments"
        )
    # --- timeouts ---
    if run.timing.suspect_s < run.timing.heartbeat_s:
        yield (
            f"timing.suspect_s is {run.timing.suspect_s}; it must be at least heartbeat_s, "
            f"{run.timing.heartbeat_s}"
        )
    if run.timing.evict_s < run.timing.suspect_s:
        yield (
            f"timing.evict_s is {run.timing.evict_s}; it must be at least suspect_s, "
            f"{run.timing.suspect_s}"
        )
    yield from _of_precision(run, waits=waits, by_learners=by_learners)


def _of_precision(run: "RunSettings", *, waits: bool, by_learners: bool) -> Iterator[str]:
    adapts, leaves_out = run.precision is Precision.ADAPTIVE, run.precision is Precision.TOP_K
    if leaves_out and not run.error_feedback:
        yield (
            "precision is top_k, and error_feedback is false, so what is not among the largest "
            "values would never be sent; set it, or use another precision"
        )
    if leaves_out and run.adoption is Adoption.MIX:
        yield (
            "precision is top_k, and adoption is mix, which keeps but a part of what was not sent; "
            "use overwrite or delay_corrected"
        )
    if adapts and waits:
        yield (
            "precision is adaptive; where learner_waits is at_tau a learner waits for its "
            "exchanges, and none is hidden, so name a precision"
        )
    if adapts and by_learners:
        yield (
            "precision is adaptive; where trigger is learner a learner is pulled only when it "
            "asks, so no time is given for its exchanges; name a precision"
        )
    if adapts and run.overlap_steps == 0:
        yield (
            "precision is adaptive and overlap_steps is 0: no exchange is hidden behind no steps; "
            "set overlap_steps to 1 or more, or name a precision"
        )
