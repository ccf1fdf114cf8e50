"""`docs/journey.md` is what the code says: every event has a rule, every action a performer."""

from tests.journey import PAGE, ROLES, Room, page


def test_the_page_is_generated_from_the_code_as_it_is() -> None:
    """After a change of a rule's name or place, run `python -m tests.journey`."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.journey"


def test_every_event_is_handled_and_every_action_performed() -> None:
    """A class of an event or of an action that nobody asks for would be missing from the tables."""
    for role in ROLES[:-1]:
        room = Room(role)
        unasked = [name for name in room.events if name not in room.cases]
        assert [name for name in unasked if not name.endswith("Facts")] == []  # parts of events
        unperformed = [name for name in room.actions if name not in room.effects]
        assert [name for name in unperformed if not name.endswith("Part")] == []  # parts of actions
