"""One trial: the production actors train a task on a virtual clock, and the result is evaluated.

A step's arithmetic is done while the clock stands still, and the cell says how long it took. So a
trial is the same on every machine but for the rounding of its device, and its result does not
depend on what else the machine does.

Learners may join in the course of a trial, as scavenged compute does. They are counted at the end
of a cell's names: of four learners and two that join, the latter are `learner-4` and `learner-5`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import nan

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.study.cells import Join, Trial
from islands.lab.study.wide_task import WideTask
from islands.lab.world.world import Costs, LearnerHost, World
from islands.model.interfaces import LearnerDevices, Workload, first_pass
from islands.model.jax_workload import JaxWorkload
from islands.model.workload import load_workload
from islands.protocol.errors import TaskError
from islands.protocol.identities import SUPERVISOR, SYNCER, TRAINING, FinalVersions
from islands.protocol.settings.choices import PaceBy
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.run.records.summary import SyncerShare, share_of
from islands.settings.run_spec import RunSpec
from islands.syncer.workers import Hooks
from islands.tasks.factory import allowed_by
from messaging.clock import MonotonicClock
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

CURVE_POINTS = 16
"""Evaluations in the course of a trial, at even shares of its budget; the last one is its end."""

LOOK_STEPS = 2.0
"""How often the tokens are looked at, in steps of the first learner."""

TAPE_LINES = 1000
SLOWEST = 20.0
"""By how many times a trial may take longer than its steps alone before it is given up."""
SETTLE_S = 1000.0
"""Virtual seconds beyond that, for joining and for the end."""

SPENT = "tokens"
"""Why a run ends that has come to the end of its budget."""

Hosts = Mapping[str, LearnerHost]
Point = tuple[int, int, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Stage:
    """What lies between two joins of a trial.

    Of the budget's tokens the fraction `begins` is processed before it, and `share` in it.
    """

    begins: float
    share: float
    hosts: Hosts

    @property
    def tokens_per_s(self) -> float:
        return sum(host.batch_tokens / host.step_s for host in self.hosts.values())


def stages_of(hosts: Hosts, joins: Sequence[Join]) -> list[Stage]:
    """Return the stages of a trial; hosts that join later come last, and in that order."""
    ordered = sorted(joins, key=lambda join: join.at_share)
    names = list(hosts)
    first = len(names) - sum(join.learners for join in ordered)
    present = accumulate((join.learners for join in ordered), initial=first)
    begins = [0.0, *(join.at_share for join in ordered), 1.0]
    return [
        Stage(begin, end - begin, {name: hosts[name] for name in names[:count]})
        for (begin, end), count in zip(pairwise(begins), present, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a trial.

    The figures are of the task's evaluation of the final values. The curve has (mark, tokens,
    figures) in the course of the trial; the mark counts sixteenths of the budget, the tokens are
    those that the values account for (where learners gossip, all that were processed).
    """

    figures: dict[str, float]
    curve: list[Point]
    tokens: int
    yield_share: float
    merges: int
    participation: float
    reason: str
    virtual_s: float
    wall_s: float

    def metric(self, name: str) -> float:
        """A figure of the end; NaN if the evaluation has none, or the budget was not spent."""
        return self.figures.get(name, nan) if self.reason == SPENT else nan


@dataclass(slots=True)
class _Seen:
    """The values and figures that the syncer's host was given at the end."""

    values: list[NDArray[np.float32]] = field(default_factory=list)
    share: SyncerShare = field(default_factory=dict)

    def export(self, values: list[NDArray[np.float32]], _: FinalVersions) -> None:
        self.values = values

    def report(self, state: SyncerState) -> bytes:
        self.share = share_of(state)
        return b"{}"


def play(trial: Trial) -> Result:
    clock = MonotonicClock()
    begun_s = clock.now_s()
    workload, cell = _workload(trial), trial.cell
    hosts = hosts_of(trial, workload)
    settings = decaying(trial, hosts)
    seen = _Seen()
    world = World(
        settings,
        hosts,
        seed=trial.seed,
        tape=MemoryTape(limit=TAPE_LINES),
        costs=Costs(route=Route(latency_s=cell.latency_s, jitter_s=cell.latency_s)),
        trainers=lambda name, _: workload.trainer(settings, LearnerDevices(name or "plan")),
        hooks=Hooks(export=seen.export, report=seen.report),
    )
    stages = stages_of(hosts, cell.joins)
    steps_s = trial.tokens * sum(stage.share / stage.tokens_per_s for stage in stages)
    curve: list[Point] = []
    live = _live(world, trial, workload, curve, stages)
    virtual_s = run_virtual(live, limit_s=SLOWEST * steps_s + SETTLE_S)
    figures = workload.evaluate(settings, seen.values) if seen.values else {}
    share = seen.share
    return Result(
        figures=figures,
        curve=[*curve, (CURVE_POINTS, share["tokens"], figures)],
        tokens=share["tokens"],
        yield_share=share["yield"],
        merges=share["merges"],
        participation=share["participation"],
        reason=str(share["reason"]),
        virtual_s=virtual_s,
        wall_s=clock.now_s() - begun_s,
    )


