"""Trials side by side, each in a process of its own, so that one that fails takes nobody along."""

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

from islands.lab.study import results
from islands.lab.study.cells import Trial
from islands.lab.study.trial import Result, play
from islands.protocol.errors import IslandsError
from messaging.errors import VirtualTimeError

END_S = 5.0
"""How long a process that is told to end may take."""

TOLD_CHARACTERS_MAX = 4096
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
    told: Connection


def run(
    trials: Sequence[Trial], folder: Path, workers: int, prepare: Callable[[], object]
) -> Iterator[Finished]:
    """Play all trials that have no result yet; yields each as it ends.

    Args:
        trials: in the order in which they begin.
        folder: where results are kept.
        workers: processes side by side.
        prepare: called in each process before it plays.

    Raises:
        UserError: a result cannot be read.
    """
    missing: dict[str, Trial] = {}
    for trial in trials:
        known = results.read(folder, trial)
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


def _play(trial: Trial, folder: Path, prepare: Callable[[], object], told: Connection) -> None:
    """In the process of a trial."""
    try:
        prepare()
        results.write(folder, trial, play(trial))
    except (IslandsError, VirtualTimeError) as error:
        told.send(str(error)[:TOLD_CHARACTERS_MAX])
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  the user's own code may raise anything
        traceback.print_exc()
        told.send(f"{type(error).__name__}: {error}"[:TOLD_CHARACTERS_MAX])
        sys.exit(1)


def _finished(ended: _Running, folder: Path) -> Finished:
    ended.process.join()
    result = results.read(folder, ended.trial)
    if result is not None:
        return Finished(ended.trial, result)
    code = ended.process.exitcode or 0
    try:
        error = str(ended.told.recv()) if ended.told.poll() else ""
    except EOFError:
        error = ""
    ended.told.close()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    hint = "; where memory is short, fewer workers may help" if code == -signal.SIGKILL else ""
    return Finished(ended.trial, None, error or f"its process {how}{hint}")
