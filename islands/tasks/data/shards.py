"""Virtual shards: how the records of a pass are divided among shards (protocol §9).

The corpus has a fixed number of records and is cut into a fixed number of virtual shards. In each
pass all records are shuffled by (seed, pass) and divided among the shards in consecutive ranges. So
a shard is the same list of records on every machine, any position in it is found without reading
the records before it, and all shards of a pass together hold every record exactly once.

Where shards are to be unlike (what federated learning calls non-IID), each is one stretch of the
corpus instead, the same in every pass, whose records are shuffled among themselves.

The record at an index of the order is computed from the index alone, so no order is kept in memory,
however many records there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
TOGETHER = 4096
"""Records of a shard that are computed at once: 32 KiB."""


@dataclass(frozen=True, slots=True, order=True)
class ShardKey:
    """A virtual shard of one pass over the data."""

    pass_index: int
    shard: int

    def __str__(self) -> str:
        """Render as ``pass/shard``."""
        return f"{self.pass_index}/{self.shard}"


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The division of `records` records among `shards` shards; more than one each are of no use.

    With `unlike`, a shard is one stretch of the corpus, rather than a sample of all of it.
    """

    records: int
    shards: int
    seed: int = 0
    unlike: bool = False

    def size(self, shard: int) -> int:
        """Return the number of records in a shard; sizes differ by at most one."""
        return self._start(shard + 1) - self._start(shard)

    def members(self, key: ShardKey, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Return the indices of a shard's records in order, or of those from `start` to `stop`."""
        if not 0 <= key.shard < self.shards or key.pass_index < 0:
            raise IndexError(f"no shard {key} among {self.shards}")
        if start < 0:
            raise IndexError(f"shard {key} has no position {start}, its first one is 0")
        first, size = self._start(key.shard), self.size(key.shard)
        indices = np.arange(start, size if stop is None else min(stop, size))
        if self.unlike:
            return first + _shuffled(indices, size, (self.seed, key.pass_index, key.shard))
        return _shuffled(first + indices, self.records, (self.seed, key.pass_index))

    def groups(
        self, key: ShardKey, position: int, size: int
    ) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Yield groups of up to `size` records from a position on, each with the position after it.

        At the end of the shard and beyond it, nothing is yielded: the position may come from
        another learner.
        """
        together = size * max(1, TOGETHER // size)
        full = True
        while full:
            members = self.members(key, position, position + together)
            full = len(members) == together
            for at in range(0, len(members), size):
                group = members[at : at + size]
                position += len(group)
                yield group, position

    def _start(self, shard: int) -> int:
        return shard * self.records // self.shards


def _shuffled(indices: NDArray[np.int64], number: int, seed: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the records at some indices of the order of `number` records that a seed stands for.

    It is a Feistel network on pairs of digits to the base `side`, whose square is the first that
    has room: one that leaves the range is permuted again until it is back, which each cycle is.

    Reference: Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (2002), §4 and §5.
    """
    side = np.uint64(isqrt(max(0, number - 1)) + 1)
    keys = np.random.SeedSequence(seed).generate_state(ROUNDS, np.uint64).astype(np.uint64)
    found = _permuted(indices.astype(np.uint64), side, keys)
    while (outside := found >= number).any():
        found[outside] = _permuted(found[outside], side, keys)
    return found.astype(np.int64)


def _permuted(
    indices: NDArray[np.uint64], side: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    left, right = np.divmod(indices, side)
    for key in keys:
        left, right = right, (left + _mixed(right ^ key) % side) % side
    return left * side + right


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers that look drawn by chance (the finalizer of splitmix64)."""
    for shift, factor in _MIX:
        numbers = (numbers ^ numbers >> shift) * factor
    return numbers ^ numbers >> np.uint64(31)
