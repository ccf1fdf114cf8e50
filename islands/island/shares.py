"""Shares of flat values: cut out of a whole value, gathered by rank 0, and put together.

A host's share of a value is made of the ranges that lie on its devices. Ranges count elements, are
ascending, and may be several where a mesh interleaves the devices of hosts.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from islands.model.interfaces import Model
from islands.protocol.errors import InvariantError
from islands.protocol.ranges import Ranges, size_of


@dataclass(slots=True)
class Gathering:
    """Values of one kind whose shares arrive at the leader, each host's in the same order.

    `waiting` holds, by rank, the shares whose values are not complete, the oldest first.
    """

    hosts: int
    waiting: dict[int, deque[memoryview]] = field(default_factory=dict)

    def add(self, rank: int, share: memoryview) -> None:
        """Take in a host's share of the next value that it has not given a share of."""
        self.waiting.setdefault(rank, deque()).append(share)

    def ahead(self, rank: int) -> int:
        """Return how many shares of a host wait for those of others."""
        return len(self.waiting.get(rank, ()))

    def complete(self) -> list[memoryview] | None:
        """Take out the shares of the oldest value, in the order of ranks; None if one lacks."""
        if len(self.waiting) < self.hosts or not all(self.waiting.values()):
            return None
        return [self.waiting[rank].popleft() for rank in range(self.hosts)]


class HostShares:
    """Each host's shares of the values of a model, which is made before the first value comes."""

    def __init__(self, model: Callable[[], Model | None], hosts: int) -> None:
        self._made = model
        self._hosts = hosts

    def shares(self, fragment: int) -> Sequence[Ranges]:
        """Return the share of each host, by rank, of a fragment's flat value."""
        shares = self._model.shares(fragment)
        return shares if len(shares) > 1 else shares * self._hosts  # or each has all of it

    def size(self, fragment: int) -> int:
        return self._model.layout.fragments[fragment].size

    @property
    def fragments(self) -> int:
        return len(self._model.layout.fragments)

    @property
    def _model(self) -> Model:
        model = self._made()
        if model is None:
            raise InvariantError("a value came before the model was made")
        return model


def cut(payload: memoryview, ranges: Ranges, size: int) -> memoryview:
    """Return the bytes of a share: a view of the value's where the share is one range."""
    each = payload.nbytes // size
    parts = [payload[each * start : each * stop] for start, stop in ranges]
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def assembled(shares: Sequence[memoryview], ranges: Sequence[Ranges], size: int) -> memoryview:
    """Return a whole value, in the precision of the shares of all hosts, which lie in these ranges.

    Elements that several hosts hold are equal.
    """
    lengths = [size_of(share) for share in ranges]
    each = sum(share.nbytes for share in shares) // sum(lengths)
    whole = np.empty(each * size, np.uint8)
    for share, held in zip(shares, ranges, strict=True):
        buffer, offset = np.frombuffer(share, np.uint8), 0
        for start, stop in held:
            length = each * (stop - start)
            whole[each * start : each * stop] = buffer[offset : offset + length]
            offset += length
    return whole.data.toreadonly()
