"""The story *routes* with one warehouse cut off for a while, beside training in one place.

    python -m tests.benchmarks.routes [--seeds 0,1,2] [--for_good] [--picture FILE] [--real]

For each seed the production actors train the task of `examples/stories/routes.yaml` with its real
arithmetic on the virtual clock, so that what else this machine does changes nothing. Once warehouse
5 has read 30 % of its trips, nothing passes to or from it, until the others have read 30 % more of
theirs; with `--for_good` for ever. With `--real`, real processes do it, whose links pass a relay.

Errors are mean absolute percentage errors over trips of all regions that are held back. *Mean* is
of the mean of all values, which the run ends with, *own* of each warehouse's own values at its last
look, and *alone* of eight models, each of which learned from the trips of one warehouse. *In one
place* one learner trains on the trips of all warehouses, as many in all, in steps of `ROWS`.
*Truth* is the error of the true median minutes: chance alone.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import jax
import numpy as np

from examples.stories import routes
from islands import load
from islands.cli.parsing import parse
from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import LearnerHost, World
from islands.model.interfaces import LearnerDevices, Trainer
from islands.model.jax_trainer import JaxTrainer
from islands.model.jax_workload import JaxWorkload
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.run import RunSettings
from islands.settings.host import RunOptions
from islands.syncer.workers import Hooks
from islands.tasks.data.shards import ShardKey
from messaging.simulation.virtual_time import run_virtual

NAMES = [f"warehouse-{number}" for number in range(routes.WAREHOUSES)]
AWAY = 5
LEAVES, ALONE = 0.3, 0.3
ROWS, RATE = 512, 2e-2
"""Trips of a step in one place, and its rate: the best of 256 and 512, and of 1e-2, 2e-2, 4e-2."""
LOOK_S = 0.2


@dataclass(frozen=True)
class Roads:
    """A relay that all links pass, but for those of who is away: it knows who dials whom."""

    ports: Mapping[str, int]
    away: set[str] = field(default_factory=set)
    _joined: list[asyncio.Task[object] | None] = field(default_factory=list)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def end(self) -> None:
        """Wait until all connections are closed, once those who dial have closed theirs."""
        await asyncio.gather(*filter(None, self._joined), return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one connection with whom its first lines name."""
        self._joined.append(asyncio.current_task())
        self._writers.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            whom, _, rest = head.decode().removeprefix("GET /").partition(" ")
            port = self.ports.get(whom, self.ports["hub"])
            there, far = await asyncio.open_connection("127.0.0.1", port)
        except (EOFError, OSError):  # it was a look, or the hub does not listen yet
            writer.close()
            return
        self._writers.append(far)
        ends = {whom, rest.partition("Islands-Name: ")[2].split()[0]}
        far.write(head)

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while (data := await source.read(1 << 16)) and not self.away & ends:
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(carry(reader, far), carry(there, writer))


@contextlib.asynccontextmanager
async def driving(
    folder: Path, port: int, options: Iterable[str]
) -> AsyncIterator[tuple[Roads, dict[str, subprocess.Popen[bytes]]]]:
    """The story's processes, whose links pass a relay at the port; they are killed at the end."""
    roads = Roads({name: port + 1 + at for at, name in enumerate(["hub", *NAMES])})
    relay = await asyncio.start_server(roads.join, "127.0.0.1", port)
    processes = routes.start(folder, port + 1, options, relay=port)
    try:
        yield roads, processes
    finally:
        relay.close()
        for process in processes.values():
            process.kill()
            process.wait()
        await roads.end()


@dataclass(frozen=True, slots=True)
class Played:
    """A run's errors in per cent, and what `AWAY` had read when it left, and when it returned.

    `trips` were read in all, and `lines` are all looks of each warehouse: trips read, error on its
    own trips, error on all.
    """

    mean: float
    left: float
    returned: float
    trips: int
    lines: list[list[list[float]]]

    @property
    def own_values(self) -> float:
        """Error on all trips of each warehouse's own last values, the mean of warehouses."""
        return fmean(each[-1][2] for each in self.lines)

    def look(self, trips: float) -> list[float]:
        """The last look of `AWAY` that is not later than so many trips."""
        return [line for line in self.lines[AWAY] if line[0] <= trips][-1]


def looks(folder: Path, warehouse: int) -> list[list[float]]:
    """What a warehouse has noted so far."""
    path = folder / f"warehouse-{warehouse}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines] or [[0.0, 0.0, 0.0]]


