"""The ports through which actors reach the world, besides links and compute.

=========  =======================================  ==========================================
port       real                                     simulated
=========  =======================================  ==========================================
`Worker`   `ThreadWorker`: one thread, in order     `InlineWorker`: virtual time, in order
`Disk`     `RealDisk`: files in one folder          `islands.simulation.disk.SimulatedDisk`
`Launcher` `islands.launcher`; in one process, the  the simulated world's hosts
           `islands.processes`
clock      `messaging.clock.LoopClock`              the same, on a virtual loop
chance     `random.Random`, seeded by the run       the same
=========  =======================================  ==========================================
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Protocol, TypeVar

from islands.errors import DiskError, JournalError

T = TypeVar("T")


class Worker(Protocol):
    """Does work that would hold up the loop, one piece after the other."""

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do `work` elsewhere, then call `done` with its result on the loop."""

    def close(self) -> None:
        """Take no more; what has begun ends."""


class ThreadWorker:
    """One thread.

    Args:
        name: of the thread.
        failed: called on the loop with a failure of the work.
        finish: whether `close` waits for what has begun; work that writes files must be waited
            for, work that takes seconds and harms nobody need not.
    """

    def __init__(
        self, name: str, failed: Callable[[BaseException], object], *, finish: bool = True
    ) -> None:
        """Prepare; the thread starts with the first piece of work."""
        self._finish = finish
        self._closed = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._failed = failed

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do `work` on the thread, then call `done` on the loop."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  reported to the actor, which ends
                _on_loop(loop, partial(self._failed, error))
            else:
                _on_loop(loop, partial(self._finish_up, done, result))

        if not self._closed:
            self._pool.submit(run)

    def _finish_up(self, done: Callable[[T], object], result: T) -> None:
        try:
            done(result)
        except BaseException as error:  # noqa: BLE001  else the loop would log it and go on
            self._failed(error)

    def close(self) -> None:
        """Take no more, and drop what has not begun."""
        self._closed = True
        self._pool.shutdown(wait=self._finish, cancel_futures=True)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed: nobody is left to hear it
        return


def _nothing() -> None:
    """Nothing is to be told."""


class InlineWorker:
    """Work on a virtual clock: done at once, complete after `cost_s`, in order.

    Args:
        cost_s: how long each piece takes.
        begin: called before each piece; a simulated disk then lets syncs take their time.
        complete: called when a piece is complete, before its `done`; the disk then makes durable
            what was synced.
    """

    def __init__(
        self,
        cost_s: Callable[[], float],
        begin: Callable[[], object] = _nothing,
        complete: Callable[[], object] = _nothing,
    ) -> None:
        """Prepare an idle worker."""
        self._cost_s = cost_s
        self._begin = begin
        self._complete = complete
        self._queue: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Queue a piece of work."""

        def run() -> None:
            self._begin()
            result = work()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._cost_s(), finish, result)

        def finish(result: T) -> None:
            self._timer = None
            self._complete()
            done(result)
            self._next()

        if not self._closed:
            self._queue.append(run)
            if self._timer is None and len(self._queue) == 1:
                self._next()

    def _next(self) -> None:
        if self._queue and self._timer is None and not self._closed:
            self._queue.pop(0)()

    def close(self) -> None:
        """The host died: what is not complete never will be."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


class DiskFile(Protocol):
    """A file that is read from front to back; whoever opened it closes it."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer with what comes next; returns how many bytes came, fewer only at the end.

        Raises:
            DiskError: the disk is broken.
        """

    def close(self) -> None:
        """Nothing more is read."""


class Disk(Protocol):
    """Small set of named files. Content is durable only after `sync`."""

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file's content; a crash before `sync` may lose or tear it.

        Raises:
            DiskError: the disk is full, read-only or broken.
        """

    def sync(self, name: str) -> None:
        """Make a file's content survive a crash.

        Raises:
            DiskError: the disk is broken; nothing is known to be durable.
        """

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """A file, to be read from a place on; None if there is no such file.

        Raises:
            DiskError: the disk is broken.
        """

    def close(self) -> None:
        """Let others use it; nothing is read or written any more."""


class RealFile:
    """A file of a `RealDisk`, read without a buffer between.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, at_bytes: int) -> None:
        """Open it."""
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        self._file.seek(at_bytes)

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer; the system may hand out less at once than is asked for."""
        filled = 0
        try:
            while filled < len(buffer) and (count := self._file.readinto(buffer[filled:])):
                filled += count
        except OSError as error:
            raise DiskError(f"{self._path} cannot be read: {error}") from error
        return filled

    def close(self) -> None:
        """Close it."""
        self._file.close()


class RealDisk:
    """Files in one folder.

    Args:
        folder: that they lie in.
        lock: keeps other processes out of it until this disk is closed; None: nobody is kept out.
    """

    def __init__(self, folder: Path, lock: IO[bytes] | None = None) -> None:
        """Use a folder, which is made if it is missing.

        Raises:
            JournalError: it cannot be made.
        """
        self._folder = folder
        self._lock = lock
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"the folder {folder} cannot be made: {error}") from error

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Replace a file's content."""
        try:
            with (self._folder / name).open("wb") as file:
                for part in parts:
                    file.write(part)
        except OSError as error:
            raise DiskError(f"{self._folder / name} cannot be written: {error}") from error

    def sync(self, name: str) -> None:
        """Flush a file and its folder's entry to the device."""
        for path, flags in ((self._folder / name, os.O_RDWR), (self._folder, os.O_RDONLY)):
            try:
                _flush(path, flags)
            except OSError as error:
                raise DiskError(f"{path} cannot be flushed: {error}") from error

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        """A file, to be read from a place on; None if there is no such file."""
        path = self._folder / name
        try:
            return RealFile(path, at_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskError(f"{path} cannot be read: {error}") from error

    def close(self) -> None:
        """Free the folder."""
        if self._lock is not None:
            self._lock.close()


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Launcher(Protocol):
    """Starts and kills the processes that a supervisor launched."""

    def start(self, name: str, delay_s: float) -> None:
        """Start a process after a delay; does nothing if it runs."""

    def kill(self, name: str) -> None:
        """Kill a process at once."""

    def gave_up(self, name: str, reason: str) -> None:
        """A process ended too often: it will not be started again."""
