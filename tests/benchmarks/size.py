"""What a run of large fragments needs and takes: real processes, devices that only sleep.

    python -m tests.benchmarks.size [large | whole | decoder | wide | hundred ...]

*large* is 400M parameters in 4 fragments of 400 MB with one learner; *whole* 100M parameters in one
fragment with two; *decoder* and *wide* are language models of 27M and 52M parameters that train
with JAX, with two learners, *hundred* one of 99M with one. Each run joins, merges, loses its syncer
to SIGKILL, merges again, and is stopped in order. The last line of each is JSON: seconds to join
and to come back, seconds per merge, the journal's bytes and every process's peak of memory (VmHWM),
next to what `--dry-run` says of the same config.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from islands.cli.dry_run import examine
from islands.cli.parsing import Common
from islands.run.planner import Estimate
from islands.settings.groups import RunFile
from islands.settings.host import RunOptions
from islands.tasks.models.decoder import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
from tests.integration.programs import Program, Room, merges, open_room, pids

LOOK_S = 0.05
ROUNDS_BEFORE, ROUNDS_AFTER = 3, 1
"""Of every fragment, before and after the syncer is killed; four versions are kept of each."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run.

    Attributes:
        learners: How many.
        limit_s: Within which all of it must be done.
        run: Its settings.
        task: What is trained.
        task_settings: Of the task.
    """

    learners: int
    limit_s: float
    run: dict[str, object]
    task_settings: dict[str, object]
    task: str = "islands.lab.toys.toy_workload:Sleeping"

    def options(self, folder: Path) -> RunOptions:
        """What `islands run` is told."""
        told = {
            "task": self.task,
            "task_settings": self.task_settings,
            "run": {"run": "size", "warmup_steps": 0, **self.run},
        }
        return RunOptions(msgspec.convert(told, RunFile), learners=self.learners, folder=folder)


def sleeping(parameters: float, step_s: float) -> dict[str, object]:
    """A model of so many parameters on a device that sleeps."""
    return {"step_s": step_s, "megabytes": 4 * parameters / 2**20}


def small_decoder(width: int, hidden: int, layers: int) -> StdlibBytes:
    """A language model of this shape, of whose text a step sees little."""
    decoder = DecoderConfig(width=width, hidden=hidden, layers=layers)
    return StdlibBytes(decoder, length=32, rows=1)


CASES = {
    "large": Case(1, 900.0, {"fragments": 4, "interval_steps": 16}, sleeping(400e6, 1.0)),
    "whole": Case(2, 400.0, {"fragments": 1, "interval_steps": 8}, sleeping(100e6, 1.0)),
    "decoder": Case(
        2,
        540.0,
        {"fragments": 8, "interval_steps": 16},
        {"width": 512, "hidden": 2048, "layers": 8},
        task="tests.benchmarks.size:small_decoder",
    ),
    "wide": Case(
        2,
        900.0,
        {"fragments": 8, "interval_steps": 16},
        {"width": 640, "hidden": 2560, "layers": 10},
        task="tests.benchmarks.size:small_decoder",
    ),
    "hundred": Case(
        1,
        900.0,
        {"fragments": 8, "interval_steps": 16},
        {"width": 896, "hidden": 3584, "layers": 10},
        task="tests.benchmarks.size:small_decoder",
    ),
}


@dataclass(slots=True)
class Peaks:
    """The most memory that each process has held, looked at now and then."""

    hub: int
    folder: Path
    bytes_by_pid: dict[int, tuple[str, int]] = field(default_factory=dict)

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            for name, pid in {"hub": self.hub, **pids(self.folder)}.items():
                known = self.bytes_by_pid.get(pid, (name, 0))[1]
                self.bytes_by_pid[pid] = name, max(known, peak_bytes(pid))
            await asyncio.sleep(LOOK_S)

    def by_name(self) -> dict[str, int]:
        """Of each process; a name's later ones have a number."""
        found: dict[str, int] = {}
        for name, most in self.bytes_by_pid.values():
            number = sum(each.partition("/")[0] == name for each in found)
            found[f"{name}/{number + 1}" if number else name] = most
        return dict(sorted(found.items()))


