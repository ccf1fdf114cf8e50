"""Documented commands as processes of a test: started in its folder, watched, ended with it.

    async with open_room(tmp_path) as room:
        run = room.start("islands.cli", "run", "run.yaml", "--folder", "run")
        await room.wait(lambda: len(merges(tmp_path / "run")) > 3)
        assert await room.ended(run) == 0

What processes of others do makes no event here, so their files and ends are looked at now and then,
for a bounded time; a wait that fails shows what everybody said.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from islands.run.hosting.process_identity import marked, send_signal

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90.0
LOOK_S = 0.02
TAIL = 2000

Entry = dict[str, object]


@dataclass(frozen=True, slots=True)
class Program:
    """A process that a test started, and the files to which it speaks."""

    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    out_file: Path
    err_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self.out_file.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.err_file.read_text(errors="replace")

    def __str__(self) -> str:
        told = f"$ {' '.join(self.words)}   -> {self.process.poll()}"
        return f"{told}\n{self.out[-TAIL:]}{self.err[-TAIL:]}"


@dataclass(slots=True)
class Room:
    """Where the commands of one test run.

    Attributes:
        folder: That they are started in.
        programs: All that were started.
        prefix: Words before each command, such as those that enter a namespace.
    """

    folder: Path
    programs: list[Program] = field(default_factory=list)
    prefix: tuple[str, ...] = ()

    def start(
        self,
        module: str,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Program:
        """Start `python -m module arguments…`."""
        words = (sys.executable, "-m", module, *map(str, arguments))
        return self.start_words(words, environment=environment, cwd=cwd)

    def start_words(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Program:
        place = self.folder / "said"
        place.mkdir(exist_ok=True)
        number = len(self.programs)
        out_file, err_file = place / f"{number}.out", place / f"{number}.err"
        with out_file.open("wb") as out, err_file.open("wb") as err:
            process = subprocess.Popen(
                [*self.prefix, *words],
                cwd=cwd or self.folder,
                env=clean_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        program = Program(tuple(words), process, out_file, err_file)
        self.programs.append(program)
        return program

    async def run(self, module: str, *arguments: object, limit_s: float = LIMIT_S) -> Program:
        """Start a command and wait for its end."""
        program = self.start(module, *arguments)
        await self.ended(program, limit_s)
        return program

    async def ended(self, program: Program, limit_s: float = LIMIT_S) -> int:
        """Wait until a program has ended by itself; its exit code."""
        await self.wait(lambda: program.process.poll() is not None, limit_s)
        return program.process.returncode

    async def wait(self, condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
        """Wait until something holds; what it came to."""
        try:
            async with asyncio.timeout(limit_s):
                while not (found := condition()):  # noqa: ASYNC110  no event comes from there
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            raise TimeoutError("\n".join(map(str, self.programs))) from error
        return found

    def close(self) -> None:
        """End whatever runs still, the children of those that were killed as well."""
        for program in self.programs:
            if program.process.poll() is None:
                program.process.kill()
            program.process.wait(LIMIT_S)
        for folder in (*self.folder.iterdir(), self.folder):
            for identity in marked(folder).values():
                send_signal(identity, signal.SIGKILL)


@contextlib.asynccontextmanager
async def open_room(folder: Path) -> AsyncIterator[Room]:
    room = Room(folder)
    try:
        yield room
    finally:
        room.close()


async def control(room: Room, *words: object, code: int = 0) -> Program:
    """Tell the run in the folder `run` something."""
    told = await room.run("islands.cli", *words, "--folder", room.folder / "run")
    assert told.process.returncode == code, told
    return told


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what could tell a command something else."""
    kept = {key: os.environ[key] for key in os.environ if not key.startswith("ISLANDS_")}
    return {**kept, "PYTHONPATH": str(ROOT), **(more or {})}


def write_config(path: Path, **more: object) -> Path:
    """A config of a run whose devices sleep; what is given goes before what stands here."""
    run = {"run": "test", "interval_steps": 8, "fragments": 4, "warmup_steps": 0}
    told = {
        "task": "islands.lab.toys.toy_workload:Sleeping",
        "task_settings": {"step_s": 0.01, "megabytes": 0.25},
        "listen": "127.0.0.1:0",
        "run": {**run, **msgspec.convert(more.pop("run", {}), dict[str, object])},
    }
    path.write_text(yaml.safe_dump({**told, **more}))
    return path


# --- what a run leaves behind ---------------------------------------------------------------------


def entries(path: Path, kind: str | None = None) -> list[Entry]:
    """Lines of a tape or of metrics, those of one kind; a last half line is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    found = [msgspec.json.decode(line, type=Entry) for line in lines]
    return [entry for entry in found if kind in (None, entry.get("kind"))]


def merges(folder: Path) -> int:
    """Merges that the hub of a run has heard of, over all its starts."""
    return len(entries(folder / "metrics.jsonl", "merge"))


def logged(folder: Path, kind: str, **fields: object) -> list[Entry]:
    """Entries of `run.log` of a kind with these fields."""
    if not (folder / "run.log").exists():
        return []
    lines = (folder / "run.log").read_bytes().split(b"\n")[:-1]
    found = [msgspec.json.decode(line, type=Entry) for line in lines]
    return [e for e in found if e.get("event") == kind and fields.items() <= e.items()]


def hub_address(folder: Path) -> str | None:
    """Where the hub of a run listens, once it does."""
    try:
        told = msgspec.json.decode((folder / "hub.json").read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError):
        return None
    return str(told["supervisor"])


def summary_of(folder: Path) -> dict[str, object] | None:
    """The summary of a run, once there is one."""
    try:
        return msgspec.json.decode((folder / "summary.json").read_bytes(), type=Entry)
    except (OSError, msgspec.DecodeError):
        return None


def pids(folder: Path) -> dict[str, int]:
    """The children of a hub that live, by name."""
    return {name: identity.pid for name, identity in marked(folder).items()}


def peak_bytes(pid: int) -> int:
    """The peak of a process's resident memory; 0 if it has ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return 0


def imbalance(summary: Mapping[str, object]) -> object:
    """Of the ledger, which balances if it is 0."""
    return msgspec.convert(summary["ledger"], dict[str, object])["imbalance"]


def incarnations(summary: Mapping[str, object]) -> dict[str, int]:
    rows = msgspec.convert(summary["learners"], dict[str, dict[str, float]])
    return {name: int(row["incarnations"]) for name, row in rows.items()}


def processed(summary: Mapping[str, object]) -> list[int]:
    ledger = msgspec.convert(summary["ledger"], dict[str, object])
    rows = msgspec.convert(ledger["fragments"], list[dict[str, int]])
    return [row["processed"] for row in rows]
