"""Hosts end at one boundary, and whoever takes another way through its loop is found."""

from collections.abc import Sequence

import pytest

from islands.island.agreed_commands import FollowerCommands, LeaderCommands
from islands.island.agreement import AHEAD, ARRIVALS_KEPT, Itinerary, LogEntry
from islands.island.forming import disagreement
from islands.learner.commands import TO_LEAVE, TO_STEP, TO_WAIT, Arrival
from islands.protocol.learner.actions import AllowSteps


class Pair:
    """Rank 0 and a follower, whose messages arrive at once."""

    def __init__(self) -> None:
        self.over: list[str] = []
        self.follower = FollowerCommands(over=lambda: self.over.append("follower"))
        self.leader = LeaderCommands(
            2,
            send=self._send,
            own=lambda entry: entry,
            decided=self.follower.told,
            over=lambda: self.over.append("leader"),
        )

    def _send(self, issued: Sequence[tuple[int, LogEntry]]) -> None:
        for number, entry in issued:
            self.follower.arrived(number, entry)
            self.leader.holds(1, number)

    def ended(self) -> list[bool]:
        """Whether rank 0 comes to no further boundary, and whether the follower does not."""
        return [self.leader.ended, self.follower.ended]

    def step(self, steps: int) -> tuple[list[object], list[object]]:
        """Let both come to their next boundary after so many steps."""
        return list(self.leader.take(steps)), list(self.follower.take(steps))


def test_both_hosts_end_at_the_boundary_of_the_last_command() -> None:
    """What was commanded before it is carried out, and nothing is taken afterwards."""
    pair, allow = Pair(), AllowSteps(8, ())
    pair.leader.put(allow)
    pair.leader.stop()
    for boundary in range(AHEAD):
        assert pair.step(boundary) == ([], [])
        assert pair.ended() == [False, False]
    assert pair.step(AHEAD) == ([allow], [allow])
    assert pair.ended() == [True, True]
    assert pair.over == ["leader", "follower"]
    pair.leader.put(allow)
    assert pair.leader.rest() == []


def test_an_island_that_fails_ends_each_host_at_its_next_boundary() -> None:
    """Not before: what a loop does between two boundaries is the same on all hosts until then."""
    pair = Pair()
    pair.step(0)
    pair.leader.put(AllowSteps(8, ()))
    pair.leader.abandon()
    pair.follower.stop()
    assert pair.ended() == [False, False]
    pair.leader.sleep()  # returns at once
    assert pair.step(1) == ([], [])
    assert pair.ended() == [True, True]
    assert pair.over == [], "it is told that the island fails"


def test_hosts_that_leave_their_loop_come_to_no_further_boundary() -> None:
    """What was commanded is left to rank 0, whose compute answers it."""
    pair, allow = Pair(), AllowSteps(8, ())
    pair.step(0)
    pair.leader.put(allow)
    pair.leader.stop()
    assert pair.leader.rest(1) == [allow]
    assert pair.follower.rest(1) == []
    assert pair.ended() == [True, True]
    assert pair.over == ["leader", "follower"]
    assert pair.follower.newest == (Arrival(0, 0, TO_STEP), Arrival(1, 1, TO_LEAVE))
    assert pair.leader.differing(Arrival(1, 1, TO_LEAVE)) is None


@pytest.mark.parametrize(
    "theirs", [Arrival(2, 2, TO_WAIT), Arrival(2, 2, TO_LEAVE), Arrival(2, 1, TO_STEP)]
)
def test_a_host_that_takes_another_way_is_found(theirs: Arrival) -> None:
    """It was done where rank 0 goes on, it left, or it counted another number of steps."""
    pair = Pair()
    for boundary in range(4):
        pair.step(boundary)
    for each in pair.follower.newest:
        assert pair.leader.differing(each) is None
    own = pair.leader.differing(theirs)
    assert own == Arrival(2, 2, TO_STEP)
    told = disagreement("rank 1 (far)", theirs, own)
    assert f"rank 1 (far) came to boundary 2 after {theirs.steps} steps {theirs.to}" in told
    assert "rank 0 after 2 steps to take a step" in told


def test_a_host_that_waits_ahead_of_rank_0_tells_what_it_did_before() -> None:
    """It comes to boundaries whose words it knows, which rank 0 may never come to."""
    pair = Pair()
    for boundary in range(5):
        pair.step(boundary)
    pair.leader.take(5, TO_STEP)  # it takes a step then, which never ends
    for _ in range(AHEAD + 1):
        pair.follower.take(5, TO_WAIT)
    pair.follower.stop()
    pair.follower.take(5, TO_WAIT)  # where it would wait
    first = pair.follower.newest[0]
    assert first == Arrival(5, 5, TO_WAIT)
    assert pair.leader.differing(first) == Arrival(5, 5, TO_STEP)


def test_hosts_that_are_ahead_or_far_behind_are_not_blamed() -> None:
    """A boundary is compared with the one of its own number, for as long as that is remembered."""
    itinerary = Itinerary()
    assert itinerary.differing(Arrival(-1, 0, "")) is None
    assert itinerary.differing(Arrival(0, 0, TO_STEP)) is None
    for boundary in range(ARRIVALS_KEPT + 10):
        itinerary.note(Arrival(boundary, boundary, TO_STEP))
    assert itinerary.differing(Arrival(-1, 0, "")) is None
    assert itinerary.differing(Arrival(9, 0, TO_STEP)) is None
    assert itinerary.differing(Arrival(10, 0, TO_STEP)) == Arrival(10, 10, TO_STEP)
    assert itinerary.differing(Arrival(ARRIVALS_KEPT + 10, 0, TO_STEP)) is None
