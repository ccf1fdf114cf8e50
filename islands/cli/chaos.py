"""`islands lab chaos SCENARIO`: injects faults into a run, and judges what came of it."""

import asyncio
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.parsing import Common
from islands.files.whole_files import replace_file
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.errors import unusable

if TYPE_CHECKING:
    from islands.lab.faults.verdict import Played, Verdict

HISTORY_FILE = "history.jsonl"
HEADS = (
    *("fault", "gap of others", "machine's", "rate", "its own", "noticed", "evicted", "back"),
    *("kept out", ""),
)


def run(options: ChaosOptions, _: Common) -> int:
    """Play a scenario, print the verdict and write the history; returns 1 if a promise broke."""
    from islands.cli.run import new_folder
    from islands.lab.faults import real
    from islands.lab.faults.schedule import strikes_of
    from islands.lab.faults.verdict import verdict_of
    from islands.protocol.errors import UserError

    if not strikes_of(options):
        raise UserError("faults holds none; a scenario needs some, such as one: {fault: kill}")
    folder = options.folder or new_folder("chaos")
    played = asyncio.run(_stoppable(real.play(options, folder, partial(print, flush=True))))
    verdict = verdict_of(options, played.findings, played.control, played.violations)
    _show(verdict)
    _write(folder, played)
    return 0 if verdict.kept else 1


async def _stoppable(playing: "Coroutine[object, object, Played]") -> "Played":
    """Await what ends all processes that it started, also when this one is asked to end."""
    from islands.protocol.errors import IslandsError
    from islands.run.hosting.process_runtime import on_ending_signals

    task = asyncio.create_task(playing)
    asked: list[str] = []

    def end(name: str) -> None:
        asked.append(name)
        task.cancel()

    try:
        with on_ending_signals(end):
            return await task
    except asyncio.CancelledError:
        if not asked:
            raise
        raise IslandsError(f"{asked[0]} ended the scenario, so nothing was judged") from None


def _show(verdict: "Verdict") -> None:
    from rich.console import Console
    from rich.table import Table

    from islands.lab.faults.report import counted, figures

    table = Table(box=None, pad_edge=False)
    for title in HEADS:
        table.add_column(title, overflow="fold")
    for judged in verdict.judged:
        promises = "; ".join(judged.broken) or "kept"
        struck = judged.finding.struck
        name = f"{struck.strike.name}{counted(struck)}"
        table.add_row(name, *figures(judged, verdict.control), promises)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for violation in verdict.violations:
        print(violation)
    print(verdict.sentence[0].upper() + verdict.sentence[1:])


def _write(folder: Path, played: "Played") -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / HISTORY_FILE, b"".join(line + b"\n" for line in played.history))
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error
    print(f"{HISTORY_FILE} is in {folder}; `islands report {folder}` makes a page of the run")
