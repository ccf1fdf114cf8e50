"""Takes checkpoints of a syncer's journal while the run goes on.

    the journal's worker    a record is durable → is a checkpoint due? → each newest record gets a
                            second name, which no later write changes
    a thread of its own     their digests, the store, the manifest; then outdated ones are removed

So the run waits for some file names, and never for a disk, a network or a digest. A checkpoint that
fails is told, and taken again with a later record.
"""

import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from islands.files.disk import Disk, DiskFile, RealDisk
from islands.files.run_files import PLAN_FILE, SPEC_FILE
from islands.files.whole_files import CHUNK_BYTES, sealed
from islands.keeping.catalogue import held, outdated, whole_ones
from islands.keeping.manifest import (
    FORMAT,
    UNFINISHED,
    Manifest,
    Retention,
    Schedule,
    StoredFile,
    digest_of,
)
from islands.keeping.store import Store, store_at
from islands.protocol.errors import DiskError, FencedError, IslandsError, UserError
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import Checkpointed, CopyFailed
from islands.settings.groups import CheckpointOptions
from islands.settings.quantities import size
from islands.settings.run_spec import RunPlan, RunSpec
from islands.syncer.journal import JOURNAL, Follower, Journal
from islands.syncer.journal import decode as decode_books
from messaging.clock import Clock, MonotonicClock, WallClock

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in that of their run, unless they are stored elsewhere."""

CUT = "cut"
"""Folder in the journal's, of the second names."""

ROOM = 2
"""So many sizes of a checkpoint must be free: its links keep what the journal is yet to replace."""

WAIT_S = 5.0
"""So long the end of a syncer waits for a checkpoint; a hub kills one that takes 10 s to leave."""


