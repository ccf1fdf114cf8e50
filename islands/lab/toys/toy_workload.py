"""A workload whose learners' devices only sleep: real processes and real traffic without JAX.

`task: islands.lab.toys.toy_workload:Sleeping` with `task_settings: {step_s: 0.02, megabytes: 8}`
shows the system's own cost, and the faults it survives, on a machine without an accelerator.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from islands.lab.toys.toy import SleepingDevice, ToyMoments, ToyTask, check_pieces
from islands.layout.leaves import VALUE_BYTES
from islands.model import interfaces
from islands.model.memory import TrainerBytes
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Pattern, SnapshotPrecision
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunPlan
from messaging.codec.tensors import digest

COLUMNS = 64
PERIOD = 1 << 16
"""Number of random elements, which repeat through a value; also the block size of `_moved`."""


@dataclass(frozen=True)
class Sleeping(interfaces.Workload):
    """A model of one tensor per fragment, all equal in size, on a device that sleeps.

    Attributes:
        step_s: Duration of a step in seconds.
        megabytes: Size of the model in MiB of float32.
        slow: Names of slower learners, and the factor by which each is slower.
        setup_s: Time that a process sleeps before its first step, in place of compiling.
        first_step_s: Duration of a process's first step; at 0 it takes as long as any other.
    """

    step_s: float = 0.02
    megabytes: float = 1.0
    slow: dict[str, float] = field(default_factory=dict, hash=False)
    setup_s: float = 0.0
    first_step_s: float = 0.0

    def trainer_memory(self, settings: RunSettings) -> TrainerBytes:
        return TrainerBytes(0, VALUE_BYTES * self._make(settings, 1.0).layout.size, 0, 0)

    def plan(self, settings: RunSettings) -> RunPlan:
        if settings.pattern is not Pattern.BALANCED:
            raise SettingsError(f"pattern is {settings.pattern}; a toy has no layers: use balanced")
        trainer = self._make(settings, 1.0)
        return RunPlan(trainer.layout, trainer.shards)

    def trainer(
        self, settings: RunSettings, learner: interfaces.LearnerDevices
    ) -> interfaces.Trainer:
        return self._make(settings, self.slow.get(learner.name, 1.0))

    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        """Return the mean magnitude of the values: how far the model moved; it has no optimum."""
        return {"moved": float(np.mean([_moved(value) for value in values]))}

    def _make(self, settings: RunSettings, factor: float) -> "Accelerator":
        count = settings.fragments
        fragment_bytes = max(4 * COLUMNS, round(self.megabytes * 2**20 / count))
        made = Accelerator(self.step_s * factor, fragment_bytes, count)
        made.setup_s, made.first_step_s = self.setup_s, self.first_step_s
        return made


@dataclass(frozen=True, slots=True)
class Transfer:
    """A contribution on its way to the host; the thread that calls `buffer` does the copying."""

    base: NDArray[np.float32]
    drift: float
    precision: SnapshotPrecision

    def buffer(self) -> memoryview:
        difference = self.base - self.base
        difference[0] += self.drift
        if self.precision == "bfloat16":
            return difference.astype(ml_dtypes.bfloat16).view(np.uint8).data.toreadonly()
        return difference.view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        return False  # `buffer` always has work to do


class Accelerator(ToyTask):
    """A device with a memory of its own: a boundary only dispatches, and a step only sleeps.

    The published value that it holds is all it takes of the host's memory; its moments count as on
    the device, and stay zero. For the rest see `Sleeping`.
    """

    def __init__(self, step_s: float, fragment_bytes: int, fragments: int = 4) -> None:
        rows = max(1, fragment_bytes // (4 * COLUMNS))
        shapes = [(f"layers/{index}", (rows, COLUMNS)) for index in range(fragments)]
        super().__init__(fragments, shapes=shapes)
        self.device = SleepingDevice(step_s)
        self._held: list[NDArray[np.float32]] = []
        self._drift = [0.0] * fragments
        self.setup_s = 0.0
        self.first_step_s = 0.0

    def setup(self) -> None:
        time.sleep(self.setup_s)  # noqa: TID251  a setup that sleeps
        some = np.random.default_rng(0).standard_normal(PERIOD, np.float32)
        self._held = [np.resize(some, fragment.size) for fragment in self.layout.fragments]

    def step(self, batch: object, learning_rate: float) -> interfaces.PendingStep:
        """Move every fragment a little, and occupy the device for one step."""
        self._drift = [drift + learning_rate for drift in self._drift]
        first_s, self.first_step_s = self.first_step_s, 0.0
        return self.device.occupy(0.0, max(0.0, first_s - self.device.step_s))

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> interfaces.Snapshot:
        return Transfer(self._held[fragment], self._drift[fragment], precision)

    def value(self, fragment: int) -> NDArray[np.float32]:
        return self._held[fragment].copy()

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        return self._held[fragment].copy()

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        """Hold the value without copying it: nothing writes to a published value."""
        self._held[fragment], self._drift[fragment] = value, 0.0

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        """Hold the value, and keep the drift that it does not contain yet."""
        contained = 0.0 if sent is None else float(sent[0])
        self._held[fragment], self._drift[fragment] = value, self._drift[fragment] - contained

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        local = float(self._held[fragment][0]) - self._drift[fragment]
        self._held[fragment] = value
        self._drift[fragment] = share * (float(value[0]) - local)

    def finite(self) -> bool:
        return True

    def reset_moments(self) -> None:
        """The moments are always zero."""

    @property
    def moments_schema(self) -> str:
        return digest(memoryview(f"zeros {self.layout.size}".encode()))

    @property
    def moment_pieces(self) -> int:
        return len(self._pieces_bytes())

    def read_moments(self, piece: int) -> interfaces.MomentsCopy:
        return ToyMoments(np.zeros(self._pieces_bytes()[piece], np.uint8), sound=True)

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Check the sizes of another learner's moments; their values are zero as well."""
        check_pieces(pieces, self._pieces_bytes())

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        return {}

    def _pieces_bytes(self) -> list[int]:
        whole = VALUE_BYTES * self.layout.size
        starts = range(0, whole, interfaces.MOMENT_PIECE_BYTES)
        return [min(interfaces.MOMENT_PIECE_BYTES, whole - start) for start in starts]


def _moved(value: NDArray[np.float32]) -> float:
    parts = [value[start : start + PERIOD] for start in range(0, value.size, PERIOD)]
    return sum(float(np.abs(part).sum()) for part in parts) / value.size