def peak_bytes(pid: int) -> int:
    """The peak of a process's resident memory; 0 if it has ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return 0


def allocated_bytes(folder: Path) -> int:
    """What the files of a folder occupy."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(slots=True)
class Found:
    """What a run came to."""

    join_s: float = 0.0
    merges: int = 0
    merge_s: float = 0.0
    restart_s: float = 0.0
    journal_bytes: int = 0
    peak_bytes: dict[str, int] = field(default_factory=dict)
    predicted: dict[str, object] = field(default_factory=dict)
    ended: int | None = None


def measure(case: Case, place: Path) -> Found:
    """One run, from its dry run to its end."""
    folder = place / "run"
    options = case.options(folder)
    estimate = examine(options, Common()).estimate
    assert estimate is not None
    told = msgspec.to_builtins(options.file)
    (place / "run.yaml").write_bytes(
        msgspec.yaml.encode({**_known(told), "learners": case.learners, "listen": "127.0.0.1:0"})
    )
    found = Found(predicted=predicted(estimate))
    asyncio.run(watched(case, place, estimate.fragments, found))
    return found


async def watched(case: Case, place: Path, fragments: int, found: Found) -> None:
    """The run, with somebody who looks at its processes."""
    folder, config = place / "run", place / "run.yaml"
    async with open_room(place) as room:
        hub = room.start("islands.cli", "run", config, "--folder", folder)
        peaks = Peaks(hub.pid, folder)
        watching = asyncio.create_task(peaks.watch())
        try:
            with contextlib.suppress(TimeoutError):  # then `ended` stays None
                async with asyncio.timeout(case.limit_s):
                    await live(room, hub, folder, fragments, found)
        finally:
            watching.cancel()
            found.peak_bytes = peaks.by_name()
            found.journal_bytes = allocated_bytes(folder / "journal")
            found.merges = merges(folder)


async def live(room: Room, hub: Program, folder: Path, fragments: int, found: Found) -> None:
    """Join, merge, lose the syncer, merge again, end."""
    began_s = time.monotonic()
    await reached(room, folder, 1)
    found.join_s = time.monotonic() - began_s
    steady_s, before = time.monotonic(), merges(folder)
    await reached(room, folder, before + ROUNDS_BEFORE * fragments)
    found.merge_s = (time.monotonic() - steady_s) / (merges(folder) - before)
    os.kill(pids(folder)["syncer"], signal.SIGKILL)
    killed_s, before = time.monotonic(), merges(folder)
    await reached(room, folder, before + 1)
    found.restart_s = time.monotonic() - killed_s
    await reached(room, folder, before + ROUNDS_AFTER * fragments)
    await room.run("islands.cli", "control", "stop", "--folder", folder, limit_s=300.0)
    found.ended = await room.ended(hub, limit_s=300.0)


async def reached(room: Room, folder: Path, count: int) -> None:
    """Wait for so many merges in all."""
    await room.wait(lambda: merges(folder) >= count, limit_s=3600.0)


def predicted(estimate: Estimate) -> dict[str, object]:
    """What the dry run says."""
    host = estimate.processes
    told = {"hub": host.hub, "syncer": host.syncer, "learner": host.learner}
    return {"journal_bytes": estimate.disk_bytes, **told}


def _known(told: dict[str, object]) -> dict[str, object]:
    return {name: told[name] for name in ("task", "task_settings", "run")}


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help="large, whole, decoder, wide")
    parser.add_argument("--place", type=Path, help="where the folders lie; by default a new one")
    options = parser.parse_args()
    for name in options.cases:
        with tempfile.TemporaryDirectory(dir=options.place) as place:
            found = measure(CASES[name], Path(place))
        print(msgspec.json.encode({"case": name, **msgspec.to_builtins(found)}).decode())


if __name__ == "__main__":
    main()
