"""Actors: one message at a time, three ways to end, and no question left without an answer."""

import asyncio
import threading

import pytest

from messaging.actors.actor import MESSAGES_AT_ONCE, Actor
from messaging.actors.scope import Scope
from messaging.errors import ActorStopped, AskTimedOut, LocalFault
from messaging.simulation.doubles import RecordingActor
from messaging.simulation.virtual_time import run_virtual


class Recorder(Actor[str]):
    """Writes down what happens to it; fails on "fail", is slow on "slow"."""

    def __init__(self, capacity: int = 16) -> None:
        super().__init__("recorder", capacity=capacity)
        self.seen: list[str] = []

    async def on_start(self) -> None:
        self.seen.append("start")

    async def on_message(self, message: str) -> object:
        self.seen.append(message)
        if message == "fail":
            raise ValueError(message)
        if message == "slow":
            await asyncio.sleep(10)
        return message.upper()

    async def on_stop(self, reason: str) -> None:
        self.seen.append(f"stop: {reason}")

    async def on_failure(self, error: BaseException) -> None:
        self.seen.append(f"failure: {error}")


def test_messages_before_stop_are_handled() -> None:
    """What was told before `stop` is handled, in order; what is told after is refused."""

    async def main() -> None:
        actor = Recorder()
        actor.ref.tell("a")
        actor.ref.tell("b")
        actor.ref.stop("done")
        actor.ref.stop("again")
        assert not actor.ref.tell("c")
        await actor.run()
        assert actor.seen == ["start", "a", "b", "stop: done"]

    run_virtual(main(), limit_s=1)


def test_a_full_mailbox_lets_timers_have_their_turn() -> None:
    """Whatever waits, a timer that is due runs after a bounded number of messages."""

    async def main() -> None:
        actor = Recorder(capacity=1000)
        seen: list[int] = []
        for number in range(1000):
            actor.ref.tell(str(number))
        actor.ref.stop("done")
        asyncio.get_running_loop().call_later(0, lambda: seen.append(len(actor.seen)))
        await actor.run()
        assert 0 < seen[0] <= 2 * MESSAGES_AT_ONCE
        assert len(actor.seen) == 1002

    run_virtual(main(), limit_s=1)


def test_messages_are_handled_one_at_a_time() -> None:
    """A handler that waits keeps the next message waiting."""

    async def main() -> float:
        actor = Recorder()
        actor.ref.tell("slow")
        actor.ref.tell("slow")
        actor.ref.stop("done")
        await actor.run()
        return asyncio.get_running_loop().time()

    assert run_virtual(main(), limit_s=60) == 20


def test_failure_ends_the_actor_and_is_raised() -> None:
    """An exception of a handler reaches `on_failure` and then whoever awaits `run`."""

    async def main() -> None:
        actor = Recorder()
        actor.ref.tell("fail")
        actor.ref.tell("never")
        with pytest.raises(ValueError, match="fail"):
            await actor.run()
        assert actor.seen == ["start", "fail", "failure: fail"]
        assert not actor.ref.tell("late")

    run_virtual(main(), limit_s=1)


def test_cancelled_actor_runs_no_handler() -> None:
    """Cancelling stands for a killed process: neither `on_stop` nor `on_failure` runs."""

    async def main() -> None:
        actor = Recorder()
        async with Scope() as scope:
            scope.spawn(actor.run(), "recorder")
            actor.ref.tell("slow")
            await asyncio.sleep(1)
        assert actor.seen == ["start", "slow"]

    run_virtual(main(), limit_s=60)


def test_ask_returns_what_the_handler_returns() -> None:
    """The answer to a question is the handler's result."""

    async def main() -> None:
        actor = Recorder()
        async with Scope() as scope:
            scope.spawn(actor.run(), "recorder")
            assert await actor.ref.ask("hello", timeout_s=1) == "HELLO"

    run_virtual(main(), limit_s=60)


def test_ask_ends_after_its_timeout() -> None:
    """Nobody waits longer than he said, and the actor goes on."""

    async def main() -> None:
        actor = Recorder()
        async with Scope() as scope:
            scope.spawn(actor.run(), "recorder")
            with pytest.raises(AskTimedOut, match=r"recorder.*2 s"):
                await actor.ref.ask("slow", timeout_s=2)
            assert asyncio.get_running_loop().time() == 2
            assert await actor.ref.ask("next", timeout_s=20) == "NEXT"

    run_virtual(main(), limit_s=60)


