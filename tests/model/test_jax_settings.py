"""Threads and the compilation cache, each in a process of its own, as they are set once."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from threading import Event

import pytest

from islands.model.jax_settings import SharedCache, cpu_environment
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

QUICK = """
import sys
from pathlib import Path
import islands.model.jax_settings as settings
settings.enable_compilation_cache(Path(sys.argv[1]))
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
jax.jit(lambda x: x + 1)(1)
"""

OWN_CACHE = """
import os, sys
from pathlib import Path
import jax
import islands.model.jax_settings as settings
settings.share_compilations()
from jax._src import compilation_cache
jax.jit(lambda x: x + 1)(1)
print(isinstance(compilation_cache._cache, settings.SharedCache))
"""

HOLD = """
import sys
from pathlib import Path
from islands.model.jax_settings import SharedCache
assert SharedCache(Path(sys.argv[1])).get("step") is None
print("compiling", flush=True)
sys.stdin.read()
"""

THREADS = """
import os, threading, jax, jax.numpy as jnp
jnp.zeros(1).block_until_ready()
names = [open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')]
print(sum('XLAEigen' in name or 'XLAPjRt' in name for name in names))
"""


DEVICES = """
import islands.model.jax_settings as settings
settings.divide_cpu(4)
import jax
print(len(jax.devices()))
"""


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

    One that starts later adds nothing to the cache, and computes the same loss.
    """
    with ThreadPoolExecutor() as pool:
        learners = [pool.submit(run, LEARN, str(tmp_path), **QUICKLY_COMPILED) for _ in range(2)]
        losses, compiled = zip(*(learner.result().split() for learner in learners), strict=True)
    assert len(set(losses)) == 1
    entries = entries_of(tmp_path)
    assert sum(map(int, compiled)) == len(entries) == len(list(tmp_path.iterdir()))
    assert entries
    assert run(LEARN, str(tmp_path), **QUICKLY_COMPILED).split() == [losses[0], "0"]
    assert entries_of(tmp_path) == entries


def test_a_program_that_jax_does_not_keep_is_locked_no_longer_than_it_compiles(
    tmp_path: Path,
) -> None:
    run(QUICK, str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "setting", ["", "JAX_COMPILATION_CACHE_MAX_SIZE", "JAX_COMPILATION_CACHE_CHECK_CONTENTS"]
)
def test_the_cache_of_a_user_is_shared_unless_jax_limits_it(tmp_path: Path, setting: str) -> None:
    settings = {setting: "1"} if setting else {}
    told = run(OWN_CACHE, JAX_COMPILATION_CACHE_DIR=str(tmp_path), **settings)
    assert told == f"{not setting}\n"


def test_whoever_needs_a_program_that_another_compiles_waits_for_it(tmp_path: Path) -> None:
    missed = Event()

    def several() -> bool:
        missed.set()
        return False

    first = SharedCache(tmp_path)
    assert first.get("step") is None
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(SharedCache(tmp_path, several=several, wait_s=inf).get, "step")
        assert missed.wait(60)
        first.put("step", b"compiled")
        assert waiting.result(60) == b"compiled"
    assert [path.name for path in tmp_path.iterdir()] == ["step-cache"]


def test_nobody_waits_for_another_program(tmp_path: Path) -> None:
    assert SharedCache(tmp_path).get("long") is None
    with ThreadPoolExecutor() as pool:
        assert pool.submit(SharedCache(tmp_path, wait_s=inf).get, "step").result(60) is None


def test_a_process_that_dies_while_it_compiles_leaves_its_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "compiling\n"
        assert SharedCache(tmp_path, wait_s=0).get("step") is None
        holder.kill()
        assert SharedCache(tmp_path, wait_s=inf).get("step") is None


def _compiled(cache: SharedCache) -> None:
    cache.on_event("/jax/core/compile/backend_compile_duration", 1.0)


def _asked_for_another(cache: SharedCache) -> None:
    cache.get("another")


@pytest.mark.parametrize("end", [_compiled, _asked_for_another])
def test_a_lock_ends_with_the_compilation(
    tmp_path: Path, end: Callable[[SharedCache], None]
) -> None:
    cache = SharedCache(tmp_path)
    assert cache.get("step") is None
    end(cache)
    assert SharedCache(tmp_path, wait_s=inf).get("step") is None


def test_processes_of_one_program_wait_for_none_of_them(tmp_path: Path) -> None:
    assert SharedCache(tmp_path).get("step") is None
    assert SharedCache(tmp_path, several=lambda: True, wait_s=inf).get("step") is None


def test_without_locks_everybody_compiles(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    cache = SharedCache(tmp_path / "file" / "cache", wait_s=inf)
    assert cache.get("step") is None
    with pytest.raises(OSError, match="cache"):
        cache.put("step", b"compiled")


def test_an_entry_that_was_damaged_is_written_anew(tmp_path: Path) -> None:
    cache = SharedCache(tmp_path)
    (tmp_path / "step-cache").write_bytes(b"")
    assert cache.get("step") == b""
    cache.put("step", b"compiled")
    assert cache.get("step") == b"compiled"
    assert [path.name for path in tmp_path.iterdir()] == ["step-cache"]


def test_the_pool_has_a_thread_for_each_learner() -> None:
    assert cpu_environment(1) == {"PJRT_NPROC": "1"}
    assert cpu_environment(3, observers=1) == {"PJRT_NPROC": "4"}
    assert cpu_environment(2, observers=1, devices=4) == {"PJRT_NPROC": "9"}
    one, four = (int(run(THREADS, PJRT_NPROC=number)) for number in ("1", "4"))
    assert four - one >= 3


def test_a_cpu_can_pass_for_several_devices() -> None:
    assert int(run(DEVICES)) == 4


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    shared = SharedCache(tmp_path / "islands" / "compiled")
    shared.put("step", b"a program")
    assert shared.get("step") == b"a program"