async def _live(
    world: World,
    trial: Trial,
    workload: Workload,
    curve: list[Point],
    stages: Sequence[Stage],
) -> float:
    loop = asyncio.get_running_loop()
    for name in (SUPERVISOR, SYNCER, *stages[0].hosts):
        world.start(name)
    mark, to_come = 0, list(stages[1:])
    while world.finished is None and not world.failures:
        await asyncio.sleep(LOOK_STEPS * trial.cell.step_s)
        state = world.syncer_state
        tokens = 0 if state is None else state.durable.ledger.processed
        while to_come and tokens >= to_come[0].begins * trial.tokens:
            for name in to_come.pop(0).hosts:
                world.start(name)
        reached = tokens * CURVE_POINTS // trial.tokens
        if state is not None and mark < reached < CURVE_POINTS and _trains(world):
            mark = reached
            judged = tokens if world.settings.gossip.on else state.published_tokens
            curve.append((mark, judged, workload.evaluate(world.settings, _published(world))))
    ended_s = loop.time()
    await world.kill_all()
    if world.failures:
        name, error = world.failures[0]
        raise TaskError(f"{trial.name}: {name} failed: {error}") from error
    return ended_s


def _trains(world: World) -> bool:
    """Whether there is a model to evaluate: where learners gossip, those that train hold it."""
    held = (world.learner(name) for name in world.hosts)
    phases = [one.state.phase in TRAINING for one in held if one is not None]
    return not world.settings.gossip.on or any(phases)


def _published(world: World) -> Sequence[NDArray[np.float32]]:
    """Return the model as it is now: what is published, or the mean of those that gossip."""
    if world.settings.gossip.on:
        held = [world.learner(name) for name in sorted(world.hosts)]
        names = [one.name for one in held if one is not None and one.state.phase in TRAINING]
        trainers = [world.trainers[name] for name in names]
        return [
            np.mean([trainer.value(index) for trainer in trainers], axis=0, dtype=np.float32)
            for index in range(len(world.layout.fragments))
        ]
    syncer = world.syncer
    assert syncer is not None, "its tokens were counted just now"
    cut = syncer.state.cut("")
    assert cut is not None, "nobody steps before every fragment has a version"
    return syncer.store.published(list(cut.versions))


def _workload(trial: Trial) -> Workload:
    spec = RunSpec(trial.settings, trial.task, trial.task_settings)
    workload = load_workload(spec, allowed=allowed_by(trial.task))
    if not trial.cell.data_parallel or trial.cell.learners == 1:
        return workload
    if not isinstance(workload, JaxWorkload):
        raise TaskError(f"{trial.name}: {trial.task} is a toy, and has no data-parallel training")
    return JaxWorkload(WideTask(workload.task, trial.cell.learners))


def decaying(trial: Trial, hosts: Mapping[str, LearnerHost]) -> RunSettings:
    """The rate decays over the budget, unless the file says otherwise.

    Its clock counts steps of the learner that sets the pace, so the budget is so many of these.
    """
    if trial.settings.total_steps is not None:
        return trial.settings
    pace_by = PaceBy.FASTEST if trial.settings.gossip.on else trial.settings.pace_by
    steps = 0.0
    for stage in stages_of(hosts, trial.cell.joins):
        per_s = sorted((1 / host.step_s for host in stage.hosts.values()), reverse=True)
        last = len(per_s) - 1
        index = {PaceBy.FASTEST: 0, PaceBy.MEDIAN: last // 2, PaceBy.SLOWEST: last}[pace_by]
        steps += stage.share * trial.tokens * per_s[index] / stage.tokens_per_s
    return replace(trial.settings, total_steps=max(1, round(steps)))


def hosts_of(trial: Trial, workload: Workload) -> dict[str, LearnerHost]:
    cell = trial.cell
    later = sum(join.learners for join in cell.joins)
    count = 1 if cell.data_parallel else cell.learners + later
    trainer = workload.trainer(trial.settings, LearnerDevices("plan"))
    batch = next(first_pass(trainer), None)
    if batch is None:
        raise TaskError("the task has no batch in any shard, or fewer than make a wide one")
    tokens = trainer.tokens(batch)
    slower = [*cell.speeds, *[1.0] * count][:count]
    return {
        f"learner-{index}": LearnerHost(cell.step_s * times, cell.noise, batch_tokens=tokens)
        for index, times in enumerate(slower)
    }