async def course(
    read: Callable[[Iterable[int]], float],
    cut: Callable[[], object],
    heal: Callable[[], object],
    over: Callable[[], bool],
) -> tuple[float, float]:
    """Cut `AWAY` off for a while; return what it had read then and at its return, as shares."""

    async def wait_read(numbers: Iterable[int], share: float) -> float:
        while not over() and read(numbers) < share:  # noqa: ASYNC110  files tell nobody
            await asyncio.sleep(LOOK_S)
        return read([AWAY])

    others = [number for number in range(routes.WAREHOUSES) if number != AWAY]
    left = await wait_read([AWAY], LEAVES)
    cut()
    returned = await wait_read(others, read(others) + ALONE)
    heal()
    await wait_read(others, float("inf"))
    return left, returned


async def play(folder: Path, port: int, options: Iterable[str], *, returns: bool) -> Played:
    """Run the story with real processes, to its end."""
    trips = told(options)[0].budget_tokens or 0

    def read(numbers: Iterable[int]) -> float:
        of_each = trips / routes.WAREHOUSES
        return fmean(looks(folder, number)[-1][0] for number in numbers) / of_each

    async with driving(folder, port, options) as (roads, processes):
        hub = processes["hub"]

        def heal() -> None:
            if returns:
                roads.away.clear()

        marks = await course(
            read, lambda: roads.away.add(NAMES[AWAY]), heal, lambda: hub.poll() is not None
        )
    if hub.returncode:
        raise SystemExit((folder / "hub.log").read_text())
    return played(folder, load(folder), marks, trips, trips)


def simulate(folder: Path, options: Iterable[str], *, returns: bool) -> Played:
    """Run the story's actors and its arithmetic on the virtual clock, to its end."""
    folder.mkdir(parents=True)
    settings, task = told(options)
    trips, steps, ended = settings.budget_tokens or 0, Counter[str](), list[Any]()
    plan = JaxWorkload(replace(task, arrive_s=0.0))

    def trainer(name: str, _: LearnerHost) -> Trainer:
        own = replace(task, arrive_s=0.0, warehouse=NAMES.index(name), folder=str(folder))
        return JaxWorkload(own).trainer(settings, LearnerDevices(name))

    def step_end_s(name: str, begin_s: float, work_s: float) -> float:
        steps[name] += 1
        return begin_s + work_s

    world = World(
        settings,
        dict.fromkeys(NAMES, LearnerHost(task.arrive_s, batch_tokens=task.rows)),
        seed=settings.seed,
        tape=MemoryTape(limit=1000),
        trainers=lambda name, host: (
            trainer(name, host) if name else plan.trainer(settings, LearnerDevices("plan"))
        ),
        hooks=Hooks(export=lambda values, _: ended.append(values)),
        step_end_s=step_end_s,
    )

    def read(numbers: Iterable[int]) -> float:
        of_each = trips / routes.WAREHOUSES
        return fmean(steps[NAMES[number]] * task.rows for number in numbers) / of_each

    others = [name for name in (SUPERVISOR, SYNCER, *NAMES) if name != NAMES[AWAY]]

    def cut() -> None:
        for other in others:
            world.network.cut(NAMES[AWAY], other)

    def heal() -> None:
        if returns:
            world.network.heal_all()

    def over() -> bool:
        assert not world.failures, world.failures
        return bool(ended)

    async def live() -> tuple[float, float]:
        world.start_all()
        marks = await course(read, cut, heal, over)
        await world.kill_all()
        return marks

    marks = run_virtual(live(), limit_s=10_000.0)
    jax.effects_barrier()  # type: ignore[no-untyped-call]  # untyped in JAX
    read_trips = sum(steps.values()) * task.rows
    return played(folder, plan.params_of(settings, ended[0]), marks, trips, read_trips)


def played(
    folder: Path,
    values: Any,  # noqa: ANN401
    marks: tuple[float, float],
    trips: int,
    read_trips: int,
) -> Played:
    lines = [looks(folder, number) for number in range(routes.WAREHOUSES)]
    left, returned = (mark * trips / routes.WAREHOUSES for mark in marks)
    return Played(routes.error(jax.device_get(values)), left, returned, read_trips, lines)


def by_itself(task: routes.Routes, settings: RunSettings, trips: int) -> float:
    """Train by one learner that exchanges nothing; return its error on the trips of all."""
    steps = trips // task.rows
    settings = replace(settings, total_steps=steps, budget_tokens=None)
    trainer = JaxTrainer(task, 1, seed=settings.seed)
    trainer.setup()
    for step, (batch, _) in enumerate(islice(trainer.batches(ShardKey(0, 0), 0), steps)):
        trainer.step(batch, settings.learning_rate_at(step))
    return trainer.evaluate([trainer.value(0)])["error"]


def seeded(seed: int) -> list[str]:
    return ["--run.seed", str(seed), "--task_settings.seed", str(seed)]


TICKS = [8, 10, 15, 20, 30, 50]


