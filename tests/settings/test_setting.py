"""The facts that stand beside each setting: what they say is what is checked."""

from collections.abc import Iterator
from dataclasses import fields
from math import inf, nan

import pytest

from islands.protocol.errors import SettingsError
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.settings.setting import Setting, check_ranges, facts_of

GROUPS: tuple[object, ...] = (RunSettings(), OuterSettings(), GossipSettings(), Timing())


def outside(fact: Setting) -> Iterator[float]:
    if fact.least is not None:
        yield fact.least - 1
    if fact.above is not None:
        yield fact.above
    if fact.most is not None:
        yield fact.most + 1
    if fact.below is not None:
        yield fact.below


def numbers(group: object) -> list[str]:
    """The settings of a group whose default is a number."""
    values = {one.name: getattr(group, one.name) for one in fields(group)}  # type: ignore[arg-type]
    return [name for name, value in values.items() if type(value) in (int, float)]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: type(group).__name__)
def test_a_number_outside_its_range_is_refused(group: object) -> None:
    facts = facts_of(type(group))
    for name in numbers(group):
        fact = facts[name]
        assert list(outside(fact)), name
        for value in (*outside(fact), nan):
            with pytest.raises(SettingsError, match=f"the.{name} is {value}; it must be"):
                check_ranges(replace_unchecked(group, name, value), "the.")
        for value in filter(None, (fact.least, fact.most)):
            check_ranges(replace_unchecked(group, name, value))


def replace_unchecked(group: object, name: str, value: object) -> object:
    """A group with another value, which only `check_ranges` looks at."""
    changed = object.__new__(type(group))
    for one in fields(group):  # type: ignore[arg-type]
        object.__setattr__(
            changed, one.name, value if one.name == name else getattr(group, one.name)
        )
    return changed


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        (Setting(least=1), "at least 1"),
        (Setting(least=0, most=1), "in [0, 1]"),
        (Setting(least=0, below=1), "in [0, 1)"),
        (Setting(above=0), "above 0"),
        (Setting(above=0, below=inf), "above 0, and finite"),
        (Setting(above=0, below=0.5), "above 0, and below 0.5"),
        (Setting(above=0, most=1), "above 0, and at most 1"),
    ],
)
def test_a_range_in_words(fact: Setting, told: str) -> None:
    assert fact.range == told


def test_twenty_settings_of_a_run_matter() -> None:
    """With the preset; a new one is for `--help all` unless another one is moved there."""
    told = [name for name, fact in facts_of(RunSettings).items() if not fact.advanced]
    groups = {"outer": OuterSettings, "timing": Timing}
    for name, group in groups.items():
        told.remove(name)
        told += [f"{name}.{one}" for one, fact in facts_of(group).items() if not fact.advanced]
    assert len(["preset", *told]) == 20, told
