"""The syncer's journal: what it must know after a crash, written before anything is sent.

Protocol §8.3 has what a record holds and how it is read (`slots.py` has the slots). A writer whose
epoch is not the newest on the disk is fenced: it checks this before every write, and again after
it. A newer syncer takes its epoch before it reads, so either it reads the record, or the older one
learns that nobody may hear of it. Such a record gives way to the newer syncer's record of that
number. Only a lock keeps a write that stalls for longer than the whole takeover from replacing a
slot that the newer syncer has written meanwhile.

A worker writes record after record. A disk that is full, or fails, is tried again every
`DISK_RETRY_S`: what the record holds is not sent meanwhile, and learners go on stepping. Anything
else ends this syncer, as a newer syncer's epoch does, for which one that writes nothing looks with
each heartbeat.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.actors.epochs import COPY, EPOCH, known_epochs, newest_epoch, take_epoch
from islands.actors.ports import Worker
from islands.files.disk import Disk, DiskFile
from islands.files.slots import FORMAT, VOID, Arrays, Head, Record, Slots, name_of
from islands.protocol.errors import DamagedError, DiskError, FencedError, IslandsError, JournalError
from islands.protocol.identities import Version
from islands.protocol.messages.standby import Follow, PieceHeld
from islands.protocol.syncer.journalling import APART, Durable
from islands.protocol.syncer.versions import Published
from islands.protocol.tape.entry import Entry
from islands.syncer.workers import attempt
from messaging.codec.tensors import as_buffer, digest

JOURNAL = "journal"
"""Folder of the journal in that of its run."""
METADATA = "metadata"
"""Name of the records without a fragment."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A journal as read: metadata, and each fragment's arrays (`ValueStore.journal_arrays`)."""

    durable: Durable
    fragments: tuple[dict[str, NDArray[np.generic]], ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """The files of a journal's newest records, by their names, and the metadata of the newest."""

    files: tuple[str, ...]
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Peers:
    """What a follower reaches of its syncer, on the loop.

    `send` sends a message and its payload over a connection, unless there is no room, `drop` closes
    one, `look` has `follow` called, and `confirm` has `holds` asked again.
    """

    send: Callable[[int, object, tuple[memoryview, ...]], bool]
    drop: Callable[[int, str], None]
    look: Callable[[], None]
    confirm: Callable[[], None]


class Follower:
    """Keeps copies of a journal elsewhere; without more, each record is its own occasion."""

    def attach(self, peers: Peers) -> None:
        """Begin, on the loop, before anything is written."""

    def followed(self) -> None:
        """Go on, on the loop, after `follow`."""

    def receive(self, connection: int, message: Follow | PieceHeld) -> None:
        """Take a message of a standby; it has proven that it is one."""

    def lost(self, connection: int) -> None:
        """Forget a standby whose link is gone."""

    def holds(self, sequence: int) -> bool:
        """Whether learners may hear of a record that is durable here, and of all before it."""
        return True

    def follow(self, journal: "Journal") -> None:
        """Look at a journal after a record has become durable, on its worker.

        Raises:
            DiskError: the record must wait, and this is to be called again.
        """

    def ask(self, reason: str) -> None:
        """Want a copy of the journal as it is now."""

    @property
    def wanted(self) -> bool:
        """Whether `follow` is to be called though nothing was written."""
        return False

    def finish(self, journal: "Journal", reason: str) -> None:
        """Copy the journal of a run that has ended, on its worker; what waits is waited for."""

    def news(self) -> Iterable[Entry]:
        """Return what the tape is to have, once."""
        return ()

    def close(self) -> None:
        """Wait until the last copy is whole, within limits."""


class Journal:
    """One syncer's journal on one disk; nothing is written before `begin_epoch`.

    `damaged` are the files that were missing or not whole, to be named at the start. `commits`
    counts the versions of fragments that this start has made durable, and `last` is the file that
    it wrote last.
    """

    def __init__(self, disk: Disk, fragments: int) -> None:
        self._disk = disk
        self._slots = Slots(disk)
        self._held: dict[str, tuple[int, bytes, Version | None, Arrays]] = {}
        """Of each name the record that was written last."""
        self._names = fragment_names(fragments)
        self.epoch = 0
        self.sequence = 0
        self.damaged: list[str] = []
        self._torn: list[str] = []
        self.commits = 0
        self.last: str | None = None
        self._written_by = 0
        """Epoch of the newest record that was read."""
        self._unchecked: int | None = None
        """Number of the record that is durable, and of which nobody may hear before a check."""

    def take_over(self) -> Recovered | None:
        """Take a new epoch, which fences an older syncer, then read what was committed."""
        other = self._slots.other_format([EPOCH, METADATA, *self._names])
        if other is not None:
            raise written_by_another(f"its records are {other}, not {FORMAT}")
        if not self.epoch:
            self._begin_first()
        recovered = self.recover()
        if self._written_by >= self.epoch:
            self.begin_epoch(self._written_by + 1)  # the files of the epoch were lost
        for file in self._torn:  # nobody can use them, and they are named only once
            self._slots.void(file)
        if recovered is not None:
            self._hold(recovered)
        return recovered

    def _hold(self, recovered: Recovered) -> None:
        metadata, published = encode(recovered.durable), recovered.durable.published
        for name, one, arrays in zip(self._names, published, recovered.fragments, strict=True):
            version = None if one is None else one.version
            self._held[name] = self.sequence, metadata, version, arrays
        if self._slots.newest(METADATA) is not None:
            self._held[METADATA] = self.sequence, metadata, None, {}

    def _begin_first(self) -> None:
        """Take this start's epoch, unless the journal that it would resume is gone."""
        known = known_epochs(self._slots)
        names = [METADATA, *self._names]
        if known.gone and not any(self._slots.look(name).there for name in names):
            raise DamagedError(
                "the journal is gone: its folder held a run, and is empty now; restore it from a "
                "copy, or begin a run in another folder"
            )
        if known.epochs:
            self.begin_epoch(1)
            return
        self.recover()  # records hold the epoch of the last start that wrote one
        self.begin_epoch(self._written_by + APART if self._written_by else 1)

    def recover(self) -> Recovered | None:
        """Read what was committed; None if the run has no complete version yet.

        `sequence` becomes that of the newest record, even if that record is of no use: what is
        written from now on must be newer.
        """
        looked = {name: self._slots.look(name) for name in [METADATA, *self._names]}
        heads = {name: one.heads for name, one in looked.items()}
        self._torn = [file for one in looked.values() for file in one.damaged]
        try:
            return self._read(heads)
        finally:
            self.damaged = sorted({*self.damaged, *self._torn})

    def _read(self, heads: dict[str, list[Head]]) -> Recovered | None:
        read = self._newest([head for name in heads for head in heads[name]])
        if read is None:
            self._require_new()
            return None
        newest, record = read
        self.sequence = record.sequence
        durable = decode(record.metadata)
        self._written_by = durable.epoch
        if len(durable.published) != len(self._names):
            raise JournalError(
                f"the journal is of another run: it has {len(durable.published)} fragments, "
                f"not {len(self._names)}; choose another folder"
            )
        for name, own in heads.items():  # so far, only the newest is needed
            self._slots.keep(name, newest if newest in own else None)
        fragments: list[dict[str, NDArray[np.generic]]] = []
        for name, published in zip(self._names, durable.published, strict=True):
            if published is None:
                self._require_new()
                return None
            arrays = record.arrays if newest in heads[name] else None
            if arrays is None or newest.version != published.version:
                arrays = self._of_version(name, heads[name], published.version)
            if arrays is None:
                arrays = self._before(durable, len(fragments), heads[name])
            fragments.append(arrays)
        return Recovered(durable, tuple(fragments))

    def give_up(self) -> None:
        """End a recovery on another thread soon, with a JournalError."""
        self._slots.give_up()

    def _newest(self, heads: list[Head]) -> tuple[Head, Record] | None:
        for sequence in sorted({head.sequence for head in heads}, reverse=True):
            equal = [head for head in heads if head.sequence == sequence]
            loaded = [(head, self._load(head)) for head in equal]
            whole = [(head, record) for head, record in loaded if record is not None]
            if len(whole) > 1:
                return max(whole, key=lambda each: decode(each[1].metadata).epoch)
            if whole:
                return whole[0]
        return None

    def _load(self, head: Head) -> Record | None:
        record = self._slots.load(head)
        if record is None:
            self._torn.append(head.file)
        return record

    def _require_new(self) -> None:
        """Check that a new run tore one record at most; its first one makes both its slots."""
        names = {name_of(file) for file in self._torn}
        if len(names) > 1:
            raise DamagedError(
                f"the journal holds no run any more, and {', '.join(sorted(self._torn))} are not "
                "whole; restore its folder from a copy, or begin a run in another folder"
            )

    def _of_version(
        self, name: str, heads: list[Head], version: Version
    ) -> dict[str, NDArray[np.generic]] | None:
        for head in heads:
            record = self._load(head) if head.version == version else None
            if record is not None:
                self._slots.keep(name, head)
                return record.arrays
        return None

    def _before(
        self, durable: Durable, fragment: int, heads: list[Head]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the version before a committed one that is not whole, and publish it again.

        It is a version of the next epoch, so that members adopt it in place of the one that is
        lost. The ledger stays: what was merged into the lost version counts as applied.
        """
        name, published = self._names[fragment], durable.published[fragment]
        assert published is not None, "only what is committed can be lost"
        lost = published.version
        older = [head for head in heads if head.version is not None and head.version < lost]
        for head in sorted(older, key=lambda head: head.sequence, reverse=True):
            record = self._load(head)
            if record is None or record.version is None:
                continue
            again = Version(max(self.epoch, durable.epoch + 1), record.version.number)
            value = np.ascontiguousarray(record.arrays["value"], np.float32)
            then = decode(record.metadata).published[fragment]
            tokens = 0 if then is None else then.tokens
            durable.published[fragment] = Published(
                again, digest(as_buffer(value)), published.round, tokens
            )
            self._slots.keep(name, head)
            sentence = f"{name}: version {lost} is lost, and {record.version} is published again"
            self.damaged.append(f"{sentence} as {again}")
            return record.arrays
        raise DamagedError(
            f"{name}: version {lost} is committed and in neither slot, and "
            f"{', '.join(sorted(self._torn)) or 'none'} is damaged or missing; "
            "restore the journal's folder from a copy, or begin a run in another folder"
        )

    def begin_epoch(self, at_least: int) -> int:
        """Take a new epoch, higher than all on the disk; it is durable when this returns."""
        self.epoch, known = take_epoch(self._slots, at_least)
        self.damaged = sorted({*self.damaged, *known.damaged})
        return self.epoch

    def write(
        self,
        sequence: int,
        metadata: bytes,
        fragment: int | None,
        version: Version | None,
        arrays: Arrays,
    ) -> None:
        """Make a record durable; `version` and `arrays` are those of its fragment, if any."""
        if self._unchecked != sequence:
            if self.check_owner() < self.epoch:
                self._write_anew()
            name = METADATA if fragment is None else self._names[fragment]
            self._slots.write(name, sequence, metadata, version, arrays)
            self.last = self._slots.newest(name)
            self._held[name] = sequence, metadata, version, arrays
            self._unchecked = sequence
        self.check_owner()  # who took the journal over meanwhile may not have read this record
        self._unchecked = None
        self.commits += fragment is not None

    def cut(self, folder: str) -> Cut | None:
        """Give the newest record of each name a second name in a folder of the disk.

        Between two writes these are one moment of the run: the newest record holds all metadata,
        and that of each fragment the version that this names. Later writes replace names, and
        change no file. None: not every fragment has a version yet.
        """
        self.check_owner()
        if not all(name in self._held for name in self._names):
            return None
        newest = self.files
        for file in newest:
            self.link(file, f"{folder}/{file}")
        return Cut(newest, max(self._held.values(), key=lambda record: record[0])[1])

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the newest record of each name, the newest one last."""
        in_order = sorted(self._held, key=lambda name: self._held[name][0])
        found = (self._slots.newest(name) for name in in_order)
        return tuple(file for file in found if file is not None)

    def link(self, file: str, second: str) -> None:
        self._disk.link(file, second)

    def numbered(self) -> list[tuple[int, str]]:
        """Return the newest record of each name, its number and its file, in that order."""
        names = [name for name in (METADATA, *self._names) if self._slots.sequence(name) != VOID]
        return sorted(
            (self._slots.sequence(name), self._slots.newest(name) or "") for name in names
        )

    def digest(self, file: str) -> str:
        """Return the digest that a file states, which no other record has."""
        return self._slots.digest(file)

    def open(self, file: str) -> DiskFile | None:
        """Open a file, whose content stays readable whatever is written later; close it."""
        return self._disk.open(file)

    def _write_anew(self) -> None:
        """Write the whole journal once more, from what the syncer holds: its files are gone."""
        self._slots = Slots(self._disk)
        for name, record in self._held.items():
            self._slots.write(name, *record)
        self._slots.write_alone(COPY, self.epoch)
        self._slots.write(EPOCH, self.epoch)  # last, so that it is not there before the rest is

    def check_owner(self) -> int:
        """Return the epoch that owns the journal; it is lower than this one's if files are gone."""
        owner = newest_epoch(self._slots)
        if owner > self.epoch:
            raise FencedError(
                f"a newer syncer owns the journal: epoch {owner} owns the journal, this syncer is "
                f"{self.epoch}, so it ends; end the other one before this one is started again"
            )
        return owner


def encode(durable: Durable) -> bytes:
    return msgspec.json.encode(durable)


def decode(metadata: bytes) -> Durable:
    try:
        return msgspec.json.decode(metadata, type=Durable)
    except msgspec.MsgspecError as error:
        raise written_by_another(str(error)) from error


def fragment_names(fragments: int) -> list[str]:
    return [f"fragment-{index:05d}" for index in range(fragments)]


def written_by_another(how: str) -> JournalError:
    return JournalError(
        f"the journal was written by another version of islands ({how}); go on with that version, "
        "or choose another folder"
    )


T = TypeVar("T")

JournalRecord = tuple[int, bytes, int | None, Version | None, dict[str, NDArray[np.generic]]]
"""Sequence number, metadata, and of one fragment: its index, version and arrays."""

DISK_RETRY_S = 2.0


class JournalWriter:
    """Writes records in order, so that once a record is durable, all before it are.

    It calls `written` with the number of a durable record, `delayed` each time the disk fails,
    `failed` once nothing can be written any more, and `damaged` with files that are not whole.
    """

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        *,
        written: Callable[[int], object],
        delayed: Callable[[DiskError], object],
        failed: Callable[[IslandsError], object],
        damaged: Callable[[list[str]], object],
        follower: Follower | None = None,
    ) -> None:
        self._journal = journal
        self._follower = follower
        self._followed: int | None = None
        self._worker = worker
        self._written = written
        self._delayed = delayed
        self._failed = failed
        self._damaged = damaged
        self._unwritten: deque[JournalRecord] = deque()
        self._unconfirmed: deque[int] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._over = False
        self._owned = False
        self._closed = False

    def take_over(self, done: Callable[[Recovered | None], object]) -> None:
        """Own the journal, and read what was committed; nothing is written before."""

        def own(recovered: Recovered | None) -> None:
            self._owned = True
            if self._journal.damaged:
                self._damaged(self._journal.damaged)
            done(recovered)

        self.attempt(self._journal.take_over, own)

    def write(self, record: JournalRecord) -> None:
        self._unwritten.append(record)
        if len(self._unwritten) == 1:
            self._write_first()

    def attempt(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do something with the disk; it is tried again as long as that is full or fails."""

        def finished(result: T) -> None:
            if not self._closed:
                done(result)

        def failed(error: IslandsError) -> None:
            if self._closed:
                return
            if not isinstance(error, DiskError):
                self._fail(error)
                return
            self._delayed(error)
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(DISK_RETRY_S, self.attempt, work, done)

        attempt(self._worker, work, done=finished, failed=failed)

    def look(self) -> None:
        """Check for a newer syncer unless a write will; if the disk fails, that will report it."""
        if self._owned and not self._unwritten and not self._closed:
            check = self._journal.check_owner
            attempt(self._worker, check, done=lambda _: None, failed=self._fail_unless_disk)

    def copy(self, reason: str = "") -> None:
        """Let the follower copy the journal as it is, once what was queued before is written."""
        if self._follower is None or not self._owned or self._closed:
            return
        if reason:
            self._follower.ask(reason)
        if self._follower.wanted:
            failed = self._fail_unless_disk
            attempt(self._worker, self._follow, done=lambda _: self._followed_all(), failed=failed)

    def copy_last(self, reason: str) -> None:
        """Let the follower copy the final journal; on the worker."""
        if self._follower is not None:
            self._follower.finish(self._journal, reason)

    def _follow(self) -> None:
        if self._follower is not None:
            self._follower.follow(self._journal)

    def _write_and_follow(self, record: JournalRecord) -> None:
        if self._followed != record[0]:
            self._journal.write(*record)
            self._followed = record[0]
        self._follow()

    def close(self) -> None:
        self._closed = True
        self._journal.give_up()
        if self._retry is not None:
            self._retry.cancel()

    def _write_first(self) -> None:
        record = self._unwritten[0]
        self.attempt(lambda: self._write_and_follow(record), self._on_written)

    def _on_written(self, _: object) -> None:
        self._unconfirmed.append(self._unwritten.popleft()[0])
        if self._unwritten:
            self._write_first()
        self._followed_all()

    def _followed_all(self) -> None:
        if self._follower is not None:
            self._follower.followed()
        self.confirm()

    def confirm(self) -> None:
        """Report the records that are durable, as far as the follower has them, too."""
        while self._unconfirmed and not self._closed and self.held(self._unconfirmed[0]):
            self._written(self._unconfirmed.popleft())

    def held(self, sequence: int) -> bool:
        """Whether learners may hear of what a durable record holds."""
        return self._over or self._follower is None or self._follower.holds(sequence)

    def end(self) -> None:
        """Wait for no follower any more: the run is over, and they end before this syncer."""
        self._over = True
        self.confirm()

    def _fail_unless_disk(self, error: IslandsError) -> None:
        if not self._closed and not isinstance(error, DiskError):
            self._fail(error)

    def _fail(self, error: IslandsError) -> None:
        self.close()
        self._failed(error)
