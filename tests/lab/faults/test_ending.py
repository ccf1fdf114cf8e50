"""A chaos run leaves nothing behind, however whoever injects the faults is ended."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from islands.cli.lab import stoppable
from islands.lab.faults.__main__ import read_orders
from islands.lab.faults.fleet import Fleet, HubSettings
from islands.protocol.errors import IslandsError
from islands.settings.run_spec import RunSpec


def test_a_hub_hears_that_whoever_started_it_is_gone() -> None:
    reading, writing = os.pipe()
    orders: list[str] = []
    with os.fdopen(reading) as stream:
        thread = read_orders(stream, orders.append, lambda: orders.append("stop"))
        os.write(writing, b"learner-1\n")
        assert "stop" not in orders
        os.close(writing)
        thread.join(10.0)
    assert orders == ["learner-1", "stop"]


class FleetOfCats(Fleet):
    """A fleet whose hub only reads its input."""

    hub_command = ["cat"]  # noqa: RUF012  the property's type


async def test_a_hub_is_started_with_a_pipe_that_ends_with_this_process(tmp_path: Path) -> None:
    async with FleetOfCats(tmp_path, HubSettings(RunSpec(), 1)) as fleet:
        hub = fleet.identity("supervisor")
        assert hub is not None
        target = os.readlink(f"/proc/{hub.pid}/fd/0")  # noqa: PTH115  no path, but a name of the kernel
        assert target.startswith("pipe:")


async def test_a_scenario_that_is_told_to_end_says_so_in_a_sentence() -> None:
    ended: list[bool] = []
    begun = asyncio.Event()

    async def playing() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
            return "played"
        finally:
            ended.append(True)

    running = asyncio.create_task(stoppable(playing()))
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(IslandsError, match="SIGTERM ended the scenario"):
        await running
    assert ended == [True]
