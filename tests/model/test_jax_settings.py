"""Threads and the compilation cache, each in a process of its own, as they are set once."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import pytest

from islands.model.jax_settings import cpu_environment, locked
from tests.compiling import QUICKLY_COMPILED

LEARN = """
import sys
from pathlib import Path
import islands.model.jax_settings as settings
settings.enable_compilation_cache(Path(sys.argv[1]))
import jax
written = []
jax.monitoring.register_event_listener(
    lambda name, **_: written.append(name) if name.endswith("cache_misses") else None
)
from islands.tasks.data.shards import ShardKey
from islands.model.jax_trainer import JaxTrainer
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
small = DecoderConfig(width=16, layers=1, heads=1, head_width=16, hidden=16)
trainer = JaxTrainer(StdlibBytes(small, length=8))
trainer.setup()
batch, _ = next(trainer.batches(ShardKey(0, 0), 0))
print(trainer.step(batch, 0.1).loss(), len(written))
"""

HOLD = """
import sys
from pathlib import Path
from islands.model.jax_settings import locked
with locked(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""

COMPILING = """
import os, sys
from pathlib import Path
import jax
from islands.model.jax_settings import compiling, enable_compilation_cache
folder = Path(sys.argv[1]) if sys.argv[1] else None
enable_compilation_cache(folder)
if "TOGETHER" in os.environ:
    from islands.lab.faults.proxy import free_port
    jax.distributed.initialize(f"localhost:{free_port()}", num_processes=1, process_id=0)
with compiling("step"):
    print(len(list(folder.glob(".*.lock"))) if folder else 0, "lock")
"""

THREADS = """
import os, threading, jax, jax.numpy as jnp
jnp.zeros(1).block_until_ready()
names = [open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')]
print(sum('XLAEigen' in name or 'XLAPjRt' in name for name in names))
"""


OWN_PROGRAMS = 2
"""Programs that JAX compiles by itself, as to make a key."""


def run(code: str, *arguments: str, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if k not in {"NPROC", "XLA_FLAGS"}}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, env=inherited | environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def entries_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith("-cache"))


def test_of_the_processes_of_a_host_one_compiles_a_program(tmp_path: Path) -> None:
    """Learners that start side by side compile each program once, and leave no locks behind.

    What JAX compiles by itself, as to make a key, each compiles alone; these are few. One that
    starts later adds nothing to the cache, and computes the same loss.
    """
    with ThreadPoolExecutor() as pool:
        learners = [pool.submit(run, LEARN, str(tmp_path), **QUICKLY_COMPILED) for _ in range(3)]
        losses, compiled = zip(*(learner.result().split() for learner in learners), strict=True)
    assert len(set(losses)) == 1
    entries = entries_of(tmp_path)
    assert len(entries) == len(list(tmp_path.iterdir()))
    assert len(entries) <= sum(map(int, compiled)) <= len(entries) + 2 * OWN_PROGRAMS
    assert run(LEARN, str(tmp_path), **QUICKLY_COMPILED).split() == [losses[0], "0"]
    assert entries_of(tmp_path) == entries


def test_whoever_needs_a_program_that_another_compiles_waits_for_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    compiled: list[str] = []

    def wait() -> list[str]:
        with locked(lock, inf) as held:
            assert held
            return [*compiled]

    with ThreadPoolExecutor() as pool:
        with locked(lock) as held:
            assert held
            with locked(lock, 0) as again:
                assert not again
            waiting = pool.submit(wait)
            compiled.append("step")
        assert waiting.result(60) == ["step"]
    assert not list(tmp_path.iterdir())


def test_a_process_that_dies_while_it_compiles_leaves_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with locked(lock, 0) as held:
            assert not held
        holder.kill()
        with locked(lock, inf) as held:
            assert held


def test_what_a_killed_process_may_have_half_written_is_forgotten(tmp_path: Path) -> None:
    """JAX writes its entries in place, and would warn of half an entry at each start."""
    before, half = tmp_path / "before-cache", tmp_path / "half-cache"
    before.touch()
    os.utime(before, (1.0, 1.0))
    killed = COMPILING + "    (folder / 'half-cache').touch(); os.kill(os.getpid(), 9)\n"
    with pytest.raises(subprocess.CalledProcessError):
        run(killed, str(tmp_path))
    assert half.exists()
    assert run(COMPILING, str(tmp_path)) == "1 lock\n"
    assert (before.exists(), half.exists()) == (True, False)
    half.touch()
    run(COMPILING, str(tmp_path))
    assert half.exists()


def test_a_lock_ends_with_a_compilation_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no memory"), locked(tmp_path / "lock"):
        raise ValueError("no memory")
    with locked(tmp_path / "lock", 0) as held:
        assert held


def test_processes_of_one_program_wait_for_none_of_them(tmp_path: Path) -> None:
    assert run(COMPILING, str(tmp_path)) == "1 lock\n"
    assert run(COMPILING, str(tmp_path), TOGETHER="1") == "0 lock\n"
    assert run(COMPILING, "") == "0 lock\n"


def test_without_locks_everybody_compiles(tmp_path: Path) -> None:
    with locked(tmp_path / "none" / "lock", inf) as held:
        assert not held


def test_the_pool_has_a_thread_for_each_learner() -> None:
    assert cpu_environment(1) == {"PJRT_NPROC": "1"}
    assert cpu_environment(3, observers=1) == {"PJRT_NPROC": "4"}
    assert cpu_environment(2, observers=1, devices=4) == {"PJRT_NPROC": "9"}
    one, four = (int(run(THREADS, PJRT_NPROC=number)) for number in ("1", "4"))
    assert four - one >= 3
