"""Which settings exclude one another: one table of rules, each with the sentence that refuses.

The first rule that a run breaks is told. In a sentence, `run` are the settings of the run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from islands.protocol.settings.choices import (
    Adoption,
    Automatic,
    LearnerWaits,
    Precision,
    Trigger,
)
from islands.protocol.settings.outer import DELAYED_NESTEROV
from islands.protocol.settings.setting import facts_of

if TYPE_CHECKING:  # its checks ask for the rules
    from islands.protocol.settings.run import RunSettings


@dataclass(frozen=True, slots=True)
class Rule:
    """Settings that exclude one another.

    Args:
        broken: whether a run breaks the rule.
        sentence: name, value, what is allowed, and why.
    """

    broken: Callable[["RunSettings"], bool]
    sentence: str


def _waits(run: "RunSettings") -> bool:
    return run.learner_waits is LearnerWaits.AT_TAU


def _by_learners(run: "RunSettings") -> bool:
    return run.trigger is Trigger.LEARNER


def _adapts(run: "RunSettings") -> bool:
    return run.precision is Precision.ADAPTIVE


def _leaves_out(run: "RunSettings") -> bool:
    return run.precision is Precision.TOP_K


RULES: tuple[Rule, ...] = (
    # --- the outer step ---
    Rule(
        lambda run: run.outer.kind == DELAYED_NESTEROV and run.outer.delay_merges is None,
        "outer.optimizer is {run.outer.optimizer}; it needs outer.delay_merges, the merges of a "
        "fragment that enter the momentum together, such as the number of learners",
    ),
    # --- who opens a round ---
    Rule(
        lambda run: _by_learners(run) and run.quorum != 1,
        "quorum is not 1; where trigger is learner it must be 1, for each contribution is merged "
        "as it arrives",
    ),
    Rule(
        lambda run: _by_learners(run) and _waits(run) and run.overlap_steps != 0,
        "overlap_steps is not 0; where trigger is learner it must be 0 if learners wait, each for "
        "a value of its own",
    ),
    # --- what is sent ---
    Rule(
        lambda run: _leaves_out(run) and not run.error_feedback,
        "precision is top_k, and error_feedback is false, so what is not among the largest values "
        "would never be sent; set it, or use another precision",
    ),
    Rule(
        lambda run: _leaves_out(run) and run.adoption is Adoption.MIX,
        "precision is top_k, and adoption is mix, which keeps but a share of what was not sent; "
        "use overwrite or delay_corrected",
    ),
    # --- learners that wait ---
    Rule(
        lambda run: _waits(run) and run.overlap_steps is Automatic.AUTO,
        "overlap_steps is auto; where learner_waits is at_tau it must be a number",
    ),
    Rule(
        lambda run: _waits(run) and run.overlap_steps_max >= run.interval_steps,
        "overlap_steps is {run.overlap_steps}; where learner_waits is at_tau it must be below "
        "interval_steps, {run.interval_steps}",
    ),
    # --- a precision by what the link carries ---
    Rule(
        lambda run: _adapts(run) and _waits(run),
        "precision is adaptive; where learner_waits is at_tau a learner waits for its exchanges, "
        "and none is hidden, so name a precision",
    ),
    Rule(
        lambda run: _adapts(run) and _by_learners(run),
        "precision is adaptive; where trigger is learner a learner is pulled only when it asks, "
        "so no time is given for its exchanges; name a precision",
    ),
    Rule(
        lambda run: _adapts(run) and run.overlap_steps == 0,
        "precision is adaptive and overlap_steps is 0: no exchange is hidden behind no steps; set "
        "overlap_steps to 1 or more, or name a precision",
    ),
    # --- what is kept beside the values ---
    Rule(
        lambda run: run.merge_moments and _by_learners(run),
        "merge_moments is true; where trigger is learner it must be false, for an old base says "
        "nothing of present moments",
    ),
    # --- timeouts ---
    Rule(
        lambda run: run.timing.suspect_s < run.timing.heartbeat_s,
        "timing.suspect_s is {run.timing.suspect_s}; it must be at least heartbeat_s, "
        "{run.timing.heartbeat_s}",
    ),
    Rule(
        lambda run: run.timing.evict_s < run.timing.suspect_s,
        "timing.evict_s is {run.timing.evict_s}; it must be at least suspect_s, "
        "{run.timing.suspect_s}",
    ),
)


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
    for rule in RULES:
        if rule.broken(run):
            yield rule.sentence.format(run=run)
