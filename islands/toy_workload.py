"""Learners whose device only sleeps, as a workload: real processes, real traffic, no JAX.

`task: islands.toy_workload:Sleeping` with `task_settings: {step_s: 0.02, megabytes: 8}` shows what
the system itself costs, and survives, on a machine without an accelerator.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from islands.config import RunSettings
from islands.run_spec import RunPlan
from islands.toy import SleepingTrainer
from islands.trainer import PendingStep, Snapshot, Trainer, WirePrecision
from islands.workload import Place, Workload

COLUMNS = 64


@dataclass(frozen=True)
class Sleeping(Workload):
    """One equal tensor per fragment, on a device that sleeps.

    Attributes:
        step_s: Duration of a step in seconds.
        megabytes: Size of the model in MiB of float32.
        slow: Learners that are slower, by name, and by what factor.
        setup_s: What stands for compiling: time that a process takes before its first step.
        first_step_s: Duration of a process's first step; 0: as long as any other.
    """

    step_s: float = 0.02
    megabytes: float = 1.0
    slow: dict[str, float] = field(default_factory=dict, hash=False)
    setup_s: float = 0.0
    first_step_s: float = 0.0

    def plan(self, settings: RunSettings) -> RunPlan:
        """As many fragments as are asked for."""
        trainer = self._make(settings, 1.0)
        return RunPlan(trainer.layout, trainer.shards)

    def trainer(self, settings: RunSettings, place: Place) -> Trainer:
        """One learner."""
        return self._make(settings, self.slow.get(place.name, 1.0))

    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        """How far the model has moved; the optimum is nowhere."""
        return {"moved": float(np.mean([np.abs(value).mean() for value in values]))}

    def _make(self, settings: RunSettings, factor: float) -> "Accelerator":
        count = settings.fragments
        fragment_bytes = max(4 * COLUMNS, round(self.megabytes * 2**20 / count))
        made = Accelerator(self.step_s * factor, fragment_bytes, count)
        made.setup_s, made.first_step_s = self.setup_s, self.first_step_s
        return made


@dataclass(frozen=True, slots=True)
class Transfer:
    """A contribution on its way to the host; whoever waits for it pays for the way."""

    base: NDArray[np.float32]
    drift: float

    def buffer(self) -> memoryview:
        """Subtract and hand over."""
        local = self.base.copy()
        local[0] -= self.drift
        return (self.base - local).view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        """Never for nothing."""
        return False


class Accelerator(SleepingTrainer):
    """A device with a memory of its own: a boundary only dispatches, and a step only sleeps.

    Args:
        step_s: Duration of a step in seconds.
        fragment_bytes: Size of each fragment.
        fragments: How many.

    Attributes:
        setup_s: As of `Sleeping`.
        first_step_s: As of `Sleeping`.
    """

    def __init__(self, step_s: float, fragment_bytes: int, fragments: int = 4) -> None:
        rows = max(1, fragment_bytes // (4 * COLUMNS))
        shapes = [(f"layers/{index}", (rows, COLUMNS)) for index in range(fragments)]
        super().__init__(step_s, fragments, shapes=shapes, noises=1)
        self._held = [super(Accelerator, self).value(index) for index in range(fragments)]
        self._drift = [0.0] * fragments
        self.setup_s = 0.0
        self.first_step_s = 0.0

    def setup(self) -> None:
        """Sleep as long as compiling would take."""
        super().setup()
        time.sleep(self.setup_s)

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        """Every fragment moves a little."""
        self._drift = [drift + learning_rate for drift in self._drift]
        first_s, self.first_step_s = self.first_step_s, 0.0
        return self.occupy(0.0, max(0.0, first_s - self._step_s))

    def snapshot(self, fragment: int, precision: WirePrecision) -> Snapshot:
        """Begin the transfer of what is here now."""
        return Transfer(self._held[fragment], self._drift[fragment])

    def value(self, fragment: int) -> NDArray[np.float32]:
        """The value held."""
        return self._held[fragment].copy()

    def adopt(self, fragment: int, value: NDArray[np.float32], keep: float = 0.0) -> None:
        """Hold the value; nobody writes to a published one."""
        self._held[fragment], self._drift[fragment] = value, 0.0
