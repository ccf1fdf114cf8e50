"""Where the batches of leased shards come from, one after the other.

A position is always that of the batches taken, never of those read ahead: what was read and not
taken is read again by whoever holds the shard next.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from islands.protocol.identities import Lease
from islands.tasks.data.shards import ShardKey

Batches = Callable[[ShardKey, int], Iterator[tuple[object, int]]]
"""As `islands.Task.batches`."""

ASKED_AGAIN_S = 0.5  # after so long, a shard that had nothing is asked again
AHEAD = 4  # most batches that are read and not taken

READING = "waiting for its reader's next batch"
ARRIVING = "waiting for data that has not arrived yet"


class Taken(NamedTuple):
    """A batch with the position after it; the batch is None at the end of the shard."""

    shard: ShardKey
    batch: object | None
    position: int


def key_of(lease: Lease) -> ShardKey:
    return ShardKey(lease.pass_index, lease.shard)


@dataclass(slots=True, eq=False)
class _Shard:
    """A leased shard: the position after the batches taken, and what was read beyond it."""

    key: ShardKey
    position: int
    reader: Iterator[tuple[object, int]] | None = None
    read: deque[Taken | BaseException] = field(default_factory=deque)
    ended: bool = False

    def read_on(self, batches: Batches) -> Taken | BaseException | None:
        """Read a batch, the end, or the error that ends it; None if there is none at the moment."""
        try:
            if self.reader is None:
                self.reader = iter(batches(self.key, self.position))
            found = next(self.reader, None)
        except BaseException as error:  # noqa: BLE001  whoever takes it raises it
            return error
        if found is None:
            return Taken(self.key, None, self.position)
        return None if found[0] is None else Taken(self.key, *found)

    def keep(self, found: Taken | BaseException) -> None:
        self.read.append(found)
        self.ended = isinstance(found, BaseException) or found.batch is None


class BatchSource:
    """Gives the batches of the leases that it follows, and reads each when it is asked for it.

    Shards are read one after the other in the order of their leases, but the first one stays first
    while it is held. So which batch comes next follows from the leases alone.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._shards: list[_Shard] = []

    def follow(self, leases: Sequence[Lease]) -> None:
        """Replace the leases; what was read of a shard is dropped if another has read it on.

        So it is if a shard that is not read to its end comes before it now: the user's reader never
        has two of them open.
        """
        held = {shard.key: shard for shard in self._shards}
        first = next(iter(held), None)
        self._shards, turn = [], True
        for lease in sorted(leases, key=lambda lease: key_of(lease) != first):
            shard = held.get(key_of(lease))
            if shard is None or not turn or shard.position < lease.position:
                shard = _Shard(key_of(lease), lease.position)
            self._shards.append(shard)
            turn = turn and shard.ended

    def take(self) -> Taken | None:
        """Return the next batch, or the end of a shard; None if there is none at the moment."""
        if self._shards and not self._shards[0].read:
            found = self._shards[0].read_on(self._batches)
            if found is not None:
                self._shards[0].keep(found)
        return self._oldest()

    def _oldest(self) -> Taken | None:
        if not (self._shards and self._shards[0].read):
            return None
        shard = self._shards[0]
        found = shard.read.popleft()
        if isinstance(found, BaseException):
            raise found
        if found.batch is None:
            del self._shards[0]
            return found._replace(position=shard.position)
        shard.position = found.position
        return found

    @property
    def expecting(self) -> bool:
        """Whether a batch may come without another lease."""
        return bool(self._shards)

    def close(self) -> None:
        self.follow(())


class ReadAhead(BatchSource):
    """Reads batches ahead, on a thread that begins with the first lease.

    An error of the user's reader is raised where the batch would have been taken, with its
    traceback; also one that ends a thread without a word, such as `SystemExit`. `arrived` is called
    on the thread when there is something to take after `take` found nothing. `waits` lets `take`
    wait for a batch, as hosts do that take each step together; it is given `READING` or `ARRIVING`,
    and an empty text when the wait is over.
    """

    def __init__(
        self,
        batches: Batches,
        name: str,
        arrived: Callable[[], object],
        waits: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(batches)
        self._arrived = arrived
        self._waits = waits
        self._changed = threading.Condition()
        self._wanted = self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def follow(self, leases: Sequence[Lease]) -> None:
        with self._changed:
            super().follow(leases)
            self._changed.notify_all()
            if leases and self._thread.ident is None:
                self._thread.start()

    def take(self) -> Taken | None:
        with self._changed:
            self._wanted = bool(self._shards) and not self._shards[0].read
            if self._wanted and self._waits is not None:
                self._waits(READING)
                self._changed.wait_for(lambda: not self._wanted)
                self._waits("")
            self._changed.notify_all()
            return self._oldest()

    def close(self) -> None:
        """End the thread as soon as its reader returns."""
        self._closed = True
        self.follow(())

    def _run(self) -> None:
        while (shard := self._next_shard()) is not None:  # until it is closed
            found = shard.read_on(self._batches)
            with self._changed:
                if found is None:
                    self._pause(shard)
                    continue
                shard.keep(found)
                came = self._wanted and shard in self._shards[:1]
                self._wanted = self._wanted and not came
                self._changed.notify_all()
            if came:
                self._arrived()

    def _next_shard(self) -> _Shard | None:
        """Wait until there is a shard to read on, and room for what is read."""
        with self._changed:
            while not self._closed:
                unread = (shard for shard in self._shards if not shard.ended)
                shard = next(unread, None)
                if shard and sum(len(each.read) for each in self._shards) < AHEAD:
                    return shard
                self._changed.wait()
            return None

    def _pause(self, shard: _Shard) -> None:
        """Wait until a shard is asked again or lost."""
        if self._wanted and self._waits is not None:
            self._waits(ARRIVING)
        self._changed.wait_for(lambda: shard not in self._shards, ASKED_AGAIN_S)
