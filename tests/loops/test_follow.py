"""A run that is followed: the newest values alone, to the last ones, on any thread and any loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

import islands
from islands.lab.toys.toy import NumpyTrainer
from islands.loops.follow import FollowedRun, Held, Newest
from islands.model.evaluation import Judged
from islands.protocol.errors import RefusedError, SettingsError, UnreachableError
from islands.protocol.identities import Version
from islands.settings.groups import ConnectOptions

LAYOUT = NumpyTrainer(2).layout
LIMIT_S = 60.0
Publish = Callable[[Held], object]


def held(number: int) -> Held:
    """What a run of two fragments has published after so many merges of each."""
    values = [np.full(each.size, number, np.float32) for each in LAYOUT.fragments]
    return Held(LAYOUT, values, Judged(float(number), 8 * number, 0.0, (Version(1, number),) * 2))


class Run:
    """A run that publishes when a test says so, on the thread of who follows it."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self._began = threading.Event()
        self._over: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._publish: Publish

    async def __call__(self, publish: Publish) -> None:
        self._loop, self._publish, self._over = asyncio.get_running_loop(), publish, asyncio.Event()
        self._began.set()
        if self._error is None:
            await self._over.wait()
        else:
            raise self._error

    def publish(self, newest: Held) -> None:
        """Return once it is published."""
        assert self._began.wait(LIMIT_S)

        async def publish() -> None:
            self._publish(newest)

        asyncio.run_coroutine_threadsafe(publish(), self._loop).result(LIMIT_S)

    def end(self) -> None:
        assert self._began.wait(LIMIT_S)
        self._loop.call_soon_threadsafe(self._over.set)


def numbers(newest: Newest) -> set[float]:
    return {float(x) for array in newest.values.values() for x in np.ravel(array)}


def test_who_does_not_keep_up_gets_the_newest_values() -> None:
    run = Run()
    followed = FollowedRun(run)
    run.publish(held(0))
    assert next(followed).versions == ("1.0", "1.0")
    for number in range(1, 6):
        run.publish(held(number))
    newest = next(followed)
    assert (newest.versions, newest.tokens, newest.clock) == (("1.5", "1.5"), 40, 5.0)
    assert numbers(newest) == {5.0}
    assert sorted(newest.values) == sorted(leaf.path for leaf in LAYOUT.leaves)
    followed.close()


def test_the_last_values_come_before_the_end() -> None:
    run = Run()
    followed = FollowedRun(run)
    run.publish(held(1))
    run.end()
    assert [newest.tokens for newest in followed] == [8]
    assert list(followed) == []


def test_what_is_given_is_nobody_elses() -> None:
    """It may be changed in place: what is published next begins from the published values."""
    run = Run()
    with FollowedRun(run) as followed:
        first = held(1)
        run.publish(first)
        for array in next(followed).values.values():
            array[...] = np.nan
        run.publish(replace(first))  # its arrays are those of the first
        assert numbers(next(followed)) == {1.0}


def test_who_waits_is_woken() -> None:
    run, found = Run(), list[int]()
    with FollowedRun(run) as followed:
        waiting = threading.Thread(target=lambda: found.append(next(followed).tokens))
        waiting.start()
        run.publish(held(3))
        waiting.join(LIMIT_S)
    assert found == [24]


def test_an_error_is_raised_by_the_iteration() -> None:
    followed = FollowedRun(Run(RefusedError("another layout")))
    for _ in range(2):
        with pytest.raises(RefusedError, match="another layout"):
            next(followed)


def test_what_had_arrived_is_given_before_the_error() -> None:
    class Broken(Run):
        async def __call__(self, publish: Publish) -> None:
            publish(held(2))
            raise UnreachableError("gone")

    followed = FollowedRun(Broken())
    assert next(followed).tokens == 16
    with pytest.raises(UnreachableError, match="gone"):
        next(followed)


def test_who_closes_it_follows_no_longer() -> None:
    run = Run()
    with FollowedRun(run) as followed:
        run.publish(held(1))
    assert [newest.tokens for newest in followed] == [8]
    followed.close()


# --- on a loop ------------------------------------------------------------------------------------


@asynccontextmanager
async def following(run: Run) -> AsyncIterator[FollowedRun]:
    async with asyncio.timeout(LIMIT_S), FollowedRun(run) as followed:
        yield followed


async def test_a_loop_goes_on_while_it_waits() -> None:
    run = Run()
    async with following(run) as followed:
        waiting = asyncio.create_task(anext(followed))
        await asyncio.to_thread(run.publish, held(4))
        assert (await waiting).tokens == 32
        await asyncio.to_thread(run.publish, held(5))
        run.end()
        assert [newest.tokens async for newest in followed] == [40]


async def given_up(waiting: Awaitable[Newest]) -> None:
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_wait_that_is_given_up_loses_nothing() -> None:
    """As under a timeout: neither before the values have come, nor while they are built."""
    run = Run()
    async with following(run) as followed:
        await given_up(followed.__anext__())
        await asyncio.to_thread(run.publish, held(6))
        await given_up(followed.__anext__())
        assert (await anext(followed)).tokens == 48


# --- who cannot follow ----------------------------------------------------------------------------


def test_a_wrong_argument_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="address"):
        islands.follow("no address")


@pytest.mark.parametrize("fetch", [next, lambda run: asyncio.run(anext(run))])
def test_without_a_hub_the_iteration_says_so(fetch: Callable[[FollowedRun], object]) -> None:
    said: list[str] = []
    nobody = ConnectOptions(wait_s=0.0)
    followed = islands.follow("127.0.0.1:1", connecting=nobody, say=said.append)
    with pytest.raises(UnreachableError, match="no supervisor answered within 0 s"):
        fetch(followed)
    with pytest.raises(UnreachableError, match="no supervisor answered within 0 s"):
        islands.latest("127.0.0.1:1", connecting=nobody, say=said.append)
