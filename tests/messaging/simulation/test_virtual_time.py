"""The virtual clock: it jumps, keeps one order, and raises what others would log."""

import asyncio
import gc
import threading

import pytest

from messaging.clock import LoopClock
from messaging.errors import LocalFault, VirtualDeadlock, VirtualLivelock, VirtualTimeLimit
from messaging.simulation import virtual_time
from messaging.simulation.virtual_time import PROCESS, VirtualTimeLoop, run_virtual
from tests.virtual import virtual


def test_a_year_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * 86400)
        return asyncio.get_running_loop().time()

    assert run_virtual(main(), limit_s=1e9) == 365 * 86400


def test_equal_times_run_in_the_order_of_their_making() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        for number in range(100):
            loop.call_later(1.0, seen.append, number)
        loop.call_at(0.5, seen.append, -1)
        await asyncio.sleep(2)
        return seen

    assert run_virtual(main(), limit_s=10) == list(range(-1, 100))


def test_cancelled_timers_do_not_run_or_pile_up() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        for _ in range(20_000):
            loop.call_later(1000, pytest.fail, "a cancelled timer ran").cancel()
        await asyncio.sleep(1)
        assert loop.time() == 1
        return loop.pending_timers

    assert run_virtual(main(), limit_s=2000) < 2000


def test_waiting_for_each_other_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.create_task(asyncio.Event().wait(), name="the-waiter")

    with pytest.raises(VirtualDeadlock, match="the-waiter"):
        run_virtual(main(), limit_s=10)


def test_endless_callbacks_are_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "MAX_EVENTS_PER_INSTANT", 1000)

    async def main() -> None:
        def again() -> None:
            asyncio.get_running_loop().call_soon(again)

        again()
        await asyncio.sleep(5)

    with pytest.raises(VirtualLivelock):
        run_virtual(main(), limit_s=10)


def test_limit_of_virtual_seconds() -> None:
    """A run that would take longer than its limit is given up, and its tasks are ended."""
    ended: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(11)
        finally:
            ended.append("main")

    with pytest.raises(VirtualTimeLimit, match="10 s"):
        run_virtual(main(), limit_s=10)
    assert ended == ["main"]


def test_exception_in_a_callback_ends_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, int, "no number")
        await asyncio.sleep(5)

    with pytest.raises(ValueError, match="no number"):
        run_virtual(main(), limit_s=10)


def test_failure_of_a_forgotten_task_is_raised() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("forgotten")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(2)
        del task
        gc.collect()

    with pytest.raises(KeyError, match="forgotten"):
        run_virtual(main(), limit_s=10)


def test_left_over_tasks_end_newest_first() -> None:
    """What still runs when `main` returns is cancelled in the reverse order of its making."""
    ended: list[int] = []

    async def stay(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            ended.append(number)

    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        tasks.extend(asyncio.create_task(stay(number)) for number in range(10))
        await asyncio.sleep(1)

    run_virtual(main(), limit_s=1000)
    assert ended == list(reversed(range(10)))


def test_threads_are_refused() -> None:
    refusals: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(LocalFault, match="inline"):
            await loop.run_in_executor(None, int)

        def post() -> None:
            try:
                loop.call_soon_threadsafe(int)
            except LocalFault as fault:
                refusals.append(str(fault))

        thread = threading.Thread(target=post)
        thread.start()
        thread.join()

    run_virtual(main(), limit_s=10)
    assert len(refusals) == 1


def test_a_frozen_process_does_nothing_until_it_is_thawed() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        seen: list[tuple[str, float]] = []

        async def tick(name: str) -> None:
            for _ in range(4):
                await asyncio.sleep(1)
                seen.append((name, loop.time()))

        tasks: list[asyncio.Task[None]] = []
        for name in ("one", "other"):
            token = PROCESS.set(name)
            tasks.append(loop.create_task(tick(name)))
            PROCESS.reset(token)
        await asyncio.sleep(1.5)
        loop.freeze("one")
        await asyncio.sleep(2)
        loop.thaw("one")
        await asyncio.sleep(10)
        return seen

    seen = run_virtual(main(), limit_s=20)
    assert [at_s for name, at_s in seen if name == "one"] == [1, 3.5, 4.5, 5.5]
    assert [at_s for name, at_s in seen if name == "other"] == [1, 2, 3, 4]


def test_a_thawed_process_runs_its_overdue_timers_first() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        seen: list[str] = []
        told = asyncio.Event()

        async def hear() -> None:
            loop.call_later(2, seen.append, "overdue")
            await told.wait()
            seen.append("told")

        token = PROCESS.set("one")
        task = loop.create_task(hear())
        PROCESS.reset(token)
        await asyncio.sleep(0)
        loop.freeze("one")
        await asyncio.sleep(1)
        told.set()
        await asyncio.sleep(5)
        assert not seen
        loop.thaw("one")
        await task
        await asyncio.sleep(0.1)
        return seen

    assert run_virtual(main(), limit_s=20) == ["overdue", "told"]


@virtual
async def test_loop_clock_follows_the_virtual_loop() -> None:
    await asyncio.sleep(100)
    assert LoopClock().now_s() == 100
