"""What a full disk does to a run: real processes, on small file systems that are filled.

    python -m tests.benchmarks.full_disk [--seconds 20] [--kind run hub] [--full run journal both]

Each run is one row: `islands run` with two learners, or a hub (`python -m islands.syncer`) that two
learners have joined from a folder elsewhere. Its run folder, its journal, or both lie on a file
system that takes nothing for so many seconds: whatever becomes free is taken at once.

asked     the longest time in which the hub answered `islands control status` meanwhile
merged    merges that were made meanwhile, and in the two seconds in which their rows are written
goes on   from the moment at which there is room again to a merge after those, at most
ends      from SIGTERM, while the disk is full again, to the end of the process; and its exit code
again     from the next start, with room, to the first merge; and whether the run is the same one

Needs root, to mount; what is mounted is taken away in any case.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from islands.cli.control import target_of, tell
from islands.protocol.errors import IslandsError
from islands.protocol.messages.control import Verb
from islands.settings.commands import ControlOptions
from messaging.clock import MonotonicClock
from tests.integration.programs import Program, Room, logged, merges, open_room, write_config
from tests.integration.small_disk import SmallDisk, kept_full, small_disk, unavailable

KINDS = ("run", "hub")
PLACES = ("run", "journal", "both")
RUN_BYTES = 24 * 2**20
JOURNAL_BYTES = 8 * 2**20
ASK_S = 1.0
AGAIN_S = 3.0
DRAIN_S = 2.0
"""After which all that waited for room has been written."""
LIMIT_S = 60.0


@dataclass(slots=True)
class Found:
    """One row."""

    kind: str
    full: str
    asked_s: float = 0.0
    unanswered: int = 0
    merged_meanwhile: int = 0
    goes_on_s: float = float("inf")
    ends_s: float = float("inf")
    code: int | None = None
    again_s: float = float("inf")
    same: bool = False

    @property
    def good(self) -> bool:
        """Whether nobody had to help."""
        times_s = max(self.goes_on_s, self.ends_s, self.again_s)
        return self.unanswered == 0 and self.code == 0 and self.same and times_s < LIMIT_S


@dataclass(frozen=True, slots=True)
class Case:
    """The processes of one row, and the disks that are filled under them."""

    room: Room
    folder: Path
    disks: tuple[SmallDisk, ...]
    kind: str

    def start(self) -> Program:
        """The hub, whatever it starts."""
        config = self.room.folder / "run.yaml"
        if self.kind == "run":
            return self.room.start("islands.cli", "run", config, "--folder", self.folder)
        return self.room.start("islands.syncer", "--config", config, "--folder", self.folder)

    async def join(self) -> None:
        """For a hub: two learners, whose own folder is not on a disk that is filled."""
        place = self.folder / "hub.json"
        await self.room.wait(place.exists)
        for name in ("a", "b") if self.kind == "hub" else ():
            target = target_of(ControlOptions(Verb.STATUS, folder=self.folder))
            self.room.start(
                *("islands.learner", "--supervisor", target.addresses[0], "--name", name),
                *("--folder", self.room.folder / name),
            )

    async def merged(self, more_than: int) -> float:
        """Seconds until the hub has told of more merges than these."""
        began_s = MonotonicClock().now_s()
        await self.room.wait(lambda: merges(self.folder) > more_than, LIMIT_S)
        return MonotonicClock().now_s() - began_s

    async def ask(self, found: Found) -> None:
        """Ask the hub how it is, as an operator would."""
        began_s = MonotonicClock().now_s()
        try:
            target = target_of(ControlOptions(Verb.STATUS, folder=self.folder))
            await tell(target, Verb.STATUS, "", 1)
        except IslandsError:
            found.unanswered += 1
        found.asked_s = max(found.asked_s, MonotonicClock().now_s() - began_s)


async def measured(case: Case, found: Found, seconds: float) -> None:
    """Fill, wait, give room; fill again, end it; give room, start it again."""
    hub = case.start()
    await case.join()
    await case.merged(3)
    before = merges(case.folder)
    async with kept_full(case.disks):
        for _ in range(round(seconds / ASK_S)):
            await case.ask(found)
            await asyncio.sleep(ASK_S)
    await asyncio.sleep(DRAIN_S)
    found.merged_meanwhile = merges(case.folder) - before
    found.goes_on_s = DRAIN_S + await case.merged(merges(case.folder))
    async with kept_full(case.disks):
        await asyncio.sleep(AGAIN_S)
        began_s = MonotonicClock().now_s()
        hub.process.send_signal(signal.SIGTERM)
        found.code = await case.room.ended(hub, LIMIT_S)
        found.ends_s = MonotonicClock().now_s() - began_s
    case.start()
    found.again_s = await case.merged(merges(case.folder))
    starts = logged(case.folder, "started", actor="syncer")
    found.same = starts[-1].get("resumed") is True


async def row(kind: str, full: str, seconds: float) -> Found:
    """One run of real processes."""
    found = Found(kind, full)
    with tempfile.TemporaryDirectory(prefix="full-disk-") as name, contextlib.ExitStack() as mounts:
        root, folder = Path(name), Path(name) / "disk"
        disks: list[SmallDisk] = []
        if full != "journal":
            disks.append(mounts.enter_context(small_disk(folder, RUN_BYTES)))
        if full != "both":  # the journal has a disk of its own, which is the full one, or is not
            own = mounts.enter_context(small_disk(folder / "journal", JOURNAL_BYTES))
            disks = [own] if full == "journal" else disks
        write_config(root / "run.yaml", **({"learners": 2} if kind == "run" else {}))
        async with open_room(root) as room:
            case = Case(room, folder, tuple(disks), kind)
            try:
                await measured(case, found, seconds)
            except TimeoutError as error:
                Console(stderr=True).print(f"{kind}, {full}: {error}", markup=False)
    return found


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if somebody would have had to help."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.full_disk")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--full", nargs="+", choices=PLACES, default=PLACES)
    chosen = parser.parse_args(arguments)
    missing = unavailable()
    if missing is not None:
        Console().print(f"skipped: {missing}")
        return 0
    table = Table(title=f"A disk that is full for {chosen.seconds:g} s", title_justify="left")
    for title in ("started as", "full", "asked", "merged", "goes on", "ends", "again"):
        table.add_column(title, justify="left" if title in ("started as", "full") else "right")
    good = True
    for kind in chosen.kind:
        for full in chosen.full:
            found = asyncio.run(row(kind, full, chosen.seconds))
            good = good and found.good
            table.add_row(
                *(kind, full),
                f"{found.asked_s:.2f} s" + (f", {found.unanswered} not" * bool(found.unanswered)),
                str(found.merged_meanwhile),
                f"{found.goes_on_s:.1f} s",
                f"{found.ends_s:.1f} s, code {found.code}",
                f"{found.again_s:.1f} s, {'the same' if found.same else 'ANOTHER'}",
            )
    Console(width=110).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
