"""What it costs that a host of an island ends: real processes over real sockets.

    python -m tests.benchmarks.several_hosts [--step_s 0.02] [--megabytes 4] [--jax]

An island of two hosts trains beside two learners on one host each. *Gone* is the time from a fault
to the end of the island's other process, *admitted* that to the island's next admission, and *back*
that to the next merge in which it takes part. *Gap* is the longest time for which the device of
another learner had nothing to do meanwhile, and *control* the same in a time without a fault.

Devices sleep, or with `--jax` the island and the learners compute a small task on the same cores,
where their gaps are no measure of what others cost them.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from islands.lab.toys.toy_workload import Accelerator, Sleeping
from islands.protocol.running_statistics import PER_DECADE
from islands.protocol.settings.run import RunSettings, Timing
from islands.run.hosting.process_identity import facts
from islands.tasks.data.shards import ShardKey
from tests.integration.fleet import Gaps, WatchedHub, make_fleet, running
from tests.integration.programs import hub_address

WINDOW_S = 15.0
READY_S = 120.0
REPORT_S = 1.5
POLL_S = 0.005
STALLED_S = 5.0
BASE_PORT = 7360
ISLAND, OTHERS = "pair", ("learner-0", "learner-1")
STICKING = "tests.benchmarks.several_hosts:Sticking"
STICKS = "STICKS_WHILE"
"""Names a file: while there is one, the reader of the host's process reads nothing."""

Island = list[asyncio.subprocess.Process]
Fault = Callable[[Island, Path], Awaitable[tuple[int, ...]]]


