"""`islands study FILE`: which settings train as well as which, at equal tokens."""

from typing import TYPE_CHECKING

from islands.cli.parsing import Common, one_line
from islands.cluster.formatting import duration
from islands.errors import UserError, unusable
from islands.files.atomic_write import replace_file
from islands.settings.study import StudyOptions
from messaging.clock import MonotonicClock

if TYPE_CHECKING:
    from islands.study.runner import Finished

TABLE_FILE = "study.md"
PLOT_FILE = "study.png"


def run(options: StudyOptions, _: Common) -> int:
    """Play every trial that has no result yet, then compare; returns the exit code.

    Raises:
        UserError: no trial has a result, the task's evaluation has no such metric, or the folder
            cannot be written to.
    """
    from islands.study.cells import trials_of
    from islands.study.runner import run as run_trials
    from islands.study.table import metric_of

    trials = trials_of(options)
    clock, finished = MonotonicClock(), []
    begun_s, computed = clock.now_s(), 0
    for ended in run_trials(trials, options.folder, options.workers, keep_compiled):
        finished.append(ended)
        if ended.result is not None:
            metric_of(options, ended.result)
        computed += not ended.known
        left = len(trials) - len(finished)
        each_s = (clock.now_s() - begun_s) / max(1, computed)
        wait = f", about {duration(each_s * left)} left" if computed and left else ""
        print(f"[{len(finished)}/{len(trials)}] {_told(ended)}{wait}", flush=True)
    _conclude(options, sorted(finished, key=lambda ended: trials.index(ended.trial)))
    return 1 if any(ended.result is None for ended in finished) else 0


def keep_compiled() -> None:
    """Let JAX keep compiled functions, so that the second trial of a shape compiles nothing."""
    from islands.hosting.process_runtime import compiled_folder
    from islands.training.jax_settings import enable_compilation_cache

    enable_compilation_cache(compiled_folder())


def _told(ended: "Finished") -> str:
    name = f"{ended.trial.name}, seed {ended.trial.seed}"
    result = ended.result
    if result is None:
        return f"{name}: failed: {one_line(UserError(ended.error))}"
    figures = ", ".join(f"{key} {value:.4g}" for key, value in result.figures.items())
    took = "known" if ended.known else duration(result.wall_s)
    return f"{name}: {figures}, yield {result.yield_share:.2f} ({took})"


def _conclude(options: StudyOptions, finished: list["Finished"]) -> None:
    """Print the table, and keep it with its plot."""
    from islands.study.plot import plot
    from islands.study.table import by_cell, metric_of, table

    found = by_cell([(each.trial, each.result) for each in finished if each.result is not None])
    if not found:
        raise UserError("no trial has a result; the lines above say why")
    (first, *_) = (result for results in found.values() for result in results.values())
    metric = metric_of(options, first)
    told, picture = table(options, found, metric), plot(found, metric, options.folder.name)
    try:
        replace_file(options.folder / TABLE_FILE, told.encode())
        replace_file(options.folder / PLOT_FILE, picture)
    except OSError as error:
        raise unusable(f"the folder {options.folder} cannot be written", error) from error
    print(f"\n{told}\nThe table, {PLOT_FILE} and all results are in {options.folder}")
