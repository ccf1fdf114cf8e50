"""The syncer's membership: which admission counts, and what its heartbeats say."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.messages.membership import Evicted, HeartbeatAck, Joined, MembershipChanged
from tests.syncer.test_start import RECOVERY_S, Room, with_room

FIRST = Incarnation(1, 1)
BEAT_S = 1.0


def admission(incarnation: Incarnation) -> Joined:
    """The supervisor's answer, of the epoch in which it gave the incarnation."""
    return Joined("run", "syncer", incarnation, "", incarnation.epoch, ())


def with_syncer(body: Callable[[Room], Awaitable[None]]) -> None:
    """Run a test's body beside a syncer that merges."""

    async def begun(room: Room) -> None:
        await asyncio.sleep(RECOVERY_S + 2 * BEAT_S)
        assert room.beats[-1].phase is Phase.MERGING
        await body(room)

    with_room(begun)


@pytest.mark.parametrize("late", [Incarnation(1, 1), Incarnation(1, 2), Incarnation(2, 1)], ids=str)
def test_an_admission_that_comes_twice_or_late_changes_nothing(late: Incarnation) -> None:
    """It goes on as the incarnation that it is: the other one is not its own, or has ended."""

    async def body(room: Room) -> None:
        room.say(admission(late))
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].incarnation == FIRST

    with_syncer(body)


def test_an_admission_by_an_older_supervisor_does_not_count() -> None:
    """Its epoch fences it, as it does for a learner."""

    async def body(room: Room) -> None:
        room.admits = False
        room.say(HeartbeatAck(5), Evicted("syncer", FIRST, "silent"), admission(Incarnation(4, 9)))
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].incarnation == FIRST, "its last heartbeat was from before its end"
        room.say(admission(Incarnation(5, 1)))
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].incarnation == Incarnation(5, 1)

    with_syncer(body)


def test_an_evicted_syncer_shows_which_incarnation_it_was() -> None:
    """The eviction stands on the tape of the supervisor, which decided it, and on no other."""

    async def body(room: Room) -> None:
        room.admits = False
        room.say(Evicted("syncer", FIRST, "silent"))
        await asyncio.sleep(2 * BEAT_S)
        assert room.joins[-1].previous == FIRST
        assert not any(b'"evicted"' in line for line in room.tape.lines)

    with_syncer(body)


def test_heartbeats_say_what_the_syncer_does() -> None:
    """It merges, is paused by an operator, goes on, and has finished."""

    async def body(room: Room) -> None:
        for paused, phase in ((True, Phase.PAUSED), (False, Phase.MERGING)):
            room.say(MembershipChanged(1, (), paused=paused))
            await asyncio.sleep(2 * BEAT_S)
            assert room.beats[-1].phase is phase
        room.actor.finish("enough")
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].phase is Phase.FINISHED

    with_syncer(body)
