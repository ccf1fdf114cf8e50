"""A run whose hub and learners share one process, over memory links; each has a device thread.

system = LocalSystem(MyTask(), run_settings(budget_tokens=1_000_000), learners=3)
summary = asyncio.run(system.run(Path("runs/first")))
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from jax import Device
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.actors.ports import ProcessEnd
from islands.learner.actor import LearnerActor
from islands.learner.compute_thread import ComputeThread
from islands.model.interfaces import LearnerDevices, Trainer, Workload
from islands.model.jax_settings import cpu_environment
from islands.model.jax_trainer import JaxTrainer
from islands.model.placement import shares
from islands.numerics.outer import OuterOptimizer
from islands.protocol.errors import SettingsError
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.member_entries import ProcessStarted
from islands.run.composition import Cluster
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.hub_requests import check_same
from islands.run.hosting.task_processes import ProcessTable
from islands.run.learner_process import make_learner
from islands.run.records.run_folder import RunFolder
from islands.run.records.summary import Summary
from islands.run.run_claim import claim_folder, released_on_failure
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.run_spec import RunPlan, RunSpec
from islands.tasks.task import Task


class LocalSystem(Workload):
    """One run in this process.

    Args:
        learners: the number of learners, or their names.
        evaluate_every_s: least time between two evaluations of the published values.
        devices_per_learner: how many of this process's devices each learner has to itself; if
            None, all learners compute on its first device.
        model_parallel: number of its devices over which a learner's parameters are sharded.

    Attributes:
        values: The final published values, one flat array per fragment, once the run has ended.
    """

    def __init__(
        self,
        task: Task[PyTree],
        settings: RunSettings,
        *,
        learners: int | Sequence[str] = 3,
        outer: OuterOptimizer | None = None,
        evaluate_every_s: float = 10.0,
        devices_per_learner: int | None = None,
        model_parallel: int = 1,
    ) -> None:
        self.task = task
        self.settings = settings
        self.names = (
            [f"learner-{index}" for index in range(learners)]
            if isinstance(learners, int)
            else list(learners)
        )
        if not self.names or len(set(self.names)) < len(self.names):
            raise SettingsError(f"learners is {learners!r}; it must be at least 1, or unlike names")
        # XLA needs a thread per learner, or it starves some; JAX reads this when it is first used.
        threads = cpu_environment(len(self.names), observers=1, devices=devices_per_learner or 1)
        os.environ.update({**threads, **os.environ})
        self._devices = shares(len(self.names), devices_per_learner)
        self._model_parallel = model_parallel
        self.model = self._trainer(0, None)
        self.values: list[NDArray[np.float32]] = []
        self._outer = outer
        self._evaluate_every_s = evaluate_every_s
        self.hub: Coordinator
        self._processes: ProcessTable

    @property
    def folder(self) -> RunFolder:
        return self.hub.folder

    @property
    def cluster(self) -> Cluster:
        return self.hub.cluster

    async def run(self, folder: Path) -> Summary:
        """Run to the end of the budget, write all files to the folder, and return the summary."""
        self.hub = self._hub(folder)
        await self.hub.open()
        running = asyncio.get_running_loop().create_task(self.hub.run())
        try:
            summary = await asyncio.shield(running)
        except asyncio.CancelledError:  # Ctrl-C: leave in order, with the values published by now
            await self.hub.leave("cancelled")
            await running
            raise
        finally:
            await self._processes.wait_freed()
        assert summary is not None, "the budget is spent"
        self.values = self.hub.final_values() if self.hub.has_final_values else []
        return summary

    def finish(self, reason: str) -> None:
        """Ask the syncer to end the run in order before the budget is spent."""
        if self.hub.syncer is not None:
            self.hub.syncer.finish(reason)

    def drop(self, name: str, away_s: float) -> None:
        """Kill a learner as SIGKILL would; it is restarted after `away_s` at the earliest."""
        self.cluster.hold(name, away_s)
        self._processes.kill(name)

    # --- its hub ------------------------------------------------------------------------------

    def _hub(self, folder: Path) -> Coordinator:
        kind = type(self.task)
        spec = RunSpec(self.settings, f"{kind.__module__}:{kind.__qualname__}")
        settings = CoordinatorSettings(
            folder,
            spec,
            ListenOptions(),
            ConnectOptions(),
            syncer_here=True,
            evaluate_every_s=self._evaluate_every_s,
            alone=True,
        )
        claim = claim_folder(folder, spec, self)
        with released_on_failure(claim):
            check_same(self.model.layout, claim.plan.layout)
            return Coordinator(
                settings,
                claim,
                self,
                launched=tuple(self.names),
                backend=self._table,
                outer=self._outer,
            )

    def _table(self, hub: Coordinator, ended: Callable[[str, ProcessEnd], None]) -> ProcessTable:
        self._processes = ProcessTable(partial(self._learner, hub), ended)
        return self._processes

    def _learner(self, hub: Coordinator, name: str) -> LearnerActor:
        hub.folder.write(hub.elapsed_s, "hub", ProcessStarted(name))
        compute = ComputeThread(
            lambda: self.trainer(self.settings, LearnerDevices(name)), self.settings, name
        )
        return make_learner(name, replace(hub.context, reports=True), compute)

    # --- what it trains -----------------------------------------------------------------------

    def plan(self, settings: RunSettings) -> RunPlan:
        return RunPlan(self.model.layout, self.task.shards)

    def trainer(self, settings: RunSettings, learner: LearnerDevices) -> Trainer:
        index = self.names.index(learner.name)
        return self._trainer(index, self._devices[index])

    def evaluate(
        self,
        settings: RunSettings,
        values: Sequence[NDArray[np.float32]],
    ) -> dict[str, float]:
        return self.model.evaluate(values)

    def _trainer(self, index: int, devices: Sequence[Device] | None) -> JaxTrainer:
        return JaxTrainer(
            self.task,
            self.settings.fragments,
            pattern=self.settings.pattern,
            min_piece_bytes=self.settings.piece_bytes_min,
            seed=self.settings.seed,
            learner_seed=index,
            devices=devices,
            model_parallel=1 if devices is None else self._model_parallel,
            precision=self.settings.precision.of_snapshots,
            adoption=self.settings.adoption,
            merges_moments=self.settings.merge_moments,
            interval_steps=self.settings.interval_steps,
        )
