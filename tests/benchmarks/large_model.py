"""What a run of a large model takes, next to what `--dry-run` says of it, on one machine.

    python -m tests.benchmarks.large_model [--parameters 400e6] [--learners 2] [--update int8] ...
    python -m tests.benchmarks.large_model --decoder 640,2560,10 --fragments 8 --interval 16

A hub, a syncer and learners run as `islands run` starts them. Devices only sleep, and every byte of
values is real; or, with `--decoder WIDTH,HIDDEN,LAYERS`, learners train such a language model with
JAX, of whose text a step sees little. The run joins, merges each fragment some times, loses its
syncer to SIGKILL, merges again, and is stopped in order. Then a table has each figure as it was
measured, as the dry run of the same config predicts it, and the ratio of the two:

- *round*: seconds between two merges, over all of those before the syncer is killed; predicted by
  the pace, or by the disk if it writes fewer rounds;
- *written*: bytes that the syncer's process writes to files in a round (`/proc/PID/io`);
- *peak* of a process: the most that was resident (VmHWM) over its life, or until the run is asked
  to stop; *steady*: proportional set size (PSS) while merges go on; both per parameter as well;
- *back*: seconds from SIGKILL to the next merge.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from islands.cli.dry_run import Findings, examine
from islands.cli.parsing import Common
from islands.settings.groups import RunFile
from islands.settings.host import RunOptions
from tests.integration.fleet import SLEEPING
from tests.integration.programs import Program, Room, merges, open_room, peak_bytes, pids

LOOK_S = 0.2
NOTED = ("evicted", "status", "overloaded", "nothing_merged", "wrong_report", "disk")
"""Entries of the run's log that are shown whole."""

SETTLE_ROUNDS = 1
"""Merges of each fragment before anything is measured."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A run that is measured.

    Attributes:
        learners: How many.
        task: What is trained.
        task_settings: Of the task.
        run: Settings of the run.
        step_s: Seconds of a step.
        cycles: Merges of each fragment before the syncer is killed, after those that settle it.
        limit_s: Within which all of it must be done.
    """

    learners: int
    task: str
    task_settings: dict[str, object]
    run: dict[str, object]
    step_s: float
    cycles: int
    limit_s: float

    def file(self) -> dict[str, object]:
        run = {"run": "large", "warmup_steps": 0, **self.run}
        return {"task": self.task, "task_settings": self.task_settings, "run": run}


@dataclass(slots=True)
class Watched:
    """Memory of the processes of a run, looked at now and then.

    Attributes:
        hub: The hub's process.
        folder: The run's folder, which tells the hub's children.
        steady: Largest proportional set size of each process while merges went on, in bytes.
        peak: Largest resident size of any process of that name until the stop, in bytes.
        ever: The same until the end.
    """

    hub: int
    folder: Path
    stopping: bool = False
    steady: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    ever: dict[str, int] = field(default_factory=dict)

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            for name, pid in self.pids().items():
                most = peak_bytes(pid)
                if not self.stopping:
                    self.peak[name] = max(self.peak.get(name, 0), most)
                self.ever[name] = max(self.ever.get(name, 0), most)
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Note the proportional set sizes now."""
        for name, pid in self.pids().items():
            self.steady[name] = max(self.steady.get(name, 0), shared_bytes(pid))

    def pids(self) -> dict[str, int]:
        """Processes that live, by name; all learners count as one name."""
        return {"hub": self.hub, **pids(self.folder)}


def shared_bytes(pid: int) -> int:
    """The proportional set size of a process; 0 if it has ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0


def written_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


@dataclass(slots=True)
class Found:
    """What a run came to."""

    join_s: float = 0.0
    round_s: float = 0.0
    round_bytes: float = 0.0
    back_s: float = 0.0
    cycle_s: float = 0.0
    stop_s: float = 0.0
    journal_bytes: int = 0
    ended: int | None = None


