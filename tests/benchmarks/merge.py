"""How fast the syncer merges, next to a memory copy in the same run.

    python -m tests.benchmarks.merge [--repetitions 9] [--tensor-mib 64] [--json FILE]

One row per number of learners M and fragment size. All things measured take turns, so that a noisy
neighbour disturbs them alike; figures are medians.

* **copy**: GB/s read and written by a memory copy of one fragment.
* **merge**: GB/s of learner input (M fragments) of merge and Nesterov step, RDA on every tensor,
  norms already known, momentum in place, output in reused buffers: what the syncer runs when a
  round closes.
* **check**: GB/s of the pass that measures contributions as they arrive.
* **both**: GB/s of both passes together.
* **of least**: least traffic possible (read M contributions, Θ and v once, write Θ and v once; at
  the speed of the copy) as a share of the time taken by `merge`, and by `both`.

A fragment is made of tensors of at most `--tensor-mib`; tensors that fit into a cache merge faster.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from islands.layout.leaves import Unit
from islands.numerics.merge import merge_and_step, warm_up
from islands.numerics.norms import measure

MIB = 2**20
LEARNERS = (2, 4, 8)
SIZES_MIB = (4, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one configuration; GB/s, except for the shares."""

    learners: int
    fragment_mib: int
    copy: float
    merge: float
    check: float
    both: float
    merge_of_least: float
    both_of_least: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Merge speed next to a memory copy.")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--tensor-mib", type=int, default=64)
    parser.add_argument("--learners", type=int, nargs="*", default=LEARNERS)
    parser.add_argument("--sizes-mib", type=int, nargs="*", default=SIZES_MIB)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    started_s = time.perf_counter()
    warm_up()
    print(f"warm-up: {time.perf_counter() - started_s:.2f} s")
    print(f"tensors of at most {options.tensor_mib} MiB; GB/s of learner input")
    print(" M   MiB    copy   merge   check    both   merge/least  both/least")
    rows = []
    for learners in options.learners:
        for size_mib in options.sizes_mib:
            row = bench(learners, size_mib, options.tensor_mib, options.repetitions)
            rows.append(asdict(row))
            print(
                f"{row.learners:2}  {row.fragment_mib:4}  {row.copy:6.1f}  {row.merge:6.2f}"
                f"  {row.check:6.1f}  {row.both:6.2f}   {row.merge_of_least:11.2f}"
                f"  {row.both_of_least:10.2f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


def bench(learners: int, size_mib: int, tensor_mib: int, repetitions: int) -> Row:
    """Measure one configuration."""
    size = size_mib * MIB // 4
    tensor = min(size, tensor_mib * MIB // 4)
    units = [Unit(start, min(tensor, size - start), "rda") for start in range(0, size, tensor)]
    rng = np.random.default_rng(0)
    contributions = [rng.standard_normal(size, np.float32) for _ in range(learners)]
    value, momentum, target = (rng.standard_normal(size, np.float32) for _ in range(3))
    known = [measure(one, units) for one in contributions]

    def merge() -> None:
        merge_and_step(
            value,
            momentum,
            known,
            [1.0] * learners,
            units,
            learning_rate=0.7,
            momentum_decay=0.9,
            out=(target, momentum),
        )

    seconds = interleaved(
        {
            "copy": lambda: np.copyto(target, value),
            "check": lambda: [measure(one, units) for one in contributions],
            "merge": merge,
        },
        repetitions if size_mib < SIZES_MIB[-1] else max(3, repetitions // 2),
    )
    fragment_gb = size * 4 / 1e9
    copy = 2 * fragment_gb / seconds["copy"]
    least_s = (learners + 4) * fragment_gb / copy
    both_s = seconds["merge"] + seconds["check"]
    return Row(
        learners=learners,
        fragment_mib=size_mib,
        copy=copy,
        merge=learners * fragment_gb / seconds["merge"],
        check=learners * fragment_gb / seconds["check"],
        both=learners * fragment_gb / both_s,
        merge_of_least=least_s / seconds["merge"],
        both_of_least=least_s / both_s,
    )


def interleaved(things: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Median seconds of each thing, all taking turns after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in things}
    for repetition in range(repetitions + 1):
        for name, thing in things.items():
            started_s = time.perf_counter()
            thing()
            if repetition:
                times[name].append(time.perf_counter() - started_s)
    return {name: statistics.median(taken) for name, taken in times.items()}


if __name__ == "__main__":
    main()
