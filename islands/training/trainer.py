"""The interface of one learner's arithmetic, as the compute thread uses it.

The compute thread first calls `setup` (build and compile), then `adopt` with the first published
value of each fragment, then takes steps. Between two steps, at a *boundary*, it may take
snapshots, adopt values and reset moments; it never waits for the device to do so:

* `step` dispatches and returns; `PendingStep.loss` waits.
* `snapshot` dispatches a subtraction into a new buffer and starts its copy to the host while the
  next step already runs; `Snapshot.buffer` waits.
* `adopt` dispatches.
* `read_moments` copies out a piece of the inner optimizer's state as `snapshot` does; a restarted
  peer passes all pieces to `load_moments` and continues as if it had never stopped.

All methods are called from one thread. `buffer`, `loss` and `ready` may be called from another.

`jax_trainer.JaxTrainer` trains a `Task`; `toy.NumpyTrainer` solves a small quadratic
without JAX; `toy.SleepingTrainer` steps by sleeping.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from islands.data.shards import ShardKey
from islands.layout.leaves import Layout
from islands.settings.run import SnapshotPrecision
from islands.settings.wire_limits import STATE_PIECE_BYTES

MOMENT_PIECE_BYTES = STATE_PIECE_BYTES
"""Largest size of a piece of moments: a boundary can copy so much without delaying a step."""


class PendingStep(Protocol):
    """An inner step that was dispatched and may not have finished."""

    def loss(self) -> float:
        """Wait until the step is done and return its loss."""

    def ready(self) -> bool:
        """Whether `loss` would return at once."""


class Snapshot(Protocol):
    """A copy made at a boundary (a fragment's `base - local`), on its way to the host."""

    def buffer(self) -> memoryview:
        """Wait until it is on the host and return its bytes, in the precision asked for."""

    def ready(self) -> bool:
        """Whether `buffer` would return at once."""


class MomentsCopy(Snapshot, Protocol):
    """A piece of the inner optimizer's state, on its way to the host."""

    def finite(self) -> bool:
        """Wait until it is on the host, and return whether all its floating numbers are finite."""


class Trainer(Protocol):
    """One learner's model copy, inner optimizer and data."""

    @property
    def layout(self) -> Layout:
        """The fragments of the model; known before `setup`."""

    @property
    def shards(self) -> int:
        """Number of virtual shards in one pass over the data."""

    def setup(self) -> None:
        """Initialise the model and compile all functions that steps and boundaries need."""

    @property
    def compiling(self) -> bool:
        """Whether a call is compiling now, as `setup` and a step on a new shape do.

        It may be read from any thread.
        """

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        """Yield the batches of a shard from a position on, each with the position after it."""

    def tokens(self, batch: object) -> int:
        """Return how many tokens a step on this batch counts as processed."""

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        """Dispatch one inner step."""

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        """Dispatch base − local of a fragment in float32, cast to a precision."""

    def value(self, fragment: int) -> NDArray[np.float32]:
        """Return the local value of a fragment on the host; the initial one seeds version 0."""

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        """Dispatch base := value and local := value.

        Of the inner optimizer's moments, those that lie in the fragment are overwritten too.
        `value` is flat float32; the caller may reuse its buffer as soon as the call returns.
        """

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        """Dispatch local := local + (value − (base − sent)) and base := value.

        The learner keeps the progress it made since `sent` was taken, on top of the value.

        Args:
            fragment: index of the fragment.
            value: published value, flat float32, as for `adopt`.
            sent: base − local of the contribution that the value contains, flat float32; None if
                it contains none of this learner.
        """

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        """Dispatch local := share · local + (1 − share) · value and base := value.

        Args:
            fragment: index of the fragment.
            value: published value, flat float32, as for `adopt`.
            share: α in [0, 1], share of the local value that is kept.
        """

    def finite(self) -> bool:
        """Whether the whole local state is finite; waits for the device."""

    def reset_moments(self) -> None:
        """Dispatch a fresh state of the inner optimizer."""

    @property
    def moments_schema(self) -> str:
        """Digest (hex) of names, dtypes and shapes of the whole inner optimizer's state.

        Learners with equal schemas can load each other's moments; "" if there are no moments.
        Known before `setup`.
        """

    @property
    def moment_pieces(self) -> int:
        """How many pieces the moments are cut into; 0 if there are none. Known before `setup`.

        The bytes of all leaves are concatenated in a fixed order and cut into pieces of at most
        `MOMENT_PIECE_BYTES`, so the number is the same for equal schemas.
        """

    def prepare_giving(self) -> None:
        """Make `read_moments` ready, so that no step waits for a compilation.

        It is called once, after `setup`, from any thread.
        """

    def read_moments(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece into new buffers, and start their copy to the host."""

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Dispatch the replacement of the whole inner optimizer's state by these pieces.

        The buffers may be reused as soon as the call returns.

        Raises:
            InvariantError: number or lengths differ from this trainer's own; nothing was changed.
                The caller should have compared `moments_schema`.
        """

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Return figures of merit of a whole model given as one flat value per fragment."""


def first_pass(trainer: Trainer) -> Iterator[object]:
    """Yield the batches of the first pass, shard by shard, such as for compiling."""
    for shard in range(trainer.shards):
        for batch, _ in trainer.batches(ShardKey(0, shard), 0):
            if batch is None:  # nothing has arrived there yet
                break
            yield batch
