"""A second copy of a run on another disk, which is the folder of a run: a hub can begin there.

Each record of the journal is copied whole, in its order. With `durability: mirrored` learners hear
of nothing that the copy lacks: a record is durable once both disks have it, and a copy that fails
is tried again as the journal itself is. Else the run goes on without the copy, and says so; what is
newest is copied once that is possible again, and until all of it is there, the copy may be some
versions behind in one fragment and not in another.

A folder in which another run is, or another process, gets no copy. In one in which a hub has gone
on, the run lives: the syncer that would write there ends.
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
from islands.files.run_files import JOURNAL_LOCK, KEY_FILE, REVOKED_FILE, TOKEN_FILE, epoch_file
from islands.files.slots import Slots
from islands.files.spare_files import spare_of
from islands.files.whole_files import copy_file, replace_file
from islands.keeping.restoring import set_aside
from islands.protocol.errors import DamagedError, DiskError, FencedError, IslandsError, UserError
from islands.protocol.identities import SUPERVISOR
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import CopyFailed, Mirrored
from islands.settings.run_spec import RunPlan, RunSpec, read, write
from islands.syncer.journal import JOURNAL, Follower, Journal

LINKS = "mirror"
"""Folder in the journal's, of the second names of records that are yet to be copied."""

BESIDE = (KEY_FILE, TOKEN_FILE, REVOKED_FILE, epoch_file(SUPERVISOR))


@dataclass(slots=True)
class Mirror(Follower):
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
    _waiting: dict[str, str] = field(default_factory=dict)
    _change: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _error: str = ""
    _fenced: FencedError | None = None
    _closed: bool = False
    _copied: bool = False
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
        try:
            links = self._links(journal)
        except IslandsError as error:
            self._whole = False
            self._tell(str(error))
            return
        with self._change:
            replaced = [self._waiting.pop(file) for file in links if file in self._waiting]
            self._waiting |= links
            self._change.notify_all()
        for link in replaced:
            self._unlink(link)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(journal.epoch,), daemon=True)
            self._thread.start()

    def holds(self, sequence: int) -> bool:
        """Whether all that this start has read and written is copied, if learners wait for it."""
        return not self.waits or self._copied

    @property
    def wanted(self) -> bool:
        return self.waits and not self._copied

    def news(self) -> Iterator[Entry]:
        while self._news:
            yield self._news.popleft()

    def close(self) -> None:
        """Wait until all is copied, unless that takes too long."""
        with self._change:
            self._change.wait_for(self._done, self.close_s)
            self._closed = True
            self._change.notify_all()
        if self._lock is not None:
            self._lock.close()

    def _done(self) -> bool:
        return not self._waiting or self._fenced is not None

    # --- what is copied ------------------------------------------------------------------------

    def _files(self, journal: Journal) -> tuple[str, ...]:
        files = journal.files if not self._whole or journal.last is None else (journal.last,)
        self._whole = True
        return files

    def _links(self, journal: Journal) -> dict[str, str]:
        """Give second names to what is to be copied, which later records do not change; by file."""
        if not self._linked:
            shutil.rmtree(self.folder / JOURNAL / LINKS, ignore_errors=True)
        found: dict[str, str] = {}
        for file in self._files(journal):
            self._linked += 1
            found[file] = f"{LINKS}/{self._linked}-{file}"
            journal.link(file, found[file])
        return found

    def _unlink(self, link: str) -> None:
        with suppress(OSError):
            (self.folder / JOURNAL / link).unlink(missing_ok=True)

    def _copy_now(self, journal: Journal) -> None:
        try:
            self._claim(journal.epoch)
            for file in self._files(journal):
                self._copy(file, file)
            self._copied = True
        except (OSError, DiskError) as error:
            self._give_up(str(error))
            raise DiskError(f"the copy in {self.other} fails: {error}") from error
        self._tell("")

    def _run(self, epoch: int) -> None:
        while (waiting := self._next()) is not None:
            file, link = waiting
            try:
                self._claim(epoch)
                self._copy(link, file)
            except FencedError as error:
                with self._change:
                    self._fenced = error
                    self._change.notify_all()
                return
            except (OSError, IslandsError) as error:
                if (self.folder / JOURNAL / link).exists():
                    self._give_up(str(error))
                    with self._change:
                        self._change.wait_for(lambda: self._closed, self.retry_s)
                continue  # else a newer record took its place
            self._tell("")
            self._unlink(link)
            with self._change:
                if self._waiting.get(file) == link:
                    del self._waiting[file]
                self._change.notify_all()

    def _next(self) -> tuple[str, str] | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else next(iter(self._waiting.items()))

    def _give_up(self, error: str) -> None:
        """Tell that the copy fails; the next one claims the folder anew, and copies everything."""
        self._tell(f"{self.other}: {error}")
        self._whole = False
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- the other folder ----------------------------------------------------------------------

    def _claim(self, epoch: int) -> None:
        """Take the other folder for this run; it may hold this run already, and no other."""
        if self._lock is not None:
            if (self.other / JOURNAL).exists():
                return
            self._lock.close()
            self._lock = None
        make_private(self.other / JOURNAL)
        with ExitStack() as unless_claimed:
            lock = unless_claimed.enter_context(
                lock_folder(self.other / JOURNAL, JOURNAL_LOCK, "syncer")
            )
            earlier = self._check(epoch)
            if earlier:
                set_aside(self.other)
                unless_claimed.close()
                self._claim(epoch)
                return
            for path in self._beside():
                copy = self.other / path.relative_to(self.folder)
                make_private(copy.parent)
                replace_file(copy, path.read_bytes(), private=True)
            write(self.other, self.spec, self.plan)
            unless_claimed.pop_all()
        self._lock = lock

    def _beside(self) -> Iterator[Path]:
        """Yield what a hub needs beside the journal, and what its supervisor has counted."""
        for name in BESIDE:
            for path in (self.folder / name, spare_of(self.folder / name)):
                if path.is_file():
                    yield path
        yield from sorted((self.folder / SUPERVISOR).glob("epoch.*"))

    def _check(self, epoch: int) -> bool:
        """Return whether the other folder holds this run before it went back to a checkpoint."""
        gone_on = newest_epoch(Slots(epoch_disk(self.other, JOURNAL)))
        if gone_on:
            raise FencedError(
                f"a hub has gone on in {self.other}, the mirror of this run, as epoch {gone_on}; "
                f"this syncer, epoch {epoch}, ends: go on in that folder, or name another as mirror"
            )
        held = any((self.other / JOURNAL).glob("fragment-*"))
        try:
            there = read(self.other)
        except DamagedError:
            if held:
                raise
            there = None  # the first copy was cut off
        if there is None or there[1].begun == self.plan.begun:
            return False
        if there[1].origin == self.plan.went_back_from:
            return held
        raise UserError(f"{self.other} is the mirror of another run; name another folder as mirror")

    def _copy(self, source: str, file: str) -> None:
        copy_file(self.folder / JOURNAL / source, self.other / JOURNAL / file)

    def _tell(self, error: str) -> None:
        if error and not self._error:
            self._news.append(CopyFailed("mirror", error))
        elif self._error and not error:
            self._news.append(Mirrored(str(self.other)))
        self._error = error