class Storing(Protocol):
    """A checkpoint that is being stored."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float) -> object: ...


def in_thread(work: Callable[[], None]) -> Storing:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@dataclass(slots=True)
class Checkpointer(Follower):
    """Takes the checkpoints of one journal, which is in `folder`; see `islands.syncer.journal`.

    `disk` is the journal's, if that is not a `RealDisk`.
    """

    folder: Path
    store: Store
    schedule: Schedule
    retention: Retention
    spec: RunSpec
    plan: RunPlan
    clock: Clock = field(default_factory=MonotonicClock)
    wall_s: Callable[[], float] = WallClock().now_s
    start: Callable[[Callable[[], None]], Storing] = in_thread
    disk: Disk | None = None
    _storing: Storing | None = None
    _news: deque[Entry] = field(default_factory=deque)

    def follow(self, journal: Journal) -> None:
        """Take a checkpoint if one is due."""
        now_s = self.clock.now_s()
        reason = self.schedule.due(journal.commits, now_s)
        if reason is None or self._busy:
            return
        try:
            shutil.rmtree(self.folder / CUT, ignore_errors=True)
            cut = journal.cut(CUT)
        except IslandsError as error:
            self._news.append(CopyFailed("checkpoint", str(error)))
        else:
            if cut is None:
                return
            self._storing = self.start(partial(self._store, cut.files, cut.metadata, reason))
        self.schedule.taken(journal.commits, now_s)

    def ask(self, reason: str) -> None:
        self.schedule.ask(reason)

    @property
    def wanted(self) -> bool:
        return bool(self.schedule.asked) and not self._busy

    def finish(self, journal: Journal, reason: str) -> None:
        self.close()
        self.ask(reason)
        self.follow(journal)

    def news(self) -> Iterator[Entry]:
        while self._news:
            yield self._news.popleft()

    def close(self) -> None:
        if self._storing is not None:
            self._storing.join(WAIT_S)
            if self._busy:
                self._news.append(CopyFailed("checkpoint", f"it is not stored after {WAIT_S:g} s"))

    @property
    def _busy(self) -> bool:
        return self._storing is not None and self._storing.is_alive()

    def _store(self, files: tuple[str, ...], metadata: bytes, reason: str) -> None:
        try:
            known = dict(held(self.store))
            manifest, took_s = self._stored(files, metadata, reason, whole_ones(known))
            path = self.store.told(manifest.name)
            self._news.append(
                Checkpointed(
                    *(manifest.merges, manifest.tokens, manifest.size_bytes),
                    *(took_s, manifest.reason, path),
                )
            )
            known[manifest.name] = manifest
            for gone in outdated(self.store, known, self.retention):
                self.store.remove(gone)
        except (IslandsError, OSError) as error:
            self._news.append(CopyFailed("checkpoint", str(error)))

    def _stored(
        self, files: tuple[str, ...], metadata: bytes, reason: str, known: Sequence[Manifest]
    ) -> tuple[Manifest, float]:
        """Store what was cut, unless it is there already; returns it and the seconds that took."""
        began_s, books = self.clock.now_s(), decode_books(metadata)
        manifest = Manifest(
            format=FORMAT,
            run=books.run,
            origin=self.plan.origin,
            fingerprint=books.fingerprint,
            epoch=books.epoch,
            merges=books.merges,
            tokens=books.ledger.processed,
            saved_at_s=self.wall_s(),
            reason=reason,
            files={},
        )
        name, cut = manifest.name, self.folder / CUT
        _check_free(self.store, known, manifest)
        for each in known:
            if each.name == name:  # nothing was merged since
                return replace(each, reason=reason), self.clock.now_s() - began_s
        disk = self.disk or RealDisk(self.folder)
        needed = 0
        for file in files:
            with _opened(disk, file) as opened:
                needed += ROOM * opened.size
        if self.store.free_bytes() < needed:
            raise DiskError(
                f"{self.store.told(name)} would leave the disk too full: {size(needed)} must be "
                "free; keep fewer, or store them elsewhere (checkpoints)"
            )
        beside = {UNFINISHED: msgspec.json.encode({"run": books.run})}
        beside |= {SPEC_FILE: self.spec.encode().encode(), PLAN_FILE: self.plan.encode()}
        for file, content in beside.items():
            disk.write(f"{CUT}/{file}", [sealed(content)])
        self.store.put(name, UNFINISHED, cut / UNFINISHED)
        described: dict[str, StoredFile] = {}
        for file in (*files, SPEC_FILE, PLAN_FILE):
            with _opened(disk, file) as opened:
                described[file] = digest_of(_parts(opened))
            self.store.put(name, file, cut / file)
        manifest = replace(manifest, files=described)
        self.store.finish(name, manifest.encode())
        shutil.rmtree(cut, ignore_errors=True)
        return manifest, self.clock.now_s() - began_s


def _opened(disk: Disk, file: str) -> closing[DiskFile]:
    opened = disk.open(f"{CUT}/{file}")
    if opened is None:
        raise DiskError(f"{CUT}/{file} is gone from the journal's folder")
    return closing(opened)


def _parts(file: DiskFile) -> Iterator[memoryview]:
    part = memoryview(bytearray(CHUNK_BYTES))
    while count := file.read_into(part):
        yield part[:count]


def checkpointer(
    folder: Path, options: CheckpointOptions, spec: RunSpec, plan: RunPlan
) -> Checkpointer:
    return Checkpointer(
        folder / JOURNAL,
        store_of(options.checkpoints, folder),
        Schedule(options.every_merges, options.every_s),
        Retention(options.keep, options.keep_every_s),
        spec,
        plan,
    )


def store_of(checkpoints: str | None, folder: Path) -> Store:
    """Return where the run of a folder stores checkpoints: there, or in the folder if None."""
    return store_at(checkpoints or folder / CHECKPOINTS)


def _check_free(store: Store, known: Sequence[Manifest], mine: Manifest) -> None:
    """Refuse to store a checkpoint among those of another run, or of a newer syncer."""
    for each in known:
        if (each.run, each.origin) != (mine.run, mine.origin):
            raise UserError(
                f"{store.told(each.name)} is a checkpoint of another run, named {each.run!r}; name "
                "another folder or URL as checkpoints"
            )
        if each.epoch > mine.epoch:
            raise FencedError(
                f"{store.told(each.name)} is of epoch {each.epoch}, and this syncer is "
                f"{mine.epoch}: a newer one stores the checkpoints of this run"
            )
