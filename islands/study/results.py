"""Results on disk, one file per trial, so that a study that is interrupted goes on.

A file is named by the fingerprint of its trial: a trial whose settings were changed finds none and
is computed again, and one that is in two studies of a folder is computed once.
"""

from pathlib import Path

import msgspec

from islands.errors import unusable
from islands.files.atomic_write import replace_file
from islands.study.cells import Trial
from islands.study.trial import Result


def prepare(folder: Path) -> None:
    """Make the folder, so that one that cannot be written to is told before anything is computed.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        _trials(folder).mkdir(parents=True, exist_ok=True)
        replace_file(_trials(folder) / "writable", b"")
        (_trials(folder) / "writable").unlink()
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be written", error) from error


def read(folder: Path, trial: Trial) -> Result | None:
    """What an earlier run of the study found; None if it did not come so far.

    Raises:
        UserError: the file cannot be read.
    """
    path = _path(folder, trial)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
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
        replace_file(path, msgspec.json.format(msgspec.json.encode(result), indent=1))
    except OSError as error:
        raise unusable(f"the result {path} cannot be written", error) from error


def _path(folder: Path, trial: Trial) -> Path:
    return _trials(folder) / f"{trial.fingerprint}.json"


def _trials(folder: Path) -> Path:
    return folder / "trials"
