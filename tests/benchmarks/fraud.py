"""The story *fraud*, played by its commands: Europe is away, Singapore comes and goes.

    python -m tests.benchmarks.fraud [--seeds 0,1,2] [--hour_s 8] [--picture FILE] [--keep PATH]

For each seed, the run of `examples/stories/fraud.yaml` is played; an hour lasts `hour_s`, within
which all who are there must have trained on it. Printed are how long that took, and the average
precision in the hour after the last, on transactions that nobody trained on: over all regions, and
in each. The same is printed of training on all data in one place, with as many transactions, of
each region alone on its own, and of all on hour 0 alone. The picture is of the last seed.
"""

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import jax
import numpy as np
from jaxtyping import PyTree

import islands
from examples.stories import fraud
from islands.engines.launcher import RECORDS_FILE, records_in
from islands.tasks.data.shards import ShardKey
from tests.integration import programs

STORIES = programs.ROOT / "examples" / "stories"
AWAY = (2, 3)  # the hours in which Europe is away
TESTED = 300_000  # transactions of each region, after the last hour
DRAWN = 100_000  # and in each hour of the picture
CENTRAL = "one place"
HEAD = (
    "next to the better of one place in %: in one ranking, mean of regions; then both, each region"
)
COMMAND = f"python {STORIES / 'fraud.py'} learn"


@dataclass(frozen=True, slots=True)
class Played:
    """A run: its folder, and of each hour the seconds until all who were there had trained.

    `models` are those published at the end of each hour.
    """

    folder: Path
    hours_s: tuple[float, ...]
    merges_without_europe: int
    models: list[PyTree]


def regions_in(hour: int) -> Sequence[str]:
    """The regions in which transactions arrive in an hour."""
    return fraud.REGIONS if hour in fraud.SPIKE else fraud.REGIONS[:2]


async def play(room: programs.Room, *, seed: int, count: int, hour_s: float = 0.0) -> Played:
    """Play the story; an hour lasts `hour_s`, or longer until all who are there have trained."""
    folder, arrivals, alone = room.folder / "run", room.folder / "arrivals", 0
    took_s, models = list[float](), list[PyTree]()
    words = [f"--islands.{region}.command={COMMAND}" for region in fraud.REGIONS]
    config, start = STORIES / "fraud.yaml", ("--listen", "127.0.0.1:0", "--run.seed", seed)
    run = ("run", config, "--folder", folder, *start, *words)
    standard = {"JAX_NUMPY_DTYPE_PROMOTION": "standard"}
    hub = room.start("islands.cli", *run, environment=standard)
    await room.wait(lambda: programs.logged(folder, "admitted", name="europe-0"))
    await room.wait(lambda: programs.logged(folder, "admitted", name="america-0"))
    for hour in range(fraud.HOURS):
        if hour == AWAY[0]:
            job = int(records_in(folder / RECORDS_FILE).islands["europe-0"].job)
            os.killpg(job, signal.SIGSTOP)
            before = programs.merges(folder)
        if hour == AWAY[-1] + 1:
            await room.wait(lambda: programs.logged(folder, "evicted", name="europe-0"))
            await room.wait(partial(merged_since, folder, before))
            alone = programs.merges(folder) - before
            os.killpg(job, signal.SIGCONT)
        if hour == fraud.SPIKE[0]:  # it was seen coming
            await room.wait(lambda: programs.logged(folder, "admitted", name="singapore-0"))
        if hour == fraud.SPIKE[-1] + 1:
            await programs.control(room, "drain", "singapore-0")
        if hour == fraud.SPIKE[0] - 1:
            await programs.control(room, "add", "singapore")
        began_s = time.monotonic()
        for region in regions_in(hour):
            fraud.arrive(arrivals, region, hour, fraud.transactions(seed, region, hour, count))
        here = [each for each in regions_in(hour) if each != "europe" or hour not in AWAY]
        await room.wait(partial(have_trained, arrivals, hour, here))
        took_s.append(time.monotonic() - began_s)
        await asyncio.sleep(max(0.0, hour_s - took_s[-1]))
        if hour < fraud.HOURS - 1:
            models.append(await asyncio.to_thread(newest, folder))
    everything = set(range(fraud.HOURS))
    await room.wait(lambda: everything <= trained(arrivals, "europe").keys())
    await programs.control(room, "stop")
    assert await room.ended(hub) == 0, str(hub)
    return Played(folder, tuple(took_s), alone, [*models, published(folder)])