@pytest.mark.parametrize("ending", ["fail", "stop", "cancel"])
def test_every_ending_answers_who_asked(ending: str) -> None:
    """Whoever asked an actor that ends learns so at once, however it ends."""

    async def main() -> None:
        actor = Recorder()
        async with Scope(on_failure=lambda *_: None) as scope:
            running = scope.spawn(actor.run(), "recorder")
            if ending == "stop":
                actor.ref.stop("done")
            elif ending == "fail":
                actor.ref.tell("fail")
            else:
                actor.ref.tell("slow")
                asyncio.get_running_loop().call_later(1, running.cancel)
            with pytest.raises(ActorStopped):
                await actor.ref.ask("hello", timeout_s=100)
            assert asyncio.get_running_loop().time() <= 1

    run_virtual(main(), limit_s=60)


def test_failed_question_names_its_cause() -> None:
    """The exception for the one who asked carries the handler's exception."""

    async def main() -> None:
        actor = Recorder()
        async with Scope(on_failure=lambda *_: None) as scope:
            scope.spawn(actor.run(), "recorder")
            with pytest.raises(ActorStopped) as caught:
                await actor.ref.ask("fail", timeout_s=1)
            assert isinstance(caught.value.__cause__, ValueError)

    run_virtual(main(), limit_s=60)


def test_full_mailbox_refuses_questions() -> None:
    """A question that finds no room fails at once."""

    async def main() -> None:
        actor = Recorder(capacity=1)
        assert actor.ref.tell("a")
        with pytest.raises(ActorStopped, match="full"):
            await actor.ref.ask("b", timeout_s=1)

    run_virtual(main(), limit_s=60)


def test_actor_runs_once() -> None:
    """A second run is refused: a restarted actor is a new one."""

    async def main() -> None:
        actor = Recorder()
        actor.ref.stop("done")
        await actor.run()
        with pytest.raises(LocalFault, match="new one"):
            await actor.run()

    run_virtual(main(), limit_s=1)


def test_tell_later_can_be_cancelled() -> None:
    """A message for later comes at its time, and not at all once its handle is cancelled."""

    async def main() -> None:
        actor = Recorder()
        async with Scope() as scope:
            scope.spawn(actor.run(), "recorder")
            actor.ref.tell_later(2, "second")
            actor.ref.tell_later(1, "first")
            actor.ref.tell_later(1.5, "never").cancel()
            await asyncio.sleep(3)
        assert actor.seen == ["start", "first", "second"]

    run_virtual(main(), limit_s=60)


async def test_threads_can_tell() -> None:
    """A message from another thread is handled on the loop's thread."""
    actor = Recorder()
    with pytest.raises(LocalFault, match="does not run yet"):
        actor.ref.tell_threadsafe("early")
    running = asyncio.create_task(actor.run())
    await asyncio.sleep(0)
    thread = threading.Thread(target=actor.ref.tell_threadsafe, args=("hello",))
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    await actor.ref.ask("after", timeout_s=5)
    actor.ref.stop("done")
    await running
    assert actor.seen == ["start", "hello", "after", "stop: done"]


def test_telling_an_ended_loop_is_harmless() -> None:
    """A thread that outlives the loop is told that nobody listens."""
    actor = Recorder()
    actor.ref.stop("done")
    asyncio.run(actor.run())
    assert not actor.ref.tell_threadsafe("hello")


def test_recording_actor_keeps_what_it_is_told() -> None:
    """The double keeps messages in order, lets one wait for them, and answers with their number."""

    async def main() -> None:
        actor: RecordingActor[str] = RecordingActor()
        async with Scope() as scope:
            running = scope.spawn(actor.run(), "recorder")
            actor.ref.tell_later(5, "b")
            assert await actor.ref.ask("a", timeout_s=1) == 1
            assert await actor.wait_messages(2, timeout_s=10) == ["a", "b"]
            assert await actor.wait_messages(1, timeout_s=10) == ["a"]
            with pytest.raises(TimeoutError):
                await actor.wait_messages(3, timeout_s=10)
            actor.ref.stop("done")
            await running
        assert actor.stop_reason == "done"

    run_virtual(main(), limit_s=60)
