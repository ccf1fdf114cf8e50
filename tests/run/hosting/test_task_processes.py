"""Actors as processes: started, killed without a word, and seen to end."""

import asyncio
from typing import TypeVar

import pytest

from islands.actors.ports import ProcessEnd
from islands.run.hosting.task_processes import Process, ProcessTable
from tests.virtual import virtual

T = TypeVar("T")


class Worker:
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name
        self.stubborn = False
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        self.log.append(f"{self.name} runs")
        try:
            await self.end
        except asyncio.CancelledError:
            self.log.append(f"{self.name} cancelled")
            raise

    def leave(self, reason: str) -> None:
        self.log.append(f"{self.name} leaves")
        if not self.stubborn:
            self.end.set_result(None)

    async def kill(self) -> None:
        self.log.append(f"{self.name} killed")


class Room:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.workers: dict[str, Worker] = {}
        self.table = ProcessTable(self.make, self.ended)

    def make(self, name: str) -> Process:
        self.workers[name] = Worker(self.log, name)
        return self.workers[name]

    async def wait_ended(self) -> None:
        await asyncio.sleep(10.0)
        assert self.table.names() == []

    def ended(self, name: str, end: ProcessEnd) -> None:
        self.log.append(f"{name} ended: {end.told or None}")


@pytest.fixture
def room() -> Room:
    return Room()


@virtual
async def test_a_process_that_ends_is_told_and_forgotten(room: Room) -> None:
    room.table.start("a")
    assert "a" in room.table
    room.workers["a"].end.set_result(None)
    await room.wait_ended()
    assert room.log == ["a runs", "a ended: None"]
    assert room.table.names() == []
    assert room.table.get("a") is None
    assert room.table.last("a") is room.workers["a"]


@virtual
async def test_an_error_is_told_and_raised_nowhere_else(room: Room) -> None:
    room.table.start("a")
    room.table.start("b")
    room.workers["a"].end.set_exception(ValueError("broken"))
    asyncio.get_running_loop().call_later(1.0, room.workers["b"].end.set_result, None)
    await room.wait_ended()
    assert room.log == ["a runs", "b runs", "a ended: ValueError: broken", "b ended: None"]


@virtual
async def test_who_is_asked_to_end_is_killed_if_it_does_not(room: Room) -> None:
    for name in ("a", "b"):
        room.table.start(name)
        room.workers[name].stubborn = name == "b"
        room.table.stop(name, 5.0)
    room.table.stop("c", 5.0)
    await asyncio.sleep(1.0)
    room.table.start("a")
    await asyncio.sleep(9.0)
    assert room.table.names() == ["a"]
    assert "b ended: killed by SIGKILL" in room.log
    assert room.log.count("a ended: None") == 1


@virtual
async def test_a_start_is_one_start(room: Room) -> None:
    room.table.start("a")
    room.table.start("a")
    await asyncio.sleep(0.1)
    assert room.log == ["a runs"]


@virtual
async def test_a_kill_takes_everything_and_calls_no_handler(room: Room) -> None:
    room.table.start("a")
    await asyncio.sleep(1)
    await room.table.killed("a")
    await room.table.killed("a")
    await asyncio.sleep(1)
    assert room.log == ["a runs", "a killed", "a ended: killed by SIGKILL", "a cancelled"]
    assert room.table.names() == []


@virtual
async def test_a_killed_process_can_be_started_again(room: Room) -> None:
    room.table.start("a")
    first = room.workers["a"]
    room.table.kill("a")
    room.table.start("a")
    await asyncio.sleep(2)
    second = room.table.get("a")
    assert second is room.workers["a"]
    assert second is not first
    room.workers["a"].end.set_result(None)
    await room.wait_ended()
    assert room.log[-2:] == ["a runs", "a ended: None"]


@virtual
async def test_closing_waits_for_kills_under_way(room: Room) -> None:
    """After `close` nothing of a process is left, also not of one that was being killed."""
    room.table.start("a")
    room.table.kill("a")
    assert "a" not in room.table
    room.table.close()
    await room.table.wait_freed()
    assert room.log == ["a killed", "a ended: killed by SIGKILL"]


@virtual
async def test_closing_kills_in_the_order_of_start_and_starts_nothing_more(room: Room) -> None:
    for name in ("v", "s", "l"):
        room.table.start(name)
    await asyncio.sleep(0.5)
    room.table.close()
    await room.table.wait_freed()
    room.table.start("late")
    await asyncio.sleep(5)
    ends = [entry for entry in room.log if "ended" in entry]
    assert ends == [f"{name} ended: killed by SIGKILL" for name in "vsl"]
    assert "late runs" not in room.log