def merged_since(folder: Path, merges: int) -> bool:
    return programs.merges(folder) > merges


def have_trained(arrivals: Path, hour: int, regions: Sequence[str]) -> bool:
    return all(hour in trained(arrivals, each) for each in regions)


def trained(arrivals: Path, region: str) -> dict[int, dict[str, float]]:
    """What a region has noted of the hours that it has trained on."""
    path = arrivals / region / "trained.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["hour"]: row for row in map(json.loads, lines)}


def newest(folder: Path) -> PyTree:
    """What the hub of a run publishes now."""
    address = programs.hub_address(folder)
    assert address is not None
    return islands.latest(address, token_file=folder / "token")


def published(folder: Path) -> PyTree:
    return islands.load(folder, like=fraud.Fraud().init(jax.random.key(0)).params)


def worth(params: PyTree, seed: int, hour: int = fraud.HOURS, count: int = TESTED) -> list[float]:
    """The average precision in an hour, on transactions that nobody trains on.

    Of all regions in one ranking, as the mean of regions, and in each of them.
    """
    hours = [fraud.transactions(seed + 1000, each, hour, count) for each in fraud.REGIONS]
    pooled, *each = [fraud.average_precision(params, x) for x in (np.concatenate(hours), *hours)]
    return [pooled, fmean(each), *each]


def in_one_place(
    arrivals: Path, *, together: bool = True, regions: Sequence[str] = fraud.REGIONS
) -> list[PyTree]:
    """Train on all data of regions in one place; return the model after each hour.

    A step has a batch of each region, which the islands' steps have `together`, or of one alone.
    """
    task = fraud.Fraud(str(arrivals))
    optimizer, models = task.optimizer(fraud.RATE), list[PyTree]()
    step, params = fraud.step_of(task, optimizer), task.init(jax.random.key(0)).params
    moments = optimizer.init(params)
    for hour in range(fraud.HOURS):
        for batches in _side_by_side(task, hour, regions):
            for batch in [_joined(batches)] if together else batches:
                params, moments, _ = step(params, moments, batch)
        models.append(params)
    return models


def _side_by_side(
    task: fraud.Fraud, hour: int, regions: Sequence[str]
) -> Iterator[Sequence[fraud.Batch]]:
    here = [fraud.REGIONS.index(each) for each in regions_in(hour) if each in regions]
    all_of_them = [task.batches(ShardKey(hour, each), 0) for each in here]
    for found in zip(*all_of_them, strict=True):
        yield [batch for batch, _ in found]


def _joined(batches: Sequence[fraud.Batch]) -> fraud.Batch:
    x, category, frauds = (np.concatenate(part) for part in [*zip(*batches, strict=True)][:3])
    return fraud.Batch(x, category, frauds, batches[0].share)


def judged(played: Played, arrivals: Path) -> dict[str, list[PyTree]]:
    """The models after each hour, by who trained them."""
    central = [in_one_place(arrivals, together=each) for each in (True, False)]
    alone = {f"{each} alone": in_one_place(arrivals, regions=[each]) for each in fraud.REGIONS}
    ways = dict(zip((CENTRAL, "a region in each step"), central, strict=True))
    return {"islands": played.models, **ways, **alone, "hour 0 alone": central[0][:1]}


