"""Step time with and without synchronisation: `python -m tests.benchmarks.step_overhead`.

Windows alternate in one process, in the order off, on, on, off, so that drift cancels. The step
time of a window is the mean time from one step being ready to the next.

- off: a thread that dispatches each step before it waits for the one before, and nothing else;
- on: the same trainer under a learner's actor, with syncer, supervisor and journal beside it on
  one loop, a round opened after every step (H = P).

Sleeping steps leave the processor alone, as an accelerator's do; their ratio is the overhead of
synchronisation, aimed at 1.01. Steps of JAX on the CPU compute on the very cores on which the same
process digests, checks, merges and journals what they exchange; their ratio is mostly that.

The bound is the upper one of a one-sided 95 % interval: pairs of windows are resampled.
"""

import argparse
import asyncio
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.actors.ports import ProcessEnd, ThreadWorker
from islands.actors.role_actor import Context
from islands.files.disk import RealDisk
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy_workload import Accelerator
from islands.learner.actor import Item, LearnerActor
from islands.learner.compute import StepReport
from islands.learner.compute_thread import ComputeThread
from islands.model.interfaces import Trainer
from islands.model.jax_trainer import JaxTrainer
from islands.numerics.merge import warm_up
from islands.numerics.outer import outer_optimizer
from islands.protocol.membership import Credentials
from islands.protocol.settings.run import RunSettings
from islands.run.hosting.task_processes import Process, ProcessTable
from islands.supervisor.actor import SupervisorActor
from islands.syncer.actor import SyncerActor
from islands.syncer.workers import SyncerWorkers
from islands.tasks.data.shards import ShardKey
from islands.tasks.stdlib_bytes import StdlibBytes
from islands.tasks.task import Task, TaskState
from messaging.clock import MonotonicClock
from messaging.links.memory_link import MemoryNetwork

MIB = 2**20
AIM = 1.01
WARM_STEPS = 15
RESAMPLES = 10_000
WINDOW_LIMIT_S = 120.0
NAMES = ("supervisor", "syncer", "learner")


@dataclass(frozen=True, slots=True)
class Window:
    """Figures of one window: seconds per step, bytes up and down per step, and the gaps."""

    step_s: float
    up_bytes: float = 0.0
    down_bytes: float = 0.0
    gaps_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Matmuls(Task[NDArray[np.float32]]):
    """A chain of square matrices; its steps do little but multiply."""

    width: int = 512
    depth: int = 4

    def init(self, key: PRNGKeyArray) -> TaskState:
        keys = jax.random.split(key, self.depth)
        scale = self.width**-0.5
        shape = (self.width, self.width)
        return TaskState([jax.random.normal(each, shape) * scale for each in keys])

    def loss(
        self, params: PyTree, state: PyTree, batch: NDArray[np.float32], key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        hidden = jnp.asarray(batch)
        for matrix in params:
            hidden = jnp.tanh(hidden @ matrix)
        return jnp.mean(jnp.square(hidden)), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[NDArray[np.float32], int]]:
        rng = np.random.default_rng((shard.pass_index, shard.shard))
        batch = rng.standard_normal((256, self.width), np.float32)
        for place in range(position, 1000):
            yield batch, place + 1

    def tokens(self, batch: NDArray[np.float32]) -> int:
        return len(batch)


# ------------------------------------------------------------------------------ without the system


def alone(trainer: Trainer, steps: int) -> Window:
    """Step as fast as the device allows, on a thread of its own."""
    found: list[Window] = []

    def run() -> None:
        clock = MonotonicClock()
        batches = endless(trainer)
        pending = trainer.step(next(batches), 1e-3)
        begin_s = 0.0
        for count in range(WARM_STEPS + steps):
            following = trainer.step(next(batches), 1e-3)
            pending.loss()
            if count == WARM_STEPS - 1:
                begin_s = clock.now_s()
            pending = following
        found.append(Window((clock.now_s() - begin_s) / steps))
        pending.loss()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def endless(trainer: Trainer) -> Iterator[object]:
    """Batches of one shard after the other."""
    while True:  # the caller stops asking
        for shard in range(trainer.shards):
            for batch, _ in trainer.batches(ShardKey(0, shard), 0):
                yield batch


# --------------------------------------------------------------------------------- with the system


class ObservedLearner(LearnerActor):
    """A learner whose finished steps are looked at."""

    observe: Callable[[StepReport], None]

    async def on_message(self, message: Item) -> None:
        await super().on_message(message)
        if isinstance(message, StepReport):
            self.observe(message)


