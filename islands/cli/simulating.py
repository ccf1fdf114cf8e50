"""What all commands of `islands simulate` share: progress and table, and files in a folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from islands.files.atomic_write import replace_file
from islands.protocol.errors import unusable
from islands.run.records.formatting import duration
from messaging.clock import MonotonicClock

Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")


def play_all(
    play: Callable[[Job], Result], jobs: Mapping[Key, Job], workers: int
) -> dict[Key, Result]:
    """Play all jobs side by side, and tell after each how many are left.

    Args:
        play: plays one job; a function of a module, which other processes can import.
        jobs: by key, in the order in which they begin.
        workers: processes side by side.

    Returns:
        What came of each job, in the order of the jobs.
    """
    from islands.lab.experiments.side_by_side import side_by_side

    clock, found = MonotonicClock(), {}
    begun_s = clock.now_s()
    for key, result in side_by_side(play, jobs, workers):
        found[key] = result
        each_s, left = (clock.now_s() - begun_s) / len(found), len(jobs) - len(found)
        wait = f", about {duration(each_s * left)} left" if left else ""
        print(f"[{len(found)}/{len(jobs)}]{wait}", flush=True)
    print()
    return {key: found[key] for key in jobs}


def show(
    name: str, table: str, folder: Path | None, files: Mapping[str, Callable[[], bytes]]
) -> None:
    """Print a table; with a folder, write it there as Markdown beside the other files, and say so.

    Args:
        name: of the table's file, without its end.
        table: as Markdown.
        folder: null = nothing is written.
        files: makes each of the other files, by name; pictures come last.

    Raises:
        UserError: the folder cannot be written to, or matplotlib, which draws, is not installed.
    """
    print(table, end="")
    if folder is not None:
        _write(folder, {f"{name}.md": table.encode, **files})


def _write(folder: Path, files: Mapping[str, Callable[[], bytes]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            replace_file(folder / name, content())
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error
    print(f"{', '.join(files)} are in {folder}")
