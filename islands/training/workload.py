"""What a process needs of that which is trained: a plan, a trainer, an evaluation.

A `Task` becomes one (`jax_workload.py`); so do the toys, which need no JAX. A workload is named in
the run's spec, so every host can build it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.settings.run import RunSettings
from islands.settings.run_spec import RunPlan, RunSpec
from islands.training.factory import make
from islands.training.process_memory import TrainerMemory
from islands.training.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Place:
    """Where a learner computes.

    Args:
        name: of the learner; its randomness follows from it.
        devices: which of the host's devices: `all`, or such as `0,1` or `0-3`.
        model_parallel: devices over which parameters are sharded; the rest share the data.
    """

    name: str
    devices: str = "all"
    model_parallel: int = 1


class Workload(ABC):
    """That which is trained."""

    def keep_compiled(self, folder: Path) -> None:  # noqa: B027  toys compile nothing
        """Keep compiled functions in a folder, so that a restart compiles nothing."""

    def trainer_memory(self, settings: RunSettings) -> TrainerMemory | None:
        """What a trainer holds, by shapes alone; None if that is not known."""
        return None

    @abstractmethod
    def plan(self, settings: RunSettings) -> RunPlan:
        """The layout and the shards, without computing anything."""

    @abstractmethod
    def trainer(self, settings: RunSettings, place: Place) -> Trainer:
        """One learner's arithmetic; called on the thread that owns the device."""

    @abstractmethod
    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        """Figures of merit of a whole model, given one flat value per fragment."""


def load_workload(spec: RunSpec, overrides: dict[str, object] | None = None) -> Workload:
    """Build what a spec names.

    Args:
        spec: of the run.
        overrides: settings of the task that are this host's own, such as rows per batch.

    Raises:
        TaskError: nothing is there, or what is there can be neither a task nor a workload.
    """
    made = make(spec.task, {**spec.task_settings, **(overrides or {})})
    if isinstance(made, Workload):
        return made
    from islands.training.jax_workload import JaxWorkload

    return JaxWorkload(made, spec.task)
