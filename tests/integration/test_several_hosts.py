"""Islands of several hosts, each host as the processes that its command starts."""

import os
import re
import signal
from pathlib import Path

import msgspec
import pytest

from islands.island.health import SILENT_TICKS
from islands.island.host_watchdog import ASKED_TO_END
from islands.lab.faults.proxy import free_port
from islands.protocol.errors import OF_NO_USE
from islands.run.hosting.process_identity import facts
from tests.compiling import QUICKLY_COMPILED
from tests.integration.programs import (
    Program,
    Room,
    control,
    entries,
    hub_address,
    imbalance,
    incarnations,
    open_room,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LONG = 10**9  # tokens: no test spends so many


async def hub_of(room: Room, budget: int, **more: object) -> tuple[Program, str]:
    """Start the hub of a run; its address."""
    config = write_config(room.folder / "run.yaml", run={"budget_tokens": budget}, **more)
    hub = room.start("islands.syncer", "--config", config, "--folder", "run")
    address = await room.wait(lambda: hub_address(room.folder / "run"))
    assert address is not None
    return hub, address


def island(
    room: Room, address: str, name: str, hosts: int, *more: object, devices: int = 1
) -> list[Program]:
    place = f"127.0.0.1:{free_port()}"
    common = ("--supervisor", address, "--name", name, "--folder", name, *more)
    several = ("--hosts", hosts, "--island_address", place)
    environment = {
        "JAX_NUM_CPU_DEVICES": str(devices),
        **QUICKLY_COMPILED,
        "PJRT_NPROC": "1",
    }
    return [
        room.start(
            "islands.learner",
            *common,
            *((*several, "--rank", rank) if hosts > 1 else ()),
            environment=environment,
        )
        for rank in range(hosts)
    ]


def process_of(program: Program) -> int | None:
    """The pid of a host's process, which its watchdog has started."""
    for place in Path("/proc").iterdir():
        found = facts(int(place.name)) if place.name.isdecimal() else None
        if found is not None and found.parent == program.pid:
            return int(place.name)
    return None


def applied(folder: Path, name: str) -> set[str]:
    """The incarnations of a learner whose work was merged."""
    tickets = [str(row["ticket"]) for row in entries(folder / "run" / "tape.jsonl", "fate")]
    mine = [ticket for ticket in tickets if ticket.startswith(f"{name}/")]
    return {ticket.partition("@")[0] for ticket in mine}


def phase(folder: Path, name: str) -> object:
    """The phase that a learner's own tape told last."""
    told = entries(folder / name / "processes" / name / "tape.jsonl", "progress")
    return told[-1]["phase"] if told else None


async def merges_as(room: Room, name: str, incarnations_: int) -> None:
    """Wait until so many incarnations of a learner have had work merged."""
    await room.wait(lambda: len(applied(room.folder, name)) >= incarnations_)


@pytest.mark.long(
    "tests/integration/test_own_loops_on_hosts.py::test_processes_of_one_loop_spend_a_budget_as_one_learner"
)
async def test_islands_of_one_two_and_four_hosts_spend_a_budget_together(tmp_path: Path) -> None:
    """Every token is counted once, whichever number of hosts took the step.

    The run is paused until all are there: one host alone would spend the budget before four began.
    """
    async with open_room(tmp_path) as room:
        budget = 100 * 32 * 3
        hub, address = await hub_of(room, budget, task="examples.digits:Digits", task_settings={})
        await control(room, "pause")
        sizes = {"one": 1, "two": 2, "four": 4}
        programs = [
            program
            for name, hosts in sizes.items()
            for program in island(room, address, name, hosts, "--tasks", "examples.digits")
        ]
        await room.wait(lambda: all(phase(room.folder, name) == "paused" for name in sizes), 120)
        await control(room, "resume")
        for program in (*programs, hub):
            assert await room.ended(program, 200) == 0, str(program)
        summary = summary_of(tmp_path / "run") or {}
        spent = msgspec.convert(summary["tokens"], int)
        assert budget - 3 * 32 < spent <= budget, "each may leave less than a batch"
        assert imbalance(summary) == 0
        assert incarnations(summary) == dict.fromkeys(sizes, 1)
        assert all(applied(room.folder, name) for name in sizes)


class Pair:
    """An island of two hosts whose devices sleep, beside a learner on one host."""

    def __init__(self, room: Room, address: str) -> None:
        self.room = room
        self.alone = island(room, address, "alone", 1)[0]
        self.hosts = island(room, address, "pair", 2)

    async def end_process(self, rank: int, number: signal.Signals) -> None:
        pid = await self.room.wait(lambda: process_of(self.hosts[rank]))
        assert pid is not None
        os.kill(pid, number)


@pytest.mark.long(
    "tests/island/test_ends.py::test_a_process_that_is_lost_is_no_failure_of_the_others"
)
async def test_whatever_ends_one_host_ends_the_island_which_starts_again_as_one(
    tmp_path: Path,
) -> None:
    async with open_room(tmp_path) as room:
        hub, address = await hub_of(room, LONG)
        pair = Pair(room, address)
        leader, follower = pair.hosts
        await merges_as(room, "pair", 1)
        await pair.end_process(1, signal.SIGKILL)
        await merges_as(room, "pair", 2)
        assert "its process was ended by SIGKILL; the island starts again" in follower.err
        assert re.search(r"rank 1 \(.*\) was lost", leader.err)
        await pair.end_process(0, signal.SIGKILL)
        await merges_as(room, "pair", 3)
        assert "the link to rank 0 was lost" in follower.err
        await pair.end_process(1, signal.SIGSTOP)
        await merges_as(room, "pair", 4)
        assert f"has been silent for {SILENT_TICKS} s" in leader.err
        assert "so it is killed" in follower.err
        follower.process.terminate()
        assert await room.ended(follower) == ASKED_TO_END, str(follower)
        await room.wait(lambda: "was asked to end: SIGTERM" in leader.err)
        await room.wait(lambda: leader.err.count("waits for 1 more") == 5)  # for its return
        leader.process.terminate()
        await control(room, "stop")
        assert await room.ended(leader) == ASKED_TO_END, str(leader)
        for program in (pair.alone, hub):
            assert await room.ended(program) == 0, str(program)
        summary = summary_of(tmp_path / "run") or {}
        assert imbalance(summary) == 0
        assert incarnations(summary) == {"alone": 1, "pair": 4}


async def test_hosts_that_were_started_otherwise_are_told_why(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        _, address = await hub_of(room, LONG)
        port = free_port()
        place = ("--supervisor", address, "--name", "pair", "--island_address", f"127.0.0.1:{port}")
        first = room.start("islands.learner", *place, "--hosts", 2, "--rank", 0)
        await room.wait(lambda: "waits for 1 more" in first.err)
        wrong = {
            "was started with --hosts 3, and rank 0 with --hosts 2": ("--hosts", 3, "--rank", 2),
            "model_parallel is '2'": ("--hosts", 2, "--rank", 1, "--model_parallel", 2),
            f"127.0.0.1:{port} is in use": ("--hosts", 2, "--rank", 0),
        }
        programs = [room.start("islands.learner", *place, *each) for each in wrong.values()]
        for sentence, program in zip(wrong, programs, strict=True):
            assert await room.ended(program) == OF_NO_USE, str(program)
            assert sentence in program.err
        lost = room.start(
            *("islands.learner", "--supervisor", address, "--name", "lost", "--hosts", 2),
            *("--rank", 1, "--island_address", f"127.0.0.1:{free_port()}"),
        )
        await room.wait(lambda: "it waits for rank 0 at island_address 127.0.0.1:" in lost.err)
        for program in (first, lost):
            program.process.terminate()
            assert await room.ended(program) == ASKED_TO_END, str(program)
