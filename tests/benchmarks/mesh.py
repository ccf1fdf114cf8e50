"""What a mesh of one device costs against no mesh at all: `python -m tests.benchmarks.mesh`.

Both trainers live in one process on one device and take turns, so that drift cancels. A mesh of
one is never made by `JaxTrainer` itself; here it is forced, to see what its arrays would cost.

- compile: `setup` of a task that no trainer has compiled, least of some turns;
- step: from a dispatch to its loss, which includes what Python does, least of all turns;
- boundary: a snapshot, and the adoption of a value, of each fragment in turn, least of all.
"""

import argparse

import jax
import numpy as np

from islands.model.jax_trainer import JaxTrainer
from islands.model.placement import LearnerPlacement, learner_mesh
from islands.tasks.data.shards import ShardKey
from islands.tasks.models.decoder import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
from messaging.clock import MonotonicClock

CLOCK = MonotonicClock()
TINY = DecoderConfig(width=32, layers=2, heads=1, head_width=32, hidden=64)


def fresh(*, meshed: bool, seed: int) -> tuple[JaxTrainer, float]:
    """A trainer that shares nothing compiled, and the seconds its set-up took."""
    trainer = JaxTrainer(StdlibBytes(TINY, length=32, seed=seed), 4, min_piece_bytes=1024)
    if meshed:
        device = jax.local_devices()[0]
        trainer._place = LearnerPlacement((device,), learner_mesh([device]))  # noqa: SLF001
    start_s = CLOCK.now_s()
    trainer.setup()
    return trainer, CLOCK.now_s() - start_s


def step_times(trainer: JaxTrainer, steps: int) -> list[float]:
    """Seconds of each step."""
    batches = trainer.batches(ShardKey(0, 0), 0)
    times = []
    for _ in range(steps):
        batch = next(batches)[0]
        start_s = CLOCK.now_s()
        trainer.step(batch, 1e-3).loss()
        times.append(CLOCK.now_s() - start_s)
    return times


def boundary_times(trainer: JaxTrainer, count: int) -> list[float]:
    """Seconds of a snapshot and an adoption."""
    fragments = trainer.layout.fragments
    zeros = [np.zeros(fragment.size, np.float32) for fragment in fragments]
    times = []
    for turn in range(count):
        fragment = turn % len(fragments)
        start_s = CLOCK.now_s()
        trainer.snapshot(fragment, "float32").buffer()
        trainer.adopt(fragment, zeros[fragment])
        times.append(CLOCK.now_s() - start_s)
    return times


def main() -> None:
    """Measure and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6, help="alternations of the two")
    turns = parser.parse_args().turns
    fresh(meshed=False, seed=1000)  # whatever the first trainer of a process pays
    compile_s: dict[bool, list[float]] = {False: [], True: []}
    step_s: dict[bool, list[float]] = {False: [], True: []}
    boundary_s: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(turns):
        for meshed in (False, True) if turn % 2 == 0 else (True, False):
            trainer, took_s = fresh(meshed=meshed, seed=2 * turn + meshed)
            compile_s[meshed].append(took_s)
            step_times(trainer, 10)
            step_s[meshed] += step_times(trainer, 100)
            boundary_s[meshed] += boundary_times(trainer, 60)
    print("                one device   mesh of one   ratio")
    for name, unit, found in (
        ("compile", 1.0, {key: min(times) for key, times in compile_s.items()}),
        ("step (ms)", 1e3, {key: min(times) for key, times in step_s.items()}),
        ("boundary (ms)", 1e3, {key: min(times) for key, times in boundary_s.items()}),
    ):
        ratio = found[True] / found[False]
        print(f"{name:<14}{unit * found[False]:12.3f} {unit * found[True]:13.3f} {ratio:7.3f}")


if __name__ == "__main__":
    main()
