"""Positions in data that can only be read from front to back.

A position is a number, since peers compare and lease it, but an iterator's own state may be
anything. A position here is therefore the number of batches before it, and this process saves the
iterator's state at some of the positions it reaches. To read from a position, it restores the
nearest saved state before it and skips the batches between: a learner that continues its own shard
pays nothing, one that continues another learner's reads the batches before the position again.

    self._stream = Stream(lambda shard: iter(dataset(shard)))       # in the task, beside this file
    def batches(self, shard, position):
        return self._stream.batches(shard, position)

Only the states of iterators with `get_state` and `set_state`, such as Grain's, are saved and
restored; any other iterator is read from its start.

The learners of one process share a task, and so its streams and their saved states.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar, runtime_checkable

from islands.tasks.data.shards import ShardKey

Batch = TypeVar("Batch")

STATES_EVERY = 16
"""Number of batches between two saved states, as a state may be large."""

STATES_MAX = 64
"""Largest number of saved states, over all shards; the oldest are dropped."""


@runtime_checkable
class Resumable(Protocol):
    """An iterator whose state can be saved and restored."""

    def get_state(self) -> object:
        """Return the present state, as any object that `set_state` understands."""

    def set_state(self, state: object) -> None:
        """Continue from a state that `get_state` returned."""


class Stream(Generic[Batch]):
    """Batches of iterators, one iterator for each shard.

    Args:
        begin: makes the iterator of a shard, at its start; it must yield the same on every host.
    """

    def __init__(self, begin: Callable[[ShardKey], Iterator[Batch]]) -> None:
        """Create a stream without opening any iterator."""
        self._begin = begin
        self._lock = threading.Lock()
        self._states: OrderedDict[tuple[ShardKey, int], object] = OrderedDict()

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Batch, int]]:
        """Yield the batches of a shard from a position on, each with the position after it."""
        iterator = self._begin(shard)
        start = self._take_up(iterator, shard, position)
        for count, batch in enumerate(iterator, start + 1):
            if count <= position:
                continue
            if count % STATES_EVERY == 0:
                self._remember(iterator, shard, count)
            yield batch, count

    def _take_up(self, iterator: Iterator[Batch], shard: ShardKey, position: int) -> int:
        """Restore the nearest state saved at or before a position; return its own position."""
        with self._lock:  # another learner's thread may save or drop states meanwhile
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
