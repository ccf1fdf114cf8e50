"""How a process sets up JAX: threads before the import, the compilation cache after it.

Threads: on CPU, XLA runs all computations of a process on one pool, whose size is `PJRT_NPROC`,
or else `NPROC`, or else the number of cores, read when JAX is first used. A pool of one thread
keeps a process to one core. Several learners in one process need a thread each: with fewer, some
starve, because a thread that ends a step takes the next step of the same learner. (The flag
`--xla_cpu_multi_thread_eigen=false` limits neither: it leaves the pool as it is.)
"""

import os
from pathlib import Path


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


def enable_compilation_cache(folder: Path) -> None:
    """Cache compiled functions in a folder, however small, so that a restart compiles nothing.

    Call it before the first compilation; it imports JAX.
    """
    import jax

    folder.mkdir(parents=True, exist_ok=True)
    _set("jax_compilation_cache_dir", os.fspath(folder))
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)
    # If this process compiled before, JAX found no cache then and remembers that.
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()
    assert jax.config.jax_compilation_cache_dir == os.fspath(folder)  # type: ignore[attr-defined]


def _set(name: str, value: object) -> None:
    import jax

    jax.config.update(name, value)  # type: ignore[no-untyped-call]  # untyped in JAX
