"""Choices are given by their names, in Python as on the command line, and others are refused."""

from dataclasses import fields, replace
from enum import StrEnum
from typing import get_args, get_type_hints

import pytest

from islands import run_settings
from islands.protocol.errors import SettingsError
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.settings.setting import make_choices
from islands.settings.groups import RunFile

GROUPS = (RunSettings, OuterSettings, GossipSettings, Timing)


def choices() -> list[tuple[type, str, StrEnum]]:
    found: list[tuple[type, str, StrEnum]] = []
    for group in GROUPS:
        for name, hint in get_type_hints(group).items():
            kinds = [one for one in (*get_args(hint), hint) if isinstance(one, type)]
            members = [each for one in kinds if issubclass(one, StrEnum) for each in one]
            found += [(group, name, member) for member in members]
    return found


@pytest.mark.parametrize(("group", "name", "member"), choices())
def test_a_choice_may_be_given_by_its_name(group: type, name: str, member: StrEnum) -> None:
    made = group()
    object.__setattr__(made, name, str(member))
    make_choices(made)
    assert getattr(made, name) is member


@pytest.mark.parametrize("group", GROUPS)
def test_other_texts_are_refused_with_the_names_that_there_are(group: type) -> None:
    for one in fields(group):
        hint = get_type_hints(group)[one.name]
        if str in (hint, *get_args(hint)):
            continue
        made = group()
        object.__setattr__(made, one.name, "nonsense")
        names = ", ".join(member for _, name, member in choices() if name == one.name)
        there = f"be one of {names}" if names else "not be a text"
        with pytest.raises(SettingsError, match=f"{one.name} is 'nonsense'; it must {there}"):
            make_choices(made)


def test_python_has_the_default_of_the_commands() -> None:
    """A user's own code trains as well as `islands run` does."""
    assert run_settings() == RunFile().run == PRESETS[Preset.DECOUPLED]
    assert run_settings("diloco", seed=3) == replace(PRESETS[Preset.DILOCO], seed=3)
    assert run_settings(interval_steps=24).fragments == 12
    assert not run_settings(precision="int8").merge_moments
    for wrong, said in (
        ({"preset": "dilocco"}, "preset is 'dilocco'; the names that there are: decoupled, "),
        ({"intervall_steps": 3}, "no setting intervall_steps; did you mean interval_steps"),
        ({"merge": "nonsense"}, "merge is 'nonsense'; it must be one of rda, average"),
    ):
        with pytest.raises(SettingsError, match=said):
            run_settings(**wrong)
