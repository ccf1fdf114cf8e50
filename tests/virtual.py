"""Tests that play on the virtual clock: seconds of it cost nothing, and an hour is no wait."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import ParamSpec, Protocol

from messaging.actors.scope import Scope
from messaging.simulation.virtual_time import run_virtual

P = ParamSpec("P")

LONG_S = 10_000_000.0
"""After which a test that does not come to its end has failed."""


def virtual(body: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    @wraps(body)
    def test(*arguments: P.args, **more: P.kwargs) -> None:
        async def main() -> None:
            await body(*arguments, **more)

        run_virtual(main(), limit_s=LONG_S)

    return test


class Running(Protocol):
    """An actor, as far as a test lets it run."""

    async def run(self) -> None: ...

    async def kill(self) -> None: ...


@asynccontextmanager
async def beside(actor: Running, *others: Awaitable[None]) -> AsyncIterator[Scope]:
    """Let an actor, and others, run beside a test; none of them may fail."""
    failed: list[BaseException] = []
    scope = Scope("test", lambda _, error: failed.append(error))
    for other in others:
        scope.spawn(_awaited(other), "other")
    scope.spawn(actor.run(), "actor")
    yield scope
    await actor.kill()
    await scope.close()
    assert not failed


async def _awaited(other: Awaitable[None]) -> None:
    await other