def prepare(asked: Measurement, place: Path) -> Findings:
    """Write the config of a run, and return what its dry run says."""
    file = msgspec.convert(asked.file(), RunFile)
    options = RunOptions(file, learners=asked.learners, folder=place / "run")
    told = {**asked.file(), "learners": asked.learners, "listen": "127.0.0.1:0"}
    (place / "run.yaml").write_bytes(msgspec.yaml.encode(told))
    return examine(options, Common(step_time_s=asked.step_s))


async def measure(asked: Measurement, place: Path, fragments: int) -> tuple[Found, Watched]:
    folder, found = place / "run", Found()
    async with open_room(place) as room:
        hub = room.start("islands.cli", "run", place / "run.yaml", "--folder", folder)
        watched = Watched(hub.pid, folder)
        watching = asyncio.create_task(watched.watch())
        try:
            async with asyncio.timeout(asked.limit_s):
                await live(room, hub, watched, fragments, asked.cycles, found)
        except (TimeoutError, ChildProcessError) as error:
            Console(stderr=True).print(str(error) or "the time limit is over", markup=False)
        finally:
            watching.cancel()
            files = [path for path in (folder / "journal").rglob("*") if path.is_file()]
            found.journal_bytes = sum(path.stat().st_size for path in files)
    return found, watched


async def live(
    room: Room, hub: Program, watched: Watched, fragments: int, cycles: int, found: Found
) -> None:
    """Join, merge, lose the syncer, merge again, end."""
    folder, began_s = watched.folder, time.monotonic()
    await reached(room, hub, folder, 1)
    found.join_s = time.monotonic() - began_s
    await reached(room, hub, folder, SETTLE_ROUNDS * fragments)
    syncer = pids(folder)["syncer"]
    steady_s, before, written = time.monotonic(), merges(folder), written_bytes(syncer)
    for cycle in range(cycles):
        await reached(room, hub, folder, before + (cycle + 1) * fragments)
        watched.look()
    rounds = merges(folder) - before
    found.round_s = (time.monotonic() - steady_s) / rounds
    found.round_bytes = (written_bytes(syncer) - written) / rounds
    os.kill(syncer, signal.SIGKILL)
    killed_s, before = time.monotonic(), merges(folder)
    await reached(room, hub, folder, before + 1)
    found.back_s = time.monotonic() - killed_s
    await reached(room, hub, folder, before + fragments)
    found.cycle_s = time.monotonic() - killed_s - found.back_s
    watched.stopping = True
    stopped_s = time.monotonic()
    await room.run("islands.cli", "stop", "--folder", folder, limit_s=300.0)
    found.ended = await room.ended(hub, limit_s=600.0)
    found.stop_s = time.monotonic() - stopped_s


async def reached(room: Room, hub: Program, folder: Path, count: int) -> None:
    """Wait for so many merges in all, or for the end of the hub, which is an error."""

    def done() -> bool:
        if hub.process.poll() is not None:
            raise ChildProcessError(f"the hub ended: {hub}")
        return merges(folder) >= count

    await room.wait(done, limit_s=3600.0)


