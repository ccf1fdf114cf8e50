"""What tasks on small tables share: which rows are held out, and batches with padding rows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from islands.data.shards import ShardKey, ShardPlan

Records = tuple[NDArray[np.float32], NDArray[np.int32]]
"""The figures of each record, and its class."""

Weights = NDArray[np.float32]


def held_out(count: int, one_in: int) -> NDArray[np.bool_]:
    """Return which of so many records are for validation: the first of every few."""
    first: NDArray[np.bool_] = np.arange(count) % one_in == 0
    return first


def padded_batches(
    records: Records, plan: ShardPlan, shard: ShardKey, position: int, rows: int
) -> Iterator[tuple[Records, Weights, int]]:
    """Yield batches of so many rows, the weight of each row, and the position after it.

    The last batch of a shard is filled with rows of weight 0.
    """
    figures, classes = records
    for members, after in plan.groups(shard, position, rows):
        fill = np.zeros(rows, np.int64)
        fill[: len(members)] = members
        weight = (np.arange(rows) < len(members)).astype(np.float32)
        yield (figures[fill], classes[fill]), weight, after
