"""Actors: one message at a time, and three ways to end."""

import asyncio

import pytest

from messaging.actors.actor import MESSAGES_AT_ONCE, Actor
from messaging.actors.scope import Scope
from tests.virtual import virtual


class Recorder(Actor[str]):
    """Writes down what happens to it; fails on "fail", is slow on "slow"."""

    def __init__(self, capacity: int = 16) -> None:
        super().__init__("recorder", capacity=capacity)
        self.seen: list[str] = []

    async def on_start(self) -> None:
        self.seen.append("start")

    async def on_message(self, message: str) -> None:
        self.seen.append(message)
        if message == "fail":
            raise ValueError(message)
        if message == "slow":
            await asyncio.sleep(10)

    async def on_stop(self, reason: str) -> None:
        self.seen.append(f"stop: {reason}")

    async def on_failure(self, error: BaseException) -> None:
        self.seen.append(f"failure: {error}")


@virtual
async def test_messages_before_stop_are_handled() -> None:
    """What was told before `stop` is handled, in order; what is told after is refused."""
    actor = Recorder()
    actor.ref.tell("a")
    actor.ref.tell("b")
    actor.ref.stop("done")
    actor.ref.stop("again")
    assert not actor.ref.tell("c")
    await actor.run()
    assert actor.seen == ["start", "a", "b", "stop: done"]


@virtual
async def test_a_full_mailbox_lets_timers_have_their_turn() -> None:
    actor = Recorder(capacity=1000)
    seen: list[int] = []
    for number in range(1000):
        actor.ref.tell(str(number))
    actor.ref.stop("done")
    asyncio.get_running_loop().call_later(0, lambda: seen.append(len(actor.seen)))
    await actor.run()
    assert 0 < seen[0] <= 2 * MESSAGES_AT_ONCE
    assert len(actor.seen) == 1002


@virtual
async def test_messages_are_handled_one_at_a_time() -> None:
    actor = Recorder()
    actor.ref.tell("slow")
    actor.ref.tell("slow")
    actor.ref.stop("done")
    await actor.run()
    assert asyncio.get_running_loop().time() == 20


@virtual
async def test_failure_ends_the_actor_and_is_raised() -> None:
    """An exception of a handler reaches `on_failure` and then whoever awaits `run`."""
    actor = Recorder()
    actor.ref.tell("fail")
    actor.ref.tell("never")
    with pytest.raises(ValueError, match="fail"):
        await actor.run()
    assert actor.seen == ["start", "fail", "failure: fail"]
    assert not actor.ref.tell("late")


@virtual
async def test_cancelled_actor_runs_no_handler() -> None:
    """Cancelling stands for a killed process: neither `on_stop` nor `on_failure` runs."""
    actor = Recorder()
    async with Scope() as scope:
        scope.spawn(actor.run(), "recorder")
        actor.ref.tell("slow")
        await asyncio.sleep(1)
    assert actor.seen == ["start", "slow"]


@virtual
async def test_tell_later_can_be_cancelled() -> None:
    actor = Recorder()
    async with Scope() as scope:
        scope.spawn(actor.run(), "recorder")
        actor.ref.tell_later(2, "second")
        actor.ref.tell_later(1, "first")
        actor.ref.tell_later(1.5, "never").cancel()
        await asyncio.sleep(3)
    assert actor.seen == ["start", "first", "second"]
