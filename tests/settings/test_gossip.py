"""Settings of gossip: what cannot work is refused in a sentence that says how to mend it."""

from dataclasses import replace

import pytest

from islands.protocol.errors import SettingsError
from islands.protocol.settings import choices
from islands.protocol.settings.gossip import GossipSettings, check_members, neighbours_mean
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import facts_of

GRAPH = choices.Neighbours.GRAPH


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (GossipSettings(choices.Neighbours.RING, momentum=1.0), "gossip.momentum is 1.0"),
        (GossipSettings(choices.Neighbours.RING, everyone_every=0), "gossip.everyone_every is 0"),
        (GossipSettings(GRAPH), "names 0 learners"),
        (GossipSettings(choices.Neighbours.RING, {"a": ("b",)}), "go together"),
        (GossipSettings(GRAPH, {"a": ("a",)}), "its own neighbour"),
        (GossipSettings(GRAPH, {"a": ("b",), "c": ("d",)}), "does not connect 'a' and 'c'"),
    ],
)
def test_what_cannot_work_is_refused(settings: GossipSettings, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        replace(PRESETS[Preset.GOSSIP], gossip=settings)


@pytest.mark.parametrize(
    ("settings", "learners", "says"),
    [
        (GossipSettings(choices.Neighbours.RING), ["a"], "has one learner"),
        (GossipSettings(choices.Neighbours.RANDOM_PAIRS), ["a"], "has one learner"),
        (GossipSettings(GRAPH, {"a": ("b", "x")}), ["a", "b"], "names 'x', which is no learner"),
        (GossipSettings(GRAPH, {"a": ("b",)}), ["a", "b", "c"], "does not name 'c'"),
    ],
)
def test_neighbours_that_the_run_lacks_are_refused(
    settings: GossipSettings, learners: list[str], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        check_members(settings, learners)


@pytest.mark.parametrize(
    "settings",
    [
        GossipSettings(),
        GossipSettings(choices.Neighbours.RANDOM_PAIRS, momentum=0.0, rate=1.0, pull=1.0),
        GossipSettings(choices.Neighbours.RING, everyone_every=1),
        GossipSettings(GRAPH, {"a": ("b",), "b": ("c",)}),
    ],
)
def test_what_works_is_taken(settings: GossipSettings) -> None:
    replace(PRESETS[Preset.GOSSIP], gossip=settings)
    check_members(settings, ["a", "b", "c"])
    assert settings.on is (settings.neighbours is not choices.Neighbours.NOBODY)


@pytest.mark.parametrize(
    ("settings", "learners", "neighbours"),
    [
        (GossipSettings(choices.Neighbours.RANDOM_PAIRS), 4, 1.0),
        (GossipSettings(choices.Neighbours.RING), 4, 2.0),
        (GossipSettings(choices.Neighbours.RING), 2, 1.0),
        (GossipSettings(GRAPH, {"a": ("b", "c", "d")}), 4, 1.5),
        (GossipSettings(choices.Neighbours.RANDOM_PAIRS, everyone_every=3), 5, 1.75),
    ],
)
def test_neighbours_are_counted_over_all_rounds(
    settings: GossipSettings, learners: int, neighbours: float
) -> None:
    assert neighbours_mean(settings, learners) == neighbours


def test_without_gossip_one_learner_is_enough() -> None:
    check_members(GossipSettings(), ["a"])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"quorum": 2}, "quorum is 2, which is for merges of a syncer"),
        ({"merge": choices.MergeRule.RADIAL_DIRECTIONAL}, "merge is rda"),
        ({"adoption": choices.Adoption.DELAY_CORRECTED}, "adoption is delay_corrected"),
        ({"learner_waits": choices.LearnerWaits.AT_TAU}, "learner_waits is at_tau"),
        ({"outer": OuterSettings(momentum=0.5)}, "outer is"),
        ({"precision": choices.Precision.FP4}, "precision is fp4"),
    ],
)
def test_settings_of_a_syncer_are_refused_with_gossip(
    changed: dict[str, object], says: str
) -> None:
    with pytest.raises(SettingsError, match=f"{says}.*preset: gossip"):
        replace(PRESETS[Preset.GOSSIP], **changed)  # type: ignore[arg-type]


def test_every_setting_for_syncers_has_its_needed_value_in_the_preset() -> None:
    needed = {name: fact.with_gossip for name, fact in facts_of(RunSettings).items()}
    needed = {name: value for name, value in needed.items() if value is not None}
    preset = PRESETS[Preset.GOSSIP]
    assert {name: getattr(preset, name) for name in needed} == needed
    assert {"quorum", "merge", "outer"} <= set(needed)
