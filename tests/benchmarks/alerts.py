"""Each alert rule fires on its fault in a real run, and clears; none fires where nothing is done.

    python -m tests.benchmarks.alerts                        # all faults side by side, 15 minutes
    python -m tests.benchmarks.alerts --only IslandsDown IslandsDisk
    python -m tests.benchmarks.alerts --undisturbed 3600     # an hour in which nothing is done

Each fault (`alert_faults.py`) has a run of its own: a hub, a syncer and three learners whose
devices sleep. One Prometheus scrapes all hubs every 5 s and judges the rules as
`deploy/prometheus/islands.rules.yaml` has them: no time in them is scaled. The table has after how
many seconds a rule fired, from the moment at which the fault was begun, and cleared, from that at
which its mending was. It names what else fired in that run. The exit code is 1 if a rule did not
fire, or did not clear.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.alert_faults import FAULTS, LONG_DAYS, Fault, Run, certify
from tests.integration.programs import ROOT, open_room
from tests.integration.small_disk import unavailable
from tests.prometheus import Prometheus, missing

LOOK_S = 1.0
RULES = ROOT / "deploy/prometheus/islands.rules.yaml"
LIMIT_S = 1200.0
BROKEN = (AssertionError, ExceptionGroup, OSError, subprocess.CalledProcessError)


@dataclass(slots=True)
class Found:
    """Seconds until a rule fired and cleared; None: it did not."""

    rule: str
    cause: str
    fired_s: float | None = None
    cleared_s: float | None = None
    others: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault, done to its run; `turn` is held by the run that starts, as all would slow all."""

    fault: Fault
    run: Run
    prometheus: Prometheus
    say: Callable[[str], None]
    turn: asyncio.Lock

    @property
    def rule(self) -> str:
        return type(self.fault).__name__

    async def play(self) -> Found:
        """Begin the run, strike, mend, and return what was found."""
        found = Found(self.rule, str(self.fault.__doc__))
        try:
            async with self.turn:
                await self.run.start()
            while self.rule in await self._firing("ALERTS"):  # noqa: ASYNC110  nobody tells of it
                await asyncio.sleep(LOOK_S)
            self.say(f"{self.rule}: {found.cause}")
            found.fired_s = await self._watch(self.fault.strike(self.run), fired=True)
            self.say(f"{self.rule}: fired after {found.fired_s}")
            found.cleared_s = await self._watch(self.fault.mend(self.run), fired=False)
            self.say(f"{self.rule}: cleared after {found.cleared_s}")
            fired_ever = await self._firing("max_over_time(ALERTS", "[2h])")
            found.others = tuple(sorted(fired_ever - {self.rule}))
            await self.run.end()
        except BROKEN as error:
            found.trouble = repr(getattr(error, "exceptions", error))
            self.say(f"{self.rule}: {found.trouble}")
        return found

    async def _watch(self, act: Coroutine[None, None, None], *, fired: bool) -> float | None:
        """Act; return when the rule has fired, or cleared."""
        began_s = now_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(act)
            while now_s() - began_s < LIMIT_S:
                if (self.rule in await self._firing("ALERTS")) == fired:
                    return now_s() - began_s
                await asyncio.sleep(LOOK_S)
        return None

    async def _firing(self, before: str, after: str = "") -> set[str]:
        of_run = f'{{case="{self.rule}",alertstate="firing"}}'
        found = await self.prometheus.query(f"{before}{of_run}{after}")
        return {labels["alertname"] for labels, _ in found}


async def play_all(
    faults: Sequence[type[Fault]], folder: Path, say: Callable[[str], None]
) -> list[Found]:
    async with AsyncExitStack() as stack:
        runs: dict[str, tuple[Fault, Run]] = {}
        for kind in faults:
            fault, place = kind(), folder / kind.__name__
            place.mkdir()
            run = Run(await stack.enter_async_context(open_room(place)))
            fault.place(run, stack)
            runs[kind.__name__] = fault, run
        room = await stack.enter_async_context(open_room(folder))
        targets = {rule: run.target for rule, (_, run) in runs.items()}
        prometheus = Prometheus(room, targets, RULES.read_text())
        await prometheus.ready()
        turn = asyncio.Lock()
        trials = [Trial(fault, run, prometheus, say, turn) for fault, run in runs.values()]
        return await asyncio.gather(*(trial.play() for trial in trials))


async def leave_undisturbed(folder: Path, for_s: float) -> dict[str, object]:
    """Let a run with a certificate go on for a while; return what became of it."""
    async with AsyncExitStack() as stack:
        (folder / "run").mkdir()
        run = Run(await stack.enter_async_context(open_room(folder / "run")))
        certify(run, LONG_DAYS)
        room = await stack.enter_async_context(open_room(folder))
        prometheus = Prometheus(room, {"undisturbed": run.target}, RULES.read_text())
        await prometheus.ready()
        began_s = now_s()
        await run.start()
        await asyncio.sleep(for_s)
        span = f"[{now_s() - began_s + LOOK_S:.0f}s]"

        async def value(expression: str) -> float | None:
            found = await prometheus.query(expression)
            return found[0][1] if found else None

        told: dict[str, object] = {
            "seconds": now_s() - began_s,
            "scrapes": await value(f"sum_over_time(up{span})"),
            "metrics": await value('count(count by (__name__) ({__name__=~"islands_.*"}))'),
            "merges": await value("islands_run_merges_total"),
            "tokens": await value("islands_run_tokens_total"),
            "yield": await value("islands_run_yield_ratio"),
            "longest_without_merge_s": await value(
                f"max_over_time(islands_run_since_merge_seconds{span})"
            ),
            "pending_or_firing": [
                labels for labels, _ in await prometheus.query(f"count_over_time(ALERTS{span})")
            ],
        }
        await run.end()
        return told


def now_s() -> float:
    return asyncio.get_running_loop().time()


def table_of(found: Sequence[Found]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("rule", "fault", "fired", "cleared", "fired too", "trouble"):
        table.add_column(title)
    for each in found:
        times_s = (each.fired_s, each.cleared_s)
        shown = ["" if time_s is None else f"{time_s:.0f} s" for time_s in times_s]
        table.add_row(each.rule, each.cause, *shown, " ".join(each.others), each.trouble[:80])
    return table


def main() -> int:
    """Play the faults, or none; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    names = [kind.__name__ for kind in FAULTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--undisturbed", type=float, metavar="SECONDS")
    options = parser.parse_args()
    if lacks := missing():
        print(lacks)
        return 2
    with tempfile.TemporaryDirectory(prefix="alerts-") as name:
        folder = Path(name)
        if options.undisturbed is not None:
            told = asyncio.run(leave_undisturbed(folder, options.undisturbed))
            print(json.dumps(told, indent=2))
            return int(bool(told["pending_or_firing"]))
        faults = [kind for kind in FAULTS if kind.__name__ in options.only]
        if why := unavailable():
            print(f"faults of disks are left out: {why}")
            faults = [kind for kind in faults if not kind.on_disk]
        found = asyncio.run(play_all(faults, folder, lambda told: print(told, flush=True)))
    Console(width=200).print(table_of(found))
    print(json.dumps([asdict(each) for each in found]))
    complete = all(
        None not in (each.fired_s, each.cleared_s) and not each.trouble for each in found
    )
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
