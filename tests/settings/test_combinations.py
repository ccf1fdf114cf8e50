"""Which settings go with learners that open rounds; the others are refused with a sentence."""

from dataclasses import replace

import pytest

from islands.lab.world.scenario import draw
from islands.lab.world.trial import play
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Adoption, LearnerWaits, MergeRule, Trigger
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings

ASYNC = PRESETS[Preset.ASYNC_DILOCO]
BY_PACE = RunSettings(quorum=1, overlap_steps=0, merge=MergeRule.AVERAGE)


@pytest.mark.parametrize("trigger", Trigger)
@pytest.mark.parametrize("adoption", Adoption)
@pytest.mark.parametrize("waits", LearnerWaits)
def test_all_that_goes_together_trains_to_its_end(
    trigger: Trigger, adoption: Adoption, waits: LearnerWaits
) -> None:
    scenario = draw(9)  # three learners, which are cut off, isolated, paused and killed
    settings = replace(
        BY_PACE,
        trigger=trigger,
        adoption=adoption,
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
    ("changes", "told"),
    [
        ({"quorum": 2}, "quorum is not 1; .* it must be 1"),
        ({"quorum": None}, "quorum is not 1"),
        ({"overlap_steps": 1}, "overlap_steps is not 0; .* it must be 0 if learners wait"),
        ({"merge_moments": True}, "merge_moments is true; where trigger is learner"),
    ],
)
def test_what_does_not_go_with_turns_is_named(changes: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        replace(ASYNC, **changes)  # type: ignore[arg-type]


def test_each_fragment_may_have_a_round() -> None:
    assert ASYNC.open_rounds_max(6) == 6


def test_old_values_are_kept_where_contributions_are_measured_against_them() -> None:
    assert replace(ASYNC, staleness_max=16).values_kept == 2
    assert RunSettings(staleness_max=2).values_kept == 4
