"""What a run trains, as interfaces: a workload makes trainers, a trainer is a model that steps.

Between two steps, at a *boundary*, snapshots are taken, values adopted and moments reset. All of it
is dispatched and waits for no device; `Snapshot.buffer` and `PendingStep.loss` wait.

The devices of a model may belong to several processes of one program. Then each has a model, and
all call the same methods in the same order with the same arguments, but for the flat values of
fragments: of each, a process gives and is given its *share* alone, the elements on its own devices.
It waits for no other process to read or fill them. In a process that has all devices, the share is
the whole value.

All methods are called from one thread; `buffer`, `loss` and `ready` may be called from another. It
first calls `setup` (build and compile), then `adopt` with the first published value of each
fragment, then takes steps. The model of a loop of the user's own is stepped there.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.model.memory import TrainerBytes
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import SnapshotPrecision
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunPlan
from islands.settings.wire_limits import STATE_PIECE_BYTES
from islands.tasks.data.shards import ShardKey

MOMENT_PIECE_BYTES = STATE_PIECE_BYTES
"""Largest size of a piece of moments: a boundary can copy so much without delaying a step."""


class Snapshot(Protocol):
    """A copy made at a boundary (a share of `base - local`), on its way to the host."""

    def buffer(self) -> memoryview:
        """Wait until it is on the host and return its bytes, in the precision asked for."""

    def ready(self) -> bool:
        """Whether `buffer` would return at once."""


class MomentsCopy(Snapshot, Protocol):
    """A piece of the inner optimizer's state, on its way to the host."""

    def finite(self) -> bool:
        """Wait until it is on the host, and return whether all its floating numbers are finite."""


class Model(Protocol):
    """One learner's copy of the model, with the state of its inner optimizer."""

    @property
    def layout(self) -> Layout:
        """The fragments of the model; known before `setup`."""

    @property
    def hardware(self) -> str:
        """The devices that hold the model, for people; "" if they are only simulated."""

    @property
    def compiling(self) -> bool:
        """Whether `setup` or a step on a new shape is compiling now; any thread may ask."""

    def share(self, fragment: int) -> Ranges:
        """Return the ranges (start, stop) of a fragment's flat value that are this process's share.

        They ascend. The share as an array is flat and contiguous: the elements of one range after
        those of the other. Known before `setup`.
        """

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        """Return the share of each process that has some of the devices, by ascending index."""

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        """Dispatch base − local of a fragment's share in float32, cast to a precision."""

    def value(self, fragment: int) -> NDArray[np.float32]:
        """Return the local value of a fragment's share on the host."""

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        """Return the base of a fragment's share on the host, which seeds version 0.

        It is the value adopted last, to the bit; before the first one, the initial value.
        """

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        """Dispatch base := value and local := value.

        Of the inner optimizer's moments, those that lie in the fragment are overwritten too.
        `value` is this process's share, flat float32; the caller may reuse its buffer as soon as
        the call returns.
        """

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        """Dispatch local := local + (value − (base − sent)) and base := value.

        The learner keeps the progress it made since `sent` was taken, on top of the value. `sent`
        is this process's share of base − local of the contribution that the value contains, flat
        float32; None, in every process, if it contains none of this learner.
        """

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        """Dispatch local := share · local + (1 − share) · value and base := value.

        Reference: Streaming DiLoCo (arXiv 2501.18512), §2.3, whose α is `share`.
        """

    def finite(self) -> bool:
        """Whether the whole local state is finite; waits for the device."""

    def reset_moments(self) -> None:
        """Dispatch a fresh state of the inner optimizer."""

    @property
    def moments_schema(self) -> str:
        """Digest (hex) of names, dtypes and shapes of the inner optimizer's state; "" for none.

        Learners with equal schemas can load each other's moments. Known before `setup`.
        """

    @property
    def moment_pieces(self) -> int:
        """How many pieces the moments are cut into, the same for equal schemas; 0 for none.

        Known before `setup`.
        """

    def prepare_giving(self) -> None:
        """Compile what `read_moments` needs; called once, after `setup`, from any thread."""

    def read_moments(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a whole piece into new buffers, and start their copy to the host."""

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Dispatch the replacement of the inner optimizer's state by all of its pieces.

        The buffers may be reused as soon as the call returns. If number or lengths differ from this
        trainer's own, an `InvariantError` says so, and nothing was changed: compare
        `moments_schema` before.
        """


def host_named() -> str:
    return f"CPU, {len(os.sched_getaffinity(0))} cores"


class PendingStep(Protocol):
    """An inner step that was dispatched and may not have finished."""

    def loss(self) -> float:
        """Wait until the step is done and return its loss."""

    def metrics(self) -> dict[str, float]:
        """Wait until the step is done and return what else it reports, by name."""

    def ready(self) -> bool:
        """Whether `loss` would return at once."""


class Trainer(Model, Protocol):
    """One learner's model copy, inner optimizer and data, which Islands steps itself."""

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""

    def setup(self) -> None:
        """Initialise the model and compile all functions that steps and boundaries need."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        """Yield the batches of a shard from a position on, each with the position after it."""

    def tokens(self, batch: object) -> int:
        """Return how many tokens a step on this batch counts as processed."""

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        """Dispatch one inner step."""

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Return figures of merit of a whole model given as one flat value per fragment."""


def first_pass(trainer: Trainer) -> Iterator[object]:
    """Yield the batches of the first pass, shard by shard, such as for compiling."""
    for shard in range(trainer.shards):
        for batch, _ in trainer.batches(ShardKey(0, shard), 0):
            if batch is None:  # nothing has arrived there yet
                break
            yield batch


@dataclass(frozen=True, slots=True)
class LearnerDevices:
    """Which learner computes, and on which of the host's devices.

    Its random seed is derived from its name. The devices are `all`, or numbers such as `0,1` or
    `0-3`. Parameters are sharded over groups of `model_parallel` devices.
    """

    name: str
    devices: str = "all"
    model_parallel: int = 1


class Workload(ABC):
    """A model with its data, as the processes of a run use it."""

    def keep_compiled(self, folder: Path | None) -> None:  # noqa: B027  toys compile nothing
        """Cache compiled functions in a folder, if any, so that a restart compiles none."""

    def trainer_memory(self, settings: RunSettings) -> TrainerBytes | None:
        """Compute from shapes alone what a trainer holds; None if that is not known."""
        return None

    @abstractmethod
    def plan(self, settings: RunSettings) -> RunPlan:
        """Return the layout and the number of shards, without computing any values."""

    @abstractmethod
    def trainer(self, settings: RunSettings, learner: LearnerDevices) -> Trainer:
        """Make one learner's trainer; called on the thread that owns the device."""

    @abstractmethod
    def evaluate(
        self, settings: RunSettings, values: Sequence[NDArray[np.float32]]
    ) -> dict[str, float]:
        """Return figures of merit of a whole model, given one flat value per fragment."""
