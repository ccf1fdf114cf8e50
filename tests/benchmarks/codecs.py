"""How fast one core merges, encodes and decodes, next to a memory copy in the same run.

    python -m tests.benchmarks.codecs [--repetitions 9] [--mib 16] [--learners 2 4 8]

One row per number of learners: *check* measures their contributions as they arrive, *merge* is what
the syncer runs when a round closes (RDA and a Nesterov step, norms already known, momentum in
place), in GB/s of what they sent, and *of least* the least traffic possible (read M contributions,
Θ and v once, write Θ and v once; at the speed of the copy) as a share of the merge's time. Then one
row per precision, and one per precision of updates: what the syncer does at a commit to publish
by an increment, and what a member does to add it, both without the digest that whole values have
too. GB/s are of float32, read by the encoder and written by the decoder; all
things measured take turns and write to memory that is new to them, as in a run, so that the copy
allocates its result too. Figures are the best of all turns: a neighbour can only make them worse.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics import merge
from islands.numerics.codecs import QUANTIZERS, decode, encode, size_bytes, warm_up
from islands.numerics.increment import applied, quantised
from islands.numerics.norms import measure
from islands.protocol.settings.choices import MergeRule, Precision, UpdatePrecision

MIB = 2**20
INCREMENTS = [Precision(each) for each in UpdatePrecision if each.of_increments]


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of one core next to a memory copy.")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--learners", type=int, nargs="*", default=(2, 4, 8))
    options = parser.parse_args()
    began_s = time.perf_counter()
    warm_up(Precision.INT8)
    merge.warm_up()
    print(f"warm-up: {time.perf_counter() - began_s:.2f} s; fragments of {options.mib} MiB")
    values = np.random.default_rng(0).standard_normal(options.mib * MIB // 4, np.float32)
    things: dict[tuple[str, str], Callable[[], object]] = {("copy", ""): values.copy}
    for learners in options.learners:
        things |= merging(values.size, learners)
    for precision in QUANTIZERS:
        sent = encode(values, precision)
        things[precision, "encode"] = partial(encode, values, precision)
        things[precision, "decode"] = partial(decode, sent, values.size, precision)
    exact, left = values * np.float32(1.01), values * np.float32(1e-5)
    for precision in INCREMENTS:
        publish = partial(quantised, values, exact, left, precision)
        payload = publish().payload
        assert payload is not None, "all of it is finite"
        things[precision, "publish"] = publish
        things[precision, "add"] = partial(applied, values, payload, precision)
    seconds = best(things, options.repetitions)
    speeds = {thing: values.nbytes / 1e9 / taken for thing, taken in seconds.items()}
    print(f"copy: {speeds['copy', '']:.2f} GB/s")
    print("learners      check    merge   of least")
    for learners in options.learners:
        check, merged = (
            learners * speeds[f"{learners} learners", what] for what in ("check", "merge")
        )
        least = (learners + 4) / learners * merged / (2 * speeds["copy", ""])
        print(f"{learners:8}  {check:9.2f}  {merged:7.2f}  {least:9.2f}")
    print("precision   bits per value   error   encode   decode")
    for precision in QUANTIZERS:
        print(
            f"{precision.value:10}  {8 * size_bytes(values.size, precision) / values.size:14.2f}"
            f"  {error(values, precision):6.4f}  {speeds[precision, 'encode']:7.2f}"
            f"  {speeds[precision, 'decode']:7.2f}"
        )
    print("increments  publish      add")
    for precision in INCREMENTS:
        publish_speed, add_speed = speeds[precision, "publish"], speeds[precision, "add"]
        print(f"{precision.value:10}  {publish_speed:7.2f}  {add_speed:7.2f}")


def merging(size: int, learners: int) -> dict[tuple[str, str], Callable[[], object]]:
    """What a syncer does with the contributions of so many learners to one fragment."""
    units, rng = [Unit(0, size, MergeRule.AVERAGE)], np.random.default_rng(0)
    sent = [rng.standard_normal(size, np.float32) for _ in range(learners)]
    value, momentum, target = (rng.standard_normal(size, np.float32) for _ in range(3))
    close = partial(
        merge.merge_and_step,
        *(value, momentum, [measure(one, units) for one in sent], [1.0] * learners, units),
        learning_rate=0.7,
        momentum_decay=0.9,
        out=(target, momentum),
    )
    of = f"{learners} learners"
    return {(of, "check"): lambda: [measure(one, units) for one in sent], (of, "merge"): close}


def error(values: NDArray[np.float32], precision: Precision) -> float:
    """Return ‖x̂ − x‖ / ‖x‖."""
    received = decode(encode(values, precision), values.size, precision)
    return float(np.linalg.norm(received - values) / np.linalg.norm(values))


def best(
    things: dict[tuple[str, str], Callable[[], object]], repetitions: int
) -> dict[tuple[str, str], float]:
    """Return the least seconds of each thing, all taking turns."""
    found = dict.fromkeys(things, float("inf"))
    for _ in range(repetitions):
        for name, thing in things.items():
            began_s = time.perf_counter()
            thing()
            found[name] = min(found[name], time.perf_counter() - began_s)
    return found


if __name__ == "__main__":
    main()