@dataclass
class Together:
    """One learner, a syncer and a supervisor in this process, until a learner has stepped enough.

    Args:
        trainer: of the learner.
        settings: of the run.
        steps: of the window.
        folder: for journals.
    """

    trainer: Trainer
    settings: RunSettings
    steps: int
    folder: Path
    seen: int = 0
    seconds: float = 0.0
    bytes_before: tuple[int, int] = (0, 0)
    gaps_s: list[float] = field(default_factory=list)

    async def run(self) -> Window:
        loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[Window] = loop.create_future()
        self.credentials = Credentials(self.settings.run, bytes(32))
        self.context = Context(
            self.settings, self.trainer.layout, MemoryNetwork(), MemoryTape(1000)
        )
        self.processes = ProcessTable(self.make, self.ended)
        for name in NAMES:
            self.processes.start(name)
        try:
            async with asyncio.timeout(WINDOW_LIMIT_S):
                return await self.finished
        finally:
            self.processes.close()
            await self.processes.wait_freed()
            if not self.compute.join(WINDOW_LIMIT_S):
                raise RuntimeError("the learner's thread did not end")

    def make(self, name: str) -> Process:
        worker = ThreadWorker(name, self.fail)
        rng = random.Random(0)
        if name == "learner":
            self.compute = ComputeThread(lambda: self.trainer, self.settings, name)
            self.learner = ObservedLearner(name, self.context, self.compute, worker, rng)
            self.learner.observe = self.observe
            return self.learner
        if name == "syncer":
            return SyncerActor(
                name,
                self.context,
                disk=RealDisk(self.folder / "journal"),
                workers=SyncerWorkers.of(worker),
                optimizer=outer_optimizer(self.settings.outer),
                credentials=self.credentials,
                shards=self.trainer.shards,
                rng=rng,
            )
        return SupervisorActor(
            name,
            self.context,
            disk=RealDisk(self.folder / "supervisor"),
            credentials=self.credentials,
        )

    def observe(self, report: StepReport) -> None:
        self.seen += 1
        traffic = (self.learner.bytes_up, self.learner.bytes_down)
        if self.seen <= self.warm_steps:
            self.bytes_before = traffic
        elif self.seen <= self.warm_steps + self.steps:
            self.seconds += report.event.step_time_s
            self.gaps_s.append(report.gap_s)
        elif not self.finished.done():
            up, down = (
                (after - before) / self.steps
                for after, before in zip(traffic, self.bytes_before, strict=True)
            )
            self.finished.set_result(
                Window(self.seconds / self.steps, up, down, tuple(self.gaps_s))
            )

    @property
    def warm_steps(self) -> int:
        """Every fragment's first rounds belong to the start."""
        return WARM_STEPS + 2 * len(self.trainer.layout.fragments)

    def ended(self, name: str, end: ProcessEnd) -> None:
        if end.error is not None:
            self.fail(end.error)

    def fail(self, error: BaseException) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)


def together(trainer: Trainer, settings: RunSettings, steps: int) -> Window:
    with tempfile.TemporaryDirectory(prefix="step-overhead-") as folder:
        return asyncio.run(Together(trainer, settings, steps, Path(folder)).run())


# -------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: a trainer, steps per window, and whether the aim applies to it."""

    name: str
    make: Callable[[], Trainer]
    steps: int
    aimed: bool = False


CASES = (
    Case("sleep 20 ms, 1 MiB", lambda: Accelerator(0.020, MIB), 60, aimed=True),
    Case("sleep 20 ms, 8 MiB", lambda: Accelerator(0.020, 8 * MIB), 60, aimed=True),
    Case("sleep 100 ms, 8 MiB", lambda: Accelerator(0.100, 8 * MIB), 12, aimed=True),
    Case("JAX matmul, 1 MiB", lambda: JaxTrainer(Matmuls(), 4), 60),
    Case("JAX decoder, 0.2 MiB", lambda: JaxTrainer(StdlibBytes(), 12), 30),
)


def measure(case: Case, pairs: int) -> None:
    trainer = case.make()
    fragments = len(trainer.layout.fragments)
    settings = RunSettings(interval_steps=fragments, fragments=fragments, learning_rate=1e-3)
    trainer.setup()
    together(trainer, settings, 1)
    off: list[Window] = []
    on: list[Window] = []
    for pair in range(pairs):
        for synchronised in (False, True) if pair % 2 == 0 else (True, False):
            if synchronised:
                on.append(together(trainer, settings, case.steps))
            else:
                off.append(alone(trainer, case.steps))
    print(line(case, off, on), flush=True)


def line(case: Case, off: list[Window], on: list[Window]) -> str:
    times = np.array([[window.step_s for window in windows] for windows in (off, on)])
    ratio = times[1].sum() / times[0].sum()
    bound = upper_bound(times)
    gaps_ms = 1e3 * np.array([gap for window in on for gap in window.gaps_s])
    up, down = (
        float(np.mean([getattr(window, name) for window in on])) / MIB
        for name in ("up_bytes", "down_bytes")
    )
    verdict = ""
    if case.aimed:
        verdict = f"  aim {AIM}: {'reached' if bound <= AIM else 'missed'}"
    return (
        f"{case.name:<21} {len(off):>3} x {case.steps:<3} {1e3 * times[0].mean():8.3f} "
        f"{1e3 * times[1].mean():8.3f}   {ratio:.4f}   {bound:.4f}  {up:5.2f} {down:5.2f} "
        f"{np.quantile(gaps_ms, 0.99):8.2f}{verdict}"
    )


def upper_bound(times: NDArray[np.float64]) -> float:
    """Upper bound of the ratio of mean step times: 95 % of resampled sets of pairs lie below."""
    rng = np.random.default_rng(0)
    pairs = times.shape[1]
    drawn = times[:, rng.integers(0, pairs, (RESAMPLES, pairs))].sum(axis=2)
    return float(np.quantile(drawn[1] / drawn[0], 0.95))


def main() -> None:
    """Measure every case and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12, help="pairs of windows per case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    chosen = parser.parse_args()
    warm_up()
    print(
        f"{'step, fragment':<21} {'windows':<9} {'off ms':>8} {'on ms':>8}   "
        f"{'ratio':<6}   {'95 %':<6}  {'MiB per step':<11} {'gap p99':>8}"
    )
    for case in CASES:
        if chosen.only in case.name:
            measure(case, chosen.pairs)
    print(
        "JAX steps share the cores with everything that their exchange costs; sleeping ones do not."
    )


if __name__ == "__main__":
    main()
