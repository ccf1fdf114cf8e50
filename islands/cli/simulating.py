"""The commands of `islands lab simulate`: play the runs of an experiment, then print its table."""

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from islands.cli.parsing import Common
from islands.files.whole_files import replace_file
from islands.lab.settings.fleets import ComparisonOptions, GoodputOptions
from islands.protocol.errors import unusable
from islands.settings.quantities import duration
from messaging.clock import MonotonicClock

if TYPE_CHECKING:
    from islands.lab.experiments.experiment import Experiment

Options = GoodputOptions | ComparisonOptions

Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")


def run(options: Options, _: Common) -> int:
    """Play every run, then print the table; returns the exit code, 1 if a promise was broken."""
    module = name = "goodput"
    if isinstance(options, ComparisonOptions):
        module, name = "comparison", options.name
    experiment: Experiment[Any, Any, Any, Any]
    experiment = import_module(f"islands.lab.experiments.{module}").EXPERIMENT
    results = play_all(experiment.play, experiment.jobs(options), options.workers)
    table = experiment.table(options, results)
    print(table, end="")
    if options.folder is not None:
        files = {
            f"{name}.md": table.encode,
            f"{name}.json": lambda: _json(experiment.figures(options, results)),
            **experiment.pictures(options, results),
        }
        _write(options.folder, files)
    return 0 if experiment.kept(results) else 1


def play_all(
    play: Callable[[Job], Result], jobs: Mapping[Key, Job], workers: int
) -> dict[Key, Result]:
    """Play all jobs side by side, and print after each how many are left.

    Other processes import `play`. Jobs begin in their order, in which their results are returned.
    """
    clock, results = MonotonicClock(), dict[Key, Result]()
    begun_s = clock.now_s()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        waiting = {pool.submit(play, job): key for key, job in jobs.items()}
        try:
            for done in as_completed(waiting):
                results[waiting[done]] = done.result()
                each_s, left = (clock.now_s() - begun_s) / len(results), len(jobs) - len(results)
                wait = f", about {duration(each_s * left)} left" if left else ""
                print(f"[{len(results)}/{len(jobs)}]{wait}", flush=True)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    print()
    return {key: results[key] for key in jobs}


def _write(folder: Path, files: Mapping[str, Callable[[], bytes]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            replace_file(folder / name, content())
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error
    print(f"{', '.join(files)} are in {folder}")


def _json(figures: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n"
