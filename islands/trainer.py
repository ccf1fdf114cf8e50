"""The arithmetic of one learner, as the compute thread sees it.

Order of a learner's life: `setup` (build and compile), then per fragment `adopt` the first
published value, then steps. Between two steps, at a *boundary*, the compute thread may take
snapshots, adopt values and reset moments; it never waits for the device to do so:

* `step` dispatches and returns; `PendingStep.loss` waits.
* `snapshot` dispatches a subtraction into a new buffer and starts its copy to the host while the
  next step already runs; `Snapshot.buffer` waits.
* `adopt` dispatches.

All methods are called from one thread. `buffer`, `loss` and `ready` may be called from another.

Implementations: `islands.jax_trainer.JaxTrainer` trains a `Task`; `islands.toy.NumpyTrainer`
solves a small quadratic without JAX; `islands.toy.SleepingTrainer` steps by sleeping.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from islands.data.shards import ShardKey
from islands.layout import Layout

WirePrecision = Literal["float32", "bfloat16"]


class PendingStep(Protocol):
    """An inner step that was dispatched."""

    def loss(self) -> float:
        """Wait until the step is done and return its loss."""

    def ready(self) -> bool:
        """Whether `loss` would return at once."""


class Snapshot(Protocol):
    """A fragment's `base - local`, on its way to the host."""

    def buffer(self) -> memoryview:
        """Wait until it is on the host and return its bytes, in the precision asked for."""

    def ready(self) -> bool:
        """Whether `buffer` would return at once."""


class Trainer(Protocol):
    """One learner's model copy, inner optimizer and data."""

    @property
    def layout(self) -> Layout:
        """The fragments of the model; known before `setup`."""

    @property
    def shards(self) -> int:
        """Virtual shards of one pass over the data."""

    def setup(self) -> None:
        """Initialise the model and compile all that steps and boundaries need."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        """Batches of a shard from a position, each with the position after it."""

    def tokens(self, batch: object) -> int:
        """Tokens that a step on this batch counts as processed."""

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        """Dispatch one inner step."""

    def snapshot(self, fragment: int, precision: WirePrecision) -> Snapshot:
        """Dispatch base − local of a fragment in float32, cast to the wire's precision."""

    def value(self, fragment: int) -> NDArray[np.float32]:
        """The local value of a fragment, on the host; the first one seeds version 0."""

    def adopt(self, fragment: int, value: NDArray[np.float32], keep: float = 0.0) -> None:
        """Dispatch base := value and local := keep · local + (1 − keep) · value.

        The inner optimizer's moments are untouched. `value` is flat float32 and may be reused as
        soon as the call returns.
        """

    def finite(self) -> bool:
        """Whether the whole local state is finite; waits for the device."""

    def reset_moments(self) -> None:
        """Dispatch a fresh state of the inner optimizer."""

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Figures of merit of a whole model given as one flat value per fragment."""
