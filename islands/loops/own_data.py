"""The user's own data: how far a loop has read it, and batches of the records that a syncer leases.

A cursor tells how far data was read that the loop reads by itself, as bytes that a hub keeps and
does not understand. A loop without one may have the syncer lease it records instead, as it leases
shards to a task of ours.

A batch has a fixed number of records, from the end of one shard and the beginning of the next if it
must. A position counts the records of steps that were booked; what was only read is read again by
whoever holds the shard next. Shards that somebody has begun are read before others: so the last
one held is whole until the syncer hears that no other is left, and always has room for a batch.

A step may take several batches, as where gradients are accumulated: a boundary that shows no step
reads a further one, as far as the leases and the tokens of a step, of which each record needs one,
have room for it. Otherwise the records of this step are read again.

Which records come next follows from the leases alone. So the processes of one loop, which follow
the same leases from the same boundary on, read the same batches.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.identities import Lease
from islands.protocol.messages.training import CURSOR_BYTES_MAX
from islands.tasks.data.batch_source import key_of
from islands.tasks.data.shards import ShardKey, ShardPlan

Cursor = Callable[[], object]
"""Returns how far data was read, such as an iterator's `get_state`."""

Batch = TypeVar("Batch")
Read = Callable[[NDArray[np.int64]], Batch]
"""Returns the batch of the records with these indices."""

# --- how far a loop has read ------------------------------------------------------------------


class CursorReader:
    """Reads a loop's cursor at the boundaries at which values are taken.

    Args:
        read: returns the cursor; None where the loop has none.
    """

    def __init__(self, read: Cursor | None) -> None:
        self._read = read
        self._noted: bytes | None = None
        self._settled: bytes | None = None  # that of the last step, if some boundaries have none
        self._accumulates = False

    def note(self) -> None:
        """Read the cursor now, for the next boundary: data may be read again before it."""
        self._noted = self._packed()

    def take(self) -> bytes:
        """Return the cursor at a boundary; empty where the loop has none.

        Raises:
            TaskError: it cannot be kept.
        """
        if self._settled is not None:
            return self._settled
        return self._packed() if self._noted is None else self._noted

    def booked(self, *, stepped: bool) -> None:
        """Keep the cursor of a step for boundaries without one, before which data is read, too."""
        if not stepped:
            self._accumulates = True
        elif self._noted is not None:
            self._settled = self._noted
        elif self._accumulates:
            self._settled = self._packed()

    def _packed(self) -> bytes:
        return b"" if self._read is None else packed(self._read())


def packed(cursor: object) -> bytes:
    """Return a cursor as bytes.

    Raises:
        TaskError: it consists of other things than a hub can keep, or is too large.
    """
    try:
        made = msgspec.msgpack.encode(cursor)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TaskError(
            f"the cursor cannot be kept ({error}): it must consist of bytes, numbers, strings, "
            "lists and dictionaries, as an iterator's get_state() returns them"
        ) from error
    if len(made) > CURSOR_BYTES_MAX:
        raise TaskError(
            f"the cursor has {len(made)} bytes, and {CURSOR_BYTES_MAX} can be kept: return where "
            "the data is read, without what was read of it"
        )
    return made


def unpacked(kept: bytes) -> object:
    """Return the cursor that a hub has kept; None if there is none.

    Raises:
        TaskError: it cannot be read.
    """
    if not kept:
        return None
    try:
        if len(kept) <= CURSOR_BYTES_MAX:
            return msgspec.msgpack.decode(kept)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TaskError(f"the hub told a position that cannot be read ({error})") from error
    raise TaskError(f"the hub told a position of {len(kept)} bytes, more than {CURSOR_BYTES_MAX}")


def check_cursor(cursor: object) -> None:
    """Refuse a cursor that cannot be called.

    Raises:
        SettingsError: it is a value in place of what returns one.
    """
    if cursor is not None and not callable(cursor):
        raise SettingsError(
            f"cursor is a {type(cursor).__name__}; it must be a function that returns how far the "
            "data was read, such as an iterator's get_state"
        )


# --- batches of leased records ----------------------------------------------------------------


class LeasedBatches(Generic[Batch]):
    """The batches of the leases that are held.

    Args:
        plan: how records are divided among shards.
        read: reads a batch; called on the loop's thread, in a boundary.
        for_step: most batches of one step.

    Raises:
        SettingsError: no shard has room for a batch.
    """

    def __init__(self, plan: ShardPlan, size: int, read: Read[Batch], *, for_step: int = 1) -> None:
        least = plan.records // plan.shards
        if not 1 <= size <= least:
            raise SettingsError(
                f"a batch has {size} records; it must have 1 to {least}, as the run has "
                f"{plan.records} in {plan.shards} shards: `islands layout` sets both, by --records "
                "and --shards"
            )
        self._plan = plan
        self._size = size
        self._read = read
        self._leases: tuple[Lease, ...] = ()
        self._members: dict[ShardKey, NDArray[np.int64]] = {}  # of the shards that are being read
        self._next: tuple[Batch, tuple[Lease, ...]] | None = None
        self._for_step = for_step
        self._taken: tuple[Lease, ...] = ()  # the leases after the batches of the step to come
        self._batches = 0  # how many these are

    def follow(self, leases: Sequence[Lease]) -> tuple[Lease, ...]:
        """Replace the leases, and return them; positions reached here outrank older ones."""
        self._leases = _advanced(leases, self._leases)
        held = [key_of(lease) for lease in self._leases if not lease.done]
        self._members = {key: self._members[key] for key in held if key in self._members}
        self._next = None
        return self._leases

    def ready(self) -> bool:
        """Read the next batch unless it was read; return whether there is one."""
        if self._next is None:
            found = self._found()
            if found is None:
                return False
            indices, after = found
            self._next = self._read(indices), after
        return True

    def take(self) -> Batch:
        """Return the batch for the step that was announced.

        Raises:
            TaskError: it was taken already.
        """
        if self._next is None:
            raise TaskError(
                "a second batch was taken for one step: come to boundary before each, or ask "
                "run.batches for more records at once"
            )
        batch, self._taken = self._next
        self._batches += 1
        self._next = None
        return batch

    def booked(self) -> tuple[Lease, ...]:
        """Count the batches that were taken as trained on, and return the leases after them."""
        self._leases = _advanced(self._leases, self._taken)
        self._forget_taken()
        return self._leases

    def _found(self) -> tuple[NDArray[np.int64], tuple[Lease, ...]] | None:
        """Return the next records, and the leases after them; None if there are too few."""
        if self._batches >= self._for_step:
            self._forget_taken()
        parts: list[NDArray[np.int64]] = []
        leases = _advanced(self._leases, self._taken)
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
