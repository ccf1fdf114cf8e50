"""`islands chaos SCENARIO`: injects faults into a run, and judges what came of it."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.parsing import Common
from islands.cli.schema import plain
from islands.files.whole_files import replace_file
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.errors import unusable
from messaging.clock import MonotonicClock, WallClock

if TYPE_CHECKING:
    from islands.lab.faults.verdict import Played, Verdict

REPORT_FILE, HISTORY_FILE = "chaos.html", "history.jsonl"


def run(options: ChaosOptions, common: Common) -> int:
    """Play a scenario, print the verdict and write the page; returns 1 if a promise broke.

    Raises:
        UserError: the scenario names no fault, or the folder cannot be used.
    """
    from islands.cli.run import new_folder
    from islands.lab.faults.schedule import strikes_of
    from islands.lab.faults.verdict import verdict_of
    from islands.protocol.errors import UserError

    if not strikes_of(options):
        raise UserError("faults holds none; a scenario needs some, such as one: {fault: kill}")
    folder = options.folder or new_folder("chaos")
    played = _played(options, folder)
    found = (played.findings, played.control, played.violations, played.left_out)
    verdict = verdict_of(options, *found)
    _show(verdict)
    _write(options, common, folder, played, verdict)
    return 0 if verdict.kept else 1


def _played(options: ChaosOptions, folder: Path) -> "Played":
    def say(sentence: str) -> None:
        print(sentence, flush=True)

    if options.simulate:
        from islands.lab.faults import simulated

        return simulated.play(options, say)
    from islands.lab.faults import real

    return asyncio.run(_stoppable(real.play(options, folder, say)))


async def _stoppable(playing: "Coroutine[object, object, Played]") -> "Played":
    """Await what ends all processes that it started, also when this one is asked to end.

    Raises:
        IslandsError: it was asked to end.
    """
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
    heads = (
        "gap of others",
        "machine's",
        "rate",
        "its own",
        "noticed",
        "evicted",
        "back",
        "kept out",
        "",
    )
    for title in ("fault", *heads):
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


def _write(
    options: ChaosOptions, common: Common, folder: Path, played: "Played", verdict: "Verdict"
) -> None:
    import yaml

    from islands.lab.faults.report import chapters, marks
    from islands.page.report import history_lines, judged_page, run_lines
    from islands.run.records.figures import FIGURES_FILE

    files = " ".join(str(path) for path in common.config)
    simulate = " --simulate" if options.simulate else ""
    replay = f"islands chaos {files} --seed {options.seed}{simulate}"
    scenario = yaml.safe_dump(plain(options), sort_keys=False, allow_unicode=True)
    around = chapters(options, played, verdict, replay, scenario)
    run = options.file.run
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / HISTORY_FILE, b"".join(line + b"\n" for line in played.history))
        if options.simulate or not (folder / FIGURES_FILE).exists():  # one tape tells all
            lines, struck = history_lines(folder / HISTORY_FILE, run), []
        else:
            offset_s = WallClock().now_s() - MonotonicClock().now_s()
            found = [finding.struck for finding in played.findings]
            lines, struck = run_lines(folder), list(marks(found, offset_s))
        text = judged_page(lines, struck, f"chaos {run.run}", around)
        replace_file(folder / REPORT_FILE, text.encode())
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error
    print(f"{REPORT_FILE} and {HISTORY_FILE} are in {folder}")
