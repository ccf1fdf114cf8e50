"""The commands of `islands simulate`: play the runs of an experiment, then print its table."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from islands.cli.parsing import Common
from islands.files.whole_files import replace_file
from islands.lab.settings.fleets import ComparisonOptions, GoodputOptions
from islands.protocol.errors import IslandsError, unusable
from islands.settings.quantities import duration
from messaging.clock import MonotonicClock

if TYPE_CHECKING:
    from islands.lab.experiments.experiment import Experiment

Options = GoodputOptions | ComparisonOptions


def run(options: Options, _: Common) -> int:
    """Play every run, then print the table; returns the exit code, 1 if a promise was broken."""
    if isinstance(options, GoodputOptions):
        place = name = "goodput"
    else:
        place, name = "comparison", options.name
    experiment: Experiment[Any, Any, Any, Any]
    experiment = import_module(f"islands.lab.experiments.{place}").EXPERIMENT
    results = _played(experiment, options)
    table = experiment.table(options, results)
    print(table, end="")
    if options.folder is not None:
        files = {
            f"{name}.md": table.encode,
            f"{name}.json": lambda: _json_text(experiment.figures(options, results)),
            **experiment.pictures(options, results),
        }
        _write(options.folder, files)
    return 0 if experiment.kept(results) else 1


def _played(experiment: "Experiment[Any, Any, Any, Any]", options: Options) -> dict[object, Any]:
    """Play all runs, and print after each how many are left; return results in the runs' order."""
    from islands.lab.experiments.side_by_side import Failure, play_all

    jobs, clock, results = experiment.jobs(options), MonotonicClock(), dict[object, Any]()
    begun_s = clock.now_s()
    for key, result in play_all(experiment.play, jobs, options.workers):
        if isinstance(result, Failure):
            raise IslandsError(f"{key}: {result.sentence}")
        results[key] = result
        each_s, left = (clock.now_s() - begun_s) / len(results), len(jobs) - len(results)
        wait = f", about {duration(each_s * left)} left" if left else ""
        print(f"[{len(results)}/{len(jobs)}]{wait}", flush=True)
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


def _json_text(figures: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n"
