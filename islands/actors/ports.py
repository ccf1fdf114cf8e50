"""The ports (interfaces) through which actors reach the world, besides links and compute.

The laboratory has a simulated one of each (`islands.lab.world`).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from signal import SIGKILL
from typing import Protocol, TypeVar

from islands.protocol.errors import DONE, IslandsError, exit_code_of

T = TypeVar("T")


class Worker(Protocol):
    """Does work that would block the event loop, in order."""

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do `work` off the loop, then call `done` with its result on the loop."""

    def close(self) -> None:
        """Accept no more work; work that has begun runs to its end."""


class ThreadWorker:
    """A worker with so many `threads`, which begin with the first pieces of work.

    Args:
        name: prefix of the threads' names.
        failed: called on the loop with an exception that the work, or its `done`, raised.
        finish: whether `close` waits for work that has begun, as it must if that writes files.
        threads: the number of threads.
    """

    def __init__(
        self,
        name: str,
        failed: Callable[[BaseException], object],
        *,
        finish: bool = True,
        threads: int = 1,
    ) -> None:
        self._finish = finish
        self._closed = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._failed = failed

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        loop = asyncio.get_running_loop()

        def complete(future: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody is left to be called
                if not future.cancelled():
                    loop.call_soon_threadsafe(self._report, future, done)

        if not self._closed:
            self._pool.submit(work).add_done_callback(complete)

    def _report(self, future: Future[T], done: Callable[[T], object]) -> None:
        try:
            done(future.result())
        except BaseException as error:  # noqa: BLE001  reported to the actor, which ends
            self._failed(error)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=self._finish, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended: its exit code, and in words (`told`), which are empty if all is well.

    The code is one of `islands.protocol.errors`, below 0 the number of a signal, None if unknown.
    `sentence` is how the process itself reported its error, `detail` the traceback that it wrote,
    and `error` the exception with which it ended, if it ran in this process.
    """

    code: int | None = DONE
    told: str = ""
    sentence: str = ""
    detail: str = ""
    error: BaseException | None = None


KILLED = ProcessEnd(-SIGKILL, "killed by SIGKILL")


def ended_by(error: BaseException | None) -> ProcessEnd:
    """The end of a process that ran inside this one, with an error or without one."""
    if error is None:
        return ProcessEnd()
    detail = error.detail if isinstance(error, IslandsError) else ""
    text = f"{type(error).__name__}: {error}"
    return ProcessEnd(exit_code_of(error), text, str(error), detail, error)


class Launcher(Protocol):
    """A backend, which starts processes and reports to its creator how each of them ended."""

    def start(self, name: str) -> None:
        """Start a process that is not running."""

    def kill(self, name: str) -> None:
        """Kill a process at once; do nothing if it is not running."""

    def stop(self, name: str, grace_s: float) -> None:
        """Ask a process to end, and kill it if it has not ended within `grace_s`."""

    def names(self) -> list[str]:
        """The names of the running processes, in the order of their start."""

    def adopt(self) -> list[str]:
        """Watch the processes that an earlier start of the backend left running; returns names."""

    def close(self) -> None:
        """Stop watching; processes that can live without this one run on."""
