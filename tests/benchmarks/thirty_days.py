"""Thirty simulated days of one run: does memory stay flat, and do files stay bounded?

    python -m tests.benchmarks.thirty_days [--days 30] [--step_s 600]

The production actors on the virtual clock: three learners and a guest, with steps of ten minutes
and all timeouts scaled by as much. Every two hours a learner is killed and comes back; a guest, of
ten names in turn, joins and leaves; twice a day the syncer, and once the supervisor, is killed. The
tape goes to a file that is rotated as that of a real run, here at 1 MiB.

One line per day has the process's resident memory, the objects that Python's collector follows, the
bytes of the journal's files, and those of the tape's. The last line is JSON: what grew from a third
of the time to its end, and the CPU that it took. The exit code is 1 if one of the first
three grew by more than its share in `GROWTH_MAX`, or the tape beyond its bound.
"""

import argparse
import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from islands.files.growing_files import Spool
from islands.files.tape_writing import FileTape
from islands.lab.world.world import LearnerHost, World
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.run import RunSettings, Timing
from messaging.simulation.virtual_time import run_virtual

DAY_S, HOUR_S = 86_400.0, 3600.0
GUESTS = 10
TAPE_BYTES = 2**20
TAPE_FILES = 2
"""The tape that is written and one older one."""

GROWTH_MAX = {"resident": 0.02, "objects": 0.02, "journal": 0.1}
"""Largest growth from a third of the time to its end; numbers in a journal become longer."""

LEARNERS = ("ana", "ben", "cleo")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run holds at one time; `resident_bytes` is the most that the process ever had."""

    day: float
    resident_bytes: int
    objects: int
    journal_bytes: int
    tape_bytes: int
    merges: int
    starts: int

    def __str__(self) -> str:
        return (
            f"day {self.day:5.1f} | {self.resident_bytes / 2**20:7.1f} MiB | {self.objects:7} "
            f"objects | journal {self.journal_bytes:7} B | tape {self.tape_bytes:8} B | "
            f"{self.merges} merges | {self.starts} starts"
        )


def settings_for(step_s: float) -> RunSettings:
    """The run's settings: a merge every four steps, and timeouts as long as steps of `step_s`."""
    timing = Timing(patience=max(1.0, step_s))
    return RunSettings(interval_steps=16, fragments=4, seed=1, timing=timing)


class LongRun:
    """A run that goes on for days, while its members come and go.

    Args:
        folder: where the tape is written.
        step_s: virtual seconds of a step.
    """

    def __init__(self, folder: Path, step_s: float) -> None:
        self._folder = folder
        self._spool = Spool(folder)
        self._hosts = {name: LearnerHost(step_s=step_s) for name in LEARNERS}
        guests = {f"guest-{number}": LearnerHost(step_s=step_s) for number in range(GUESTS)}
        tape = FileTape(folder / "tape.jsonl", self._spool, limit_bytes=TAPE_BYTES)
        self.world = World(settings_for(step_s), self._hosts | guests, seed=1, tape=tape)
        self.rows: list[Figures] = []
        self._starts = 0
        self._merges = 0

    async def live(self, days: float, every_days: float = 1.0) -> None:
        world, hours = self.world, 0
        for name in (SUPERVISOR, SYNCER, *LEARNERS):
            world.start(name)
        due = every_days
        while hours < days * 24:
            await asyncio.sleep(HOUR_S / 2)
            await self._disturb(hours)
            await asyncio.sleep(HOUR_S / 2)
            hours += 1
            assert not world.failures, world.failures
            if hours >= due * 24:
                self.rows.append(self._look(hours / 24))
                due += every_days
        await world.kill_all()
        self._spool.close()

    async def _disturb(self, hour: int) -> None:
        world = self.world
        state = world.syncer_state
        assert state is not None, "the syncer runs"
        self._merges = state.durable.merges
        names = [LEARNERS[hour // 2 % len(LEARNERS)]] if hour % 2 == 0 else []
        names += [SYNCER] if hour % 12 == 5 else []
        names += [SUPERVISOR] if hour % 24 == 17 else []
        for name in names:
            await world.kill(name, silent=hour % 4 == 0)
            world.start(name)
        guest = f"guest-{hour // 4 % GUESTS}"
        if hour % 4 == 1:
            world.start(guest)
        learner = world.learner(guest)
        if hour % 4 == 3 and learner is not None:
            learner.leave("the guest's time is over")
        self._starts += len(names) + (hour % 4 == 1)

    def _look(self, day: float) -> Figures:
        gc.collect()
        disks = [self.world.disks[name].copied() for name in (SUPERVISOR, SYNCER)]
        tapes = list(self._folder.iterdir())
        return Figures(
            day,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            len(gc.get_objects()),
            sum(len(content) for files in disks for content in files.values()),
            sum(path.stat().st_size for path in tapes),
            self._merges,
            self._starts,
        )


def growth(rows: list[Figures]) -> dict[str, float]:
    """What grew from a third of the time to the end, as shares."""
    early, late = rows[len(rows) // 3], rows[-1]
    return {
        "resident": late.resident_bytes / early.resident_bytes - 1,
        "objects": late.objects / early.objects - 1,
        "journal": late.journal_bytes / early.journal_bytes - 1,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.thirty_days")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--step_s", type=float, default=600.0)
    chosen = parser.parse_args(arguments)
    begun_s = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        run = LongRun(Path(place), chosen.step_s)
        run_virtual(run.live(chosen.days), limit_s=(chosen.days + 1) * DAY_S)
    print("\n".join(map(str, run.rows)))
    grown = growth(run.rows)
    figures = {
        "days": chosen.days,
        "cpu_s": round(time.process_time() - begun_s, 1),
        **{f"{name}_growth": round(share, 4) for name, share in grown.items()},
        "tape_bytes_most": max(row.tape_bytes for row in run.rows),
        "merges": run.rows[-1].merges,
        "starts": run.rows[-1].starts,
    }
    print(json.dumps(figures))
    bounded = figures["tape_bytes_most"] <= TAPE_FILES * TAPE_BYTES + 2**16
    return 0 if bounded and all(grown[name] <= most for name, most in GROWTH_MAX.items()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
