"""A fleet follows its target and does not flap."""

import pytest

from islands.scaling.steadying import (
    ADD_LOOKS,
    CHANGE_MOST,
    DRAIN_LOOKS,
    PENDING_LOOKS,
    Steadying,
)


def changes(wanted: list[int], present: int) -> list[int]:
    """What is done at each look, where what is done takes effect before the next."""
    steadying, done = Steadying(), []
    for number in wanted:
        change = steadying.look({"a": number}, {"a": present}).get("a", 0)
        present += change
        done.append(change)
    return done


def test_what_swings_changes_nothing() -> None:
    """A number between two, for ever."""
    assert changes([3, 4] * 20, 3) == [0] * 40
    assert changes([4, 3] * 20, 4) == [0] * 40


def test_more_come_soon_and_fewer_go_late() -> None:
    """As many as all of the last looks agree on."""
    assert changes([2, 5, 4, 4], 2) == [0, 0, 2, 0]
    fewer = changes([1] * DRAIN_LOOKS, 5)
    assert fewer == [0] * (DRAIN_LOOKS - 1) + [-4]
    assert sum(changes([1, 1, 3, 1, 1, 1, 1], 5)) == -2


@pytest.mark.parametrize("number", [0, 1, 4096])
def test_both_ends_are_reached(number: int) -> None:
    """No islands, and as many as a run may have, a bounded number at a time."""
    looks = 2 * DRAIN_LOOKS + 4096 // CHANGE_MOST + 1
    assert sum(changes([number] * looks, 2)) == number - 2
    assert max(map(abs, changes([number] * looks, 2))) <= CHANGE_MOST


def test_an_island_in_a_queue_is_not_asked_for_twice() -> None:
    """It counts as there for a while; then what is there counts again."""
    steadying, looks = Steadying(), ADD_LOOKS + PENDING_LOOKS
    done = [steadying.look({"a": 3}, {"a": 1}).get("a", 0) for _ in range(looks)]
    assert done == [0] * (ADD_LOOKS - 1) + [2] + [0] * (PENDING_LOOKS - 1) + [2]


def test_looks_that_are_close_wait_as_long() -> None:
    """Ten minutes for an island to come, however often it is looked."""
    steadying = Steadying(interval_s=3.0)
    done = [steadying.look({"a": 2}, {"a": 1}).get("a", 0) for _ in range(ADD_LOOKS + 199)]
    assert sum(done) == 1
    assert steadying.look({"a": 2}, {"a": 1}) == {"a": 1}


def test_a_change_that_was_refused_is_tried_again() -> None:
    """At the next look, and other entries are changed meanwhile."""
    steadying = Steadying()
    for _ in range(ADD_LOOKS):
        steadying.look({"a": 3, "b": 0}, {"a": 1, "b": 0})
    steadying.forget("a")
    assert steadying.look({"a": 3, "b": 2}, {"a": 1, "b": 0}) == {"a": 2}
    assert steadying.look({"a": 3, "b": 2}, {"a": 1, "b": 0}) == {"b": 2}
