"""Facts about a setting, in the annotation of its field.

The checks, the help of commands and the pages read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from math import inf
from types import MappingProxyType
from typing import TypeVar, get_args, get_type_hints

from islands.protocol.errors import SettingsError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its range, and who may change, need or see it.

    Args:
        least: the smallest value that is allowed; None = there is none.
        above: the value below all that are allowed.
        most: the largest value that is allowed.
        below: the value above all that are allowed; infinity = every finite one.
        resumable: whether a run that goes on may change it; else it would be another run.
        by_preset: whether a preset chooses it; else it belongs to the task or to the host.
        with_gossip: of a setting for merges of a syncer: the value that it must have where learners
            gossip, with which the last merge is a mean; None of all others.
        taken_by: kinds of outer optimizers that take it; empty = all.
        advanced: whether only `--help all` shows it; of a group, all that is in it.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    resumable: bool = False
    by_preset: bool = True
    with_gossip: object = None
    taken_by: tuple[str, ...] = ()
    advanced: bool = False

    def allows(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    @property
    def range(self) -> str:
        low = f"at least {self.least}" if self.above is None else f"above {self.above}"
        if self.below == inf:
            return f"{low}, and finite"
        if self.above is None and self.most is not None:
            return f"in [{self.least}, {self.most}]"
        if self.above is None and self.below is not None:
            return f"in [{self.least}, {self.below})"
        if self.most is not None:
            return f"{low}, and at most {self.most}"
        return low if self.below is None else f"{low}, and below {self.below}"


NO_FACTS = Setting()
ADVANCED = Setting(advanced=True)
POSITIVE, NOT_NEGATIVE, COUNT = Setting(above=0), Setting(least=0), Setting(least=1)


def facts_of(group: type) -> Mapping[str, Setting]:
    return _facts_of(group)


@cache
def _facts_of(group: type) -> Mapping[str, Setting]:
    hints = get_type_hints(group, include_extras=True)
    annotations = {one.name: getattr(hints[one.name], "__metadata__", ()) for one in fields(group)}
    return MappingProxyType(
        {
            name: next((fact for fact in extras if isinstance(fact, Setting)), NO_FACTS)
            for name, extras in annotations.items()
        }
    )


def make_choices(group: object, prefix: str = "") -> None:
    """Make a member of each choice that was given by its name, and refuse other texts.

    `prefix` precedes the names of the fields in the sentence.
    """
    own: type = type(group)
    for name, kinds in _choices_of(own).items():
        value = getattr(group, name)
        if not isinstance(value, str) or isinstance(value, kinds):
            continue
        members = [member for kind in kinds for member in kind]
        if value not in members:
            allowed = f"be one of {', '.join(members)}" if members else "not be a text"
            raise SettingsError(f"{prefix}{name} is {value!r}; it must {allowed}")
        object.__setattr__(group, name, next(one for one in members if one == value))


@cache
def _choices_of(group: type) -> Mapping[str, tuple[type[StrEnum], ...]]:
    choices_of = {}
    for name, hint in get_type_hints(group).items():
        kinds = get_args(hint) or (hint,)
        choices = [one for one in kinds if isinstance(one, type) and issubclass(one, StrEnum)]
        if str not in kinds:
            choices_of[name] = tuple(choices)
    return MappingProxyType(choices_of)


def check_ranges(group: object, prefix: str = "") -> None:
    for name, fact in facts_of(type(group)).items():
        value = getattr(group, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int | float) and not fact.allows(each):
                raise SettingsError(f"{prefix}{name} is {each}; it must be {fact.range}")


def ranged(group: type[T]) -> type[T]:
    """Have a class check the ranges of its fields first; it becomes a dataclass after that."""
    own: object = vars(group).get("__post_init__")

    def check(self: object) -> None:
        check_ranges(self)
        if callable(own):
            own(self)

    setattr(group, "__post_init__", check)  # noqa: B010  mypy knows of no such method yet
    return group
