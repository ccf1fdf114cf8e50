"""A workload that trains a `Task` with JAX."""

import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.model.compiled_steps import compiled_steps_for
from islands.model.device_transfer import LOST, rounding
from islands.model.interfaces import LearnerDevices, Trainer, Workload
from islands.model.jax_settings import enable_compilation_cache
from islands.model.jax_trainer import JaxTrainer
from islands.model.memory import TrainerBytes
from islands.model.placement import devices_of_learner
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunPlan
from islands.tasks.task import Task

if TYPE_CHECKING:  # at run time it is imported where a check is asked for
    from islands.model.task_check import TaskReport


class JaxWorkload(Workload):
    """The workload of a task."""

    def __init__(self, task: Task[PyTree]) -> None:
        self.task = task
        self._evaluator = cache(self._make)

    def keep_compiled(self, folder: Path | None) -> None:
        enable_compilation_cache(folder)

    def trainer_memory(self, settings: RunSettings) -> TrainerBytes:
        program = compiled_steps_for(
            self.task,
            settings.fragments,
            settings.pattern,
            settings.piece_bytes_min,
            merges_moments=settings.merge_moments,
        )
        local, frozen, carried = jax.eval_shape(program.init, jax.random.key(0))
        moments = jax.eval_shape(program.optimizer_state, local)
        trained = _bytes_of(local)
        return TrainerBytes(
            parameters=trained + _bytes_of(frozen),
            base=VALUE_BYTES * program.layout.size + _lost_bytes(program.layout),
            moments=_bytes_of((moments, carried)),
            gradients=_bytes_of(program.parts(local).trained),
        )

    def check(
        self,
        settings: RunSettings,
        *,
        values: bool | None,
        room_bytes: int | None,
    ) -> "TaskReport":
        """Check whether the task keeps its contract.

        Steps and evaluation are computed if `values`, or, if that is None, if the model is small.
        """
        from islands.model.task_check import TaskCheck

        return TaskCheck(
            self.task,
            settings,
            lambda: self.trainer_memory(settings).total,
            values=values,
            room_bytes=room_bytes,
        ).run()

    def plan(self, settings: RunSettings) -> RunPlan:
        return RunPlan(self._evaluator(settings).layout, self.task.shards)

    def trainer(self, settings: RunSettings, learner: LearnerDevices) -> Trainer:
        return self._make(settings, learner)

    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        return self._evaluator(settings).evaluate(values)

    def params_of(self, settings: RunSettings, values: Sequence[NDArray[np.float32]]) -> PyTree:
        return self._evaluator(settings).params_of(values)

    def _make(self, settings: RunSettings, learner: LearnerDevices | None = None) -> JaxTrainer:
        return JaxTrainer(
            self.task,
            settings.fragments,
            pattern=settings.pattern,
            min_piece_bytes=settings.piece_bytes_min,
            seed=settings.seed,
            learner_seed=zlib.crc32(b"" if learner is None else learner.name.encode()),
            devices=None if learner is None else devices_of_learner(learner.devices),
            model_parallel=1 if learner is None else learner.model_parallel,
            precision=settings.precision.of_snapshots,
            adoption=settings.adoption,
            merges_moments=settings.merge_moments,
            interval_steps=settings.interval_steps,
        )


def _bytes_of(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _lost_bytes(layout: Layout) -> int:
    sizes = [each.size for each in layout.fragments if rounding(layout, each)]
    return int(np.dtype(LOST).itemsize) * sum(sizes)
