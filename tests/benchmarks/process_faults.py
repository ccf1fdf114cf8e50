"""What a fault costs the others: real processes over real sockets, with devices that only sleep.

    python -m tests.benchmarks.process_faults [--learners 4] [--step_s 0.02] [--megabytes 4]

One run per fault. *Gap* is the longest time for which the device of another learner had nothing to
do, from the fault until everything is back; *control* is the same in a run without a fault. *Back*
is the time from the start of the process that was missing to the next merge in which it (or, for
the syncer, anybody) takes part.

Learners that compile (JAX) step on the same cores as everything else, so their gaps are no measure
of what others cost them; they are here for the time that a restart takes.

The fleet shares this machine's cores with whatever else runs: judge by the difference to control.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from islands.protocol.histogram import PER_DECADE
from islands.protocol.settings.run import RunSettings
from tests.integration.fleet import SLEEPING, Gaps, WatchedHub, make_fleet, running

SETTLE_S = 4.0
WINDOW_S = 12.0
REPORT_S = 1.5
READY_S = 90.0
SYNCER_AWAY_S = 4.0
STOPPED_S = 15.0
SLOW = 3.0
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Found:
    """What one fault came to; `back_s` None where nobody was away."""

    fault: str
    gap_s: float
    back_s: float | None
    told: str


Fault = Callable[[WatchedHub], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many learners, and of what kind."""

    learners: int
    step_s: float
    megabytes: float

    def settings(self) -> RunSettings:
        """A run that nothing but the benchmark ends."""
        return RunSettings(run="faults", interval_steps=24, fragments=24)

    def task_settings(self, **slow: float) -> dict[str, object]:
        """Of the sleeping workload."""
        return {"step_s": self.step_s, "megabytes": self.megabytes, "slow": slow}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the learners."""
        return tuple(f"learner-{index}" for index in range(self.learners))


async def with_fault(fleet: Fleet, name: str, victim: str | None, fault: Fault) -> Found:
    """Let a fleet settle, do something to it, and see what the others felt."""
    slow = {victim: SLOW} if name == "learner slow" and victim else {}
    with tempfile.TemporaryDirectory() as folder:
        hub = make_fleet(
            Path(folder) / "run",
            fleet.settings(),
            fleet.task_settings(**slow),
            learners=fleet.learners,
        )
        async with running(hub):
            await hub.wait_merge_of(fleet.names, READY_S)
            await asyncio.sleep(SETTLE_S)
            before = hub.gaps()
            began_s = asyncio.get_running_loop().time()
            back_s = await fault(hub)
            spent_s = asyncio.get_running_loop().time() - began_s
            await asyncio.sleep(max(0.0, WINDOW_S - spent_s) + REPORT_S)
            others = [name for name in fleet.names if name != victim]
            gap_s = max(longest_since(before[each], hub.gaps()[each]) for each in others)
            told = ", ".join(f"{each} {hub.told[each].steps} steps" for each in others)
            return Found(name, gap_s, back_s, told)


def longest_since(before: Gaps, after: Gaps) -> float:
    """Upper edge of the highest bin that has grown, in seconds."""
    grown = [b for b, count in after.bins.items() if count > before.bins.get(b, 0)]
    upper_s = float(10 ** ((max(grown) + 1) / PER_DECADE)) if grown else 0.0
    return min(after.largest_s, upper_s)


# ----------------------------------------------------------------------------------------- faults


async def nothing(hub: WatchedHub) -> None:
    """The control."""


def kill_learner(victim: str) -> Fault:
    """SIGKILL; the supervisor starts it again."""

    async def act(hub: WatchedHub) -> float:
        hub.launcher.kill(victim)
        return await back(hub, victim, (victim,))

    return act


async def kill_syncer(hub: WatchedHub) -> float:
    """SIGKILL; started again after some seconds."""
    hub.cluster.hold("syncer", SYNCER_AWAY_S)
    hub.launcher.kill("syncer")
    return await back(hub, "syncer", ())


def stop_learner(victim: str) -> Fault:
    """SIGSTOP for longer than it takes to be evicted, then SIGCONT."""

    async def act(hub: WatchedHub) -> float:
        hub.launcher.pause(victim)
        await asyncio.sleep(STOPPED_S)
        hub.launcher.resume(victim)
        began_s = asyncio.get_running_loop().time()
        return (await hub.wait_merge_of((victim,), READY_S)).at_s - began_s

    return act


async def back(hub: WatchedHub, process: str, people: tuple[str, ...]) -> float:
    """Seconds from the next start of a process to the next merge with these people."""
    loop = asyncio.get_running_loop()
    old = hub.launcher.pid(process)
    async with asyncio.timeout(READY_S):
        while hub.launcher.pid(process) in (old, None):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(POLL_S)
    began_s = loop.time()
    return (await hub.wait_merge_of(people, READY_S)).at_s - began_s


async def kill_supervisor(fleet: Fleet) -> Found:
    """SIGKILL of the hub's process; another one takes its folder and its children."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        config = Path(place) / "config.yaml"
        run = msgspec.to_builtins(fleet.settings())
        told = {
            "task": SLEEPING,
            "task_settings": fleet.task_settings(),
            "run": run,
            "learners": fleet.learners,
            "listen": "127.0.0.1:0",
        }
        config.write_bytes(msgspec.yaml.encode(told))
        first = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "islands.cli", "run", str(config)),
            *("--folder", str(folder)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await asyncio.sleep(SETTLE_S + WINDOW_S)
        os.kill(first.pid, signal.SIGKILL)
        await first.wait()
        await asyncio.sleep(SYNCER_AWAY_S)
        hub = make_fleet(folder, fleet.settings(), fleet.task_settings(), learners=fleet.learners)
        async with running(hub):
            began_s = asyncio.get_running_loop().time()
            back_s = (await hub.wait_merge_of(fleet.names, READY_S)).at_s - began_s
            await asyncio.sleep(WINDOW_S + REPORT_S)
            gap_s = max(gaps.largest_s for gaps in hub.gaps().values())
            told_steps = ", ".join(f"{n} {hub.told[n].steps} steps" for n in fleet.names)
            return Found("supervisor killed", gap_s, back_s, told_steps)


async def jax_learner(name: str, *, cached: bool) -> Found:
    """SIGKILL of a learner that compiles: with its compiled functions at hand, and without."""
    task = "islands.tasks.stdlib_bytes:StdlibBytes"
    victim = "learner-1"
    with tempfile.TemporaryDirectory() as place:
        cache = Path(place) / "compiled"
        settings = RunSettings(run="faults", interval_steps=24, fragments=12)
        rows: dict[str, object] = {"rows": 4, "length": 128}
        hub = make_fleet(Path(place) / "run", settings, rows, learners=2, task=task, cache=cache)
        async with running(hub):
            await hub.wait_merge_of(("learner-0", victim), READY_S)
            await asyncio.sleep(SETTLE_S)
            if not cached:
                shutil.rmtree(cache)
            before = hub.gaps()["learner-0"]
            hub.launcher.kill(victim)
            back_s = await back(hub, victim, (victim,))
            await asyncio.sleep(REPORT_S)
            gap_s = longest_since(before, hub.gaps()["learner-0"])
            return Found(name, gap_s, back_s, f"learner-0 {hub.told['learner-0'].steps} steps")


async def measure(fleet: Fleet) -> list[Found]:
    """One run after the other."""
    victim = fleet.names[-1]
    return [
        await with_fault(fleet, "control", None, nothing),
        await with_fault(fleet, "learner killed", victim, kill_learner(victim)),
        await with_fault(fleet, "syncer killed", None, kill_syncer),
        await with_fault(fleet, "learner stopped", victim, stop_learner(victim)),
        await with_fault(fleet, "learner slow", victim, nothing),
        await kill_supervisor(fleet),
        await jax_learner("JAX learner killed, compiled functions cached", cached=True),
        await jax_learner("JAX learner killed, nothing cached", cached=False),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, default=4)
    parser.add_argument("--step_s", type=float, default=0.02)
    parser.add_argument("--megabytes", type=float, default=4.0)
    options = parser.parse_args()
    fleet = Fleet(options.learners, options.step_s, options.megabytes)
    results = asyncio.run(measure(fleet))
    control_s = results[0].gap_s
    table = Table(title=f"{fleet.learners} learners, {1000 * fleet.step_s:.0f} ms steps")
    for title in ("fault", "gap of others", "minus control", "back after", "steps"):
        table.add_column(title)
    for row in results:
        back_s = "" if row.back_s is None else f"{row.back_s:.2f} s"
        over = f"{1000 * (row.gap_s - control_s):.1f} ms"
        table.add_row(row.fault, f"{1000 * row.gap_s:.1f} ms", over, back_s, row.told)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
