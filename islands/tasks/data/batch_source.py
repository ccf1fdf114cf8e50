"""Where the batches of leased shards come from, one after the other.

`DirectSource` reads a batch when it is asked for one: for the virtual clock, on which reading takes
no time. `Prefetcher` reads ahead on a thread of its own, and `read_ahead` does
so for hosts that must read the same.

A position is always that of the batches taken, never of those read ahead: what was read and not
taken is read again by whoever holds the shard next.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, Queue
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


# --- read ahead of the steps -------------------------------------------------------------------

AHEAD = 4
"""Most batches that are read and not taken."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A batch that was read, or the end of a shard, or the error that reading ended with."""

    taken: Taken
    error: BaseException | None = None


class Prefetcher:
    """Reads batches ahead, on a thread that begins with the first lease, so no step waits for one.

    The thread reads the leased shards in order, one after the other, and keeps at most `AHEAD`
    batches. When leases change, it drops what belongs to shards that are no longer held, and what
    another learner has read meanwhile; all else stays. An error of the user's reader is raised
    where the batch would have been taken, with its traceback; also one that ends a thread without a
    word, such as `SystemExit`.

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


# --- read ahead in an order that all hosts share -----------------------------------------------

_Found = tuple[object, int] | BaseException | None
Told = Callable[[], object]


def read_ahead(batches: Batches, waits: Told, nothing_yet: Told, goes_on: Told) -> Batches:
    """Read the batches of each shard that is opened on a thread, ahead of those taken.

    All hosts of an island read the same batches, and each trains on its rows of them. Which batch
    comes next must not depend on which host reads faster, so a host whose reader is slow waits for
    it, as the step, which all of them take together, would do anyway.

    Args:
        batches: opens the batches of a shard; where there are none at the moment, they are waited
            for.
        waits: told when the taker begins to wait for a batch.
        nothing_yet: told while it waits, on the thread that reads, if there are none at the moment.
        goes_on: told when that is over.
    """

    def opened(shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        read: Queue[_Found] = Queue(AHEAD)
        closed, waiting = threading.Event(), threading.Event()

        def nothing() -> None:
            if waiting.is_set():
                nothing_yet()

        arguments = (batches, shard, position, read, closed, nothing)
        threading.Thread(target=_read_shard, args=arguments, name="read", daemon=True).start()
        try:
            while (found := _next(read, waiting, waits, goes_on)) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            closed.set()
            _drain(read)

    return opened


def _next(read: Queue[_Found], waiting: threading.Event, waits: Told, goes_on: Told) -> _Found:
    try:
        return read.get_nowait()
    except Empty:
        waits()
        waiting.set()
        found = read.get()
        waiting.clear()
        goes_on()
        return found


def _read_shard(
    batches: Batches,
    shard: ShardKey,
    position: int,
    read: Queue[_Found],
    closed: threading.Event,
    nothing: Told,
) -> None:
    try:
        for batch, after in batches(shard, position):
            if batch is None:
                nothing()
                closed.wait(ASKED_AGAIN_S)
            else:
                read.put((batch, after))
            if closed.is_set():
                return
        read.put(None)
    except BaseException as error:  # noqa: BLE001  whoever takes it raises it
        read.put(error)


def _drain(read: Queue[_Found]) -> None:
    """Make room, so that the thread sees that nobody takes what it reads any more."""
    try:
        while True:
            read.get_nowait()
    except Empty:
        return
