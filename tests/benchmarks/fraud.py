"""The story *fraud*, played by its commands: Europe is away, Singapore comes and goes.

    python -m tests.benchmarks.fraud --seeds 0 1 2 --hour_s 8

prints, for each seed, the average precision over all regions in the hour after the last, next to
that of training on all data in one place with as many transactions, and how long each hour took.
"""

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
TESTED = 100_000  # transactions of each region
COMMAND = f"python {STORIES / 'fraud.py'} learn"


@dataclass(frozen=True, slots=True)
class Played:
    """A run: its folder, and of each hour the seconds until all who were there had trained."""

    folder: Path
    hours_s: tuple[float, ...]
    merges_without_europe: int


def regions_in(hour: int) -> Sequence[str]:
    """The regions in which transactions arrive in an hour."""
    return fraud.REGIONS if hour in fraud.SPIKE else fraud.REGIONS[:2]


async def play(room: programs.Room, *, seed: int, count: int, hour_s: float = 0.0) -> Played:
    """Play the story; an hour lasts `hour_s`, or longer until all who are there have trained."""
    folder, arrivals, took_s, alone = room.folder / "run", room.folder / "arrivals", [], 0
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
        if hour == fraud.SPIKE[0]:
            await programs.control(room, "add", "singapore")
        if hour == fraud.SPIKE[-1] + 1:
            await programs.control(room, "drain", "singapore-0")
        began_s = time.monotonic()
        for region in regions_in(hour):
            fraud.arrive(arrivals, region, hour, fraud.transactions(seed, region, hour, count))
        here = [each for each in regions_in(hour) if each != "europe" or hour not in AWAY]
        await room.wait(partial(have_trained, arrivals, hour, here))
        took_s.append(time.monotonic() - began_s)
        await asyncio.sleep(max(0.0, hour_s - took_s[-1]))
    everything = set(range(fraud.HOURS))
    await room.wait(lambda: everything <= trained(arrivals, "europe").keys())
    await programs.control(room, "stop")
    assert await room.ended(hub) == 0, str(hub)
    return Played(folder, tuple(took_s), alone)


def merged_since(folder: Path, merges: int) -> bool:
    return programs.merges(folder) > merges


def have_trained(arrivals: Path, hour: int, regions: Sequence[str]) -> bool:
    return all(hour in trained(arrivals, each) for each in regions)


def trained(arrivals: Path, region: str) -> dict[int, dict[str, float]]:
    """What a region has noted of the hours that it has trained on."""
    path = arrivals / region / "trained.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["hour"]: row for row in map(json.loads, lines)}


def worth(params: PyTree, seed: int) -> float:
    """The average precision over all regions in the hour after the last."""
    hours = [fraud.transactions(seed + 1000, each, fraud.HOURS, TESTED) for each in fraud.REGIONS]
    return fraud.average_precision(params, np.concatenate(hours))


def published(folder: Path) -> PyTree:
    return islands.load(folder, like=fraud.Fraud().init(jax.random.key(0)).params)


def in_one_place(arrivals: Path, seed: int, *, together: bool) -> PyTree:
    """Train on all data in one place, with as many transactions.

    A step has a batch of each region, which the islands' steps have `together`, or of one alone.
    """
    task = fraud.Fraud(str(arrivals))
    optimizer = task.optimizer(fraud.RATE)
    step, params = fraud.step_of(task, optimizer), task.init(jax.random.key(seed)).params
    moments = optimizer.init(params)
    for hour in range(fraud.HOURS):
        for batches in _side_by_side(task, hour):
            for batch in [_joined(batches)] if together else batches:
                params, moments, _ = step(params, moments, batch)
    return params


def _side_by_side(task: fraud.Fraud, hour: int) -> Iterator[Sequence[fraud.Batch]]:
    places = [fraud.REGIONS.index(region) for region in regions_in(hour)]
    all_of_them = [task.batches(ShardKey(hour, place), 0) for place in places]
    for found in zip(*all_of_them, strict=True):
        yield [batch for batch, _ in found]


def _joined(batches: Sequence[fraud.Batch]) -> fraud.Batch:
    x, category, frauds = (np.concatenate(part) for part in zip(*batches, strict=True))
    return fraud.Batch(x, category, frauds)


async def _one(seed: int, count: int, hour_s: float, keep: Path | None) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as made:
        room_folder = Path(made) if keep is None else keep / f"seed-{seed}"
        room_folder.mkdir(parents=True, exist_ok=True)
        async with programs.open_room(room_folder) as room:
            played = await play(room, seed=seed, count=count, hour_s=hour_s)
        arrivals = room_folder / "arrivals"
        found = worth(published(played.folder), seed)
        central = [
            worth(in_one_place(arrivals, seed, together=each), seed) for each in (True, False)
        ]
        hours = " ".join(f"{took_s:.1f}" for took_s in played.hours_s)
        print(
            f"seed {seed}: average precision {found:.4f}; in one place {central[0]:.4f}, and "
            f"{central[1]:.4f} with a region in each step; seconds of each hour {hours}; "
            f"{played.merges_without_europe} merges without Europe",
            flush=True,
        )
        for region in fraud.REGIONS:
            rows = sorted(trained(arrivals, region).items())
            told = " ".join(f"{row['average_precision_before']:.3f}" for _, row in rows)
            print(f"    {region}, before it trained on each hour: {told}", flush=True)
    return found, max(central)


def main() -> None:
    """Play the story once for each seed."""
    parser = argparse.ArgumentParser(description="Play the story fraud.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--count", type=int, default=16_000, help="transactions in an hour")
    parser.add_argument("--hour_s", type=float, default=8.0)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the runs")
    given = parser.parse_args()
    pairs = [asyncio.run(_one(s, given.count, given.hour_s, given.keep)) for s in given.seeds]
    shares = [found / central - 1 for found, central in pairs]
    print(f"next to the better of one place: {np.mean(shares):+.2%} ± {np.std(shares):.2%}")


if __name__ == "__main__":
    main()
