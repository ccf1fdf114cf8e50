"""Batches that a thread of their own reads ahead of the steps, so that no step waits for a file.

The thread reads the leased shards in order, one after the other, and keeps at most `AHEAD` batches.
When leases change, it drops what belongs to shards that are no longer held, and what another
learner has read meanwhile; all else stays.

An error of the user's reader is raised where the batch would have been taken, with its traceback;
also one that ends a thread without a word, such as `SystemExit`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from islands.protocol.identities import Lease
from islands.tasks.data.batch_source import ASKED_AGAIN_S, Batches, Taken, key_of
from islands.tasks.data.shards import ShardKey

AHEAD = 4
"""Most batches that are read and not taken."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A batch that was read, or the end of a shard, or the error that reading ended with."""

    taken: Taken
    error: BaseException | None = None


class Prefetcher:
    """Reads batches ahead, on a thread that begins with the first lease.

    Args:
        batches: opens the batches of a shard; called on the thread, as are its iterators.
        arrived: called on the thread when there is something to take after `take` found nothing.
        name: name of the thread.
    """

    def __init__(self, batches: Batches, arrived: Callable[[], object], name: str) -> None:
        """Start without a lease, and without a thread."""
        self._batches = batches
        self._arrived = arrived
        self._name = name
        self._changed = threading.Condition()
        self._queue: deque[_Read] = deque()
        self._next: list[Lease] = []
        self._begun: dict[ShardKey, int] = {}  # shards opened, with the positions taken from each
        self._reading: Lease | None = None
        self._wanted = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def follow(self, leases: Sequence[Lease]) -> None:
        """Replace the leases; drop what was read of shards that are lost, or were read on."""
        with self._changed:
            held = {key_of(lease): lease.position for lease in leases}
            kept = {key: at for key, at in self._begun.items() if held.get(key, at + 1) <= at}
            self._begun = kept
            self._queue = deque(read for read in self._queue if read.taken.shard in kept)
            if self._reading is not None and key_of(self._reading) not in kept:
                self._reading = None
            self._next = [lease for lease in leases if key_of(lease) not in kept]
            self._changed.notify()
        if self._thread is None and leases and not self._closed:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def take(self) -> Taken | None:
        """Take the oldest batch that was read; never waits.

        Raises:
            BaseException: what the user's reader raised.
        """
        with self._changed:
            self._wanted = not self._queue
            if self._wanted:
                return None
            read = self._queue.popleft()
            self._begun[read.taken.shard] = read.taken.position
            self._changed.notify()
        if read.error is not None:
            raise read.error
        return read.taken

    @property
    def expecting(self) -> bool:
        """Whether a batch may come without another lease."""
        with self._changed:
            return bool(self._queue or self._next or self._reading is not None)

    def close(self) -> None:
        """End the thread as soon as its reader returns."""
        with self._changed:
            self._closed, self._reading = True, None
            self._queue.clear()
            self._changed.notify()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while (lease := self._begin()) is not None:  # until it is closed
            shard, position = key_of(lease), lease.position
            try:
                for batch, after in self._batches(shard, position):
                    if batch is None:
                        if not self._pause(lease):
                            break
                        continue
                    position = after
                    if not self._keep(lease, _Read(Taken(shard, batch, after))):
                        break
                else:
                    self._keep(lease, _Read(Taken(shard, None, position)), last=True)
            except BaseException as error:  # noqa: BLE001  whoever takes it raises it
                self._keep(lease, _Read(Taken(shard, None, position), error), last=True)

    def _begin(self) -> Lease | None:
        """Wait for a lease to read; None if there will be none."""
        with self._changed:
            while not (self._next or self._closed):
                self._changed.wait()
            if self._closed:
                return None
            lease = self._next.pop(0)
            self._reading, self._begun[key_of(lease)] = lease, lease.position
            return lease

    def _pause(self, lease: Lease) -> bool:
        """Wait before a shard is asked again; returns whether it is still to be read."""
        with self._changed:
            self._changed.wait_for(lambda: self._reading is not lease, ASKED_AGAIN_S)
            return self._reading is lease

    def _keep(self, lease: Lease, read: _Read, *, last: bool = False) -> bool:
        """Queue what was read as soon as there is room; returns whether to read on."""
        with self._changed:
            while len(self._queue) >= AHEAD and self._reading is lease:
                self._changed.wait()
            if self._reading is not lease:  # it was lost meanwhile, and may have been opened anew
                return False
            self._queue.append(read)
            self._reading = None if last else lease
            wanted, self._wanted = self._wanted, False
        if wanted:
            self._arrived()
        return True
