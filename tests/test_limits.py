"""How much there is: rooms and kinds of things have a most in `pyproject.toml`."""

import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from islands.cli.schema import keys_of
from islands.protocol.learner import actions as learner_actions
from islands.protocol.learner import events as learner_events
from islands.protocol.learner import memory as learner_memory
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.supervisor import actions as supervisor_actions
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.supervisor import memory as supervisor_memory
from islands.protocol.syncer import actions as syncer_actions
from islands.protocol.syncer import events as syncer_events
from islands.protocol.syncer import memory as syncer_memory
from islands.protocol.tape.kinds import ENTRIES
from islands.settings.host import RunOptions
from tests.environment import ROOT
from tests.round_trip import executed_files

LIMITS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["islands"]
WHOLE = ("tests", "examples")
"""Folders whose rooms have one limit together."""

COUNTS: dict[str, Callable[[], int]] = {
    "settings": lambda: len(keys_of(RunOptions)),
    "messages": lambda: len(MESSAGE_TYPES),
    "tape_entries": lambda: len(ENTRIES),
    "learner_events": lambda: len(get_args(learner_events.Event)),
    "learner_actions": lambda: len(get_args(learner_actions.Action)),
    "learner_fields": lambda: len(fields(learner_memory.LearnerMemory)),
    "syncer_events": lambda: len(get_args(syncer_events.Event)),
    "syncer_actions": lambda: len(get_args(syncer_actions.Action)),
    "syncer_fields": lambda: len(fields(syncer_memory.SyncerMemory)),
    "supervisor_events": lambda: len(get_args(supervisor_events.Event)),
    "supervisor_actions": lambda: len(get_args(supervisor_actions.Action)),
    "supervisor_fields": lambda: len(fields(supervisor_memory.SupervisorMemory)),
    "round_trip_files": lambda: len(executed_files()),
}


def lines_of_rooms(root: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for top in ("islands", "messaging", *WHOLE):
        for path in (root / top).rglob("*.py"):
            room = top if top in WHOLE else path.parent.relative_to(root).as_posix()
            found[room] += path.read_bytes().count(b"\n")
    return found


def over(found: dict[str, int], most: dict[str, int]) -> list[str]:
    """A sentence for each limit that is exceeded, is missing, or belongs to nothing."""
    return [
        f"{name}: there are {found.get(name, 0)}, and pyproject.toml has {most.get(name)}"
        for name in sorted({*found, *most})
        if name not in most or not 0 < found.get(name, 0) <= most[name]
    ]


def test_no_room_has_more_lines_than_it_may() -> None:
    assert over(lines_of_rooms(ROOT), LIMITS["lines"]) == []


def test_there_are_no_more_things_of_a_kind_than_there_may_be() -> None:
    assert over({name: count() for name, count in COUNTS.items()}, LIMITS["counts"]) == []


@pytest.mark.parametrize(
    ("found", "told"), [({"a": 3}, ["a: there are 3"]), ({}, ["a: there are 0"]), ({"a": 2}, [])]
)
def test_what_is_too_much_is_named(found: dict[str, int], told: list[str]) -> None:
    assert [each.partition(",")[0] for each in over(found, {"a": 2})] == told
    assert over({"b": 1}, {}) == ["b: there are 1, and pyproject.toml has None"]
