"""Step time with and without onlookers of the run: `python -m tests.benchmarks.watched`.

A hub of its own, and this loop as its learner, as in `own_loop`. Windows of steps in which five
viewers follow the run's page and a scraper reads `/metrics` twice a second alternate with windows
in which nobody looks, in the order off, on, on, off. Both come to every boundary; steps sleep.

The bound is the upper one of a one-sided 95 % interval: pairs of windows are resampled. Aim: 1.01.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp
import numpy as np

from islands.lab.toys.toy_workload import Accelerator
from islands.layout.loop_layout import LoopLayout
from islands.loops.join import enter, membership
from islands.metrics.site import METRICS
from islands.page.server import PATH, PROTOCOL
from tests.benchmarks.own_loop import FRAGMENTS, WARM_STEPS, Parameters, hub, stepping, window
from tests.benchmarks.step_overhead import AIM, MIB, upper_bound

VIEWERS = 5
SCRAPE_S = 0.5
STEP_S, MEGABYTES, STEPS = 0.02, 8, 250


class Onlookers:
    """A process of viewers and a scraper, so that what they read costs this one nothing."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.watched", "--watch", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, word: str) -> None:
        """Have them come or go, and wait until they have."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline().startswith("done")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


async def view(session: aiohttp.ClientSession, address: str, sees: asyncio.Event) -> None:
    place = f"http://{address}{PATH}live"
    async with session.ws_connect(place, protocols=[PROTOCOL], max_msg_size=0) as socket:
        async for message in socket:
            if "page.figures" in message.data:
                sees.set()


async def scrape(session: aiohttp.ClientSession, address: str, sees: asyncio.Event) -> None:
    while True:  # until cancelled
        async with session.get(f"http://{address}{METRICS}") as answer:
            assert answer.status == 200, answer.status
            await answer.read()
        sees.set()
        await asyncio.sleep(SCRAPE_S)


async def onlook(address: str) -> None:
    """Come and go as standard input says."""
    tasks: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession() as session:
        while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if word == "come":
                sees = [asyncio.Event() for _ in range(VIEWERS + 1)]
                duties = [view(session, address, each) for each in sees[1:]]
                tasks = [
                    asyncio.create_task(duty)
                    for duty in (*duties, scrape(session, address, sees[0]))
                ]
                for each in sees:
                    await each.wait()
            else:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            print("done", flush=True)


def measure(address: str, pairs: int) -> str:
    model = Accelerator(STEP_S, MEGABYTES * MIB // FRAGMENTS, FRAGMENTS)
    told = LoopLayout(model.layout.leaves)
    who = membership(address, "own-loop", None, None, None, lambda _: None)
    onlookers = Onlookers(address)
    times: list[list[float]] = [[], []]
    try:
        with enter(who, 8, lambda *_: Parameters(model), layout=lambda: told) as run:
            boundary = stepping(run, model)
            window(model, WARM_STEPS, boundary)
            for pair in range(pairs):
                for which in (0, 1) if pair % 2 == 0 else (1, 0):
                    if which:
                        onlookers.say("come")
                    times[which].append(window(model, STEPS, boundary))
                    if which:
                        onlookers.say("go")
    finally:
        onlookers.end()
    found = np.array(times)
    bound = upper_bound(found)
    return (
        f"{1e3 * found[0].mean():9.3f} {1e3 * found[1].mean():9.3f}   "
        f"{found[1].sum() / found[0].sum():.4f}   {bound:.4f}   aim {AIM}: "
        f"{'reached' if bound <= AIM else 'missed'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12, help="pairs of windows")
    parser.add_argument("--watch", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.watch:
        asyncio.run(onlook(chosen.watch))
        return
    print(f"{'alone ms':>9} {'seen ms':>9}   {'ratio':<6}   {'95 %':<6}")
    with tempfile.TemporaryDirectory(prefix="watched-") as folder:
        process, address = hub(Path(folder))
        try:
            print(measure(address, chosen.pairs), flush=True)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
