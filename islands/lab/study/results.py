"""Results on disk, one file per trial, so that a study that is interrupted goes on.

A file is named by the fingerprint of its trial: a trial whose settings were changed finds none and
is computed again, and one that is in two studies of a folder is computed once.
"""

import json
from pathlib import Path
from typing import IO

import msgspec

from islands.files.atomic_write import replace_file
from islands.files.folder_lock import lock_folder
from islands.lab.study.cells import Trial
from islands.lab.study.trial import Result
from islands.protocol.errors import unusable

LOCK_FILE = "study.lock"


def prepare(folder: Path) -> IO[bytes]:
    """Make the folder, and lock it against other studies; closing the file unlocks it.

    Raises:
        UserError: the folder cannot be written to, or another study uses it.
    """
    lock = lock_folder(folder, LOCK_FILE, "study")
    try:
        _trials(folder).mkdir(exist_ok=True)
    except OSError as error:
        lock.close()
        raise unusable(f"the folder {folder} cannot be written", error) from error
    return lock


def read(folder: Path, trial: Trial) -> Result | None:
    """What an earlier run of the study found; None if it did not come so far.

    Raises:
        UserError: the file cannot be read.
    """
    path = _path(folder, trial)
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Result)  # it may hold NaN
    except FileNotFoundError:
        return None
    except (ValueError, msgspec.MsgspecError):
        return None  # not whole: it is computed again
    except OSError as error:
        raise unusable(f"the result {path} cannot be read", error) from error


def write(folder: Path, trial: Trial, result: Result) -> None:
    """Keep what was found.

    Raises:
        UserError: the folder cannot be written to.
    """
    path = _path(folder, trial)
    try:
        replace_file(path, json.dumps(msgspec.to_builtins(result), indent=1).encode())
    except OSError as error:
        raise unusable(f"the result {path} cannot be written", error) from error


def _path(folder: Path, trial: Trial) -> Path:
    return _trials(folder) / f"{trial.fingerprint}.json"


def _trials(folder: Path) -> Path:
    return folder / "trials"
