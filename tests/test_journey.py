"""`docs/journey.md` is what the code says: every event has a rule, every action a performer."""

import pytest

from tests.code_index import Class, Function, Index
from tests.journey import PAGE, ROLES, Room, page


@pytest.fixture(name="rooms", scope="module")
def _rooms() -> dict[str, Room]:
    """All rooms, read once."""
    index = Index()
    return {role: Room(role, index) for role in ROLES}


def test_the_page_is_generated_from_the_code_as_it_is() -> None:
    """After a change of a rule's name or place, run `python -m tests.journey`."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.journey"


@pytest.mark.parametrize("role", ROLES)
def test_every_event_is_handled_and_every_action_performed(
    rooms: dict[str, Room], role: str
) -> None:
    """A class of an event or of an action that nobody asks for would be missing from the tables."""
    room = rooms[role]
    parts = ("Facts", "Check", "Checked")  # of events
    unasked = [each.name for each in room.events if each not in room.cases]
    assert [name for name in unasked if not name.endswith(parts)] == []
    assert [each.name for each in room.actions if each not in room.effects] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_event_and_message_is_made_somewhere(rooms: dict[str, Room], role: str) -> None:
    """A dash in that column would be a name that was resolved wrongly."""
    assert [cls.name for cls in rooms[role].cases if rooms[role].makers(cls) == "–"] == []


def test_every_action_comes_of_a_rule(rooms: dict[str, Room]) -> None:
    """Only one is made by an actor: the engine's part of another action."""
    found = {role: [each.name for each in room.without_rule()] for role, room in rooms.items()}
    assert {role: names for role, names in found.items() if names} == {"gossip": ["ReturnToOrigin"]}


@pytest.mark.parametrize("role", ROLES)
def test_every_function_that_makes_an_action_is_followed(rooms: dict[str, Room], role: str) -> None:
    """One that is not reached from any event would be a call that was not resolved."""
    room, missed = rooms[role], []
    reached = room.index.reached(room.always)
    for more in (*(case.reached for case in room.cases.values()), *dict(room.failing).values()):
        reached |= more
    for module in room.index.modules.values():
        if module.name.startswith(f"{room.prefix}."):
            for function in room.index.functions(module):
                made = room.index.calls(function.node.body, function)
                hands_on = function in room.dispatchers or function is room.entry
                if {*made} & {*room.actions} and function not in reached and not hands_on:
                    missed.append(f"{module.path.name}:{function.name}")
    assert missed == []


def test_names_are_resolved_through_imports_and_annotations(rooms: dict[str, Room]) -> None:
    """`Ticked` of each role is its own class, and a method is found by the class of its owner."""
    index = rooms["learner"].index
    ticked = {role: rooms[role].makers(_named(rooms[role], "Ticked")) for role in ROLES[:4]}
    assert ticked == {role: f"`{role}/actor.py`" for role in ROLES[:4]}
    core = index.modules["islands.protocol.learner.core"].defined["Core"]
    assert isinstance(core, Class)
    schedule = index.attribute(core, "schedule")
    assert schedule is not None
    assert schedule.name == "Schedule"
    plans = [one.owner.name for one in index.methods(schedule, "plan") if one.owner is not None]
    assert plans[0] == "Schedule"
    assert "Synchronous" in plans


def _named(room: Room, name: str) -> Class:
    found: list[Class | Function] = [each for each in room.events if each.name == name]
    assert isinstance(found[0], Class)
    return found[0]
