"""The ports (interfaces) through which actors reach the world, besides links and compute.

==========  ======================================  ==========================================
port        real                                    simulated
==========  ======================================  ==========================================
`Worker`    `ThreadWorker`: one or more threads     `islands.lab.world.inline_worker`
`Disk`      `RealDisk`: files in one folder         `islands.lab.world.disk.SimulatedDisk`
`Launcher`  `islands.run.hosting.child_processes`; in   `islands.run.hosting.task_processes`
            one process `.task_processes`
clock       `messaging.clock.MonotonicClock`        the same, on a virtual loop
chance      `random.Random`, seeded by the run      the same
==========  ======================================  ==========================================
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from signal import SIGKILL
from typing import Protocol, TypeVar

from islands.protocol.errors import DONE, IslandsError, exit_code_of

T = TypeVar("T")


class Worker(Protocol):
    """Does work that would block the event loop, one piece at a time unless it has more places."""

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do `work` off the loop, then call `done` with its result on the loop."""

    def close(self) -> None:
        """Accept no more work; work that has begun runs to its end."""


class ThreadWorker:
    """A worker with one thread, or several.

    Args:
        name: prefix of the threads' names.
        failed: called on the loop with an exception that the work, or its `done`, raised.
        finish: whether `close` waits for work that has begun: work that writes files must be
            waited for; work that takes seconds and has no lasting effect need not.
        places: number of threads.
    """

    def __init__(
        self,
        name: str,
        failed: Callable[[BaseException], object],
        *,
        finish: bool = True,
        places: int = 1,
    ) -> None:
        """Prepare the pool, whose threads start with the first pieces of work."""
        self._finish = finish
        self._closed = False
        self._pool = ThreadPoolExecutor(places, thread_name_prefix=name)
        self._failed = failed

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            tell: Callable[[], object]
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  reported to the actor, which ends
                tell = partial(self._failed, error)
            else:
                tell = partial(self._finish_up, done, result)
            _on_loop(loop, tell)

        if not self._closed:
            self._pool.submit(run)

    def _finish_up(self, done: Callable[[T], object], result: T) -> None:
        try:
            done(result)
        except BaseException as error:  # noqa: BLE001  otherwise the loop logs it and goes on
            self._failed(error)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=self._finish, cancel_futures=True)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed, so nobody is left to receive the call
        return


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended.

    Args:
        code: its exit code, one of `islands.protocol.errors`; below 0 the number of the signal that
            killed it; None if it is unknown.
        told: how it ended, in words; empty if it ended as it should.
        sentence: the sentence in which the process itself reported its error.
        detail: the traceback that it wrote.
        error: the exception with which it ended, if it ran in this process.
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
    told = f"{type(error).__name__}: {error}"
    return ProcessEnd(exit_code_of(error), told, str(error), detail, error)


class Launcher(Protocol):
    """A backend, which starts processes and reports to its creator how each of them ended.

    It decides nothing: its caller says when a process is started or restarted.
    """

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
