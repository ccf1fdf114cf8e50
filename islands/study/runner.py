"""Trials side by side, each in a process of its own, so that one that fails takes nobody along."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from islands.errors import IslandsError
from islands.study import results
from islands.study.cells import Trial
from islands.study.trial import Result, play
from messaging.errors import VirtualTimeError

END_S = 5.0
"""How long a process that is told to end may take."""


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
        UserError: the folder cannot be written to.
    """
    results.prepare(folder)
    missing = []
    for trial in trials:
        known = results.read(folder, trial)
        if known is None:
            missing.append(trial)
        else:
            yield Finished(trial, known, known=True)
    os.environ.setdefault("PJRT_NPROC", "1")  # a trial takes one core; children inherit it
    running: list[_Running] = []
    try:
        while missing or running:
            while missing and len(running) < workers:
                running.append(_start(missing.pop(0), folder, prepare))
            wait([each.process.sentinel for each in running])
            for each in [each for each in running if not each.process.is_alive()]:
                running.remove(each)
                yield _finished(each, folder)
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            each.process.join(END_S)


def _start(trial: Trial, folder: Path, prepare: Callable[[], object]) -> _Running:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(trial, folder, prepare, sender))
    process.start()
    sender.close()
    return _Running(trial, process, receiver)


def _play(trial: Trial, folder: Path, prepare: Callable[[], object], told: Connection) -> None:
    """In the process of a trial."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; ours is terminated
    try:
        prepare()
        results.write(folder, trial, play(trial))
    except (IslandsError, VirtualTimeError) as error:
        told.send(str(error))
        sys.exit(1)


def _finished(ended: _Running, folder: Path) -> Finished:
    ended.process.join()
    result = results.read(folder, ended.trial)
    if result is not None:
        return Finished(ended.trial, result)
    code = ended.process.exitcode
    try:
        error = str(ended.told.recv()) if ended.told.poll() else ""
    except EOFError:
        error = ""
    return Finished(ended.trial, None, error or f"its process ended with code {code}")
