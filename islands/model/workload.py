"""Workloads by the name that a run's spec tells, and that of a hub whose learners have own loops.

`jax_workload.py` makes one of a `Task`; the toys are workloads that need no JAX.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.layout_file import LayoutFile, read_layout
from islands.layout.leaves import Leaf
from islands.model.interfaces import Place, Trainer, Workload
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.settings.run import RunSettings
from islands.settings.groups import FIRST
from islands.settings.run_spec import RunPlan, RunSpec
from islands.tasks.factory import find, make


def load_workload(
    spec: RunSpec,
    overrides: dict[str, object] | None = None,
    *,
    allowed: Collection[str] = (),
) -> Workload:
    """Build the workload that a run spec names; a task becomes a `JaxWorkload`.

    Args:
        spec: the run's spec, with the name and settings of the task.
        overrides: settings of the task that are this host's own, such as rows per batch.
        allowed: modules from which this host's operator lets a run name its task.
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
    return JaxWorkload(make(kind, spec.task, settings), spec.task)


@dataclass(frozen=True)
class OwnLoop(Workload):
    """A model that loops of the users' own train.

    Attributes:
        layout: Path of the file that `islands layout` wrote; `first`: a loop tells it.
        told: What the first loop has told.
    """

    layout: str
    told: tuple[Leaf, ...] | None = None

    @property
    def waits(self) -> bool:
        """Whether the layout is not known before a loop tells it."""
        return self.layout == FIRST and self.told is None

    def plan(self, settings: RunSettings) -> RunPlan:
        """Return the layout of the leaves in the file."""
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
        if self.waits:
            raise SettingsError(
                "layout is first, so nothing is known of the model before a loop has joined the "
                "hub; give the file that `islands layout` writes"
            )
        file = read_layout(Path(self.layout)) if self.told is None else LayoutFile(self.told)
        made = plan(
            file.leaves,
            count=settings.fragments,
            pattern=settings.pattern,
            min_piece_bytes=settings.piece_bytes_min,
        )
        return RunPlan(made, file.shards, records=file.records)

    def trainer(self, settings: RunSettings, place: Place) -> Trainer:
        """Refuse: there is no task to train."""
        raise TaskError(
            f"{place.name} has nothing to train: this run was begun with a layout in place of a "
            "task; join it from a training loop of your own, by islands.join"
        )

    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        """Return no figures: only the users' own code can evaluate (`islands.latest`)."""
        return {}
