"""Compute that comes and goes: decoupled learners join and are lost, data-parallel chips stall.

Both kinds of run are played by the actors until their token budget is done. In a decoupled one an
extra unit is a learner, which is started and killed. Elastic data-parallel training is one learner
whose step is as much shorter as it has more units, and which stalls whenever these change
(`ScavengedChips`).
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from statistics import mean
from typing import NamedTuple

from islands.lab.experiments.experiment import Experiment
from islands.lab.experiments.fleet import (
    Cell,
    Link,
    MergeTimes,
    Tally,
    attach,
    begin,
    steady,
    world_of,
)
from islands.lab.settings.fleets import ScavengeOptions
from islands.lab.toys.toy import BATCH_TOKENS
from islands.lab.world.world import World
from islands.protocol.errors import InvariantError
from islands.protocol.settings.presets import PRESETS, Preset
from islands.settings.quantities import duration, markdown_table
from messaging.simulation.virtual_time import run_virtual

DECOUPLED, DATA_PARALLEL = "decoupled", "data-parallel, elastic"
PUBLISHED: Mapping[str, Mapping[float, float]] = {
    DECOUPLED: {0.0: 1.0, 0.25: 0.9, 0.5: 0.83, 1.0: 0.75, 3.0: 0.62},
    DATA_PARALLEL: {0.0: 1.0, 0.25: 1.07, 0.5: 1.09, 1.0: 1.02, 3.0: 0.8},
}
"""Relative time to a token budget by extra compute (arXiv 2604.21428)."""

LOOK_STEPS = 0.1
"""Of a step: how often it is looked how much of the budget is done."""

LONGEST = 8.0
"""A run is given up after so many times the time that it takes without extra compute."""


class Key(NamedTuple):
    """The key of a run: its kind, its extra compute as a share, and its seed."""

    kind: str
    extra: float
    seed: int


@dataclass(frozen=True, slots=True)
class Job:
    """One run.

    Attributes:
        options: of all runs.
        kind: decoupled or data-parallel.
        units: extra units.
        seed: of all chance.
    """

    options: ScavengeOptions
    kind: str
    units: int
    seed: int

    @property
    def budget_tokens(self) -> int:
        """The budget: the same for all runs."""
        return self.options.steps * self.options.learners * BATCH_TOKENS


@dataclass(frozen=True, slots=True)
class Played:
    """The figures of one run.

    Attributes:
        took_s: until the budget was done and merged, after the start.
        yield_share: tokens that reached the published values over tokens processed.
        losses: how often an extra unit was taken away.
    """

    took_s: float
    yield_share: float
    losses: int


@dataclass(slots=True)
class Unit:
    """An extra unit of compute: whether it is there, and when that changes."""

    rng: random.Random
    there: bool = False
    changes_s: float = inf

    def change(self, now_s: float, options: ScavengeOptions) -> None:
        """Come or go now, and draw when the next change is."""
        self.there = not self.there
        wait_s = self.rng.expovariate(1 / options.stay_s) if self.there else options.away_s
        self.changes_s = now_s + wait_s

    def end(self) -> None:
        """Go for good."""
        self.there, self.changes_s = False, inf


@dataclass(slots=True)
class Units:
    """All extra units of a run, which are there while a window of the budget is trained."""

    options: ScavengeOptions
    units: list[Unit]
    open: bool = False
    losses: int = field(default=0)

    @classmethod
    def of(cls, job: Job) -> "Units":
        """Make the units of a run; none is there yet."""
        streams = [random.Random(f"{job.seed}/{index}") for index in range(job.units)]
        return cls(job.options, [Unit(stream) for stream in streams])

    def see(self, done: float, now_s: float) -> None:
        """Let all come or go as a share of the budget says."""
        first, last = self.options.window
        if self.open is not (first <= done < last):
            self.open = not self.open
            for unit in self.units:
                unit.change(now_s, self.options) if self.open else unit.end()

    def change(self, now_s: float) -> list[int]:
        """Let those change whose time has come; returns their indices."""
        changed = [index for index, unit in enumerate(self.units) if unit.changes_s <= now_s]
        for index in changed:
            self.losses += self.units[index].there
            self.units[index].change(now_s, self.options)
        return changed


class ScavengedChips:
    """The device of elastic data-parallel training on units that come and go.

    A unit that is taken away stalls the others, as in `chips.ElasticChips`; those that are there
    again are taken together, not too often, and stall them once more.

    Args:
        units: the extra ones.
        job: the run.
    """

    def __init__(self, units: Units, job: Job) -> None:
        self._units = units
        self._options = job.options
        self._steps = 0
        self._taken: set[int] = set()
        self._stalled_until_s = 0.0
        self._rejoined_s = -inf

    def step(self, begin_s: float, work_s: float) -> float:
        """Take a step, with those units that take part; returns its end.

        Args:
            begin_s: when it begins, which is not before the last one's end.
            work_s: how long it takes without extra units.
        """
        self._units.see(self._steps / self._options.steps, begin_s)
        self._steps += 1
        now_s, left_s = begin_s, work_s
        self._follow(now_s)
        while left_s > 0:
            stalled = now_s < self._stalled_until_s
            speed = 0.0 if stalled else 1 + len(self._taken) / self._options.learners
            end_s = self._stalled_until_s if stalled else now_s + left_s / speed
            until_s = min(end_s, self._next_s(now_s))
            left_s = 0.0 if until_s == end_s and not stalled else left_s - speed * (until_s - now_s)
            now_s = until_s
            self._follow(now_s)
        return now_s

    def _next_s(self, now_s: float) -> float:
        changes_s = min((unit.changes_s for unit in self._units.units), default=inf)
        waits = any(
            unit.there and index not in self._taken for index, unit in enumerate(self._units.units)
        )
        ready_s = self._rejoined_s + self._options.rejoin_every_s
        return min(changes_s, max(ready_s, now_s)) if waits else changes_s

    def _follow(self, now_s: float) -> None:
        options, units = self._options, self._units.units
        self._units.change(now_s)
        lost = {index for index in self._taken if not units[index].there}
        if lost:
            self._taken -= lost
            if now_s >= self._stalled_until_s:
                self._stalled_until_s = now_s + options.stall_s
        come = {index for index, unit in enumerate(units) if unit.there} - self._taken
        if come and now_s >= self._rejoined_s + options.rejoin_every_s:
            self._taken |= come
            self._rejoined_s = now_s
            self._stalled_until_s = max(self._stalled_until_s, now_s) + options.rejoin_stall_s


def jobs_of(options: ScavengeOptions) -> dict[Key, Job]:
    """Return every run that is asked for."""
    return {
        Key(kind, share, seed): Job(options, kind, units, seed)
        for kind in (DECOUPLED, DATA_PARALLEL)
        for share, units in options.extras.items()
        for seed in options.seeds
    }


def play(job: Job) -> Played:
    """Play one run with the actors, until its budget is done.

    Raises:
        InvariantError: an actor failed, or the run did not end in time.
    """
    cell, units = _cell(job), Units.of(job)
    device = ScavengedChips(units, job)
    alone = job.kind == DATA_PARALLEL
    world = world_of(
        cell,
        MergeTimes(),
        (lambda _, begin_s, work_s: device.step(begin_s, work_s)) if alone else None,
        batch_tokens=BATCH_TOKENS * job.options.learners if alone else None,
    )
    limit_s = LONGEST * job.options.steps * job.options.step_s + cell.warmup_s
    return run_virtual(_live(world, cell, units, job, limit_s), limit_s=2 * limit_s)


def _cell(job: Job) -> Cell:
    options = job.options
    decoupled = job.kind == DECOUPLED
    settings = options.run if decoupled else PRESETS[Preset.DATA_PARALLEL]
    return replace(
        steady(options.learners if decoupled else 1),
        step_s=options.step_s,
        noise=options.noise,
        parameters=options.parameters,
        link=Link(options.latency_s, options.gbit_s),
        settings=replace(
            settings,
            timing=options.run.timing,
            budget_tokens=job.budget_tokens,
            seed=job.seed,
        ),
        warmup_s=2 * options.step_s,
        seed=job.seed,
    )


async def _live(world: World, cell: Cell, units: Units, job: Job, limit_s: float) -> Played:
    loop = asyncio.get_running_loop()
    await begin(world, cell)
    began_s, tally = loop.time(), Tally()
    while world.finished is None:
        if world.failures or loop.time() > limit_s:
            why = f"{world.failures[0]}" if world.failures else "it did not end in time"
            raise InvariantError(f"a run with {job.units} extra units failed: {why}")
        state = world.syncer_state
        if state is not None:
            tally = Tally.of(state)
            if job.kind == DECOUPLED:
                await _scavenge(world, cell, units, tally.processed / job.budget_tokens)
        await asyncio.sleep(LOOK_STEPS * cell.step_s)
    took_s = loop.time() - began_s
    await world.kill_all()
    return Played(took_s, tally.applied / max(1, tally.processed), units.losses)


async def _scavenge(world: World, cell: Cell, units: Units, done: float) -> None:
    now_s = asyncio.get_running_loop().time()
    units.see(done, now_s)
    units.change(now_s)
    for index, unit in enumerate(units.units):
        name = f"extra-{index:04}"
        running = world.learner(name) is not None
        if unit.there and not running and world.finished is None:
            world.hosts.setdefault(name, next(iter(world.hosts.values())))
            attach(world, cell, name, cell.link)
            world.start(name)
        elif running and not unit.there:
            await world.kill(name)


def relative(runs: Mapping[Key, Played]) -> dict[tuple[str, float], float]:
    """Return the time of each kind and share, over that of its kind without extra compute."""
    took: dict[tuple[str, float], list[float]] = {}
    for key, played in runs.items():
        took.setdefault((key.kind, key.extra), []).append(played.took_s)
    return {
        (kind, extra): mean(times_s) / mean(took[kind, min(share for _, share in took)])
        for (kind, extra), times_s in took.items()
    }


def table(options: ScavengeOptions, runs: Mapping[Key, Played]) -> str:
    """Return the table as Markdown."""
    times = relative(runs)
    head = ["extra", "run", "relative time", "published", "ideal", "time", "yield, %", "losses"]
    lines = [head]
    for (kind, extra), time in times.items():
        same = [played for key, played in runs.items() if (key.kind, key.extra) == (kind, extra)]
        theirs = PUBLISHED[kind].get(extra)
        lines.append(
            [
                f"+{100 * extra:g} %",
                kind,
                f"{time:.3f}",
                "" if theirs is None else f"{theirs:.2f}",
                f"{ideal(options, extra):.3f}",
                duration(mean(played.took_s for played in same)),
                f"{100 * mean(played.yield_share for played in same):.1f}",
                f"{mean(played.losses for played in same):.1f}",
            ]
        )
    first, last = options.window
    sentence = (
        f"Extra compute is there while the budget is trained from {100 * first:g} to "
        f"{100 * last:g} %; a unit of a learner's size stays for {options.stay_s:g} s on average "
        f"(ours: unpublished), and another one comes {options.away_s:g} s later. Ideal: all of it "
        "at work all of that time, in closed form."
    )
    return f"{markdown_table(lines)}\n\n{sentence}\n"


def ideal(options: ScavengeOptions, extra: float) -> float:
    """Return 1 − w + w/(1 + x), for w the share of the budget in which a share x is added."""
    width = options.window[1] - options.window[0]
    return 1 - width + width / (1 + extra)


def figures_of(options: ScavengeOptions, runs: Mapping[Key, Played]) -> list[dict[str, object]]:
    """Return the figures of every run."""
    times = relative(runs)
    return [
        {
            "run": key.kind,
            "extra": key.extra,
            "seed": key.seed,
            "took_s": played.took_s,
            "relative_time": times[key.kind, key.extra],
            "relative_time_published": PUBLISHED[key.kind].get(key.extra),
            "relative_time_ideal": ideal(options, key.extra),
            "yield": played.yield_share,
            "losses": played.losses,
        }
        for key, played in runs.items()
    ]


EXPERIMENT = Experiment("scavenge", jobs_of, play, table, figures_of)
