"""A chaos run leaves nothing behind, however whoever injects the faults is ended."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from islands.cli.lab import stoppable
from islands.lab.faults.__main__ import call_at_end
from islands.lab.faults.fleet import Fleet, HubSettings
from islands.lab.faults.verdict import Played
from islands.protocol.errors import IslandsError
from islands.settings.run_spec import RunSpec


def test_a_hub_hears_that_whoever_started_it_is_gone() -> None:
    reading, writing = os.pipe()
    called = threading.Event()
    waiting = call_at_end(reading, called.set)
    os.write(writing, b"still here")
    assert not called.is_set()
    os.close(writing)
    waiting.join(10.0)
    assert called.is_set()
    os.close(reading)


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

    async def playing() -> Played:
        begun.set()
        try:
            await asyncio.Event().wait()
            return Played((), None, (), (), ())
        finally:
            ended.append(True)

    running = asyncio.create_task(stoppable(playing()))
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(IslandsError, match="SIGTERM ended the scenario"):
        await running
    assert ended == [True]
