"""The commands of the laboratory: `islands lab chaos`, `study`, `simulate`, `simulate goodput`."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from islands.cli.parsing import Common, one_line
from islands.files.whole_files import replace_file, save
from islands.lab.settings.chaos import ChaosOptions
from islands.lab.settings.fleets import ComparisonOptions, GoodputOptions
from islands.lab.settings.study import StudyOptions
from islands.protocol.errors import IslandsError, UserError, unusable
from islands.settings.quantities import duration
from messaging.clock import MonotonicClock

if TYPE_CHECKING:
    from islands.lab.experiments.side_by_side import Experiment
    from islands.lab.faults.verdict import Verdict
    from islands.lab.study.cells import Trial
    from islands.lab.study.runner import Finished
    from islands.lab.study.trial import Result

T = TypeVar("T")

HISTORY_FILE = "history.jsonl"
TABLE_FILE = "study.md"
PLOT_FILE = "study.png"


class _Progress:
    """Prints after each job of a known number how long the others will take."""

    def __init__(self, jobs: int) -> None:
        self._clock, self._left, self._computed = MonotonicClock(), jobs, 0
        self._jobs, self._begun_s = jobs, self._clock.now_s()

    def ended(self, text: str = "", *, known: bool = False) -> None:
        """Count a job; one whose result was known before says nothing of the others' time."""
        self._left -= 1
        self._computed += not known
        each_s = (self._clock.now_s() - self._begun_s) / max(1, self._computed)
        wait = f", about {duration(each_s * self._left)} left" * bool(self._computed and self._left)
        print(f"[{self._jobs - self._left}/{self._jobs}]{text}{wait}", flush=True)


# --- chaos ----------------------------------------------------------------------------------------


def chaos(options: ChaosOptions, _: Common) -> int:
    """Play a scenario, print the verdict and write the history; return 1 if a promise broke."""
    from islands.cli.run import new_folder
    from islands.lab.faults import real
    from islands.lab.faults.schedule import injections_of

    if not injections_of(options):
        raise UserError("faults holds none; a scenario needs some, such as one: {fault: kill}")
    folder = options.folder or new_folder("chaos")
    playing = real.play(options, folder, partial(print, flush=True))
    verdict, history = asyncio.run(stoppable(playing))
    _show(verdict)
    save(folder / HISTORY_FILE, b"".join(line + b"\n" for line in history))
    print(f"{HISTORY_FILE} is in {folder}; `islands report {folder}` makes a page of the run")
    return 0 if verdict.kept else 1


async def stoppable(playing: Coroutine[object, object, T]) -> T:
    """Await what ends all processes that it started, also when this one is asked to end."""
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

    from islands.lab.faults.verdict import HEADS, figures

    table = Table(box=None, pad_edge=False)
    for title in ("fault", *HEADS, ""):
        table.add_column(title, overflow="fold")
    for judged in verdict.judged:
        name = judged.finding.injected.injection.name
        table.add_row(
            name, *figures(judged.finding, verdict.control), "; ".join(judged.broken) or "kept"
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for violation in verdict.violations:
        print(violation)
    print(verdict.sentence[0].upper() + verdict.sentence[1:])


# --- study ----------------------------------------------------------------------------------------


def study(options: StudyOptions, _: Common) -> int:
    """Play every trial that has no result yet, then compare; return 1 if one has none."""
    from islands.lab.study.cells import trials_of
    from islands.lab.study.runner import prepare
    from islands.lab.study.runner import run as run_trials
    from islands.lab.study.table import metric_of

    trials, finished = trials_of(options), []
    with prepare(options.folder):
        progress = _Progress(len(trials))
        for ended in run_trials(trials, options.folder, options.workers, play):
            finished.append(ended)
            if ended.result is not None and ended.result.figures:
                metric_of(options, ended.result)  # or it refuses a wrong name, before the others
            progress.ended(f" {_of_trial(ended)}", known=ended.known)
        _conclude(options, trials, finished)
    return 1 if any(ended.result is None for ended in finished) else 0


def play(trial: "Trial") -> "Result":
    """Play a trial; JAX keeps compiled functions for the next trial of its shape."""
    from islands.lab.study import trial as trials
    from islands.model.jax_settings import enable_compilation_cache
    from islands.run.hosting.process_runtime import compiled_folder

    enable_compilation_cache(compiled_folder())
    return trials.play(trial)


def _of_trial(ended: "Finished") -> str:
    name = f"{ended.trial.name}, seed {ended.trial.seed}"
    result = ended.result
    if result is None:
        return f"{name}: failed: {one_line(UserError(ended.error))}"
    figures = ", ".join(f"{key} {value:.4g}" for key, value in result.figures.items())
    took = "known" if ended.known else duration(result.wall_s)
    return f"{name}: {figures}, yield {result.yield_share:.2f} ({took})"


def _conclude(options: StudyOptions, trials: "list[Trial]", finished: "list[Finished]") -> None:
    """Print the table; keep it, with its plot, unless cells were left out."""
    from islands.lab.study.table import by_cell, metric_of, plot, rows_of, table

    results = [each.result for each in finished if each.result is not None]
    first = next((result for result in results if result.figures), None)
    if first is None:
        raise UserError("no trial has a result; the lines above say why")
    cells = by_cell(trials, {each.trial.fingerprint: each.result for each in finished})
    metric = metric_of(options, first)
    rows = rows_of(options, trials, cells, metric)
    text = table(options, rows, metric)
    print(f"\n{text}")
    if options.only is None:
        save(options.folder / TABLE_FILE, text.encode())
        save(options.folder / PLOT_FILE, plot(cells, metric, options.folder.name))
        print(f"The table, {PLOT_FILE} and all results are in {options.folder}")


# --- simulate -------------------------------------------------------------------------------------


def simulate(options: GoodputOptions | ComparisonOptions, _: Common) -> int:
    """Play every fleet, then print the table; return 1 if a promise was broken."""
    module = name = "goodput"
    if isinstance(options, ComparisonOptions):
        module, name = "comparison", options.name
    experiment: Experiment[Any, Any, Any, Any]
    experiment = import_module(f"islands.lab.experiments.{module}").EXPERIMENT
    results = _play_all(experiment, options)
    table = experiment.table(options, results)
    print(table, end="")
    if options.folder is not None:
        figures = msgspec.json.encode(experiment.figures(options, results))
        files: dict[str, Callable[[], bytes]] = {
            f"{name}.md": table.encode,
            f"{name}.json": lambda: msgspec.json.format(figures, indent=1) + b"\n",
            **experiment.pictures(options, results),
        }
        try:
            options.folder.mkdir(parents=True, exist_ok=True)
            for file, content in files.items():
                replace_file(options.folder / file, content())
        except OSError as error:
            raise unusable(f"the folder {options.folder} cannot be written", error) from error
        print(f"{', '.join(files)} are in {options.folder}")
    return 0 if experiment.kept(results) else 1


def _play_all(
    experiment: "Experiment[Any, Any, Any, Any]", options: GoodputOptions | ComparisonOptions
) -> dict[object, Any]:
    """Play all runs side by side; return their results in the runs' order."""
    from islands.lab.experiments.side_by_side import Failure, play_all

    jobs, results = experiment.jobs(options), dict[object, Any]()
    progress = _Progress(len(jobs))
    for key, result in play_all(experiment.play, jobs, options.workers):
        if isinstance(result, Failure):
            raise IslandsError(f"{key}: {result.sentence}")
        results[key] = result
        progress.ended()
    print()
    return {key: results[key] for key in jobs}
