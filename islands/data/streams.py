"""Data that can only be read from front to back, at the positions that a run counts in.

A position is a number, since peers compare and lease it. An iterator's own state may be anything;
so a position here is the number of batches before it, and this process remembers the states that
it has seen at some of them. It goes on from the nearest one, and reads the rest without using it:
a learner that goes on with its own shard pays nothing, one that takes over another's reads what
lies before the position once more.

    self._stream = Stream(lambda shard: iter(dataset(shard)))       # in the task
    def batches(self, shard, position):
        return self._stream.batches(shard, position)

An iterator with `get_state` and `set_state`, as those of Grain, is set to what it was; of any other
nothing is remembered, and it is read from its start.

The learners of one process share a task, and so its streams: what is remembered is of all of them.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar, runtime_checkable

from islands.data.shards import ShardKey

Batch = TypeVar("Batch")

STATES_EVERY = 16
"""Batches between two states that are remembered: a state may be large."""

STATES_MAX = 64
"""States that are remembered, over all shards; the oldest are forgotten."""


@runtime_checkable
class Resumable(Protocol):
    """An iterator that can be set to where it was."""

    def get_state(self) -> object:
        """Where it is; anything that `set_state` understands."""

    def set_state(self, state: object) -> None:
        """Go on from there."""


class Stream(Generic[Batch]):
    """Batches of iterators, shard by shard.

    Args:
        begin: makes the iterator of a shard, at its start; the same one on every host.
    """

    def __init__(self, begin: Callable[[ShardKey], Iterator[Batch]]) -> None:
        """Nothing is opened yet."""
        self._begin = begin
        self._lock = threading.Lock()
        self._states: OrderedDict[tuple[ShardKey, int], object] = OrderedDict()

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Batch, int]]:
        """Batches of a shard from a position on, each with the position after it."""
        iterator = self._begin(shard)
        start = self._take_up(iterator, shard, position)
        for count, batch in enumerate(iterator, start + 1):
            if count <= position:
                continue
            if count % STATES_EVERY == 0:
                self._remember(iterator, shard, count)
            yield batch, count

    def _take_up(self, iterator: Iterator[Batch], shard: ShardKey, position: int) -> int:
        """Set an iterator to the nearest state at or before a position; returns where that is."""
        with self._lock:  # another learner's thread may remember or forget meanwhile
            known = [at for key, at in self._states if key == shard and at <= position]
            state = self._states[shard, max(known)] if known else None
        if not known or not isinstance(iterator, Resumable):
            return 0
        iterator.set_state(state)
        return max(known)

    def _remember(self, iterator: Iterator[Batch], shard: ShardKey, count: int) -> None:
        if isinstance(iterator, Resumable):
            state = iterator.get_state()
            with self._lock:
                self._states[shard, count] = state
                while len(self._states) > STATES_MAX:
                    self._states.popitem(last=False)
