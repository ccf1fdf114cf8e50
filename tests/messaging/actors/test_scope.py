"""Scopes: tasks end in the reverse order of their start, and failures are told."""

import asyncio

import pytest

from messaging.actors.scope import Scope
from messaging.errors import LocalFault
from messaging.simulation.virtual_time import run_virtual
from tests.virtual import virtual


async def _sleep_forever(name: str, ended: list[str], farewell_s: float = 0.0) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await asyncio.sleep(farewell_s)
        ended.append(name)


async def _fail(delay_s: float, error: Exception) -> None:
    await asyncio.sleep(delay_s)
    raise error


@virtual
async def test_tasks_end_in_reverse_order_each_before_the_next() -> None:
    ended: list[str] = []
    scope = Scope()
    for number in range(20):
        scope.spawn(_sleep_forever(f"{number:02}", ended, number), f"{number}")
    await asyncio.sleep(1)
    await scope.close()
    assert ended == [f"{number:02}" for number in reversed(range(20))]


@virtual
async def test_first_failure_is_raised_at_the_close() -> None:
    """Without somebody to report to, the first failure is what `close` raises."""
    scope = Scope()
    scope.spawn(_fail(2, KeyError("late")), "late")
    scope.spawn(_fail(1, ValueError("early")), "early")
    await asyncio.sleep(3)
    with pytest.raises(ValueError, match="early"):
        await scope.close()


def test_failures_are_reported_as_they_happen() -> None:
    reports: list[tuple[str, str]] = []

    async def main() -> None:
        async with Scope("host", lambda name, error: reports.append((name, str(error)))) as scope:
            scope.spawn(_fail(2, ValueError("b")), "second")
            scope.spawn(_fail(1, ValueError("a")), "first")
            await asyncio.sleep(3)

    run_virtual(main(), limit_s=10)
    assert reports == [("host/first", "a"), ("host/second", "b")]


def test_error_of_the_body_wins() -> None:
    async def main() -> None:
        async with Scope() as scope:
            scope.spawn(_fail(1, ValueError("task")), "task")
            await asyncio.sleep(2)
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        run_virtual(main(), limit_s=10)


@virtual
async def test_closed_scope_starts_nothing() -> None:
    scope = Scope("host")
    await scope.close()
    with pytest.raises(LocalFault, match="host"):
        scope.spawn(asyncio.sleep(1), "late")


def test_cancelling_the_owner_still_ends_every_task() -> None:
    async def main() -> list[str]:
        ended: list[str] = []
        scope = Scope()
        scope.spawn(_sleep_forever("a", ended), "a")
        scope.spawn(_sleep_forever("b", ended, 5), "b")
        await asyncio.sleep(1)
        owner = asyncio.create_task(scope.close())
        asyncio.get_running_loop().call_later(1, owner.cancel)
        with pytest.raises(asyncio.CancelledError):
            await owner
        return ended

    assert "a" in run_virtual(main(), limit_s=100)


@virtual
async def test_a_task_may_close_its_own_scope() -> None:
    ended: list[str] = []
    scope = Scope()
    scope.spawn(_sleep_forever("other", ended), "other")
    closer = scope.spawn(scope.close(), "closer")
    await closer
    assert ended == ["other"]
