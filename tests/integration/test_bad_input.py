"""Whoever comes to a run with something wrong is told one sentence; everybody else goes on."""

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.programs import (
    Program,
    Room,
    hub_address,
    merges,
    pids,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TASK = '''
"""A sleeping task whose corpus is a file of the folder that a process is started in."""

from dataclasses import replace
from pathlib import Path

from islands.layout.leaves import layout_of
from islands.lab.toys.toy_workload import Sleeping


class Reading(Sleeping):
    def plan(self, settings):
        plan = super().plan(settings)
        at = plan.layout
        labels = {"corpus": Path("corpus.txt").read_text().strip()}
        return replace(plan, layout=layout_of(at.leaves, at.fragments, at.pattern, labels))
'''


@dataclass(slots=True)
class Honest:
    """A run of two learners, beside which others do something wrong."""

    room: Room
    folder: Path
    address: str
    before: dict[str, int]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2].partition("/")[0])

    @property
    def token(self) -> Path:
        return self.folder / "token"

    def learner(self, *arguments: object, cwd: Path | None = None, token: bool = True) -> Program:
        """Start one more learner; what is given goes before what an honest one says."""
        told = ("--tasks", "reading_task", *(("--token_file", self.token) if token else ()))
        return self.room.start(
            "islands.learner", "--supervisor", self.address, *told, *arguments, cwd=cwd
        )

    async def goes_on(self) -> None:
        """The run merges, with the same processes as ever."""
        seen = merges(self.folder)
        await self.room.wait(lambda: merges(self.folder) > seen + 2)
        assert pids(self.folder) == self.before

    async def refuses(self, program: Program, *words: str, code: int = 2) -> None:
        """A process ends with one sentence that says this, and the run goes on."""
        assert await self.room.ended(program) == code, program
        assert "Traceback" not in program.err
        lines = [line for line in program.err.splitlines() if line.startswith("python -m ")]
        lines += [line for line in program.err.splitlines() if line.startswith("islands ")]
        assert len(lines) == 1, program.err
        for word in words:
            assert re.search(word, lines[0]), (word, lines[0])
        await self.goes_on()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Honest]:
    """One run for all tests of this file, which none of them may disturb."""
    place = tmp_path_factory.mktemp("honest")
    (place / "reading_task.py").write_text(TASK)
    (place / "corpus.txt").write_text("the plays of Shakespeare\n")
    config = write_config(
        place / "run.yaml",
        task="reading_task:Reading",
        task_settings={"step_s": 0.03, "megabytes": 0.25},
        learners=2,
    )
    room = Room(place)
    room.start("islands.cli", "run", config, "--folder", place / "run")
    try:
        yield Honest(room, place / "run", "", {})
    finally:
        room.close()


@pytest.fixture
async def run(started: Honest) -> Honest:
    await started.room.wait(lambda: merges(started.folder) > 2)
    if not started.address:
        started.address = hub_address(started.folder) or ""
        started.before = pids(started.folder)
    await started.goes_on()
    return started


def secret(folder: Path, text: str) -> Path:
    path = folder / "other-token"
    path.write_text(text)
    path.chmod(0o600)
    return path


# --- who may not come in --------------------------------------------------------------------------


async def test_a_wrong_token(run: Honest, tmp_path: Path) -> None:
    other = secret(tmp_path, "this-is-some-other-token\n")
    await run.refuses(run.learner("--token_file", other, token=False), "token|secret")


async def test_a_command_without_the_key_of_the_run(run: Honest, tmp_path: Path) -> None:
    key = secret(tmp_path, "this-is-not-the-key-of-the-run\n")
    told = await run.room.run(
        *("islands.cli", "stop", "--supervisor", run.address, "--token_file", run.token),
        *("--key_file", key),
    )
    assert told.process.returncode == 1, told
    assert "was not made for it with the run's key" in told.out
    await run.goes_on()


async def test_another_model(run: Honest) -> None:
    other = run.learner("--task_settings.megabytes", "0.5")
    await run.refuses(other, "would train something else", "here .*layers/0.*; there .*layers/0")


@pytest.mark.long("test_another_model")
async def test_another_corpus(run: Honest, tmp_path: Path) -> None:
    (tmp_path / "reading_task.py").write_text(TASK)
    (tmp_path / "corpus.txt").write_text("the letters of Seneca\n")
    await run.refuses(run.learner(cwd=tmp_path), "corpus", "Seneca", "Shakespeare")


@pytest.mark.long("test_another_model")
async def test_a_task_that_cannot_be_imported(run: Honest, tmp_path: Path) -> None:
    await run.refuses(run.learner(cwd=tmp_path), "reading_task", "cannot be loaded", "install")


async def test_a_name_that_is_taken_is_waited_for(run: Honest) -> None:
    second = run.learner("--name", "learner-0")
    await run.room.wait(lambda: "is taken by a live learner" in second.err)
    await run.goes_on()
    assert second.process.poll() is None
    second.process.terminate()
    assert await run.room.ended(second) == 0
    assert "Traceback" not in second.err
    await run.goes_on()


# --- who is told something wrong ------------------------------------------------------------------


async def test_a_busy_port(run: Honest, tmp_path: Path) -> None:
    config = write_config(tmp_path / "busy.yaml", listen=f"127.0.0.1:{run.port}")
    program = run.room.start("islands.syncer", "--config", config, "--folder", tmp_path / "run")
    await run.refuses(program, f"127.0.0.1:{run.port} is in use")


@pytest.mark.quick("syncer")
@pytest.mark.parametrize(
    "words",
    [("islands.cli", "run"), ("islands.syncer", "--config"), ("islands.supervisor", "--config")],
    ids=["run", "syncer", "supervisor"],
)
async def test_a_folder_in_which_a_run_goes_on(words: tuple[str, str], run: Honest) -> None:
    config = write_config(
        run.folder.parent / "again.yaml",
        task="reading_task:Reading",
        task_settings={"step_s": 0.03, "megabytes": 0.25},
    )
    program = run.room.start(*words, config, "--folder", run.folder)
    await run.refuses(program, "in use")


@pytest.mark.long("test_a_wrong_token")
async def test_a_hub_that_cannot_be_reached(run: Honest) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens there
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        program = run.room.start("islands.learner", "--supervisor", address, "--wait_s", "1")
        await run.refuses(program, address, "within 1 s", code=1)