class Sticking(Sleeping):
    """A workload whose reader hangs on one host while a file is there."""

    def _make(self, settings: RunSettings, factor: float) -> Accelerator:
        made = super()._make(settings, factor)
        batches, told = made.batches, os.environ.get(STICKS)

        def sticking(shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
            for batch in batches(shard, position):
                while told is not None and Path(told).exists():
                    time.sleep(POLL_S)
                yield batch

        made.batches = sticking  # type: ignore[method-assign]  # this one sticks
        return made


@dataclass(frozen=True, slots=True)
class Found:
    """What one fault came to, in seconds from it."""

    fault: str
    gap_s: float
    gone_s: float | None = None
    admitted_s: float | None = None
    back_s: float | None = None


def process_of(host: asyncio.subprocess.Process) -> int:
    """The pid of a host's process, which its watchdog has started; 0 if there is none."""
    for place in Path("/proc").iterdir():
        found = facts(int(place.name)) if place.name.isdecimal() else None
        if found is not None and found.parent == host.pid:
            return int(place.name)
    return 0


async def nothing(_: Island, __: Path) -> tuple[int, ...]:
    return ()


def signalled(rank: int, number: signal.Signals) -> Fault:
    async def act(island: Island, _: Path) -> tuple[int, ...]:
        pids = [process_of(host) for host in island]
        os.kill(pids[rank], number)
        return tuple(pid for other, pid in enumerate(pids) if other != rank)

    return act


async def stuck(island: Island, stick: Path) -> tuple[int, ...]:
    """Have the reader of rank 1 hang, until the island has ended."""
    await asyncio.to_thread(stick.touch)
    return tuple(process_of(host) for host in island)


async def asked(island: Island, _: Path) -> tuple[int, ...]:
    """SIGTERM to the command of rank 1, which then comes back; what is waited for is its end."""
    pids = tuple(process_of(host) for host in island)
    island[1].terminate()
    return pids


async def measure(options: argparse.Namespace) -> list[Found]:
    """One fault after the other, in one run."""
    task = "examples.digits:Digits" if options.jax else "tests.benchmarks.several_hosts:Sticking"
    told = {} if options.jax else {"step_s": options.step_s, "megabytes": options.megabytes}
    settings = RunSettings(
        run="hosts", interval_steps=12, fragments=6, timing=Timing(stalled_s=STALLED_S)
    )
    faults: dict[str, Fault] = {
        "control": nothing,
        "process of rank 1 killed": signalled(1, signal.SIGKILL),
        "process of rank 0 killed": signalled(0, signal.SIGKILL),
        "process of rank 1 stopped": signalled(1, signal.SIGSTOP),
        **({} if options.jax else {"rank 1 stuck in its step": stuck}),
        "rank 1 asked to end": asked,
    }
    with tempfile.TemporaryDirectory() as place:
        folder, stick = Path(place), Path(place) / "stick"
        hub = make_fleet(folder / "run", settings, told, learners=len(OTHERS), task=task)
        async with running(hub):
            island = [await started(folder, rank) for rank in (0, 1)]
            try:
                await hub.wait_merge_of((ISLAND, *OTHERS), READY_S)
                await asyncio.sleep(REPORT_S)
                return [
                    await with_fault(hub, folder, island, name, fault, stick)
                    for name, fault in faults.items()
                ]
            finally:
                for host in island:
                    if host.returncode is None:
                        host.terminate()
                await asyncio.gather(*(host.wait() for host in island))


async def started(folder: Path, rank: int) -> asyncio.subprocess.Process:
    address = hub_address(folder / "run")
    assert address is not None, "the hub was opened"
    with (folder / f"rank-{rank}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "islands.learner", "--supervisor", address),
            *("--token_file", str(folder / "run" / "token")),
            *("--tasks", "tests.benchmarks,examples"),
            *("--name", ISLAND, "--folder", str(folder / "island"), "--hosts", "2"),
            *("--rank", str(rank), "--island_address", f"127.0.0.1:{BASE_PORT}"),
            stdout=log,
            stderr=log,
            env={**os.environ, **({STICKS: str(folder / "stick")} if rank else {})},
        )


async def with_fault(
    hub: WatchedHub, folder: Path, island: Island, name: str, fault: Fault, stick: Path
) -> Found:
    loop = asyncio.get_running_loop()
    before, admitted = hub.gaps(), admissions(folder)
    began_s = loop.time()
    pids = await fault(island, stick)
    gone_s = admitted_s = back_s = None
    if pids:
        await until(lambda: not any(facts(pid) for pid in pids))
        gone_s = loop.time() - began_s
        await asyncio.to_thread(stick.unlink, missing_ok=True)
        if fault is asked:
            await island[1].wait()
            island[1] = await started(folder, 1)
        await until(lambda: admissions(folder) > admitted)
        admitted_s = loop.time() - began_s
        back_s = (await hub.wait_merge_of((ISLAND,), READY_S)).at_s - began_s
    await asyncio.sleep(max(0.0, WINDOW_S - (loop.time() - began_s)) + REPORT_S)
    gap_s = max(longest_since(before[each], hub.gaps()[each]) for each in OTHERS)
    return Found(name, gap_s, gone_s, admitted_s, back_s)


def longest_since(before: Gaps, after: Gaps) -> float:
    """Upper edge of the highest bin that has grown, in seconds."""
    grown = [b for b, count in after.bins.items() if count > before.bins.get(b, 0)]
    upper_s = float(10 ** ((max(grown) + 1) / PER_DECADE)) if grown else 0.0
    return min(after.largest_s, upper_s)


def admissions(folder: Path) -> int:
    tape = (folder / "run" / "tape.jsonl").read_text()
    return tape.count(f'"kind":"admitted","name":"{ISLAND}"')


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds that makes no event here."""
    async with asyncio.timeout(READY_S):
        while not condition():  # noqa: ASYNC110  no event comes from there
            await asyncio.sleep(POLL_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step_s", type=float, default=0.02)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--jax", action="store_true")
    options = parser.parse_args()
    results = asyncio.run(measure(options))
    control_s = results[0].gap_s
    table = Table(title="an island of two hosts beside two learners")
    for title in ("fault", "gap of others", "minus control", "gone", "admitted", "back"):
        table.add_column(title)
    for row in results:
        over = f"{1000 * (row.gap_s - control_s):.1f} ms"
        times = (row.gone_s, row.admitted_s, row.back_s)
        shown = ["" if each is None else f"{each:.2f} s" for each in times]
        table.add_row(row.fault, f"{1000 * row.gap_s:.1f} ms", over, *shown)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
