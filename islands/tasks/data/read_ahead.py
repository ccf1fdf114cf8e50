"""Batches that are read ahead in an order that does not depend on the time that reading takes.

All hosts of an island read the same batches, and each trains on its rows of them. Which batch comes
next must not depend on which host reads faster, so a host whose reader is slow waits for it, as the
step, which all of them take together, would do anyway.
"""

import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from islands.tasks.data.batch_source import ASKED_AGAIN_S, Batches
from islands.tasks.data.shards import ShardKey

AHEAD = 4
"""Most batches that are read and not taken."""

_Read = tuple[object, int] | BaseException | None


Told = Callable[[], object]


def read_ahead(batches: Batches, waits: Told, nothing_yet: Told, goes_on: Told) -> Batches:
    """Read the batches of each shard that is opened on a thread, ahead of those taken.

    Args:
        batches: opens the batches of a shard; where there are none at the moment, they are waited
            for.
        waits: told when the taker begins to wait for a batch.
        nothing_yet: told while it waits, on the thread that reads, if there are none at the moment.
        goes_on: told when that is over.
    """

    def opened(shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        read: Queue[_Read] = Queue(AHEAD)
        closed, waiting = threading.Event(), threading.Event()

        def nothing() -> None:
            if waiting.is_set():
                nothing_yet()

        arguments = (batches, shard, position, read, closed, nothing)
        threading.Thread(target=_read, args=arguments, name="read", daemon=True).start()
        try:
            while (found := _next(read, waiting, waits, goes_on)) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            closed.set()
            _drain(read)

    return opened


def _next(read: Queue[_Read], waiting: threading.Event, waits: Told, goes_on: Told) -> _Read:
    try:
        return read.get_nowait()
    except Empty:
        waits()
        waiting.set()
        found = read.get()
        waiting.clear()
        goes_on()
        return found


def _read(
    batches: Batches,
    shard: ShardKey,
    position: int,
    read: Queue[_Read],
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


def _drain(read: Queue[_Read]) -> None:
    """Make room, so that the thread sees that nobody takes what it reads any more."""
    try:
        while True:
            read.get_nowait()
    except Empty:
        return
