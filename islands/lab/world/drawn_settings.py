"""Settings of a run drawn by chance, so that all rules meet all faults (`scenario.py`).

Each family of rules has a source of chance of its own, so that a new one changes no other.
"""

import random
from collections.abc import Mapping
from dataclasses import replace

from islands.lab.world.world import LearnerHost
from islands.protocol.settings import choices
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import TOP_K_SHARE, RunSettings, Timing
from islands.protocol.settings.setting import facts_of

OTHER_OUTER = 0.15
WAITING = 0.15  # for merges
SPARSE = 0.25  # of the runs with a codec on the host
ADAPTING = 0.15  # of the runs where that is allowed
TAKING_TURNS = 0.1  # learners open rounds of their own
BY_INCREMENTS = 0.2
WITH_FEEDBACK = 0.8  # of the runs with a codec on the host
GOSSIPING = 0.06
"""Fractions of scenarios."""


def draw_settings(
    rng: random.Random, seed: int, hosts: Mapping[str, LearnerHost], *, budget_tokens: int
) -> RunSettings:
    """Draw the settings of a seed's run: the common ones from `rng`, each family from its own."""
    settings = _common(rng, len(hosts), budget_tokens=budget_tokens)
    adoption = random.Random(f"adoption {seed}").choice(tuple(choices.Adoption))
    outer = _draw_outer(random.Random(f"outer {seed}"), settings)
    settings = replace(settings, adoption=adoption, outer=outer)
    settings = _with_codec(random.Random(f"codec {seed}"), settings)
    settings = _waiting(random.Random(f"waiting {seed}"), settings)
    turns = random.Random(f"turns {seed}")
    if turns.random() < TAKING_TURNS:
        settings = taking_turns(turns, settings, len(hosts))
    settings = _adapting(random.Random(f"adapting {seed}"), settings)
    settings = _with_increments(random.Random(f"increments {seed}"), settings)
    return _gossiping(random.Random(f"neighbours {seed}"), settings, len(hosts))


def _common(rng: random.Random, learners: int, *, budget_tokens: int) -> RunSettings:
    return RunSettings(
        interval_steps=rng.choice((2, 4, 8, 16, 24)),
        fragments=rng.choice((1, 2, 3, 4, 6)),
        quorum=rng.choice((1, 1, min(2, learners), learners, None, choices.Automatic.AUTO)),
        overlap_steps=rng.choice((0, 1, 2, 4, choices.Automatic.AUTO)),
        weighting=rng.choice(tuple(choices.Weighting)),
        merge=rng.choice(tuple(choices.MergeRule)),
        staleness_max=rng.choice((0, 1, 2, 2)),
        outer=OuterSettings(
            0.7, rng.choice((0.0, 0.5, 0.9)), nesterov=rng.choice((True, True, False))
        ),
        precision=rng.choice((choices.Precision.FLOAT32, choices.Precision.BFLOAT16)),
        budget_tokens=budget_tokens,
        learning_rate=0.02,
        timing=Timing(patience=rng.choice((0.1, 0.2, 0.3))),
        seed=rng.randrange(1000),
    )


def _waiting(rng: random.Random, settings: RunSettings) -> RunSettings:
    """Have the learners of some runs wait for merges, with the overlap and pace that this needs."""
    if rng.random() >= WAITING:
        return settings
    overlap_steps = rng.randrange(min(5, settings.interval_steps))
    return replace(
        settings,
        learner_waits=choices.LearnerWaits.AT_TAU,
        overlap_steps=overlap_steps,
        pace_by=rng.choice(tuple(choices.PaceBy)),
    )


def _gossiping(rng: random.Random, settings: RunSettings, learners: int) -> RunSettings:
    if rng.random() >= GOSSIPING or learners == 1:
        return settings
    gossip = GossipSettings(
        rng.choice((choices.Neighbours.RANDOM_PAIRS, choices.Neighbours.RING)),
        rule=rng.choice(tuple(choices.GossipRule)),
        everyone_every=rng.choice((None, None, 1, 4)),
    )
    facts = facts_of(RunSettings).items()
    needed = {name: fact.with_gossip for name, fact in facts if fact.with_gossip is not None}
    return replace(settings, gossip=gossip, **needed)  # type: ignore[arg-type]


def _adapting(rng: random.Random, settings: RunSettings) -> RunSettings:
    waits = settings.learner_waits is choices.LearnerWaits.AT_TAU
    if waits or settings.overlap_steps == 0 or rng.random() >= ADAPTING:
        return settings
    return replace(settings, precision=choices.Precision.ADAPTIVE)


def taking_turns(rng: random.Random, settings: RunSettings, learners: int) -> RunSettings:
    """Have learners open rounds of their own, with the other settings that this needs."""
    waits = rng.choice(
        (choices.LearnerWaits.AT_TAU, choices.LearnerWaits.AT_TAU, choices.LearnerWaits.NEVER)
    )
    return replace(
        settings,
        trigger=choices.Trigger.LEARNER,
        quorum=1,
        overlap_steps=0,
        learner_waits=waits,
        staleness_max=rng.choice((settings.staleness_max, learners, 2 * learners)),
    )


def _draw_outer(rng: random.Random, settings: RunSettings) -> OuterSettings:
    """Draw another optimizer for some scenarios; the others keep what they have."""
    outer = settings.outer
    if OTHER_OUTER <= rng.random() < 2 * OTHER_OUTER:
        delayed = OuterSettings(outer.learning_rate, outer.momentum, optimizer="delayed_nesterov")
        return replace(delayed, delay_merges=rng.choice((1, 2, 5)))
    return outer


def _with_codec(rng: random.Random, settings: RunSettings) -> RunSettings:
    """Have some runs encode contributions on the host, most of them with error feedback."""
    codec = rng.choice(
        (None, None, choices.Precision.INT8, choices.Precision.FP4, choices.Precision.TWO_BIT)
    )
    if codec is None:
        return settings
    fed_back = rng.random() < WITH_FEEDBACK
    if fed_back and settings.adoption is not choices.Adoption.MIX and rng.random() < SPARSE:
        share = rng.choice((1e-6, TOP_K_SHARE, 1.0))
        return replace(settings, precision=choices.Precision.TOP_K, top_k_share=share)
    return replace(settings, precision=codec, error_feedback=fed_back)


def _with_increments(rng: random.Random, settings: RunSettings) -> RunSettings:
    if rng.random() >= BY_INCREMENTS:
        return settings
    precisions = [each for each in choices.UpdatePrecision if each.of_increments]
    return replace(settings, update_precision=rng.choice(precisions))
