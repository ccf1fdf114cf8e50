"""Trials side by side, each in a process of its own, and their results on disk.

A trial that fails takes no other along. Each result is a file, so that a study that is interrupted
goes on. The file is named by the fingerprint of its trial: a trial whose settings were changed
finds none and is computed again, and one that is in two studies of a folder is computed once.
"""

import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO

import msgspec

from islands.files.folder_lock import lock_folder
from islands.files.whole_files import replace_file
from islands.lab.study.cells import Trial
from islands.lab.study.trial import Result, play
from islands.protocol.errors import IslandsError, unusable
from messaging.errors import VirtualTimeError

LOCK_FILE = "study.lock"

END_S = 5.0
"""Seconds that a process may take to end."""

ERROR_CHARACTERS_MAX = 4096
"""Of an error; a pipe holds more than that without a reader."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial has ended; `error` says why it has no result, `known` that it had one before."""

    trial: Trial
    result: Result | None
    error: str = ""
    known: bool = False


@dataclass(slots=True)
class _Running:
    trial: Trial
    process: BaseProcess
    errors: Connection


def run(
    trials: Sequence[Trial], folder: Path, workers: int, prepare: Callable[[], object]
) -> Iterator[Finished]:
    """Play all trials that have no result yet; yields each as it ends.

    Args:
        trials: in the order in which they begin.
        folder: where results are kept.
        workers: processes side by side.
        prepare: called in each process before it plays.
    """
    missing: dict[str, Trial] = {}
    for trial in trials:
        known = read(folder, trial)
        if known is None:
            missing.setdefault(trial.fingerprint, trial)
        else:
            yield Finished(trial, known, known=True)
    os.environ.setdefault("PJRT_NPROC", "1")  # a trial takes one core; children inherit it
    running: list[_Running] = []
    try:
        while missing or running:
            while missing and len(running) < workers:
                running.append(_start(missing.pop(next(iter(missing))), folder, prepare))
            wait([each.process.sentinel for each in running])
            for each in [each for each in running if not each.process.is_alive()]:
                running.remove(each)
                yield _finished(each, folder)
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            each.process.join(END_S)
            each.process.kill()


def _start(trial: Trial, folder: Path, prepare: Callable[[], object]) -> _Running:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_play, args=(trial, folder, prepare, sender), name=trial.name, daemon=True
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to children, too
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    sender.close()
    return _Running(trial, process, receiver)


def _play(trial: Trial, folder: Path, prepare: Callable[[], object], errors: Connection) -> None:
    try:
        prepare()
        write(folder, trial, play(trial))
    except (IslandsError, VirtualTimeError) as error:
        errors.send(str(error)[:ERROR_CHARACTERS_MAX])
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  the user's own code may raise anything
        traceback.print_exc()
        errors.send(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX])
        sys.exit(1)


def _finished(ended: _Running, folder: Path) -> Finished:
    ended.process.join()
    result = read(folder, ended.trial)
    if result is not None:
        return Finished(ended.trial, result)
    code = ended.process.exitcode or 0
    try:
        error = str(ended.errors.recv()) if ended.errors.poll() else ""
    except EOFError:
        error = ""
    ended.errors.close()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    hint = "; where memory is short, fewer workers may help" if code == -signal.SIGKILL else ""
    return Finished(ended.trial, None, error or f"its process {how}{hint}")


# --- results on disk --------------------------------------------------------------------------


def prepare(folder: Path) -> IO[bytes]:
    """Make the folder, and lock it against other studies; closing the file unlocks it."""
    lock = lock_folder(folder, LOCK_FILE, "study")
    try:
        _trials(folder).mkdir(exist_ok=True)
    except OSError as error:
        lock.close()
        raise unusable(f"the folder {folder} cannot be written", error) from error
    return lock


def read(folder: Path, trial: Trial) -> Result | None:
    """Return the result of an earlier run of the study; None if it did not come so far."""
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
    """Keep the result of a trial."""
    path = _path(folder, trial)
    try:
        replace_file(path, json.dumps(msgspec.to_builtins(result), indent=1).encode())
    except OSError as error:
        raise unusable(f"the result {path} cannot be written", error) from error


def _path(folder: Path, trial: Trial) -> Path:
    return _trials(folder) / f"{trial.fingerprint}.json"


def _trials(folder: Path) -> Path:
    return folder / "trials"
