"""How a process sets up JAX: threads before the import, the compilation cache after it.

Threads: on CPU, XLA runs all computations of a process on one pool, whose size is `PJRT_NPROC`,
or else `NPROC`, or else the number of cores, read when JAX is first used. A pool of one thread
keeps a process to one core. Several learners in one process need a thread each: with fewer, some
starve, because a thread that ends a step takes the next step of the same learner. (The flag
`--xla_cpu_multi_thread_eigen=false` limits neither: it leaves the pool as it is.)

Compilations: the learners of one host need the same programs at the same time. `SharedCache` takes
the place of JAX's own cache in a folder, with its names and contents, and lets one process compile
a program while the others wait for it. JAX has no public hook for that: `get_file_cache` of
`jax._src.compilation_cache`, which is replaced, is the same in JAX 0.10 to 0.12; where it is
missing, JAX's own cache stays.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from messaging.clock import MonotonicClock

WAIT_S = 240.0
"""How long a process waits for one that compiles, as that one may hang. Most need far less, and
what is left until a member counts as stalled (`run.timing.compile_s`) suffices to compile."""

POLL_S = 0.02


def cpu_environment(learners: int, observers: int = 0, devices: int = 1) -> dict[str, str]:
    """Return the environment variables of a process on CPU, to be set before JAX is imported.

    Args:
        learners: Learners this process hosts; each gets one thread.
        observers: Others that compute, such as an evaluation; one thread each.
        devices: Devices of each learner, where a CPU is made to look like several; one thread each.
    """
    return {"PJRT_NPROC": str(max(1, learners * devices + observers))}


def divide_cpu(devices: int) -> None:
    """Make the CPU look like several devices, to try a mesh without an accelerator.

    Call it before JAX computes anything; it imports JAX.
    """
    _set("jax_num_cpu_devices", devices)


def enable_compilation_cache(folder: Path | None) -> None:
    """Cache compiled functions in a folder, however small, so that a restart compiles nothing.

    Call it before the first compilation; it imports JAX. Without a folder, nothing is cached.
    """
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    _set("jax_compilation_cache_dir", os.fspath(folder))
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)
    share_compilations()


def share_compilations() -> None:
    """Compile each program once on a host, if this process has a folder for compiled functions.

    A user who lets JAX limit the size of the folder, or verify its contents, keeps JAX's own cache.
    """
    import jax
    from jax._src import compilation_cache
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    config = jax.config
    folder: str | None = config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    limited: bool = config.jax_compilation_cache_max_size != -1  # type: ignore[attr-defined]
    verified: bool = config.jax_compilation_cache_check_contents  # type: ignore[attr-defined]
    if folder is None or limited or verified or not hasattr(compilation_cache, "get_file_cache"):
        return
    compilation_cache.get_file_cache = lambda path: (_shared(Path(path)), path)  # type: ignore[assignment,return-value]  # JAX's base class would import JAX with this file
    reset_cache()  # if this process compiled before, JAX remembers the cache that it had then


@cache
def _shared(folder: Path) -> "SharedCache":
    import jax

    shared = SharedCache(folder, several=jax.distributed.is_initialized)
    jax.monitoring.register_event_duration_secs_listener(shared.on_event)
    return shared


class SharedCache:
    """A folder of compiled functions, each of which one process of the host compiles.

    JAX asks `get` for a program, compiles it if there is none, and calls `put`, all on one thread.
    A thread that finds no entry gets the lock of the program's key, and returns to compile with it;
    others that ask for that program wait for the lock, and then find the entry. It is released once
    the entry is there, or JAX tells that it has compiled (it keeps no program that was quick, calls
    back, or failed), or by the system if the process dies. Where the folder has no locks, everybody
    compiles. An entry is written beside its place and renamed, so nobody reads half of one; one
    that a power loss damaged is compiled and written anew.

    Args:
        folder: holds an entry per program, under JAX's own names; it is made if it is not there.
        several: whether this process is one of several of one program. They compile in step, and
            may wait for each other inside the compiler, so none may wait for another's lock.
        wait_s: how long to wait for another process.
    """

    def __init__(
        self, folder: Path, *, several: Callable[[], bool] = lambda: False, wait_s: float = WAIT_S
    ) -> None:
        with contextlib.suppress(OSError):  # without a folder everybody compiles, as without locks
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = self._path = folder  # JAX reads `_path` for its log
        self._several = several
        self._wait_s = wait_s
        self._held = threading.local()

    def get(self, key: str) -> bytes | None:
        """Return a program's entry; None, perhaps with the program's lock, if there is none."""
        self._release()
        entry = self._read(key)
        if entry is None and not self._several():
            self._acquire(key)
            entry = self._read(key)
            if entry is not None:
                self._release()
        return entry

    def put(self, key: str, value: bytes) -> None:
        """Write a program's entry, and let those go on that wait for it."""
        with NamedTemporaryFile(dir=self.folder, prefix=".", delete=False) as fresh:
            try:
                fresh.write(value)
                fresh.flush()
                Path(fresh.name).replace(self._entry(key))
            except OSError:
                Path(fresh.name).unlink()
                raise
        self._release()

    def on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Release this thread's lock when JAX has compiled, also what it does not keep."""
        if event == "/jax/core/compile/backend_compile_duration":
            self._release()

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}-cache"

    def _read(self, key: str) -> bytes | None:
        try:
            return self._entry(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _acquire(self, key: str) -> None:
        """Wait for a program's lock, unless the folder has no locks or another takes too long."""
        path = self.folder / f".{key}.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # a folder in which nobody can write
            return
        clock = MonotonicClock()
        until_s = clock.now_s() + self._wait_s
        while clock.now_s() < until_s:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(POLL_S)
            except OSError:
                break
            else:
                self._held.lock = handle, path
                return
        os.close(handle)

    def _release(self) -> None:
        handle, path = getattr(self._held, "lock", (None, None))
        if handle is None or path is None:
            return
        self._held.lock = None, None
        with contextlib.suppress(OSError):  # one who opened it meanwhile finds the entry
            path.unlink()
        os.close(handle)


def _set(name: str, value: object) -> None:
    import jax

    jax.config.update(name, value)  # type: ignore[no-untyped-call]  # untyped in JAX
