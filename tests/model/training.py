"""What tests do with a trainer: some steps, and a look at its values."""

import numpy as np
from numpy.typing import NDArray

from islands.model.jax_trainer import JaxTrainer
from islands.tasks.data.shards import ShardKey


def train(trainer: JaxTrainer, steps: int, shard: int = 0, rate: float = 1e-3) -> list[float]:
    """Take steps on the first batches of a shard, and return their losses."""
    batches = trainer.batches(ShardKey(0, shard), 0)
    pending = [trainer.step(next(batches)[0], rate) for _ in range(steps)]
    return [step.loss() for step in pending]


def values(trainer: JaxTrainer) -> list[NDArray[np.float32]]:
    return [trainer.value(f) for f in range(len(trainer.layout.fragments))]
