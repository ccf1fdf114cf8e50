"""Learners whose device only sleeps, as a workload: real processes, real traffic, no JAX.

`task: islands.training.toy_workload:Sleeping` with `task_settings: {step_s: 0.02, megabytes: 8}`
shows what the system itself costs, and survives, on a machine without an accelerator.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from islands.errors import InvariantError
from islands.layout.leaves import VALUE_BYTES
from islands.settings.run import RunSettings
from islands.settings.run_spec import RunPlan
from islands.training.process_memory import TrainerMemory
from islands.training.toy import SleepingDevice, ToyTask
from islands.training.trainer import (
    MOMENT_PIECE_BYTES,
    MomentsCopy,
    PendingStep,
    Snapshot,
    Trainer,
    WirePrecision,
)
from islands.training.workload import Place, Workload
from messaging.codec.tensors import digest

COLUMNS = 64
PERIOD = 1 << 16
"""Elements that are random, and those that are looked at in one go."""


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

    def trainer_memory(self, settings: RunSettings) -> TrainerMemory:
        """The value that it holds."""
        return TrainerMemory(0, VALUE_BYTES * self._make(settings, 1.0).layout.size, 0, 0)

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
        return {"moved": float(np.mean([_moved(value) for value in values]))}

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
    precision: WirePrecision

    def buffer(self) -> memoryview:
        """Subtract and hand over."""
        difference = self.base - self.base
        difference[0] += self.drift
        if self.precision == "bfloat16":
            return difference.astype(ml_dtypes.bfloat16).view(np.uint8).data.toreadonly()
        return difference.view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        """Never for nothing."""
        return False


@dataclass(frozen=True, slots=True)
class Zeros:
    """A piece of moments that never moved."""

    size_bytes: int

    def buffer(self) -> memoryview:
        """Its bytes."""
        return memoryview(bytes(self.size_bytes))

    def finite(self) -> bool:
        """Always."""
        return True

    def ready(self) -> bool:
        """Always."""
        return True


class Accelerator(ToyTask):
    """A device with a memory of its own: a boundary only dispatches, and a step only sleeps.

    Of the host's memory it takes the published value that it holds; moments are on the device, and
    stay zero.

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
        super().__init__(fragments, shapes=shapes)
        self.device = SleepingDevice(step_s)
        self._held: list[NDArray[np.float32]] = []
        self._drift = [0.0] * fragments
        self.setup_s = 0.0
        self.first_step_s = 0.0

    def setup(self) -> None:
        """Sleep as long as compiling would take, and make the initial value.

        It is a few random numbers, over and over.
        """
        time.sleep(self.setup_s)
        some = np.random.default_rng(0).standard_normal(PERIOD, np.float32)
        self._held = [np.resize(some, fragment.size) for fragment in self.layout.fragments]

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        """Every fragment moves a little."""
        self._drift = [drift + learning_rate for drift in self._drift]
        first_s, self.first_step_s = self.first_step_s, 0.0
        return self.device.occupy(0.0, max(0.0, first_s - self.device.step_s))

    def snapshot(self, fragment: int, precision: WirePrecision) -> Snapshot:
        """Begin the transfer of what is here now."""
        return Transfer(self._held[fragment], self._drift[fragment], precision)

    def value(self, fragment: int) -> NDArray[np.float32]:
        """The value held."""
        return self._held[fragment].copy()

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        """Hold the value; nobody writes to a published one."""
        self._held[fragment], self._drift[fragment] = value, 0.0

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        """Hold the value, and drift on from where it contains this learner's drift."""
        drift = 0.0 if sent is None else -float(sent[0])
        self._held[fragment], self._drift[fragment] = value, self._drift[fragment] - drift

    def finite(self) -> bool:
        """Always."""
        return True

    def reset_moments(self) -> None:
        """They are zero already."""

    @property
    def moments_schema(self) -> str:
        """Digest of their size."""
        return digest(memoryview(f"zeros {self.layout.size}".encode()))

    @property
    def moment_pieces(self) -> int:
        """How many pieces they are cut into."""
        return len(self._pieces_bytes())

    def read_moments(self, piece: int) -> MomentsCopy:
        """A piece."""
        return Zeros(self._pieces_bytes()[piece])

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Take over the moments of another learner, which are equal."""
        given, wanted = [buffer.nbytes for buffer in pieces], self._pieces_bytes()
        if given != wanted:
            raise InvariantError(f"moments are pieces of {wanted} bytes, not {given}")

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Nothing is known of a model that learns nothing."""
        return {}

    def _pieces_bytes(self) -> list[int]:
        whole = VALUE_BYTES * self.layout.size
        starts = range(0, whole, MOMENT_PIECE_BYTES)
        return [min(MOMENT_PIECE_BYTES, whole - start) for start in starts]


def _moved(value: NDArray[np.float32]) -> float:
    """The mean of the magnitudes, without another copy of the value."""
    parts = [value[start : start + PERIOD] for start in range(0, value.size, PERIOD)]
    return sum(float(np.abs(part).sum()) for part in parts) / value.size


def _keeps_the_contract(accelerator: Accelerator) -> Trainer:
    """It is a trainer; mypy proves it here."""
    return accelerator
