"""A workload gives a process what it needs to train: a plan, a trainer and an evaluation.

`jax_workload.py` makes one of a `Task`; the toys are workloads that need no JAX. The run's spec
names the workload, so every host can build it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.model.memory.process_memory import TrainerMemory
from islands.model.trainer import Trainer
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunPlan, RunSpec
from islands.tasks.factory import make


@dataclass(frozen=True, slots=True)
class Place:
    """Which learner computes, and on which of the host's devices.

    Args:
        name: name of the learner, from which its random seed is derived.
        devices: which of the host's devices it uses: `all`, or numbers such as `0,1` or `0-3`.
        model_parallel: number of devices over which parameters are sharded; groups of that size
            share the data.
    """

    name: str
    devices: str = "all"
    model_parallel: int = 1


class Workload(ABC):
    """A model with its data, as the processes of a run use it."""

    def keep_compiled(self, folder: Path) -> None:  # noqa: B027  toys compile nothing
        """Cache compiled functions in a folder, so that a restart compiles nothing."""

    def trainer_memory(self, settings: RunSettings) -> TrainerMemory | None:
        """Compute from shapes alone what a trainer holds; None if that is not known."""
        return None

    @abstractmethod
    def plan(self, settings: RunSettings) -> RunPlan:
        """Return the layout and the number of shards, without computing any values."""

    @abstractmethod
    def trainer(self, settings: RunSettings, place: Place) -> Trainer:
        """Make one learner's trainer; called on the thread that owns the device."""

    @abstractmethod
    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        """Return figures of merit of a whole model, given one flat value per fragment."""


def load_workload(spec: RunSpec, overrides: dict[str, object] | None = None) -> Workload:
    """Build the workload that a run spec names; a task becomes a `JaxWorkload`.

    Args:
        spec: the run's spec, with the name and settings of the task.
        overrides: settings of the task that are this host's own, such as rows per batch.

    Raises:
        TaskError: the name leads to nothing, or to an object that is no task and no workload.
    """
    made = make(spec.task, {**spec.task_settings, **(overrides or {})})
    if isinstance(made, Workload):
        return made
    from islands.model.jax_workload import JaxWorkload

    return JaxWorkload(made, spec.task)
