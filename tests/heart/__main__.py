"""Run what `tests.heart` describes, and print a table; the exit code is 1 if a bound is broken.

The bounds are broken by a learner that is left out for some seconds and by a default that is 3 %
worse, and not by the noise of quiet machines (docs/quality.md has the measurements). Seconds are
those of a quiet machine: beside other work, only the virtual run means anything.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.heart.figures import Figures, figures_of
from tests.heart.virtual import broken, busy

LIMIT_S = 240.0
"""A real run that takes longer is ended."""

SHORT = ("--run.budget_tokens", "400000", "--run.total_steps", "200")
"""So that all runs together take four minutes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a real run must keep; for `Figures`."""

    participation: float
    unmerged_s: float
    in_time: float
    bits: float

    def broken(self, found: Figures) -> list[str]:
        told = []
        if found.participation < self.participation:
            told.append(f"participation {found.participation:.3f}, not {self.participation}")
        if found.unmerged_s > self.unmerged_s:
            told.append(f"{found.unmerged} was not merged for {found.unmerged_s:.1f} s")
        if found.in_time < self.in_time:
            told.append(f"{found.in_time:.1%} was merged in time, not {self.in_time:.0%}")
        if found.bits > self.bits:
            told.append(f"{found.bits:.3f} bits per byte, at most {self.bits}")
        return told


Run = tuple[str, Bounds, Sequence[str]]

RUNS: tuple[Run, ...] = (
    (
        "demo",
        Bounds(participation=0.85, unmerged_s=3.0, in_time=0.95, bits=2.26),
        ("demo",),
    ),
    (
        "stdlib.yaml, four learners",
        Bounds(participation=0.93, unmerged_s=3.0, in_time=0.97, bits=2.98),
        ("run", "examples/stdlib.yaml", "--learners", "4", *SHORT),
    ),
    (
        "a small model in one fragment, two learners",
        Bounds(participation=0.85, unmerged_s=3.0, in_time=0.97, bits=0.0),
        ("run", "--task", "examples.digits:Digits", "--learners", "2", *SHORT),
    ),
)
"""Each real run, its bounds, and its command."""

TRIES = 2
"""A run that breaks a bound is made once more: a fault breaks it again, a busy moment seldom."""

WIDTH = 120
TITLES = ("run", "took part", "longest unmerged", "in time", "bits", "first merge", "total")


def main(folders: Sequence[str]) -> int:
    """Show the figures of these run folders or, without any, make all runs and judge them."""
    console, table = Console(width=WIDTH), Table(box=None, pad_edge=False)
    for title in TITLES:
        table.add_column(title, justify="left" if title == "run" else "right")
    told: list[str] = []
    if folders:
        for path in map(Path, folders):
            _row(table, path.name, figures_of(path))
    else:
        with TemporaryDirectory() as scratch:
            for number, run in enumerate(RUNS):
                told += _broken(run, Path(scratch) / str(number), table)
        result = busy()
        bits = f"{result.metric('val_bits_per_byte'):.4f}"
        table.add_row("virtual", f"{result.participation:.3f}", "", "", bits, "", "")
        told += broken(result)
    console.print(table)
    for each in told:
        console.print(each, style="red")
    return 1 if told else 0


def _broken(run: Run, folders: Path, table: Table) -> list[str]:
    """Return what the last try of a run broke; nothing once a try kept all bounds."""
    name, bounds, command = run
    told: list[str] = []
    for again in range(TRIES):
        folder = folders / str(again)
        told = _run(command, folder)
        if not told:
            found = figures_of(folder)
            _row(table, name, found)
            told = bounds.broken(found)
        if not told:
            break
    return [f"{name}: {each}" for each in told]


def _row(table: Table, name: str, found: Figures) -> None:
    unmerged = f"{found.unmerged_s:.2f} s, {found.unmerged_rounds} merges ({found.unmerged})"
    table.add_row(
        name,
        f"{found.participation:.3f}",
        unmerged,
        f"{found.in_time:.1%}",
        f"{found.bits:.3f}",
        f"{found.first_merge_s:.1f} s",
        f"{found.total_s:.1f} s",
    )


def _run(command: Sequence[str], folder: Path) -> list[str]:
    words = [sys.executable, "-m", "islands.cli", *command, "--folder", str(folder)]
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return [f"it did not end within {LIMIT_S:.0f} s"]
    return [] if done.returncode == 0 else [f"it ended with {done.returncode}: {done.stderr}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
