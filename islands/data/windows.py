"""Byte strings cut into windows, and windows gathered into batches of one shape.

Record i of a byte string is the window of `length + 1` bytes that starts at byte `i · length`:
inputs are all but its last byte, targets all but its first. The incomplete window at the end is
left out. The last batch of a shard is padded with rows of weight 0, so that every batch has the
same shape (and no step compiles anew) while no record is left out or counted twice.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from islands.data.shards import ShardKey, ShardPlan


class ByteBatch(NamedTuple):
    """Rows of bytes.

    Attributes:
        tokens: uint8[rows, length + 1].
        weight: float32[rows], 1 for a record, 0 for a padding row.
    """

    tokens: NDArray[np.uint8]
    weight: NDArray[np.float32]

    @property
    def predicted(self) -> int:
        """Number of bytes predicted in rows that count."""
        length: int = self.tokens.shape[1] - 1
        return int(self.weight.sum()) * length


class ByteWindows:
    """Batches of a byte string, shard by shard.

    Args:
        data: The byte string.
        length: Bytes predicted per window.
        rows: Windows per batch.
        shards: Virtual shards per pass.
        seed: Seed of the shuffle.
    """

    def __init__(
        self, data: NDArray[np.uint8], *, length: int, rows: int, shards: int = 1, seed: int = 0
    ) -> None:
        self._rows = rows
        self._windows = np.lib.stride_tricks.sliding_window_view(data, length + 1)[::length]
        self.plan = ShardPlan(len(self._windows), shards, seed)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[ByteBatch, int]]:
        """Yield the batches of a shard from a position on, each with the position after it."""
        for members, after in self.plan.groups(shard, position, self._rows):
            yield self._gather(members), after

    def spread(self, limit: int) -> Iterator[ByteBatch]:
        """Yield up to `limit` evenly spaced windows in batches, unshuffled, for evaluation."""
        number = min(limit, len(self._windows))
        members = np.arange(number) * len(self._windows) // number
        for start in range(0, number, self._rows):
            yield self._gather(members[start : start + self._rows])

    def _gather(self, members: NDArray[np.int64]) -> ByteBatch:
        tokens = np.zeros((self._rows, self._windows.shape[1]), np.uint8)
        weight = np.zeros(self._rows, np.float32)
        tokens[: len(members)] = self._windows[members]
        weight[: len(members)] = 1
        return ByteBatch(tokens, weight)
