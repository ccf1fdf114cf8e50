"""Hostile input, drawn from a seed for each kind of peer, measured against the table of bounds.

    python -m tests.benchmarks.hostile [--inputs 1000000] [--kinds admitted gossip] [--seed 0]

A stranger's bytes go to a hub's door, a viewer's to its page; all other kinds are peers of the
production actors on a virtual clock, beside honest learners, and say messages of every type
(`drawn_messages`) over sessions of their own, through the codec that real sockets have. It prints
the most of each cell of `tests/bounds.py` over drawn messages, and over the largest of each type
alone, under many names and for a layout of 2,000 leaves. It ends with 1 if one is above its bound,
an actor failed, somebody honest was evicted, or a run did not come to its end. Memory is
measured in trials of their own, because that makes them several times slower.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from messaging.simulation.virtual_time import VirtualTimeLoop, run_virtual
from tests.benchmarks.hostile_hosts import Hosts
from tests.benchmarks.hostile_members import Members, types_of
from tests.benchmarks.hostile_strangers import Strangers
from tests.benchmarks.hostile_trial import Trial
from tests.benchmarks.hostile_viewers import Viewers
from tests.bounds import BOUNDS, PEERS, RESOURCES

INPUTS = {
    "stranger": 2000,
    "viewer": 1000,
    "token": 10_000,
    "admitted": 10_000,
    "gossip": 10_000,
    "island": 5000,
}
"""Inputs of one trial."""

SHARES = {
    "stranger": 0.2,
    "viewer": 0.005,
    "token": 0.245,
    "admitted": 0.3,
    "gossip": 0.15,
    "island": 0.1,
}
"""Parts of all inputs."""

EACH_INPUTS = 256
"""Inputs of one trial of a single type of message."""

LIMIT_S = 100_000.0


@dataclass(slots=True)
class Most:
    """The most of each resource over all trials of one kind of peer."""

    inputs: int = 0
    trials: int = 0
    of: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RESOURCES, 0.0))
    types: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        self.inputs += trial.inputs
        self.trials += 1
        self.types += trial.types
        self.problems += [f"{trial.kind} seed {trial.seed}: {one}" for one in trial.problems]
        for resource, value in trial.measured().items():
            self.of[resource] = max(self.of[resource], value)

    def above(self, kind: str, *, timed: bool) -> list[str]:
        return [
            f"{kind}, {resource}: {self.of[resource]:g} is above {BOUNDS[resource, kind].most:g}"
            for resource in RESOURCES
            if self.of[resource] > BOUNDS[resource, kind].most and (timed or resource != "loop")
        ]


@contextmanager
def measured(loop: asyncio.AbstractEventLoop, trial: Trial, *, traced: bool) -> Iterator[None]:
    """Measure each turn of the loop, and what is held and was held at most, if `traced`."""
    each_turn = "_gather" if isinstance(loop, VirtualTimeLoop) else "_process_events"
    gather, began_s = getattr(loop, each_turn), time.thread_time()

    def turn(*events: object) -> None:
        nonlocal began_s
        trial.turned(time.thread_time() - began_s)
        gather(*events)
        began_s = time.thread_time()

    setattr(loop, each_turn, turn)
    if traced:
        tracemalloc.start()
    try:
        yield
    finally:
        if traced:
            tracemalloc.stop()


def play(
    kind: str, seed: int, inputs: int, *, traced: bool = False, only: type | None = None
) -> Trial:
    """Play one trial, of all types of messages or of the largest of `only` one."""
    kinds: dict[str, Callable[[Trial], Strangers | Viewers | Members | Hosts]] = {
        "stranger": Strangers,
        "viewer": Viewers,
        "island": Hosts,
    }
    trial = Trial(kind, seed, inputs, random.Random(f"{kind} {seed}"), traced, only)
    live = kinds.get(kind, Members)(trial)

    async def main() -> None:
        with measured(asyncio.get_running_loop(), trial, traced=traced):
            await live.run()

    if kind == "viewer":
        asyncio.run(main())
    else:
        run_virtual(main(), limit_s=LIMIT_S)
    return trial


def tried(kind: str, inputs: int, seed: int) -> Most:
    """Play so many inputs of one kind; the last two trials measure memory."""
    most, done = Most(), 0
    play(kind, seed, 200)  # what is imported and compiled first is no input's, and
    gc.freeze()  # the collector need not look at it again and again
    while done < inputs:
        each = min(INPUTS[kind], inputs - done)
        most.add(play(kind, seed + most.trials, each))
        done += each
    for only in types_of(kind):
        most.add(play(kind, seed + most.trials, EACH_INPUTS, only=only))
        most.add(play(kind, seed + most.trials, EACH_INPUTS // 4, only=only, traced=True))
    for more in range(2):
        most.add(play(kind, seed + most.trials, min(INPUTS[kind], inputs) // 2 + more, traced=True))
    return most


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hostile")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    wrong: list[str] = []
    for kind in chosen.kinds:
        began_s = time.thread_time()
        most = tried(kind, max(1, round(SHARES[kind] * chosen.inputs)), chosen.seed)
        above = most.above(kind, timed=True)
        wrong += above + most.problems
        took_s = time.thread_time() - began_s
        row = {"kind": kind, "inputs": most.inputs, "trials": most.trials, "cpu_s": round(took_s)}
        told = row | {name: round(value, 3) for name, value in most.of.items()}
        sys.stdout.write(json.dumps(told | {"types": len(most.types), "above": above}) + "\n")
        sys.stdout.flush()
    for sentence in wrong[:50]:
        sys.stdout.write(sentence + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
