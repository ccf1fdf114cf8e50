"""Which settings go with learners that open rounds; the others are refused with a sentence."""

import itertools
from dataclasses import replace

import pytest

from islands.lab.world.scenario import draw
from islands.lab.world.trial import play
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import (
    Adoption,
    Anchor,
    LearnerWaits,
    MergeRule,
    SendTo,
    Trigger,
)
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings

ASYNC = PRESETS[Preset.ASYNC_DILOCO]
ALL = list(itertools.product(Trigger, SendTo, Adoption))
TABLE = [
    (trigger, send_to, adoption)
    for trigger, send_to, adoption in ALL
    if (trigger is Trigger.LEARNER and send_to is SendTo.CONTRIBUTORS)
    or (trigger is Trigger.LEARNER and adoption is Adoption.DELAY_CORRECTED)
    or (trigger is Trigger.PACE and send_to is SendTo.ALL)
]
BY_PACE = RunSettings(anchor=Anchor.BASE, quorum=1, overlap_steps=0, merge=MergeRule.AVERAGE)


def chosen(trigger: Trigger, send_to: SendTo, adoption: Adoption) -> RunSettings:
    """Settings with these choices, where nothing else stands against them."""
    return replace(BY_PACE, trigger=trigger, send_to=send_to, adoption=adoption)


@pytest.mark.parametrize(("trigger", "send_to", "adoption"), TABLE)
@pytest.mark.parametrize("waits", LearnerWaits)
def test_what_the_table_supports_trains_to_its_end(
    trigger: Trigger, send_to: SendTo, adoption: Adoption, waits: LearnerWaits
) -> None:
    """A drawn scenario with these choices keeps every promise, waiting or not."""
    scenario = draw(9)  # three learners, which are cut off, isolated, paused and killed
    settings = replace(
        chosen(trigger, send_to, adoption),
        interval_steps=8,
        fragments=2,
        learner_waits=waits,
        staleness_max=8,
        budget_tokens=(scenario.settings.budget_tokens or 0) // 2,
        learning_rate=0.02,
        timing=scenario.settings.timing,
    )
    assert play(replace(scenario, settings=settings)).violations == ()


@pytest.mark.parametrize(
    ("trigger", "send_to", "adoption"), [one for one in ALL if one not in TABLE]
)
def test_what_the_table_lacks_is_refused(
    trigger: Trigger, send_to: SendTo, adoption: Adoption
) -> None:
    """With a sentence that names the choice and what goes instead."""
    told = "adoption is .* use send_to contributors" if trigger is Trigger.LEARNER else "use all"
    with pytest.raises(SettingsError, match=told):
        chosen(trigger, send_to, adoption)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"anchor": Anchor.CURRENT}, "anchor is current; .* it must be base"),
        ({"quorum": 2}, "quorum is not 1; .* it must be 1"),
        ({"quorum": None}, "quorum is not 1"),
        ({"overlap_steps": 1}, "overlap_steps is not 0; .* it must be 0 if learners wait"),
        ({"trigger": Trigger.PACE, "send_to": SendTo.ALL}, "interval_by_speed is true, which need"),
        ({"merge_moments": True}, "anchor is base; where merge_moments is set"),
    ],
)
def test_what_does_not_go_with_turns_is_named(changes: dict[str, object], told: str) -> None:
    """One sentence each, beside the preset, which is taken."""
    with pytest.raises(SettingsError, match=told):
        replace(ASYNC, **changes)  # type: ignore[arg-type]


def test_each_fragment_may_have_a_round() -> None:
    """However small the overlap is."""
    assert ASYNC.open_rounds_max(6) == 6


def test_old_values_are_kept_where_contributions_are_measured_against_them() -> None:
    """By the anchor `base`, a base may be old without a copy of the model for each version."""
    assert replace(ASYNC, staleness_max=16).values_kept == 2
    assert RunSettings(staleness_max=2).values_kept == 4
