"""Tokens cut into windows, and windows gathered into batches of one shape.

Record i of a sequence of tokens is the window of `length + 1` tokens that starts at token
`i · length`: inputs are all but its last token, targets all but its first. The incomplete window at
the end is left out. The last batch of a shard is padded with rows of weight 0, so that every batch
has the same shape (and no step compiles anew) while no record is left out or counted twice.

The tokens may be a memory map: only the windows of a batch are read, so a corpus may be larger than
the memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from islands.tasks.data.shards import ShardKey, ShardPlan

Tokens = NDArray[np.unsignedinteger]
"""Tokens, in the smallest of uint8, uint16 and uint32 that holds the vocabulary."""


class TokenBatch(NamedTuple):
    """unsigned[rows, length + 1] tokens, and float32[rows] of 1 for a record, 0 for padding."""

    tokens: Tokens
    weight: NDArray[np.float32]

    @property
    def predicted(self) -> int:
        length: int = self.tokens.shape[1] - 1
        return int(self.weight.sum()) * length


class TokenWindows:
    """Batches of a sequence of tokens, shard by shard (`ShardPlan`).

    A window predicts `length` tokens; fewer are no record. A batch has `rows` windows.
    """

    def __init__(
        self,
        data: Tokens,
        *,
        length: int,
        rows: int,
        shards: int = 1,
        seed: int = 0,
        unlike: bool = False,
    ) -> None:
        self._rows = rows
        whole = data if len(data) > length else np.zeros(length + 1, data.dtype)
        windows = np.lib.stride_tricks.sliding_window_view(whole, length + 1)[::length]
        self._windows = windows if len(data) > length else windows[:0]
        self.plan = ShardPlan(len(self._windows), shards, seed, unlike)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[TokenBatch, int]]:
        for members, after in self.plan.groups(shard, position, self._rows):
            yield self._gather(members), after

    def spread(self, limit: int) -> Iterator[TokenBatch]:
        """Yield up to `limit` evenly spaced windows in batches, unshuffled, for evaluation."""
        number = min(limit, len(self._windows))
        members = np.arange(number) * len(self._windows) // max(1, number)
        for start in range(0, number, self._rows):
            yield self._gather(members[start : start + self._rows])

    def _gather(self, members: NDArray[np.int64]) -> TokenBatch:
        tokens = np.zeros((self._rows, self._windows.shape[1]), self._windows.dtype)
        weight = np.zeros(self._rows, np.float32)
        tokens[: len(members)] = self._windows[members]
        weight[: len(members)] = 1
        return TokenBatch(tokens, weight)
