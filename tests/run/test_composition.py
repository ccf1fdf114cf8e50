"""Starts that are to come after a while, on the virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from islands.run.composition import DelayedStarts
from messaging.simulation.virtual_time import run_virtual


class Starts(DelayedStarts):
    """Starts that are noted with their time."""

    def __init__(self) -> None:
        super().__init__(lambda name: self.seen.append((asyncio.get_running_loop().time(), name)))
        self.seen: list[tuple[float, str]] = []

    def times(self) -> list[float]:
        """When something was started."""
        return [at_s for at_s, _ in self.seen]


def virtually(body: Callable[[Starts], Awaitable[None]]) -> None:
    """Run a test's body on the virtual clock."""

    async def main() -> None:
        await body(Starts())

    run_virtual(main(), limit_s=10_000_000.0)


@pytest.mark.parametrize("delay_s", [0.001, 300.0, 7 * 86400.0])
def test_a_delayed_start_is_one_start(delay_s: float) -> None:
    """Starting what is about to start changes nothing; without a delay it starts at once."""

    async def body(starts: Starts) -> None:
        starts.start("a", delay_s)
        starts.start("a", 0.0)
        assert ("a" in starts, starts.seen) == (True, [])
        await asyncio.sleep(2 * delay_s)
        assert "a" not in starts
        assert starts.times() == pytest.approx([delay_s])
        starts.start("a", 0.0)
        assert len(starts.seen) == 2

    virtually(body)


@pytest.mark.parametrize("hold_first", [True, False], ids=["before", "after"])
def test_what_is_held_does_not_start_before_its_time(*, hold_first: bool) -> None:
    """A hold is stronger than a start, whichever came first, and holds only once."""

    async def body(starts: Starts) -> None:
        if hold_first:
            starts.hold("a", 3.0)
        starts.start("a", 0.1)
        if not hold_first:
            starts.hold("a", 3.0)
        await asyncio.sleep(10.0)
        assert starts.times() == pytest.approx([3.0])
        starts.start("a", 0.0)
        assert len(starts.seen) == 2

    virtually(body)


def test_the_last_hold_counts() -> None:
    """What was held for long may start after all; its own delay stays."""

    async def body(starts: Starts) -> None:
        starts.hold("a", 1000.0)
        starts.start("a", 5.0)
        starts.hold("a", 0.0)
        await asyncio.sleep(10.0)
        assert starts.times() == pytest.approx([5.0])

    virtually(body)


def test_what_is_cancelled_or_closed_does_not_start() -> None:
    """Neither what was to start, nor what is asked for afterwards."""

    async def body(starts: Starts) -> None:
        for name in ("a", "b"):
            starts.start(name, 1.0)
        starts.cancel("a")
        starts.cancel("nobody")
        assert starts.names() == ["b"]
        starts.close()
        starts.start("c", 0.0)
        await asyncio.sleep(10.0)
        assert starts.seen == []

    virtually(body)
