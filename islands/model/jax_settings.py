"""How a process sets up JAX: threads before the import, the compilation cache after it.

Threads: on CPU, XLA runs all computations of a process on one pool, whose size is `PJRT_NPROC`,
or else `NPROC`, or else the number of cores, read when JAX is first used. A pool of one thread
keeps a process to one core. Several learners in one process need a thread each: with fewer, some
starve, because a thread that ends a step takes the next step of the same learner. (The flag
`--xla_cpu_multi_thread_eigen=false` limits neither: it leaves the pool as it is.)

Compilations: the learners of one host need the same programs at the same time. A lock for each
program lets one process compile it while the others wait, and then read it from JAX's own folder.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from messaging.clock import MonotonicClock

WAIT_S = 240.0
"""How long a process waits for one that compiles, as that one may hang. Most need far less, and
what is left until a member counts as stalled (`run.timing.compile_s`) suffices to compile."""

POLL_S = 0.02


def cpu_environment(learners: int, observers: int = 0, devices: int = 1) -> dict[str, str]:
    """Return the environment variables of a process on CPU, to be set before JAX is imported.

    Each device of a learner has a thread, and each other that computes, such as an evaluation.
    """
    return {"PJRT_NPROC": str(max(1, learners * devices + observers))}


def enable_compilation_cache(folder: Path | None) -> None:
    """Cache compiled functions in a folder, however small, so that a restart compiles nothing.

    Call it before the first compilation; it imports JAX. Without a folder, nothing is cached.
    """
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    import jax

    for name, value in (
        ("jax_compilation_cache_dir", os.fspath(folder)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        jax.config.update(name, value)  # type: ignore[no-untyped-call]  # untyped in JAX


@contextmanager
def compiling(program: object) -> Iterator[None]:
    """Compile a program as the only process of this host, if JAX has a folder for what it compiles.

    Its name must be the same text in every process. Those that come later wait for the lock of the
    program, and then read what the first has put into the folder. Processes of one program of
    several hosts compile in step, and may wait for each other inside the compiler, so none of them
    may wait for another's lock.
    """
    import jax

    folder: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if folder is None or jax.distributed.is_initialized():
        yield
        return
    name = hashlib.blake2b(repr(program).encode(), digest_size=16).hexdigest()
    lock = Path(folder) / f".{name}.lock"
    left_s = _changed_s(lock)
    with locked(lock) as held:
        if held and left_s is not None and _changed_s(lock) == left_s:
            _forget_since(Path(folder), left_s)
        yield


def _changed_s(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _forget_since(folder: Path, since_s: float) -> None:
    """Remove what a process may have left half-written, as it was killed: JAX would keep it."""
    for entry in folder.glob("*-cache"):
        if since_s <= (_changed_s(entry) or 0.0) <= since_s + WAIT_S:
            entry.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Hold the lock of a file, which is made and removed; the system frees it if a process dies.

    It yields whether it is held: not where there are no locks, nor if another holds it too long.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # there is no such folder, or nobody can write in it
        yield False
        return
    try:
        held = _acquired(handle, wait_s)
        yield held
        if held:
            path.unlink(missing_ok=True)  # who has opened it meanwhile finds what was compiled
    finally:
        os.close(handle)


def _acquired(handle: int, wait_s: float) -> bool:
    clock = MonotonicClock()
    until_s = clock.now_s() + wait_s
    while True:  # until the time is over
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.now_s() >= until_s:
                return False
            time.sleep(POLL_S)  # noqa: TID251  a lock of another process
        except OSError:
            return False
        else:
            return True
