"""One trial: the production actors train a task on a virtual clock; what came of it.

A step's arithmetic is done while the clock stands still, and the cell says how long it took. So a
trial is the same on every machine but for the rounding of its device, and its result does not
depend on what else the machine does.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from islands.cluster.summary import share_of
from islands.data.shards import ShardKey
from islands.errors import TaskError
from islands.identities import FinalVersions
from islands.settings.run import RunSettings
from islands.settings.run_spec import RunSpec
from islands.simulation.world import Costs, LearnerHost, World
from islands.study.cells import Cell, Trial
from islands.study.wide_task import WideTask
from islands.syncer.hooks import Hooks
from islands.syncer.state import SyncerState
from islands.tape.writing import MemoryTape
from islands.training.jax_workload import JaxWorkload
from islands.training.trainer import Trainer
from islands.training.workload import Place, Workload, load_workload
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


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a trial.

    Args:
        figures: of the task's evaluation of the final values.
        curve: (tokens, figures) in the course of the trial.
        tokens: processed by all learners.
        yield_share: tokens that reached the published values, over those processed.
        merges: committed.
        participation: contributions per learner that was present, and per merge.
        reason: why the run ended.
        virtual_s: how long it took on the virtual clock.
        wall_s: how long it took to compute.
    """

    figures: dict[str, float]
    curve: list[tuple[int, dict[str, float]]]
    tokens: int
    yield_share: float
    merges: int
    participation: float
    reason: str
    virtual_s: float
    wall_s: float


@dataclass(slots=True)
class _Seen:
    """What the syncer's host was given at the end."""

    values: list[NDArray[np.float32]] = field(default_factory=list)
    share: dict[str, Any] = field(default_factory=dict)

    def export(self, values: list[NDArray[np.float32]], _: FinalVersions) -> None:
        self.values = values

    def report(self, state: SyncerState) -> bytes:
        self.share = share_of(state)
        return b"{}"


def play(trial: Trial) -> Result:
    """Train, evaluate, and count.

    Raises:
        TaskError: the task cannot be trained, or a figure of its evaluation is no number.
        VirtualTimeError: the run stood still.
    """
    begun_s = time.perf_counter()
    workload = _workload(trial)
    settings = _settings(trial, workload)
    cell = trial.cell
    hosts = _hosts(cell, workload, settings)
    seen = _Seen()
    world = World(
        settings,
        hosts,
        seed=trial.seed,
        tape=MemoryTape(limit=TAPE_LINES),
        costs=Costs(route=Route(latency_s=cell.latency_s, jitter_s=cell.latency_s)),
        trainers=_Trainers(workload, settings),
        hooks=Hooks(export=seen.export, report=seen.report),
    )
    steps = trial.tokens / sum(host.batch_tokens / host.step_s for host in hosts.values())
    limit_s = SLOWEST * steps + SETTLE_S
    curve: list[tuple[int, dict[str, float]]] = []
    virtual_s = run_virtual(_live(world, trial, workload, curve), limit_s=limit_s)
    figures = workload.evaluate(settings, seen.values)
    share = seen.share
    return Result(
        figures=figures,
        curve=[*curve, (share["tokens"], figures)],
        tokens=share["tokens"],
        yield_share=share["yield"],
        merges=share["merges"],
        participation=share["participation"],
        reason=str(share["reason"]),
        virtual_s=virtual_s,
        wall_s=time.perf_counter() - begun_s,
    )


async def _live(
    world: World,
    trial: Trial,
    workload: Workload,
    curve: list[tuple[int, dict[str, float]]],
) -> float:
    """Run to the end of the budget, evaluating now and then; returns when that was."""
    loop = asyncio.get_running_loop()
    world.start_all()
    due = 1
    while world.finished is None and not world.failures:
        await asyncio.sleep(LOOK_STEPS * trial.cell.step_s)
        state = world.syncer_state
        tokens = 0 if state is None else state.durable.ledger.processed
        if due < CURVE_POINTS and tokens * CURVE_POINTS >= due * trial.tokens:
            due = tokens * CURVE_POINTS // trial.tokens + 1
            values = _published(world)
            curve.append((tokens, workload.evaluate(world.settings, values)))
    ended_s = loop.time()
    await world.kill_all()
    if world.failures:
        name, error = world.failures[0]
        raise TaskError(f"{trial.name}: {name} failed: {error}") from error
    return ended_s


def _published(world: World) -> Sequence[NDArray[np.float32]]:
    syncer = world.syncer
    assert syncer is not None, "its tokens were counted just now"
    versions = [syncer.state.version(index) for index in range(len(world.layout.fragments))]
    return syncer.vault.published([version for version in versions if version is not None])


def _workload(trial: Trial) -> Workload:
    spec = RunSpec(trial.settings, trial.task, trial.task_settings)
    workload = load_workload(spec)
    if not trial.cell.data_parallel or trial.cell.learners == 1:
        return workload
    if not isinstance(workload, JaxWorkload):
        raise TaskError(f"{trial.name}: {trial.task} is a toy, and has no data-parallel training")
    return JaxWorkload(WideTask(workload.task, trial.cell.learners), trial.task)


def _settings(trial: Trial, workload: Workload) -> RunSettings:
    """The rate decays over the budget, whatever a batch's size, unless the file says otherwise."""
    if trial.settings.total_steps is not None:
        return trial.settings
    trainer = workload.trainer(trial.settings, Place("plan"))
    learners = 1 if trial.cell.data_parallel else trial.cell.learners
    steps = trial.tokens / (learners * _batch_tokens(trainer))
    return replace(trial.settings, total_steps=max(1, round(steps)))


def _batch_tokens(trainer: Trainer) -> int:
    for shard in range(trainer.shards):
        for batch, _ in trainer.batches(ShardKey(0, shard), 0):
            return trainer.tokens(batch)
    raise TaskError("the task has no batch in any shard of its data")


def _hosts(cell: Cell, workload: Workload, settings: RunSettings) -> dict[str, LearnerHost]:
    count = 1 if cell.data_parallel else cell.learners
    tokens = _batch_tokens(workload.trainer(settings, Place("plan")))
    slower = [*cell.speeds, *[1.0] * count][:count]
    return {
        f"learner-{index}": LearnerHost(cell.step_s * times, cell.noise, batch_tokens=tokens)
        for index, times in enumerate(slower)
    }


@dataclass(frozen=True, slots=True)
class _Trainers:
    """A learner's trainer is the workload's own."""

    workload: Workload
    settings: RunSettings

    def __call__(self, name: str, _: LearnerHost) -> Trainer:
        return self.workload.trainer(self.settings, Place(name or "plan"))
