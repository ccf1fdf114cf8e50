"""Where the batches of leased shards come from, one after the other.

`DirectSource` reads a batch when it is asked for one: for the virtual clock, on which reading takes
no time. `prefetch.Prefetcher` reads ahead on a thread of its own.

A position is always that of the batches taken, never of those read ahead: what was read and not
taken is read again by whoever holds the shard next.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from islands.protocol.identities import Lease
from islands.tasks.data.shards import ShardKey

Batches = Callable[[ShardKey, int], Iterator[tuple[object, int]]]
"""Yields the batches of a shard from a position on, each with the position after it.

It yields None instead of a batch when there is nothing at the moment, and is asked again later.
"""

ASKED_AGAIN_S = 0.5
"""After so long, a shard that had nothing is asked again."""


class Taken(NamedTuple):
    """A batch with the position after it; the batch is None at the end of the shard."""

    shard: ShardKey
    batch: object | None
    position: int


class BatchSource(Protocol):
    """Yields the batches of the leases it was last told."""

    def follow(self, leases: Sequence[Lease]) -> None:
        """Replace the leases to read, in order; a shard that is still held is read on."""

    def take(self) -> Taken | None:
        """Return the next batch, or the end of a shard; None if there is none at the moment."""

    @property
    def expecting(self) -> bool:
        """Whether a batch may come without another lease."""

    def close(self) -> None:
        """Read no more."""


def key_of(lease: Lease) -> ShardKey:
    """Return the shard of a lease."""
    return ShardKey(lease.pass_index, lease.shard)


class DirectSource:
    """Reads a batch when it is asked for one.

    Args:
        batches: opens the batches of a shard.
    """

    def __init__(self, batches: Batches) -> None:
        """Start without a lease."""
        self._batches = batches
        self._leases: list[Lease] = []
        self._reader: Iterator[tuple[object, int]] | None = None
        self._reading: ShardKey | None = None
        self._position = 0

    def follow(self, leases: Sequence[Lease]) -> None:
        """Replace the leases; the shard being read goes on unless it is lost, or was read on."""
        self._leases = list(leases)
        held = {key_of(lease): lease.position for lease in leases}
        if self._reading is None or held.get(self._reading, self._position + 1) > self._position:
            self._reader = self._reading = None

    def take(self) -> Taken | None:
        """Read a batch, or find the end of a shard."""
        if self._reading is None:
            if not self._leases:
                return None
            self._reading, self._position = key_of(self._leases[0]), self._leases[0].position
            self._reader = iter(self._batches(self._reading, self._position))
        shard = self._reading
        assert self._reader is not None, "a shard that is read has a reader"
        found = next(self._reader, None)
        if found is not None and found[0] is None:
            return None
        if found is not None:
            self._position = found[1]
            return Taken(shard, *found)
        self._leases = [lease for lease in self._leases if key_of(lease) != shard]
        self._reader = self._reading = None
        return Taken(shard, None, self._position)

    @property
    def expecting(self) -> bool:
        """Whether the shard being read has nothing at the moment."""
        return self._reading is not None

    def close(self) -> None:
        """Forget the leases."""
        self.follow(())
