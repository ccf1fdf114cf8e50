"""The story *hybrid* on the virtual clock: time to the same error with and without its engines.

    python -m tests.benchmarks.hybrid [--seeds 0 1 2] [--seconds 110] [--start_s 10] [--rate 1e-3]

The production actors train the task of `examples/stories/hybrid.yaml` with its real arithmetic, for
each seed three times: the hub's host alone, with the islands of both engines, and with a cloud that
takes nothing away. Steps take the file's `step_s`, with 10 % of noise, and a process of an island
needs `start_s` before its first step. The cloud takes its islands away at the moments that the
story's engine draws from the seed. What else this machine does changes nothing, and one seed gives
the same figures each time.

The target of a seed is the mean of the last ten errors of the hub's host alone, which are taken
once a second. *Lost* are tokens of steps that were taken and reached no published value.
"""

import argparse
import asyncio
import copy
import random
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median, stdev
from typing import Any

import yaml

from examples.stories.hybrid import Forecast
from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import Costs, LearnerHost, World
from islands.model.interfaces import LearnerDevices
from islands.model.jax_workload import JaxWorkload
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.presets import Preset, settings_of
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import run_virtual
from tests.environment import ROOT

FILE = ROOT / "examples" / "stories" / "hybrid.yaml"
LAST, SMOOTHED, NOISE = 10, 3, 0.1


@dataclass(slots=True)
class Found:
    """Of a run, the (seconds, error) of each evaluation, its tokens by their fate, and kills."""

    errors: list[tuple[float, float]]
    tokens: int = 0
    lost: float = 0.0
    kills: int = 0

    def end(self) -> float:
        return fmean(error for _, error in self.errors[-LAST:])

    def reached_s(self, target: float) -> float:
        """Return when the median of three errors in a row is no more than the target, or inf."""
        for index in range(SMOOTHED, len(self.errors) + 1):
            lately = self.errors[index - SMOOTHED : index]
            if median(error for _, error in lately) <= target:
                return lately[-1][0]
        return float("inf")

    def __str__(self) -> str:
        share = self.lost / self.tokens
        return f"{self.end():.2f} %, {self.tokens:,} tokens, {self.kills} kills, lost {share:.2%}"


async def come_and_go(
    world: World, name: str, settings: dict[str, Any], seed: int, found: Found
) -> None:
    """Start an island of the cloud and take it away, again and again, as `here.Spot` draws it."""
    attempt = 0
    while True:
        attempt += 1
        drawn = random.Random(f"{seed}/{name}.{attempt}")
        world.start(name)
        await asyncio.sleep(float(settings["stay_s"]) * drawn.expovariate(1))
        found.kills += await world.kill(name)
        await asyncio.sleep(float(settings["away_s"]) * drawn.expovariate(1))


def play(told: dict[str, Any], settings: RunSettings, options: argparse.Namespace) -> Found:
    own = {**told["task_settings"], "step_s": 0.0, "seed": settings.seed}
    workload = JaxWorkload(Forecast(**own))
    host = LearnerHost(told["task_settings"]["step_s"], NOISE, setup_s=0.0)
    hosts = {f"learner-{index}": host for index in range(told["learners"])}
    for part, entry in told["islands"].items():
        step_s = entry["learner"]["task_settings"]["step_s"]
        made = LearnerHost(step_s, NOISE, setup_s=options.start_s)
        hosts |= {f"{part}-{index}": made for index in range(entry["count"])}
    world = World(
        settings,
        hosts,
        seed=settings.seed,
        tape=MemoryTape(limit=1000),
        costs=Costs(),
        trainers=lambda name, _: workload.trainer(settings, LearnerDevices(name or "plan")),
    )
    found = Found([])

    async def live() -> None:
        loop, cloud = asyncio.get_running_loop(), told["islands"]["cloud"]
        for name in (SUPERVISOR, SYNCER, *(each for each in hosts if "cloud" not in each)):
            world.start(name)
        going = [
            asyncio.create_task(come_and_go(world, name, cloud["settings"], settings.seed, found))
            for name in hosts
            if "cloud" in name
        ]
        while loop.time() < options.seconds:
            await asyncio.sleep(1.0)
            assert not world.failures, world.failures
            syncer = world.syncer
            cut = None if syncer is None else syncer.state.cut("")
            if syncer is not None and cut is not None:
                values = syncer.store.published(list(cut.versions))
                found.errors.append((loop.time(), workload.evaluate(settings, values)["error"]))
        state = world.syncer_state
        assert state is not None
        found.tokens = state.durable.ledger.processed
        found.lost = fmean(asdict(row)["lost"] for row in state.ledger_rows())
        for each in going:
            each.cancel()
        await world.kill_all()

    run_virtual(live(), limit_s=2 * options.seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--start_s", type=float, default=10.0)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    told = yaml.safe_load(FILE.read_text())
    never = copy.deepcopy(told)
    never["islands"]["cloud"]["settings"]["stay_s"] = 1e9
    alone = {**told, "islands": {k: {**v, "count": 0} for k, v in told["islands"].items()}}
    files = {"alone": alone, "hybrid": told, "hybrid, nothing taken away": never}
    run = {key: value for key, value in told["run"].items() if key != "budget_s"}
    if options.rate is not None:
        run["learning_rate"] = options.rate
    times: dict[str, list[float]] = {name: [] for name in files}
    for seed in options.seeds:
        settings = replace(settings_of(Preset.DECOUPLED, run), **run, seed=seed)
        runs = {name: play(file, settings, options) for name, file in files.items()}
        target = runs["alone"].end()
        for name, found in runs.items():
            times[name].append(found.reached_s(target))
            print(f"seed {seed}, {name}: {target:.2f} % after {times[name][-1]:.0f} s; {found}")
    for name, each in times.items():
        ratios = [one / other for one, other in zip(times["alone"], each, strict=True)]
        print(f"{name}: after {told_of(each)} s, {told_of(ratios)} times as soon")


def told_of(values: list[float]) -> str:
    return f"{fmean(values):.2f} ± {stdev(values) if len(values) > 1 else 0:.2f}"


if __name__ == "__main__":
    main()
