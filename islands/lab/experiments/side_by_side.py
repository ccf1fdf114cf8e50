"""An experiment: runs on a virtual clock, played side by side and compared in a table.

Each module of an experiment ends with an `EXPERIMENT`, which says what is its own; `islands lab
simulate` does the rest. Each run has a process of its own: one that fails takes no other along.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from islands.protocol.errors import IslandsError
from messaging.errors import VirtualTimeError

Options = TypeVar("Options")
Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")

Pictures = Mapping[str, Callable[[], bytes]]

END_S = 5.0


@dataclass(frozen=True, slots=True)
class Experiment(Generic[Options, Key, Job, Result]):
    """The functions of one experiment.

    `jobs` returns the runs by key, in the order in which they begin, and `play` plays one, as a
    function of a module, which other processes can import. The table of the results is Markdown,
    the figures are written as JSON, pictures are PNG files by name, and `kept` says whether the
    results keep every promise.
    """

    jobs: Callable[[Options], Mapping[Key, Job]]
    play: Callable[[Job], Result]
    table: Callable[[Options, Mapping[Key, Result]], str]
    figures: Callable[[Options, Mapping[Key, Result]], object]
    pictures: Callable[[Options, Mapping[Key, Result]], Pictures] = lambda _, __: {}
    kept: Callable[[Mapping[Key, Result]], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job has no result, in a sentence."""

    sentence: str


def play_all(
    play: Callable[[Job], Result], jobs: Mapping[Key, Job], workers: int
) -> Iterator[tuple[Key, Result | Failure]]:
    """Play jobs in their order, so many at once; yield each as it ends.

    `play` is a function of a module, as other processes import it. Each has one core.
    """
    os.environ.setdefault("PJRT_NPROC", "1")  # children inherit it
    waiting = dict(jobs)
    running: dict[Connection, tuple[Key, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                key = next(iter(waiting))
                outcome, process = _start(play, waiting.pop(key))
                running[outcome] = key, process
            for ended in wait(list(running)):
                assert isinstance(ended, Connection), "it waits for nothing else"
                key, process = running.pop(ended)
                yield key, _received(ended, process)
    finally:
        for _, process in running.values():
            process.kill()


def _start(play: Callable[[Job], Result], job: Job) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(play, job, sender), daemon=True)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to children, too
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    sender.close()
    return receiver, process


def _play(play: Callable[[Job], Result], job: Job, sender: Connection) -> None:
    try:
        sender.send(play(job))
    except (IslandsError, VirtualTimeError) as error:
        sender.send(Failure(str(error)))
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  the user's own code may raise anything
        traceback.print_exc()
        sender.send(Failure(f"{type(error).__name__}: {error}"))
        sys.exit(1)


def _received(receiver: Connection, process: BaseProcess) -> Any:  # noqa: ANN401  (a result)
    try:
        outcome = receiver.recv()
    except (EOFError, OSError):  # it ended, perhaps while it sent
        process.join()
        code = process.exitcode or 0
        how = (
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        hint = "; where memory is short, fewer workers may help" if code == -signal.SIGKILL else ""
        outcome = Failure(f"its process {how}{hint}")
    receiver.close()
    process.join(END_S)
    process.kill()  # a thread of the job's own may keep it
    process.join()
    return outcome
