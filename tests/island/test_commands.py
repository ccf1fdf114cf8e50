"""Commands: at which boundary each thread receives them, and as messages among hosts."""

from collections.abc import Sequence

import msgspec
import pytest

from islands.island import commands
from islands.island.agreement import AHEAD, ARRIVALS_KEPT, End, Itinerary, LogEntry
from islands.island.forming import disagreement
from islands.learner.compute import TO_LEAVE, TO_STEP, TO_WAIT, Arrival, BookCopy
from islands.protocol.errors import InvariantError
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner import actions
from islands.protocol.messages.training import FragmentRequest, Merged
from islands.protocol.settings.choices import Precision


class Pair:
    """Rank 0 and a follower, whose messages arrive at once."""

    def __init__(self) -> None:
        self.over: list[str] = []
        self.follower = commands.FollowerCommands(over=lambda: self.over.append("follower"))
        self.leader = commands.LeaderCommands(
            2,
            send=self._send,
            own=lambda entry: entry,
            decided=self.follower.on_word,
            over=lambda: self.over.append("leader"),
        )

    def _send(self, issued: Sequence[tuple[int, LogEntry]]) -> None:
        for number, entry in issued:
            self.follower.on_command(number, entry)
            self.leader.on_held(1, number)

    def ended(self) -> list[bool]:
        """Whether rank 0 comes to no further boundary, and whether the follower does not."""
        return [self.leader.ended, self.follower.ended]

    def step(self, steps: int) -> tuple[list[object], list[object]]:
        """Let both come to their next boundary after so many steps."""
        return list(self.leader.take(steps)), list(self.follower.take(steps))


def test_both_hosts_end_at_the_boundary_of_the_last_command() -> None:
    pair, allow = Pair(), actions.AllowSteps(8, ())
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
    pair = Pair()
    pair.step(0)
    pair.leader.put(actions.AllowSteps(8, ()))
    pair.leader.abandon()
    pair.follower.stop()
    assert pair.ended() == [False, False]
    pair.leader.sleep()  # returns at once
    assert pair.step(1) == ([], [])
    assert pair.ended() == [True, True]
    assert pair.over == [], "it is told that the island fails"


def test_hosts_that_leave_their_loop_come_to_no_further_boundary() -> None:
    pair, allow = Pair(), actions.AllowSteps(8, ())
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
    itinerary = Itinerary()
    assert itinerary.differing(Arrival(-1, 0, "")) is None
    assert itinerary.differing(Arrival(0, 0, TO_STEP)) is None
    for boundary in range(ARRIVALS_KEPT + 10):
        itinerary.note(Arrival(boundary, boundary, TO_STEP))
    assert itinerary.differing(Arrival(-1, 0, "")) is None
    assert itinerary.differing(Arrival(9, 0, TO_STEP)) is None
    assert itinerary.differing(Arrival(10, 0, TO_STEP)) == Arrival(10, 10, TO_STEP)
    assert itinerary.differing(Arrival(ARRIVALS_KEPT + 10, 0, TO_STEP)) is None


# --- commands as messages -------------------------------------------------------------------------


ZERO, FIRST = FragmentIndex(0), Incarnation(1, 2)
VALUE, SENT = memoryview(b"\0" * 16), memoryview(b"\1" * 8)

ENTRIES: tuple[LogEntry, ...] = (
    actions.AdoptValue(ZERO, Version(1, 2), 3.5, 1, FIRST, VALUE),
    actions.AdoptValue(
        *(ZERO, Version(1, 2), 3.5, 1, FIRST, VALUE),
        carry=True,
        merged=Merged(1, 2, 3, 4),
        sent=SENT,
        local_share=0.5,
        at_steps=7,
        sent_precision=Precision.BFLOAT16,
    ),
    actions.AllowSteps(100, (Lease(0, 1, 2), Lease(0, 2, 0, done=True)), 3, 9),
    actions.LoadMoments((VALUE, SENT)),
    actions.PlanSnapshots((ZERO, FragmentIndex(3)), (4, 5)),
    actions.ReadMoments(3, "peer"),
    actions.ReadValue(FragmentRequest(1, ZERO, 2), FIRST),
    actions.ResetMoments(),
    BookCopy(4),
    End(),
)


@pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{n} {type(each).__name__}" for n, each in enumerate(ENTRIES)]
)
def test_a_command_arrives_as_it_was_issued(entry: LogEntry) -> None:
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(commands.body_of(entry)))
    arrays = commands.arrays_of(entry)
    arrived = commands.entry_of(type(entry).__name__, body, arrays)
    assert arrived == entry
    assert commands.arrays_of(arrived) == arrays


def test_every_command_of_a_boundary_can_be_issued() -> None:
    assert {type(entry).__name__ for entry in ENTRIES} == set(commands.KINDS)


def test_a_value_is_sent_as_a_share() -> None:
    whole = ENTRIES[1]
    cut = commands.with_arrays(whole, (VALUE[:4], SENT))
    assert isinstance(cut, actions.AdoptValue)
    assert (bytes(cut.payload), cut.sent, cut.version) == (b"\0" * 4, SENT, Version(1, 2))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("Unheard", {}),
        ("AllowSteps", {"until_tokens": "many", "leases": []}),
        ("AllowSteps", {"leases": []}),
        ("AllowSteps", {"until_tokens": 1, "leases": [], "unheard": 1}),
    ],
)
def test_a_command_of_another_version_is_refused_in_a_sentence(
    kind: str, body: dict[str, object]
) -> None:
    with pytest.raises(InvariantError, match=kind):
        commands.entry_of(kind, body, ())
