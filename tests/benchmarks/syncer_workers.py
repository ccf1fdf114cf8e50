"""How much the syncer's workers do side by side, next to one worker for everything.

    python -m tests.benchmarks.syncer_workers [--learners 4] [--megabytes 64] [--rounds 8]

Plays the heavy work of a syncer at full speed. Contributions of `--learners` to one round after the
other are measured (digest and norms); a round is merged once all of its own are, and written to a
journal with real syncs, while those of the next are measured. Once with one thread for all of it,
in order, which is what a syncer had until November 2026, and once with the workers that it has now;
the two take turns, so that a noisy neighbour disturbs both alike, and medians are told.

* **inspected**: contributions measured, a second, until the last one is.
* **merged**: merges a second, until the last one is computed.
* **written**: records a second, until the last one is durable.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import ThreadWorker
from islands.files.disk import RealDisk
from islands.files.slots import Slots
from islands.layout.leaves import Unit
from islands.numerics.merge import MergeResult, merge_and_step, warm_up
from islands.numerics.norms import Measured, measure
from islands.protocol.identities import Version
from islands.syncer.workers import SyncerWorkers, worker_threads
from messaging.codec.tensors import as_buffer, digest

TENSOR_ELEMENTS = 2**22

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rates:
    """Pieces of work a second."""

    inspected: float
    merged: float
    written: float


class Load:
    """The work of some rounds, on workers that may be of either kind."""

    def __init__(
        self, workers: SyncerWorkers, contributions: Sequence[Values], slots: Slots
    ) -> None:
        size = contributions[0].size
        self.workers = workers
        self.contributions = contributions
        self.slots = slots
        self.units = [
            Unit(start, min(TENSOR_ELEMENTS, size - start), "rda")
            for start in range(0, size, TENSOR_ELEMENTS)
        ]
        self.value = np.zeros(size, np.float32)
        self.rounds = 0
        self.written: asyncio.Future[None]
        self.ends: dict[str, float] = {}
        self.counts = {"inspected": 0, "merged": 0, "written": 0}

    async def play(self, rounds: int) -> Rates:
        """All of it, and how long it took."""
        self.written = asyncio.get_running_loop().create_future()
        self.rounds = rounds
        began_s = time.perf_counter()
        self.inspect(0)
        await self.written
        return Rates(
            **{kind: self.counts[kind] / (self.ends[kind] - began_s) for kind in self.counts}
        )

    def done(self, kind: str) -> None:
        self.counts[kind] += 1
        self.ends[kind] = time.perf_counter()

    def inspect(self, number: int) -> None:
        measured: list[Measured] = []

        def arrive(one: Measured) -> None:
            self.done("inspected")
            measured.append(one)
            if len(measured) == len(self.contributions):
                self.merge(number, measured)
                if number + 1 < self.rounds:
                    self.inspect(number + 1)

        for values in self.contributions:
            self.workers.inspecting.submit(lambda values=values: self.look(values), arrive)  # type: ignore[misc]

    def look(self, values: Values) -> Measured:
        digest(as_buffer(values))
        return measure(values, self.units)

    def merge(self, number: int, measured: list[Measured]) -> None:
        def work() -> MergeResult:
            weights = [1.0] * len(measured)
            found = merge_and_step(
                *(self.value, self.value, measured, weights, self.units),
                learning_rate=1.0,
                momentum_decay=0.0,
            )
            digest(as_buffer(found.value))
            return found

        def arrive(found: MergeResult) -> None:
            self.done("merged")
            self.write(number, found)

        self.workers.merging.submit(work, arrive)

    def write(self, number: int, found: MergeResult) -> None:
        arrays = {"value": found.value, "momentum": found.momentum}

        def arrive(_: object) -> None:
            self.done("written")
            if number + 1 == self.rounds:
                self.written.set_result(None)

        self.workers.writing.submit(
            lambda: self.slots.write("fragment", number + 1, b"", Version(1, number), arrays),
            arrive,
        )


def fail(error: BaseException) -> None:
    """Work that fails ends the benchmark."""
    raise error


def measure_one(
    make: Callable[[], SyncerWorkers], contributions: Sequence[Values], rounds: int
) -> Rates:
    """The rates of one kind of workers."""

    async def main() -> Rates:
        with tempfile.TemporaryDirectory() as folder:
            workers = make()
            load = Load(workers, contributions, Slots(RealDisk(Path(folder))))
            try:
                return await load.play(rounds)
            finally:
                workers.close()

    return asyncio.run(main())


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(
        description="The syncer's workers, next to one for everything."
    )
    parser.add_argument("--learners", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=64.0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm_up()
    rng = np.random.default_rng(0)
    size = int(options.megabytes * 1e6) // 4
    contributions = [rng.standard_normal(size, np.float32) for _ in range(options.learners)]
    kinds: dict[str, Callable[[], SyncerWorkers]] = {
        "one": lambda: SyncerWorkers.of(ThreadWorker("all", fail)),
        "several": lambda: worker_threads("syncer", fail),
    }
    found: dict[str, list[Rates]] = {name: [] for name in kinds}
    for _ in range(options.repetitions):
        for name, make in kinds.items():
            found[name].append(measure_one(make, contributions, options.rounds))
    medians = {
        name: {
            kind: statistics.median(getattr(rates, kind) for rates in runs)
            for kind in asdict(runs[0])
        }
        for name, runs in found.items()
    }
    print(f"{options.learners} learners, fragments of {options.megabytes:g} MB; a second")
    for kind, one in medians["one"].items():
        several = medians["several"][kind]
        print(f"{kind:10} {one:8.2f} {several:8.2f}   {several / one:5.2f} times")
    if options.json:
        options.json.write_text(json.dumps(medians, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
