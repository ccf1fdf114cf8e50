"""The user's own data: batches of the records that a syncer leases, as it leases shards to a task.

A batch has a fixed number of records, from the end of one shard and the beginning of the next if it
must. A position counts the records of booked steps. Shards that were begun are read before others:
so the last one held is whole until the syncer hears that no other is left: it has room for a batch.

A boundary that shows no step reads a further batch for the same step, as far as the leases and its
tokens, of which each record needs one, have room; then its records are read again.

The next records follow from the leases alone, so all processes of one loop read the same batches.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.learner.boundary import StepData
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.identities import Lease
from islands.tasks.data.batch_source import key_of
from islands.tasks.data.shards import ShardKey, ShardPlan

Batch = TypeVar("Batch")
Read = Callable[[NDArray[np.int64]], Batch]
"""Returns the batch of the records with these indices."""


class LeasedBatches(StepData, Generic[Batch]):
    """The batches of the leases that are held, read on the loop's thread, in a boundary."""

    def __init__(self, plan: ShardPlan, size: int, read: Read[Batch], tokens: int) -> None:
        super().__init__(tokens)
        least = plan.records // plan.shards
        if not 1 <= size <= least:
            raise SettingsError(
                f"a batch has {size} records; it must have 1 to {least}, as the run has "
                f"{plan.records} in {plan.shards} shards; the first loop tells both"
            )
        self._plan = plan
        self._size = size
        self._read = read
        self._members: dict[ShardKey, NDArray[np.int64]] = {}  # of the shards that are being read
        self._next: tuple[Batch, tuple[Lease, ...]] | None = None
        self._for_step = tokens // size  # most batches of one step
        self._taken: tuple[Lease, ...] = ()  # the leases after the batches of the step to come
        self._batches = 0  # how many these are

    def follow(self, leases: Sequence[Lease]) -> None:
        self.leases = _advanced(leases, self.leases)
        held = [key_of(lease) for lease in self.leases if not lease.done]
        self._members = {key: self._members[key] for key in held if key in self._members}
        self._next = None

    def ready(self) -> bool:
        if self._next is None:
            found = self._found()
            if found is None:
                return False
            indices, after = found
            self._next = self._read(indices), after
        return True

    def take(self) -> Batch:
        """Return the batch for the step that was announced."""
        if self._next is None:
            raise TaskError(
                "a second batch was taken for one step: come to boundary before each, or ask "
                "run.batches for more records at once"
            )
        batch, self._taken = self._next
        self._batches += 1
        self._next = None
        return batch

    def booked(self) -> None:
        self.leases = _advanced(self.leases, self._taken)
        self._forget_taken()

    def _found(self) -> tuple[NDArray[np.int64], tuple[Lease, ...]] | None:
        """Return the next records, and the leases after them; None if there are too few."""
        if self._batches >= self._for_step:
            self._forget_taken()
        parts: list[NDArray[np.int64]] = []
        leases = _advanced(self.leases, self._taken)
        after = {key_of(lease): lease for lease in leases}
        missing = self._size
        for lease in sorted(leases, key=lambda lease: (lease.position == 0, lease)):
            if lease.done or not missing:
                continue
            key = key_of(lease)
            if key not in self._members:
                self._members[key] = self._plan.members(key)
            members = self._members[key]
            part = members[lease.position : lease.position + missing]
            position = lease.position + len(part)
            parts.append(part)
            missing -= len(part)
            done = position >= len(members)
            after[key] = Lease(lease.pass_index, lease.shard, position, done)
        if missing and self._batches:  # positions, and so leases, follow from booked steps alone
            self._forget_taken()
            return self._found()
        return None if missing else (np.concatenate(parts), tuple(after.values()))

    def _forget_taken(self) -> None:
        self._taken, self._batches = (), 0


def _advanced(leases: Sequence[Lease], reached: Sequence[Lease]) -> tuple[Lease, ...]:
    """Return leases at the positions that were reached, where these are further."""
    known = {key_of(lease): lease for lease in reached}
    return tuple(max(lease, known.get(key_of(lease), lease)) for lease in leases)
