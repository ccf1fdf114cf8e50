"""What the system costs a learner, and how long a round takes: real processes, sleeping devices.

    python -m tests.benchmarks.process_rounds overhead [--pairs 4] [--megabytes 8]
    python -m tests.benchmarks.process_rounds rounds [--learners 8] [--megabytes 16]

*Overhead*: the time of a step of a learner in its process, with a syncer and a supervisor in
theirs, over the time of the same step on the same device alone in a process. Pairs are measured one
after the other, so that both sides see the same machine; 95 % of
resampled sets of pairs lie below the upper bound.

*Rounds*: seconds from the moment in which the syncer opens a round to the moment in which the last
learner has adopted what came of it, by the tapes of all processes (the monotonic clock is one on
one machine). Adoptions wait for a step boundary.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from islands.lab.toys.toy_workload import Accelerator
from islands.protocol.settings.run import RunSettings
from tests.benchmarks.step_overhead import alone, upper_bound
from tests.integration.fleet import WatchedHub, make_fleet, running

READY_S = 120.0
SETTLE_S = 4.0
STEP_S = 0.02
ONE = "learner-0"


class Entry(msgspec.Struct):
    """What is read of a tape."""

    at_s: float
    kind: str
    fragment: int | None = None
    version: str | None = None
    opened_s: float = 0.0
    loop_s: float = 0.0


# --------------------------------------------------------------------------------------- overhead


def step_alone(megabytes: float, steps: int) -> float:
    """Seconds per step of the device alone, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.process_rounds", "alone"]
    command += ["--megabytes", str(megabytes), "--steps", str(steps)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(found.stdout)


async def step_together(megabytes: float, steps: int) -> tuple[float, float]:
    """Seconds per step of a learner, and MiB that it sends per step, while a fleet runs."""
    settings = RunSettings(run="overhead", interval_steps=4, fragments=4)
    with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
        model: dict[str, object] = {"step_s": STEP_S, "megabytes": 4 * megabytes}
        hub = make_fleet(Path(folder) / "run", settings, model, learners=1)
        async with running(hub):
            await hub.wait_merge_of((ONE,), READY_S)
            await asyncio.sleep(SETTLE_S)
            first = await report(hub)
            while (last := await report(hub))[1] < first[1] + steps:
                pass
            done = last[1] - first[1]
            return (last[0] - first[0]) / done, (last[2] - first[2]) / done / 2**20


async def report(hub: WatchedHub) -> tuple[float, int, int]:
    """The next report: when it came, steps and bytes sent until then."""
    before = hub.told.get(ONE)
    await hub.wait_until(lambda: hub.told.get(ONE) is not before, READY_S)
    told = hub.told[ONE]
    return asyncio.get_running_loop().time(), told.steps, told.bytes_up


def overhead(pairs: int, megabytes: float, steps: int) -> None:
    """Print the ratio."""
    times: list[tuple[float, float]] = []
    for _ in range(pairs):
        without_s = step_alone(megabytes, steps)
        with_s, sent = asyncio.run(step_together(megabytes, steps))
        times.append((without_s, with_s))
        Console().print(
            f"{1000 * without_s:.3f} ms alone, {1000 * with_s:.3f} ms together, "
            f"ratio {with_s / without_s:.4f}, {sent:.2f} MiB sent per step"
        )
    found = np.array(times).T
    ratio = found[1].sum() / found[0].sum()
    Console().print(
        f"{megabytes:g} MiB fragments, {1000 * STEP_S:.0f} ms steps: ratio {ratio:.4f}, "
        f"upper 95 % bound {upper_bound(found):.4f}"
    )


def shared_memory() -> str | None:
    """A folder in memory, so that no disk is measured; None where there is none."""
    place = Path("/dev/shm")  # noqa: S108  the files in it are ours alone
    return str(place) if place.is_dir() else None


# ----------------------------------------------------------------------------------------- rounds


async def rounds(learners: int, megabytes: float, fragments: int, wait_s: float) -> None:
    """Run a fleet for a while, then read its tapes."""
    settings = RunSettings(run="rounds", interval_steps=max(24, fragments), fragments=fragments)
    with tempfile.TemporaryDirectory(dir=shared_memory()) as place:
        folder = Path(place) / "run"
        model: dict[str, object] = {"step_s": STEP_S, "megabytes": megabytes}
        hub = make_fleet(folder, settings, model, learners=learners)
        async with running(hub):
            await hub.wait_until(lambda: _merged(hub) >= set(hub.names), READY_S)
            await asyncio.sleep(SETTLE_S + wait_s)
        times = durations(folder, list(hub.names))
    table = Table(title=f"{learners} learners, {megabytes:g} MiB in {fragments} fragments")
    for title in ("rounds", "p50", "p95", "longest"):
        table.add_column(title)
    quantiles = np.quantile(times, (0.5, 0.95, 1.0))
    table.add_row(str(len(times)), *(f"{1000 * value:.0f} ms" for value in quantiles))
    Console().print(table)


def _merged(hub: WatchedHub) -> set[str]:
    return {name for merge in hub.merges for name in merge.participants}


def durations(folder: Path, names: list[str]) -> list[float]:
    """Seconds from opening to last adoption, of every version that all have adopted."""
    opened = {(e.fragment, e.version): e.opened_s for _, e in entries(folder, "syncer", "merged")}
    adopted: dict[tuple[int | None, str | None], list[float]] = defaultdict(list)
    for name in names:
        for began_s, entry in entries(folder, name, "adopted"):
            adopted[entry.fragment, entry.version].append(began_s + entry.at_s)
    complete = [key for key in sorted(opened) if len(adopted[key]) == len(names)]
    settled = complete[len(complete) // 4 :]
    return [max(adopted[key]) - opened[key] for key in settled]


def entries(folder: Path, name: str, kind: str) -> list[tuple[float, Entry]]:
    """The entries of one kind on a process's tape, with the loop's time at which it began."""
    found: list[tuple[float, Entry]] = []
    began_s = 0.0
    for line in (folder / "processes" / name / "tape.jsonl").read_bytes().splitlines():
        entry = msgspec.json.decode(line, type=Entry)
        if entry.kind == "process_began":
            began_s = entry.loop_s
        elif entry.kind == kind:
            found.append((began_s, entry))
    return found


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="all", help="overhead, rounds, all or alone")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--learners", type=int, default=8)
    parser.add_argument("--fragments", type=int, default=24)
    parser.add_argument("--megabytes", type=float)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    if options.what == "alone":
        device = Accelerator(STEP_S, round(options.megabytes * 2**20))
        print(alone(device, options.steps).step_s)
        return
    if options.what in ("overhead", "all"):
        overhead(options.pairs, options.megabytes or 8.0, options.steps)
    if options.what in ("rounds", "all"):
        size = options.megabytes or 16.0
        asyncio.run(rounds(options.learners, size, options.fragments, options.seconds))


if __name__ == "__main__":
    main()
