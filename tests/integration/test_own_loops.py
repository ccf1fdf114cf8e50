"""Training loops of the users' own join a hub without a task: each example, as its header says."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.compiling import QUICKLY_COMPILED
from tests.integration.programs import (
    ROOT,
    Program,
    Room,
    entries,
    imbalance,
    incarnations,
    open_room,
    summary_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOGETHER = "functional"  # two loops of it share the budget
LOOPS = sorted(path.stem for path in (ROOT / "examples" / "loops").glob("*.py"))
NEEDS = {"torch_loop": "torch", "equinox_loop": "equinox"}
ROWS = 16
BUDGET = 200 * ROWS
LONG = 12_000 * ROWS  # no loop spends so much before it is killed
AS_USERS_HAVE_IT = {
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
    **QUICKLY_COMPILED,
}
PORT = re.compile(r"ws://127\.0\.0\.1:(\d+)/")


def told(name: str, command: str) -> list[str]:
    source = (ROOT / "examples" / "loops" / f"{name}.py").read_text()
    found = re.search(rf"^    {command}(.*)$", source, re.MULTILINE)
    assert found is not None, f"{name} does not tell its {command}"
    return found[1].split()


async def hub_of(
    room: Room, name: str, budget: int = BUDGET, folder: str = "run", *resume: str
) -> tuple[Program, str]:
    """Start the hub of an example, which waits for its first loop."""
    words = told(name, "python -m islands.syncer")
    hub = room.start(
        *("islands.syncer", *words),
        *("--run.budget_tokens", budget, "--run.piece_bytes_min", 4),
        *("--folder", folder, "--listen", "127.0.0.1:0", *resume),
    )
    address = await room.wait(lambda: address_in(hub.err))
    assert address is not None
    return hub, address


def address_in(said: str) -> str | None:
    found = PORT.search(said)
    return None if found is None else f"127.0.0.1:{found[1]}"


def loop(room: Room, name: str, address: str, learner: str, more: str = "") -> Program:
    code = f"from examples.loops.{name} import main; main({address!r}, {learner!r}, {more})"
    return room.start_words((sys.executable, "-c", code), environment=AS_USERS_HAVE_IT)


def steps_of(program: Program) -> int:
    """How many steps a loop says it took."""
    found = re.search(r"^(\d+) steps, loss \d+\.\d+; its budget", program.out, re.MULTILINE)
    assert found is not None, str(program)
    return int(found[1])


def steps_counted(summary: Mapping[str, object]) -> dict[str, int]:
    rows = msgspec.convert(summary["learners"], dict[str, dict[str, float]])
    return {name: int(row["steps"]) for name, row in rows.items()}


def require(name: str) -> None:
    """Skip an example whose framework is not installed."""
    needed = NEEDS.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")


@pytest.mark.quick("functional")
@pytest.mark.parametrize("name", LOOPS)
async def test_loops_of_an_example_spend_a_budget(name: str, tmp_path: Path) -> None:
    require(name)
    learners = ("ana", "ben") if name == TOGETHER else ("ana",)
    async with open_room(tmp_path) as room:
        hub, address = await hub_of(room, name)
        loops = [loop(room, name, address, learner) for learner in learners]
        for each in (*loops, hub):
            assert await room.ended(each) == 0, str(each)
        summary = summary_of(tmp_path / "run") or {}
        assert summary["tokens"] == BUDGET
        assert imbalance(summary) == 0
        counted = steps_counted(summary)
        assert sum(counted.values()) == BUDGET // ROWS
        for who, program in zip(learners, loops, strict=True):
            beyond = steps_of(program) - counted[who]
            assert beyond in (0, 1), "a loop takes at most one step after the run is over"


@pytest.mark.long("test_loops_of_an_example_spend_a_budget")
async def test_loops_of_jax_and_of_pytorch_train_one_model(tmp_path: Path) -> None:
    require("torch_loop")
    async with open_room(tmp_path) as room:
        hub, address = await hub_of(room, "linen_loop", budget=LONG)
        kinds = {"jax": ("linen_loop", ""), "torch": ("torch_loop", "beside_jax=True")}
        for who, (name, more) in kinds.items():
            first = loop(room, name, address, who, more)
            await room.wait(partial(stepped, tmp_path / "run", who))
            first.process.kill()
            assert await room.ended(first) != 0
        again = [loop(room, name, address, who, more) for who, (name, more) in kinds.items()]
        for each in (*again, hub):
            assert await room.ended(each) == 0, str(each)
        summary = summary_of(tmp_path / "run") or {}
        assert summary["tokens"] == LONG
        assert imbalance(summary) == 0
        assert incarnations(summary) == {"jax": 2, "torch": 2}
        assert all(loss_of(each) < 0.4 for each in again), "it begins at 0.6"


@pytest.mark.long("test_loops_of_an_example_spend_a_budget")
@pytest.mark.parametrize("name", [TOGETHER, "torch_loop"])
async def test_other_numbers_of_loops_go_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    require(name)
    more, before = LONG // 6, ""
    async with open_room(tmp_path) as room:
        for index, count in enumerate((2, 4, 1)):
            budget, folder = (index + 1) * more, f"of-{count}"
            resume = ("--resume", before) if before else ()
            hub, address = await hub_of(room, name, budget, folder, *resume)
            learners = [f"loop-{number}" for number in range(count)]
            loops = [loop(room, name, address, learner) for learner in learners]
            for each in (*loops, hub):
                assert await room.ended(each) == 0, str(each)
            summary = summary_of(tmp_path / folder) or {}
            assert summary["tokens"] == budget
            assert imbalance(summary) == 0
            checked = await room.run("islands.cli", "verify", folder)
            assert checked.process.returncode == 0, checked
            rows = entries(tmp_path / folder / "metrics.jsonl", "merge")
            assert int(str(rows[0]["run_tokens"])) >= index * more
            assert all(loss_of(each) < 0.2 for each in loops), "it begins at 0.6 and more"
            before = folder


def stepped(folder: Path, who: str) -> bool:
    """Whether the hub has heard of steps of a learner."""
    rows = entries(folder / "metrics.jsonl", "step")
    return any(row["learner"] == who for row in rows)


def loss_of(program: Program) -> float:
    found = re.search(r"steps, loss (\d+\.\d+);", program.out)
    assert found is not None, str(program)
    return float(found[1])
