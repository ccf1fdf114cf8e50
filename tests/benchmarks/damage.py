"""What becomes of a run when a file of its folder is damaged: each file, flipped, cut and removed.

    python -m tests.benchmarks.damage [--only 'journal/*'] [--learners 2]

A run of real processes merges and is stopped; then, for each file and each damage, the folder is
put back, one file is damaged, and the same command is started again. Folders are removed whole as
well. In a second part only the hub was killed, so that its children live and must be found again;
in a third the run had ended.

named      it says which file it is, and goes on
refused    it says which file it is, and ends with exit code 2
over       it says that this run has ended, and leaves its files alone
goes on    it goes on with the same run, and needs nothing of the file, or has healed it
ANEW       it began anew without a word          LIVELOCK   members were admitted again and again
SILENT     it ended, or hangs, and names nothing

The last three, in capitals, must not be. Each row is one line, as soon as it is known.
"""

import argparse
import asyncio
import contextlib
import fnmatch
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from islands.run.hosting.process_identity import marked, send_signal
from tests.integration.programs import Entry, Program, Room, open_room, write_config

FIRST_MERGES = 24
MORE_MERGES = 6
LIMIT_S = 60.0
ADMISSIONS_MAX = 3
"""Of one learner, after one start: it comes, and may be evicted once before it is known."""
OF_NO_USE = 2
OVER = ("holds a run that has ended", "is over")
BAD = ("ANEW", "LIVELOCK", "SILENT")
NAMED_AS = {
    "journal": "the journal is gone",
    "journal.epoch": "epoch.c",
    "key": "key (written again)",
    "supervisor": "epoch.a.safetensors",
    "supervisor.epoch": "epoch.c",
    "token": "the run's token is not",
}
"""By which words one sees that a file is meant; of others it is their name."""
OF_THE_LIVING = ("hub.json", "key", "token", "supervisor*", "run.json")


def flip(path: Path) -> None:
    """One bit in the middle; an empty file gets a byte."""
    content = bytearray(path.read_bytes() or b"\0")
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {"flipped": flip, "cut": cut, "removed": remove}


def rows(path: Path) -> list[Entry]:
    """The lines of a file that can be read: one of them may be the damaged one."""
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            found.append(msgspec.json.decode(line, type=Entry))
    return found


def merges(folder: Path) -> int:
    return len([row for row in rows(folder / "metrics.jsonl") if row.get("kind") == "merge"])


def logged(folder: Path, kind: str, **fields: object) -> list[Entry]:
    found = rows(folder / "run.log")
    return [row for row in found if row.get("event") == kind and fields.items() <= row.items()]


@dataclass(frozen=True, slots=True)
class Bench:
    """One run, and what its folder was like before anything was damaged."""

    room: Room
    folder: Path
    whole: Path
    budget_tokens: int | None = None

    def start(self) -> Program:
        words = ("--run.budget_tokens", self.budget_tokens) if self.budget_tokens else ()
        config = self.room.folder / "run.yaml"
        return self.room.start("islands.cli", "run", config, "--folder", self.folder, *words)

    def end_all(self) -> None:
        """Kill the hub and all children, and forget the programs of this case."""
        for program in self.room.programs:
            if program.process.poll() is None:
                program.process.kill()
            program.process.wait(LIMIT_S)
        self.room.programs.clear()
        for identity in marked(self.folder).values():
            send_signal(identity, signal.SIGKILL)

    def put_back(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.whole, self.folder)

    def files(self) -> list[str]:
        paths = sorted(self.whole.rglob("*"))
        return [str(path.relative_to(self.whole)) for path in paths]

    async def outcome(self, name: str, program: Program, merged: int, starts: int) -> str:
        """Wait until it is clear what became of a start."""

        def seen() -> bool:
            ended = program.process.poll() is not None
            return ended or merges(self.folder) >= merged + MORE_MERGES

        try:
            await self.room.wait(seen, LIMIT_S)
        except TimeoutError:
            return f"SILENT (nothing in {LIMIT_S:g} s): {program.out[-400:]}{program.err[-400:]}"
        code = program.process.poll()
        told = f"{program.out}{program.err}"
        damaged = [str(entry["files"]) for entry in logged(self.folder, "damaged")]
        word = NAMED_AS.get(name, Path(name).name)
        named = any(word in text for text in (told, *damaged))
        if code == OF_NO_USE and any(word in told for word in OVER):
            return "over"
        if code is not None and not (code == 0 and self.budget_tokens):
            return (
                "refused" if code == OF_NO_USE and named else f"SILENT (code {code}): {told[-200:]}"
            )
        begun = logged(self.folder, "started", actor="syncer")[starts:]
        if begun and not any(entry.get("resumed") for entry in begun):
            return "named, anew" if named else "ANEW"
        admitted = Counter(str(e["name"]) for e in logged(self.folder, "admitted", role="learner"))
        if max(admitted.values(), default=0) > ADMISSIONS_MAX + 1:
            return f"LIVELOCK {dict(admitted)}"
        return "named" if named else "goes on"