def table(asked: Measurement, found: Found, watched: Watched, findings: Findings) -> Table:
    estimate = findings.estimate
    assert estimate is not None
    count = estimate.elements
    round_s = estimate.round_s(findings.written_bytes_per_s or inf)
    shown = Table(
        title=f"{count / 1e6:.0f}M parameters, M={asked.learners}, P={estimate.fragments}, "
        f"H={asked.run['interval_steps']}"
    )
    for title in ("figure", "measured", "dry run", "ratio"):
        shown.add_column(title, justify="left" if title == "figure" else "right")

    def row(name: str, measured: float, predicted: float | None, form: str) -> None:
        said = "" if predicted is None else form.format(predicted)
        ratio = f"{measured / predicted:.2f}" if predicted else ""
        shown.add_row(name, form.format(measured), said, ratio)

    row("round, s", found.round_s, round_s, "{:.3f}")
    row("written per round, MB", found.round_bytes / 1e6, estimate.disk_per_round / 1e6, "{:.1f}")
    row("journal, MB", found.journal_bytes / 1e6, estimate.disk_bytes / 1e6, "{:.0f}")
    peaks = {"syncer": estimate.syncer.total}
    peaks |= {
        name: estimate.learner.total for name in sorted(watched.peak) if name.startswith("learner")
    }
    for name, predicted in peaks.items():
        ever, peak = watched.ever.get(name, 0), watched.peak.get(name, 0)
        row(f"{name}: peak, MB", ever / 1e6, predicted / 1e6, "{:.0f}")
        row("  B per parameter", ever / count, predicted / count, "{:.2f}")
        row("  until the stop", peak / count, None, "{:.2f}")
        row("  steady, PSS", watched.steady.get(name, 0) / count, None, "{:.2f}")
    row("first merge after, s", found.join_s, None, "{:.1f}")
    row("syncer killed and back, s", found.back_s, None, "{:.1f}")
    row("a round of each afterwards, s", found.cycle_s, None, "{:.1f}")
    row("stop, s", found.stop_s, None, "{:.1f}")
    return shown


def told_events(folder: Path) -> list[dict[str, object]]:
    """What the run's log tells, entry by entry."""
    lines = (folder / "run.log").read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=dict[str, object]) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=float, default=100e6, help="N")
    parser.add_argument("--decoder", help="width, hidden and layers of one that JAX trains")
    parser.add_argument("--learners", type=int, default=1, help="M")
    parser.add_argument("--fragments", type=int, default=24, help="P")
    parser.add_argument("--interval", type=int, default=24, help="H, in steps")
    parser.add_argument("--step_s", type=float, default=1.0, help="seconds of a step's sleep")
    parser.add_argument("--precision", default="bfloat16", help="of contributions")
    parser.add_argument("--update", default="float32", help="precision of updates")
    parser.add_argument("--momentum", type=float, default=0.9, help="of the outer optimizer")
    parser.add_argument("--cycles", type=int, default=3, help="rounds of each fragment measured")
    parser.add_argument("--limit_s", type=float, default=1200.0, help="for all of it")
    parser.add_argument("--place", type=Path, help="where the folder lies; by default a new one")
    chosen = parser.parse_args()
    run: dict[str, object] = {
        "fragments": chosen.fragments,
        "interval_steps": chosen.interval,
        "precision": chosen.precision,
        "update_precision": chosen.update,
        "outer": {"learning_rate": 0.7, "momentum": chosen.momentum},
    }
    megabytes = 4 * chosen.parameters / 2**20
    task, model = SLEEPING, {"step_s": chosen.step_s, "megabytes": megabytes}
    if chosen.decoder is not None:
        task = "islands.tasks.stdlib_bytes:StdlibBytes"
        shape = zip(("width", "hidden", "layers"), chosen.decoder.split(","), strict=True)
        decoder = {name: int(size) for name, size in shape}
        model = {"decoder": decoder, "length": 32, "rows": 1}  # a step sees little of the text
    asked = Measurement(
        chosen.learners, task, model, run, chosen.step_s, chosen.cycles, chosen.limit_s
    )
    with tempfile.TemporaryDirectory(dir=chosen.place) as place:
        findings = prepare(asked, Path(place))
        assert findings.estimate is not None, findings.refused
        found, watched = asyncio.run(measure(asked, Path(place), findings.estimate.fragments))
        events = told_events(Path(place) / "run")
    console = Console()
    console.print(table(asked, found, watched, findings))
    counts = Counter(str(event["event"]) for event in events)
    console.print(f"exit code {found.ended}; events of the run's log: {dict(counts)}")
    for event in events:
        if event["event"] in NOTED:
            console.print(str(event), markup=False, highlight=False)


if __name__ == "__main__":
    main()
