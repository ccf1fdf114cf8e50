"""A training loop of the user's own that runs as several processes of one program of JAX."""

import re
import signal
import sys
from pathlib import Path

import pytest

from islands.lab.faults.proxy import free_port
from tests.compiling import QUICKLY_COMPILED
from tests.integration.programs import (
    Program,
    Room,
    control,
    entries,
    imbalance,
    incarnations,
    open_room,
    summary_of,
)
from tests.integration.test_own_loops import hub_of, loss_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROWS = 16
LONG = 10**6 * ROWS  # tokens: no loop spends so many
HOSTS, DEVICES = 2, 2
THREADS = 8  # of XLA: a collective takes one for each device, and a boundary's may run beside it
ENDS_S = 15.0  # the time that a process has once another one is lost

BEGIN = """
import jax
jax.distributed.initialize("127.0.0.1:{port}", {hosts}, {rank})
import examples.loops.several_processes as loop
{more}
loop.main({address!r}, {name!r}, "127.0.0.1:{island}")
"""

RAISES_AT_THE_SIXTIETH_STEP = """
step, taken = loop.train_step, iter(range(60))
def train_step(*arguments):
    if next(taken, None) is None:
        raise ValueError("my own mistake")
    return step(*arguments)
loop.train_step = train_step
"""


def loops(
    room: Room, address: str, name: str, *, hosts: int = HOSTS, more: str = ""
) -> list[Program]:
    """Start the processes of a loop; the last one does something else first."""
    place = {"port": free_port(), "island": free_port(), "hosts": hosts}
    environment = {
        "JAX_NUM_CPU_DEVICES": str(DEVICES),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        **QUICKLY_COMPILED,
        "JAX_NUMPY_DTYPE_PROMOTION": "standard",  # as users have it
        "PJRT_NPROC": str(THREADS),
    }
    codes = [
        BEGIN.format(
            **place, rank=rank, address=address, name=name, more=more if rank == hosts - 1 else ""
        )
        for rank in range(hosts)
    ]
    words = [(sys.executable, "-c", code) for code in codes]
    return [room.start_words(each, environment=environment) for each in words]


def steps_taken(program: Program) -> int:
    """How many steps a process says it took."""
    found = re.search(r"^(\d+) steps, loss \d", program.out, re.MULTILINE)
    assert found is not None, str(program)
    return int(found[1])


async def merged(room: Room, name: str) -> None:
    """Wait until work of a learner was merged."""
    tape = room.folder / "run" / "tape.jsonl"

    def mine() -> bool:
        return any(str(row["ticket"]).startswith(f"{name}/") for row in entries(tape, "fate"))

    await room.wait(mine, 120)


async def test_processes_of_one_loop_spend_a_budget_as_one_learner(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        budget = 120 * ROWS
        hub, address = await hub_of(room, "functional", budget)
        both = loops(room, address, "ana")
        for each in (*both, hub):
            assert await room.ended(each, 200) == 0, str(each)
        summary = summary_of(tmp_path / "run") or {}
        assert summary["tokens"] == budget
        assert imbalance(summary) == 0
        assert incarnations(summary) == {"ana": 1}
        taken = {steps_taken(each) for each in both}
        assert len(taken) == 1, "all see the end at the same boundary"
        assert taken.pop() - budget // ROWS in (0, 1)
        assert len({loss_of(each) for each in both}) == 1, "they took one step, on rows of both"


@pytest.mark.long("tests/island/test_ends.py::test_an_island_that_is_asked_to_end_has_no_failure")
async def test_a_process_that_is_asked_to_end_takes_the_others_with_it_in_order(
    tmp_path: Path,
) -> None:
    async with open_room(tmp_path) as room:
        hub, address = await hub_of(room, "functional", LONG)
        both = loops(room, address, "ana")
        await merged(room, "ana")
        both[1].process.send_signal(signal.SIGTERM)
        for each in both:
            assert await room.ended(each) == 0, str(each)
            assert re.search(r"^\d+ steps, loss .*SIGTERM", each.out, re.MULTILINE), str(each)
        assert len({steps_taken(each) for each in both}) == 1
        await control(room, "stop")
        assert await room.ended(hub) == 0, str(hub)
        summary = summary_of(tmp_path / "run") or {}
        assert imbalance(summary) == 0
        assert incarnations(summary) == {"ana": 1}


@pytest.mark.long("tests/island/test_ends.py::test_a_process_that_fails_is_the_failure_of_its_host")
async def test_a_process_that_is_lost_or_fails_ends_the_others(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        _, address = await hub_of(room, "functional", LONG)
        first, second = loops(room, address, "lost")
        await merged(room, "lost")
        second.process.kill()
        assert await room.ended(first, ENDS_S) != 0, str(first)
        assert re.search(r"lost, process 0: it ends: rank 1 \(.*\) was lost", first.err), first.err
        first, second = loops(room, address, "failed", more=RAISES_AT_THE_SIXTIETH_STEP)
        await room.wait(lambda: "ValueError: my own mistake" in second.err, 120)
        assert await room.ended(first, ENDS_S) != 0, str(first)
        assert await room.ended(second, ENDS_S) != 0, str(second)
        assert re.search(r"it ends: rank 1 \(.*\): my own mistake", first.err), first.err