async def _one(seed: int, chosen: argparse.Namespace, room_folder: Path) -> dict[str, list[float]]:
    async with programs.open_room(room_folder) as room:
        played = await play(room, seed=seed, count=chosen.count, hour_s=chosen.hour_s)
    models = judged(played, room_folder / "arrivals")
    figures = {name: worth(each[-1], seed) for name, each in models.items()}
    better = [max(figures[name][at] for name in list(models)[1:3]) for at in (0, 1)]
    shares = {
        n: [100 * (each[at] / better[at] - 1) for at in (0, 1)] for n, each in figures.items()
    }
    late = sum(each > chosen.hour_s for each in played.hours_s)
    hours = " ".join(f"{each:.1f}" for each in played.hours_s)
    print(f"seed {seed}: trained on each hour in {hours} s; {late} of {fraud.HOURS} late;", end="")
    print(f" {played.merges_without_europe} merges without Europe; {HEAD}")
    for name, each in figures.items():
        print(f"    {name:<24}{in_columns(shares[name], 1)}{in_columns(each)}", flush=True)
    if chosen.picture and seed == chosen.seeds[-1]:
        draw(models, seed, chosen.picture)
    return {name: [*shares[name], *each] for name, each in figures.items()}


def in_columns(figures: Iterable[float], digits: int = 4) -> str:
    return "".join(f"{each:>10.{digits}f}" for each in figures)


def draw(models: Mapping[str, Sequence[PyTree]], seed: int, path: Path) -> None:
    """Draw the average precision before each hour in each region."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True, layout="constrained")
    for axis, region in zip(axes, fraud.REGIONS, strict=True):
        column = 2 + fraud.REGIONS.index(region)
        first = min(hour for hour in range(fraud.HOURS) if region in regions_in(hour))
        for name, label, style, begins in (
            ("islands", "islands", "o-", 1),
            (CENTRAL, "all data in one place", "k--", 1),
            (f"{region} alone", "this region alone", "s:", first + 1),
        ):
            hours = range(begins, fraud.HOURS + 1)
            found = [worth(models[name][hour - 1], seed, hour, DRAWN)[column] for hour in hours]
            axis.plot(hours, found, style, label=label)
        axis.set(title=f"in {region.capitalize()}", xlabel="hour")
    axes[0].axvspan(AWAY[0], AWAY[-1] + 1, color="tab:red", label="Europe is away", alpha=0.15)
    spike = fraud.SPIKE[0], fraud.SPIKE[-1] + 1
    axes[2].axvspan(*spike, color="tab:green", label="Singapore has an island", alpha=0.15)
    axes[0].set(ylabel="average precision", ylim=(0, None))
    for axis in axes:
        axis.legend(loc="lower right", fontsize="small")
    figure.suptitle("Models before each hour, on transactions of that hour")
    figure.savefig(path, dpi=90)


def main() -> None:
    """Play the story once for each seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=lambda each: [*map(int, each.split(","))], default=[0, 1, 2]
    )
    parser.add_argument("--count", type=int, default=64_000, help="transactions in an hour")
    parser.add_argument("--hour_s", type=float, default=8.0)
    parser.add_argument("--picture", type=Path, help="PNG of the last seed")
    parser.add_argument("--keep", type=Path, help="folder for the runs; else they are removed")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (chosen.keep or Path(temporary)).absolute()
        rows = []
        for seed in chosen.seeds:
            (folder / f"seed-{seed}").mkdir(parents=True)
            rows.append(asyncio.run(_one(seed, chosen, folder / f"seed-{seed}")))
    if len(rows) > 1:
        print(f"{HEAD} (mean ± standard deviation of seeds)")
        for name in rows[0]:
            found = [*zip(*(row[name] for row in rows), strict=True)]
            print(f"    {name:<24}", end="")
            print("".join(f"{fmean(each):>8.3f} ± {stdev(each):.3f}" for each in found))


if __name__ == "__main__":
    main()
