"""Virtual shards: how the records of a pass are divided among shards (protocol §9).

The corpus has a fixed number of records and is cut into a fixed number of virtual shards. In each
pass all records are shuffled by (seed, pass) and divided among the shards in consecutive ranges. So
a shard is the same list of records on every machine, any position in it is found without reading
the records before it, and all shards of a pass together hold every record exactly once.

Where shards are to be unlike (what federated learning calls non-IID), each is one stretch of the
corpus instead, the same in every pass, whose records are shuffled among themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

KEPT_RECORDS = 1 << 20
"""Up to this number of records, the orders of two passes are kept in memory, of 8 MB each.

Of more, the order of the pass that was read last is kept: to shuffle ten million records takes
about two seconds, and 80 MB.
"""


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
    """The division of `records` records among `shards` shards.

    Attributes:
        records: Number of records in the corpus.
        shards: Number of virtual shards per pass; more than one per record are of no use.
        seed: Seed of the shuffle.
        unlike: Whether a shard is one stretch of the corpus, rather than a sample of all of it.
    """

    records: int
    shards: int
    seed: int = 0
    unlike: bool = False

    def size(self, shard: int) -> int:
        """Return the number of records in a shard; sizes differ by at most one."""
        return self._start(shard + 1) - self._start(shard)

    def members(self, key: ShardKey) -> NDArray[np.int64]:
        """Return the indices of a shard's records, in order.

        Raises:
            IndexError: There is no such shard.
        """
        if not 0 <= key.shard < self.shards or key.pass_index < 0:
            raise IndexError(f"no shard {key} among {self.shards}")
        if self.unlike:
            seed = (self.seed, key.pass_index, key.shard)
            return self._start(key.shard) + _shuffled(self.size(key.shard), seed)
        stretch = slice(self._start(key.shard), self._start(key.shard + 1))
        if self.records <= KEPT_RECORDS:
            return _small_order(self.records, self.seed, key.pass_index)[stretch]
        order = _large_order(self.records, self.seed, key.pass_index)
        return order[stretch].copy()  # a view would keep the whole order after its pass

    def groups(
        self, key: ShardKey, position: int, size: int
    ) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Yield groups of up to `size` records from a position on, each with the position after it.

        At the end of the shard and beyond it, nothing is yielded: the position may come from
        another learner.

        Raises:
            IndexError: There is no such shard, or the position lies before its start.
        """
        members = self.members(key)
        if position < 0:
            raise IndexError(f"shard {key} has no position {position}, its first one is 0")
        while position < len(members):
            group = members[position : position + size]
            position += len(group)
            yield group, position

    def _start(self, shard: int) -> int:
        return shard * self.records // self.shards


def _order(records: int, seed: int, pass_index: int) -> NDArray[np.int64]:
    order = _shuffled(records, (seed, pass_index))
    order.flags.writeable = False
    return order


def _shuffled(number: int, seed: tuple[int, ...]) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(number)


_small_order = lru_cache(maxsize=2)(_order)
_large_order = lru_cache(maxsize=1)(_order)
