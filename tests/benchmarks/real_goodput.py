"""What failures leave of real training: processes that are killed, by algorithm and failure rate.

    python -m tests.benchmarks.real_goodput [--every 0 60 30 10] [--seconds 300] [--learners 4]

Learners train a small byte decoder in JAX, with their compiled functions at hand; a step also
sleeps, as if it waited for an accelerator, so that learners do not compete for this machine's
cores. Every so many seconds one of them, drawn from a seed, is killed by SIGKILL and started again
by the supervisor. Three algorithms have the same time and the same victims:

* **decoupled**: the preset, in which no learner waits;
* **diloco**: the preset, with 50 steps between merges, as this is a short run: all wait for all;
* **lock-step**: elastic data-parallel training (`lock_step` of simulated fleets): all wait for all
  at each step, average moments, too, and go on without who is gone.

`--together` lets the three run side by side, which takes a third of the time and more of the cores.

*Goodput* is time spent stepping over all learners' time, from the first merge of all of them until
the end; *yield*, *reached* (tokens that reached the published values) and *took part*
(contributions per learner that was present, and per merge) are those of the whole run, as its
summary has them; *held out* is the loss of the published values, in bits per byte.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from rich.console import Console
from rich.table import Table

from islands.lab.experiments.fleet import lock_step
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import Timing
from islands.tasks.data.windows import TokenBatch
from islands.tasks.stdlib_bytes import StdlibBytes
from tests.integration.fleet import WatchedHub, make_fleet, running

READY_S = 300.0
LOOK_S = 0.5
DECODER = {"width": 64, "layers": 2, "heads": 2, "head_width": 32, "hidden": 192}
DILOCO_STEPS = 50

ALGORITHMS = {
    "decoupled": PRESETS[Preset.DECOUPLED],
    "diloco": replace(PRESETS[Preset.DILOCO], interval_steps=DILOCO_STEPS),
    "lock-step": replace(lock_step(Timing()), merge_moments=True),
}


@dataclass(frozen=True)
class Sleeper(StdlibBytes):
    """The default task; each step also sleeps.

    Attributes:
        step_s: Seconds that a step sleeps.
    """

    step_s: float = 0.25

    def loss(
        self, params: PyTree, state: PyTree, batch: TokenBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        told = jax.ShapeDtypeStruct((), batch.tokens.dtype)  # type: ignore[no-untyped-call]
        slept = jax.pure_callback(self._sleep, told)
        late = batch._replace(tokens=batch.tokens + slept)
        return super().loss(params, state, late, key)

    def _sleep(self) -> np.uint8:
        time.sleep(self.step_s)
        return np.uint8(0)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a run: its summary, its goodput while all were expected to step, its kills."""

    algorithm: str
    every_s: float
    kills: int
    goodput: float
    summary: dict[str, Any]


async def measure(
    algorithm: str, every_s: float, options: argparse.Namespace, cache: Path
) -> Found:
    """Run one algorithm for so long; `every_s` is 0 where nobody is killed."""
    settings = replace(
        ALGORITHMS[algorithm], run="goodput", budget_s=options.seconds, seed=options.seed
    )
    told = {"decoder": DECODER, "length": 64, "rows": 4, "step_s": options.step_s}
    with tempfile.TemporaryDirectory() as folder:
        hub = make_fleet(
            Path(folder) / "run",
            settings,
            told,
            learners=options.learners,
            task="tests.benchmarks.real_goodput:Sleeper",
            cache=cache,
        )
        async with running(hub) as run:
            names = tuple(f"learner-{index}" for index in range(options.learners))
            begun = asyncio.create_task(hub.wait_merge_of(names, READY_S))
            await asyncio.wait((begun, run), return_when=asyncio.FIRST_COMPLETED)
            assert not run.done(), "the run ended before all learners were in one merge"
            await begun
            begun_s, stepped_s = hub.now_s, stepping_s(hub)
            ended_s, done_s = begun_s, stepped_s
            kills: list[str] = []
            killing = asyncio.create_task(kill(hub, names, every_s, options.seed, kills))
            while not hub.folder.figures.ending and not run.done():
                ended_s, done_s = hub.now_s, stepping_s(hub)
                await asyncio.sleep(LOOK_S)
            killing.cancel()
            summary = await run
    assert summary is not None, "the run was not ended by anybody"
    goodput = (done_s - stepped_s) / ((ended_s - begun_s) * options.learners)
    return Found(algorithm, every_s, len(kills), goodput, summary)


async def kill(
    hub: WatchedHub, names: Sequence[str], every_s: float, seed: int, killed: list[str]
) -> None:
    """Kill a learner every so many seconds; if the one that is drawn is away, nobody else is."""
    drawn = random.Random(seed)
    while every_s:
        await asyncio.sleep(every_s)
        victim = drawn.choice(names)
        if hub.launcher.pid(victim) is not None:
            hub.launcher.kill(victim)
            killed.append(victim)


def stepping_s(hub: WatchedHub) -> float:
    """Seconds that all learners together have spent on steps, as far as they have reported."""
    return sum(learner.stepping_s for learner in hub.folder.figures.everybody())


async def measure_all(options: argparse.Namespace, table: Table) -> None:
    """Fill the table, a row for each algorithm and rate."""
    with tempfile.TemporaryDirectory() as place:
        for every_s in options.every:
            runs = [measure(name, every_s, options, Path(place)) for name in options.algorithms]
            found = await asyncio.gather(*runs) if options.together else [await run for run in runs]
            for each in found:
                table.add_row(*row(each))
            table.add_section()


def row(found: Found) -> tuple[str, ...]:
    told = found.summary
    return (
        f"{found.every_s:g} s" if found.every_s else "never",
        found.algorithm,
        str(found.kills),
        f"{found.goodput:.1%}",
        f"{told['yield']:.1%}",
        f"{told['tokens']:,}",
        f"{told['tokens'] * told['yield']:,.0f}",
        f"{told['participation']:.1%}",
        f"{told['val_bits_per_byte']:.3f}",
        f"{told['longest_stall_s']:.2f} s",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, nargs="+", default=[0.0, 60.0, 30.0, 10.0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--learners", type=int, default=4)
    parser.add_argument("--step_s", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    title = f"{options.learners} learners, {options.seconds:g} s, steps of {options.step_s:g} s"
    table = Table(title=title)
    for name in (
        *("a kill every", "algorithm", "kills", "goodput", "yield", "tokens", "reached"),
        *("took part", "held out", "longest stall"),
    ):
        table.add_column(name)
    asyncio.run(measure_all(options, table))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
