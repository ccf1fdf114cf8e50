"""A second copy of a run on another disk, which is the folder of a run: a hub can begin there.

Each record of the journal is copied whole and in order, so the copy is at any moment a journal of
this run, some records behind. With `durability: mirrored` learners hear of nothing that the copy
lacks: a record is durable once both disks have it, and a copy that fails is tried again as the
journal itself is. Else the run goes on without the copy, and says so.

A folder in which another run, another process or a newer syncer is gets no copy.
"""

import shutil
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from islands.actors.epochs import epoch_disk, newest_epoch
from islands.files.folder_lock import lock_folder, make_private
from islands.files.slots import Slots
from islands.files.whole_files import atomic_write, open_plain, replace_file
from islands.keeping.store import CHUNK_BYTES
from islands.protocol.errors import DiskError, FencedError, IslandsError, UserError
from islands.protocol.identities import SUPERVISOR
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import CopyFailed, Mirrored
from islands.settings.run_spec import RunPlan, RunSpec, read, write
from islands.syncer.journal import JOURNAL, Journal

LINKS = "mirror"
"""Folder in the journal's, of the second names of records that are yet to be copied."""

WAITING_MOST = 64
"""Records that may wait for the copy; beyond that it begins anew with the newest ones."""

BESIDE = ("key", "token", f"{SUPERVISOR}.epoch")


@dataclass(slots=True)
class Mirror:
    """Copies the journal of the run in `folder` to `other`; `waits` for each record's copy."""

    folder: Path
    other: Path
    spec: RunSpec
    plan: RunPlan
    waits: bool = False
    retry_s: float = 2.0
    close_s: float = 10.0
    _lock: IO[bytes] | None = None
    _whole: bool = False
    _linked: int = 0
    _waiting: deque[tuple[str, str]] = field(default_factory=deque)
    _change: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _error: str = ""
    _fenced: FencedError | None = None
    _closed: bool = False
    _news: deque[Entry] = field(default_factory=deque)

    def follow(self, journal: Journal) -> None:
        """Copy what was written since the last call, or have it copied.

        Raises:
            DiskError: the copy fails just now, and the record waits for it.
            FencedError: a newer syncer has written there.
        """
        if self._fenced is not None:
            raise self._fenced
        if self.waits:
            self._copy_now(journal)
            return
        with self._change:
            if len(self._waiting) >= WAITING_MOST:
                self._forget()
            try:
                self._waiting.extend(self._links(journal))
            except IslandsError as error:
                self._forget()
                self._tell(str(error))
            self._change.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(journal.epoch,), daemon=True)
            self._thread.start()

    def ask(self, reason: str) -> None:
        """Do nothing: every record is copied."""

    @property
    def wanted(self) -> bool:
        return False

    def finish(self, journal: Journal, reason: str) -> None:
        """Do nothing: the record of the end is copied as all others are."""

    def news(self) -> Iterator[Entry]:
        while self._news:
            yield self._news.popleft()

    def close(self) -> None:
        """Wait until all is copied, unless that takes too long."""
        with self._change:
            self._change.wait_for(lambda: not self._waiting, self.close_s)
            self._closed = True
            self._change.notify_all()
        if self._lock is not None:
            self._lock.close()

    # --- what is copied ------------------------------------------------------------------------

    def _files(self, journal: Journal) -> tuple[str, ...]:
        files = journal.files if not self._whole or journal.last is None else (journal.last,)
        self._whole = True
        return files

    def _links(self, journal: Journal) -> list[tuple[str, str]]:
        """Give second names to what is to be copied, which later records do not change."""
        if not self._linked:
            self._forget()
        found: list[tuple[str, str]] = []
        for file in self._files(journal):
            self._linked += 1
            link = f"{LINKS}/{self._linked}-{file}"
            journal.link(file, link)
            found.append((link, file))
        return found

    def _forget(self) -> None:
        """Begin anew with the newest records: those that wait are too many, or of another start."""
        self._waiting.clear()
        self._whole = False
        shutil.rmtree(self.folder / JOURNAL / LINKS, ignore_errors=True)

    def _copy_now(self, journal: Journal) -> None:
        try:
            self._claim(journal.epoch)
            for file in self._files(journal):
                self._copy(file, file)
        except (OSError, UserError) as error:
            self._whole = False
            self._tell(f"{self.other}: {error}")
            raise DiskError(f"the copy in {self.other} fails: {error}") from error
        self._tell("")

    def _run(self, epoch: int) -> None:
        while (waiting := self._next()) is not None:
            link, file = waiting
            try:
                self._claim(epoch)
                self._copy(link, file)
            except FencedError as error:
                self._fenced = error
                return
            except FileNotFoundError:  # the copy begins anew, without this record
                pass
            except (OSError, IslandsError) as error:
                self._tell(f"{self.other}: {error}")
                with self._change:
                    self._change.wait_for(lambda: self._closed, self.retry_s)
                continue
            self._tell("")
            with self._change, suppress(ValueError):
                self._waiting.remove(waiting)
            with suppress(OSError):
                (self.folder / JOURNAL / link).unlink(missing_ok=True)
            with self._change:
                self._change.notify_all()

    def _next(self) -> tuple[str, str] | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._waiting[0]

    # --- the other folder ----------------------------------------------------------------------

    def _claim(self, epoch: int) -> None:
        """Take the other folder for this run, once; it may hold this run already, and no other."""
        if self._lock is not None:
            return
        with ExitStack() as unless_claimed:
            lock = unless_claimed.enter_context(lock_folder(self.other / JOURNAL, "lock", "syncer"))
            self._check(epoch)
            for path in self._beside():
                copy = self.other / path.relative_to(self.folder)
                make_private(copy.parent)
                replace_file(copy, path.read_bytes())
                copy.chmod(0o600)
            write(self.other, self.spec, self.plan)
            unless_claimed.pop_all()
        self._lock = lock

    def _beside(self) -> Iterator[Path]:
        """Yield what a hub needs beside the journal, and what its supervisor has counted."""
        for name in BESIDE:
            if (self.folder / name).is_file():
                yield self.folder / name
        yield from sorted((self.folder / SUPERVISOR).glob("epoch.*"))

    def _check(self, epoch: int) -> None:
        there = read(self.other)
        if there is not None and there[1].layout.fingerprint != self.plan.layout.fingerprint:
            raise UserError(f"{self.other} holds another run; name another folder as mirror")
        newest = newest_epoch(Slots(epoch_disk(self.other, JOURNAL)))
        if newest > epoch:
            raise FencedError(
                f"a newer syncer has gone on in {self.other}: its epoch is {newest}, this one's is "
                f"{epoch}, so it ends; go on in that folder"
            )

    def _copy(self, source: str, file: str) -> None:
        with (
            open_plain(self.folder / JOURNAL / source) as old,
            atomic_write(self.other / JOURNAL / file) as new,
        ):
            shutil.copyfileobj(old, new, CHUNK_BYTES)

    def _tell(self, error: str) -> None:
        if error and not self._error:
            self._news.append(CopyFailed("mirror", error))
        elif self._error and not error:
            self._news.append(Mirrored(str(self.other)))
        self._error = error
