"""Texts that roles repeat are bounded where links are read."""

from collections.abc import Callable

import pytest

from islands.actors.acceptor import too_long
from islands.protocol.identities import Incarnation, LearnerName, Role
from islands.protocol.messages.membership import TEXTS_MAX, Join, Leave
from islands.protocol.messages.registry import PROTOCOL


def leave(characters: int) -> Leave:
    return Leave(LearnerName("ana"), Incarnation(1, 1), "r" * characters)


def join(characters: int) -> Join:
    """A wish to be admitted under so long a name."""
    return Join(PROTOCOL, "run", Role.LEARNER, "n" * characters, "layout")


@pytest.mark.parametrize(("field", "make"), [("name", join), ("reason", leave)])
def test_a_longer_text_is_not_received(field: str, make: Callable[[int], object]) -> None:
    most = TEXTS_MAX[field]
    assert too_long(make(most)) is None
    told = too_long(make(most + 1))
    assert told == f"a {field} of {most + 1} characters; at most {most} are allowed"


def test_what_has_no_such_text_is_received() -> None:
    assert too_long(object()) is None
