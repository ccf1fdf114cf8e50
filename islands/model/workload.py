"""Workloads by the name that a run's spec has, and that of a hub whose learners have own loops."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.loop_layout import LoopLayout
from islands.model.interfaces import LearnerDevices, Trainer, Workload
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunPlan, RunSpec
from islands.tasks.factory import find, make


def load_workload(
    spec: RunSpec,
    overrides: dict[str, object] | None = None,
    *,
    allowed: Collection[str] = (),
) -> Workload:
    """Build the workload that a run spec names; a task becomes a `JaxWorkload`.

    This host may override settings of the task, such as rows per batch. Its operator allows the
    modules from which a run may name its task.
    """
    kind = find(spec.task, allowed)
    settings = {**spec.task_settings, **(overrides or {})}
    if issubclass(kind, Workload):
        made = make(kind, spec.task, settings)
        assert isinstance(made, Workload)
        return made
    from islands.model.jax_workload import JaxWorkload
    from islands.tasks.task import Task

    if not issubclass(kind, Task):
        raise TaskError(
            f"task {spec.task!r} is no class of a task; it must be derived from islands.Task"
        )
    task = make(kind, spec.task, settings)
    assert isinstance(task, Task)
    return JaxWorkload(task)


@dataclass(frozen=True)
class OwnLoop(Workload):
    """A model that loops of the users' own train; the first loop that joins reports its layout."""

    layout: LoopLayout | None = None

    def plan(self, settings: RunSettings) -> RunPlan:
        if self.layout is None:
            raise SettingsError(
                "task is not set, so nothing is known of the model before a training loop of your "
                "own has joined a hub (python -m islands.syncer waits for it)"
            )
        if settings.merge_moments:
            raise SettingsError(
                "run.merge_moments is set, but the optimizer of a loop of one's own is not merged; "
                "leave it out, or set it to false"
            )
        if settings.gossip.on:
            raise SettingsError(
                "run.gossip is set, but loops of one's own are merged by a syncer alone; choose "
                "another preset"
            )
        planned = plan(
            self.layout.leaves,
            count=settings.fragments,
            pattern=settings.pattern,
            min_piece_bytes=settings.piece_bytes_min,
        )
        return RunPlan(planned, self.layout.shards, records=self.layout.records)

    def trainer(self, settings: RunSettings, learner: LearnerDevices) -> Trainer:
        raise TaskError(
            f"{learner.name} has nothing to train: this run was begun without a task; join it "
            "from a training loop of your own, by islands.join"
        )

    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        return {}  # only the users' own code can evaluate (`islands.latest`)