async def one(bench: Bench, part: str, name: str, kind: str) -> str:
    bench.put_back()
    if part == "living":
        first = bench.start()
        await bench.room.wait(lambda: merges(bench.folder) > MORE_MERGES, LIMIT_S)
        first.process.kill()
        first.process.wait(LIMIT_S)
    path = bench.folder / name
    if not path.exists() or (kind == "cut" and path.is_file() and not path.stat().st_size):
        return ""
    DAMAGES[kind](path)
    merged = merges(bench.folder)
    starts = len(logged(bench.folder, "started", actor="syncer"))
    try:
        return await bench.outcome(name, bench.start(), merged, starts)
    finally:
        bench.end_all()


async def measured(part: str, only: str, learners: int) -> Counter[str]:
    found: Counter[str] = Counter()
    console = Console(width=160)
    with tempfile.TemporaryDirectory(prefix="damage-") as root:
        place = Path(root)
        run = {"run": "damage", "fragments": 2, "timing": {"patience": 0.5}}
        write_config(place / "run.yaml", learners=learners, run=run)
        async with open_room(place) as room:
            budget = 60_000 if part == "ended" else None
            bench = Bench(room, place / "run", place / "whole", budget)
            first = bench.start()
            if part == "ended":
                await room.ended(first, LIMIT_S)
            else:
                await room.wait(lambda: merges(bench.folder) >= FIRST_MERGES, LIMIT_S)
                first.process.send_signal(signal.SIGTERM)
                await room.ended(first, LIMIT_S)
            shutil.copytree(bench.folder, bench.whole)
            room.programs.clear()
            for name in bench.files():
                wanted = fnmatch.fnmatch(name, only)
                if part == "living":
                    wanted = wanted and any(fnmatch.fnmatch(name, one) for one in OF_THE_LIVING)
                if part == "ended":
                    wanted = wanted and name in ("summary.json", "final.safetensors")
                kinds = ("removed",) if (bench.whole / name).is_dir() else tuple(DAMAGES)
                for kind in kinds if wanted else ():
                    outcome = await one(bench, part, name, kind)
                    found[outcome.split(" (")[0].split(" {")[0]] += bool(outcome)
                    row = f"{part:8}{name:44}{kind:9}{outcome}"
                    console.print(row, markup=False, highlight=False, soft_wrap=True)
    return found


def main(arguments: list[str]) -> int:
    """Damage and print; 1 if anything went on in silence that must not."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.damage")
    parser.add_argument("--only", default="*", help="a pattern of names")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--part", nargs="+", default=("stopped", "living", "ended"))
    chosen = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    for part in chosen.part:
        total += asyncio.run(measured(part, chosen.only, chosen.learners))
    Console().print(dict(total), markup=False)
    return int(any(outcome.startswith(BAD) for outcome in total))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