def draw(played: Played, one_place: float, path: Path) -> None:
    """Draw the errors of each warehouse's own values over the trips that it had read."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    titles = ("on the trips of its own region", "on the trips of all regions")
    for axis, column, title in zip(axes, (1, 2), titles, strict=True):
        for number, lines in enumerate(played.lines):
            trips, errors = ([line[at] for line in lines[1:]] for at in (0, column))
            away = number == AWAY
            label = f"warehouse {number}" if away else "the others" if not number else None
            colour, wide = ("tab:red", 2.0) if away else ("tab:grey", 0.8)
            thousands = [each / 1000 for each in trips]
            axis.plot(thousands, errors, color=colour, linewidth=wide, label=label, zorder=2 + away)
        alone = f"warehouse {AWAY} is cut off"
        axis.axvspan(played.left / 1000, played.returned / 1000, alpha=0.15, label=alone)
        axis.set(title=title, xlabel="thousands of trips that the warehouse has read")
        axis.set(yscale="log", ylim=(7, 60), yticks=TICKS, yticklabels=TICKS)
        axis.minorticks_off()
    axes[1].axhline(one_place, linestyle="--", color="black", label="one place, at the end")
    axes[1].axhline(truth(), linestyle=":", color="black", label="true median: chance alone")
    axes[0].set_ylabel("error of each warehouse's own values in %")
    axes[0].legend(*axes[1].get_legend_handles_labels())
    figure.savefig(path, dpi=90)


def told(options: Iterable[str]) -> tuple[RunSettings, routes.Routes]:
    """Return the run and the task of the file with these options."""
    words = [str(routes.HERE / "routes.yaml"), *options]
    file = parse(RunOptions, words, program="", description="")[0].file
    own: dict[str, Any] = dict(file.task_settings)
    return file.run, routes.Routes(**own)


def truth() -> float:
    """Return the error of the minutes that trips would take without chance."""
    held_back = [(each, 500, routes.HELD_BACK) for each in range(routes.WAREHOUSES)]
    sure = [routes.trips_of(*each, noise=0.0)[1] for each in held_back]
    took = [routes.trips_of(*each)[1] for each in held_back]
    off = [np.abs(one / other - 1) for one, other in zip(sure, took, strict=True)]
    return 100 * float(np.mean(off))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--for_good", action="store_true", help="who left does not return")
    parser.add_argument("--real", action="store_true", help="processes and sockets, in real time")
    parser.add_argument("--picture", type=Path, help="PNG of the last seed")
    parser.add_argument("--folder", type=Path, help="for the runs; by default removed at the end")
    parser.add_argument("--port", type=int, default=17070, help="the first of ten free ones")
    chosen, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        compare(chosen, options, (chosen.folder or Path(temporary)).absolute())


TITLES = ("one place", "mean", "own", "worse %", "alone")


def compare(chosen: argparse.Namespace, options: list[str], folder: Path) -> None:
    """Run all for each seed, and print the errors with mean and standard deviation."""
    print(f"truth {truth():.2f}\n{'seed':<6}{''.join(f'{title:>14}' for title in TITLES)}", end="")
    print(f"   warehouse {AWAY} alone: its own trips, trips of all")
    rows: list[tuple[float, ...]] = []
    for seed in map(int, chosen.seeds.split(",")):
        words, returns = [*options, *seeded(seed)], not chosen.for_good
        alike = folder / f"gossip-{seed}"
        if chosen.real:
            played = asyncio.run(play(alike, chosen.port, words, returns=returns))
        else:
            played = simulate(alike, words, returns=returns)
        settings, task = told([*words, "--task_settings.arrive_s", "0"])
        together = replace(task, rows=ROWS)
        one_place = by_itself(together, replace(settings, learning_rate=RATE), played.trips)
        worse = 100 * (played.mean / one_place - 1)
        row = (one_place, played.mean, played.own_values, worse)
        print(f"{seed:<6}{in_columns(row)}", end="", flush=True)
        trips = played.trips // routes.WAREHOUSES
        each = [replace(task, warehouse=number) for number in range(routes.WAREHOUSES)]
        rows.append((*row, fmean(by_itself(own, settings, trips) for own in each)))
        print(in_columns(rows[-1][4:]), end="")
        before, after = played.look(played.left), played.look(played.returned)
        print(f"{before[1]:>8.2f} → {after[1]:.2f},{before[2]:>7.2f} → {after[2]:.2f}", flush=True)
    if len(rows) > 1:
        print(f"{'mean':<6}{in_columns(map(fmean, zip(*rows, strict=True)))}")
        print(f"{'sd':<6}{in_columns(map(stdev, zip(*rows, strict=True)))}")
    if chosen.picture:
        draw(played, one_place, chosen.picture)


def in_columns(numbers: Iterable[float]) -> str:
    return "".join(f"{number:>14.2f}" for number in numbers)


if __name__ == "__main__":
    main()
