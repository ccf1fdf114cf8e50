"""Threads and the compilation cache, each in a process of its own, as they are set once."""

import os
import subprocess
import sys
from pathlib import Path

from islands.model.jax_settings import cpu_environment

LEARN = """
import sys
from pathlib import Path
import islands.model.jax_settings as settings
settings.enable_compilation_cache(Path(sys.argv[1]))
import jax
from islands.tasks.data.shards import ShardKey
from islands.model.jax_trainer import JaxTrainer
from islands.tasks.models.decoder import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
small = DecoderConfig(width=16, layers=1, heads=1, head_width=16, hidden=16)
trainer = JaxTrainer(StdlibBytes(small, length=8))
trainer.setup()
batch, _ = next(trainer.batches(ShardKey(0, 0), 0))
print(trainer.step(batch, 0.1).loss())
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
    """The output of a fresh Python."""
    inherited = {k: v for k, v in os.environ.items() if k not in {"NPROC", "XLA_FLAGS"}}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, env=inherited | environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_a_restarted_learner_finds_its_compiled_functions(tmp_path: Path) -> None:
    """A second process adds nothing to the cache and computes the same loss."""
    first = run(LEARN, str(tmp_path))
    entries = sorted(p.name for p in tmp_path.iterdir() if p.name.endswith("-cache"))
    assert entries
    assert run(LEARN, str(tmp_path)) == first
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.endswith("-cache")) == entries


def test_the_pool_has_a_thread_for_each_learner() -> None:
    """One learner keeps to one core; three in one process do not starve each other."""
    assert cpu_environment(1) == {"PJRT_NPROC": "1"}
    assert cpu_environment(3, observers=1) == {"PJRT_NPROC": "4"}
    assert cpu_environment(2, observers=1, devices=4) == {"PJRT_NPROC": "9"}
    one, four = (int(run(THREADS, PJRT_NPROC=number)) for number in ("1", "4"))
    assert four - one >= 3


def test_a_cpu_can_pass_for_several_devices() -> None:
    """A mesh can be tried where there is no accelerator."""
    assert int(run(DEVICES)) == 4
