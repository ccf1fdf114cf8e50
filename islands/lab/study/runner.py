"""The trials of a study, and their results on disk.

Each result is a file, so that a study that is interrupted goes on. The file is named by the
fingerprint of its trial: a trial whose settings were changed finds none and is computed again, and
one that is in two studies of a folder is computed once.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from islands.files.folder_lock import lock_folder
from islands.files.whole_files import replace_file
from islands.lab.experiments.side_by_side import Failure, play_all
from islands.lab.study.cells import Trial
from islands.lab.study.trial import Result
from islands.protocol.errors import unusable

LOCK_FILE, TRIALS = "study.lock", "trials"


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial has ended; `error` says why it has no result, `known` that it had one before."""

    trial: Trial
    result: Result | None
    error: str = ""
    known: bool = False


def run(
    trials: Sequence[Trial], folder: Path, workers: int, play: Callable[[Trial], Result]
) -> Iterator[Finished]:
    """Play all trials that have no result in the folder yet; yield each as it ends."""
    missing: dict[str, Trial] = {}
    for trial in trials:
        known = read(folder, trial)
        if known is None:
            missing.setdefault(trial.fingerprint, trial)
        else:
            yield Finished(trial, known, known=True)
    for fingerprint, outcome in play_all(play, missing, workers):
        trial = missing[fingerprint]
        if isinstance(outcome, Failure):
            yield Finished(trial, None, outcome.sentence)
        else:
            write(folder, trial, outcome)
            yield Finished(trial, outcome)


# --- results on disk --------------------------------------------------------------------------


def prepare(folder: Path) -> IO[bytes]:
    """Make the folder, and lock it against other studies; closing the file unlocks it."""
    lock = lock_folder(folder, LOCK_FILE, "study")
    try:
        (folder / TRIALS).mkdir(exist_ok=True)
    except OSError as error:
        lock.close()
        raise unusable(f"the folder {folder} cannot be written", error) from error
    return lock


def read(folder: Path, trial: Trial) -> Result | None:
    """Return the result of an earlier run of the study; None if it did not come so far."""
    path = _path(folder, trial)
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Result)  # it may hold NaN
    except (FileNotFoundError, ValueError, msgspec.MsgspecError):
        return None  # what is not whole is computed again
    except OSError as error:
        raise unusable(f"the result {path} cannot be read", error) from error


def write(folder: Path, trial: Trial, result: Result) -> None:
    path = _path(folder, trial)
    try:
        replace_file(path, json.dumps(msgspec.to_builtins(result), indent=1).encode())
    except OSError as error:
        raise unusable(f"the result {path} cannot be written", error) from error


def _path(folder: Path, trial: Trial) -> Path:
    return folder / TRIALS / f"{trial.fingerprint}.json"
