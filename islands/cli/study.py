"""`islands lab study FILE`: which settings train as well as which, at equal tokens."""

from typing import TYPE_CHECKING

from islands.cli.parsing import Common, one_line
from islands.files.whole_files import replace_file
from islands.lab.settings.study import StudyOptions
from islands.protocol.errors import UserError, unusable
from islands.settings.quantities import duration
from messaging.clock import MonotonicClock

if TYPE_CHECKING:
    from islands.lab.study.cells import Trial
    from islands.lab.study.runner import Finished

TABLE_FILE = "study.md"
PLOT_FILE = "study.png"


def run(options: StudyOptions, _: Common) -> int:
    """Play every trial that has no result yet, then compare; returns the exit code."""
    from islands.lab.study.cells import trials_of
    from islands.lab.study.runner import prepare

    trials = trials_of(options)
    with prepare(options.folder):
        finished = _played(options, trials)
        _conclude(options, trials, finished)
    return 1 if any(ended.result is None for ended in finished) else 0


def _played(options: StudyOptions, trials: "list[Trial]") -> "list[Finished]":
    from islands.lab.study.runner import run as run_trials
    from islands.lab.study.table import metric_of

    clock, finished = MonotonicClock(), []
    begun_s, computed = clock.now_s(), 0
    for ended in run_trials(trials, options.folder, options.workers, keep_compiled):
        finished.append(ended)
        if ended.result is not None and ended.result.figures:
            metric_of(options, ended.result)  # a wrong name is told now, not after the last trial
        computed += not ended.known
        left = len(trials) - len(finished)
        each_s = (clock.now_s() - begun_s) / max(1, computed)
        wait = f", about {duration(each_s * left)} left" if computed and left else ""
        print(f"[{len(finished)}/{len(trials)}] {_told(ended)}{wait}", flush=True)
    return finished


def keep_compiled() -> None:
    """Let JAX keep compiled functions: the second trial of a shape compiles nothing."""
    from islands.model.jax_settings import enable_compilation_cache
    from islands.run.hosting.process_runtime import compiled_folder

    enable_compilation_cache(compiled_folder())


def _told(ended: "Finished") -> str:
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
    if options.only is not None:
        return
    try:
        replace_file(options.folder / TABLE_FILE, text.encode())
        picture = plot(cells, rows, metric, options.folder.name)
        replace_file(options.folder / PLOT_FILE, picture)
    except OSError as error:
        raise unusable(f"the folder {options.folder} cannot be written", error) from error
    print(f"The table, {PLOT_FILE} and all results are in {options.folder}")
