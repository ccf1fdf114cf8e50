"""The interface of one learner's arithmetic, as the compute thread uses it.

The compute thread first calls `setup` (build and compile), then `adopt` with the first published
value of each fragment, then takes steps. `step` dispatches and returns; `PendingStep.loss` waits.
What may happen between two steps is in `model.py`.

All methods are called from one thread. `loss` and `ready` may be called from another.

`jax_trainer.JaxTrainer` trains a `Task`; `toy.NumpyTrainer` solves a small quadratic
without JAX; `toy.SleepingTrainer` steps by sleeping.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from islands.model.model import Model
from islands.tasks.data.shards import ShardKey


class PendingStep(Protocol):
    """An inner step that was dispatched and may not have finished."""

    def loss(self) -> float:
        """Wait until the step is done and return its loss."""

    def ready(self) -> bool:
        """Whether `loss` would return at once."""


class Trainer(Model, Protocol):
    """One learner's model copy, inner optimizer and data."""

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
