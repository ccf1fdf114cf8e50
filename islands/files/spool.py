"""Entries on their way to files: whoever makes them waits for no disk.

A thread of its own writes them, many at once, a few times a second, each file in its own order.

===========================  ====================================================================
a file                       then
===========================  ====================================================================
fails, as its disk is full   its entries wait, `KEPT_BYTES` of them, and are tried again every
                             `RETRY_S`, for ever
does not answer              the same: nobody waits for it, and `close` waits at most `CLOSE_S`
has no room for an entry     the entry is dropped, counted, and told
===========================  ====================================================================

A process that is killed loses what was made in its last `PAUSE_S`.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from islands.files.replacing import replace_file

KEPT_BYTES = 8 * 2**20
"""Of one file, while it takes nothing."""
CHUNK_BYTES = 2**18
"""Most that is written at once, unless one entry is longer."""
PAUSE_S = 0.1
RETRY_S = 1.0
CLOSE_S = 5.0


class GrowingFile(Protocol):
    """What takes entries in the end; only the spool's thread uses it."""

    @property
    def room_bytes(self) -> int:
        """What it takes before it is turned over; nothing is written across that."""

    def write(self, data: bytes) -> None:
        """Append whole entries.

        Raises:
            OSError: nothing of them is in the file.
        """

    def close(self) -> None:
        """Nothing more is written."""


def nobody(_: str) -> None:
    """Nobody is told."""


@dataclass(slots=True, eq=False)
class SpooledFile:
    """The way to one file.

    Attributes:
        dropped: Entries that found no room, or were still here at the end.
        error: Why the file took nothing when it was last tried; "" if it took what there was.
    """

    spool: "Spool"
    file: GrowingFile
    entries: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    dropped: int = 0
    error: str = ""

    def add(self, entry: bytes) -> bool:
        """Have an entry appended; returns at once, and whether there was room for it."""
        return self.spool.put(self, entry)


class Spool:
    """Writes to the files of one folder.

    Args:
        place: of the files, for a sentence.
        told: told on the spool's thread that files take nothing, that they do again, and at the
            end what was lost.
        kept_bytes: most that waits for one file.
    """

    def __init__(
        self,
        place: Path,
        told: Callable[[str], object] = nobody,
        *,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """No thread runs before the first entry."""
        self._place = place
        self._told = told
        self._kept_bytes = kept_bytes
        self._inlets: list[SpooledFile] = []
        self._contents: dict[Path, bytes] = {}
        self._content_error = ""
        self._changed = threading.Condition()
        self._idle = self._closing = False
        self._thread: threading.Thread | None = None
        self._told_trouble = ""

    def inlet(self, file: GrowingFile) -> SpooledFile:
        """The way to a file, which this spool closes at its end."""
        inlet = SpooledFile(self, file)
        with self._changed:
            self._inlets.append(inlet)
        return inlet

    def put(self, inlet: SpooledFile, entry: bytes) -> bool:
        """Have an entry appended to a file, unless too much waits for it."""
        with self._changed:
            if self._closing or inlet.waiting_bytes + len(entry) > self._kept_bytes:
                inlet.dropped += 1
                return False
            inlet.entries.append(entry)
            inlet.waiting_bytes += len(entry)
            self._wake()
        return True

    def replace(self, path: Path, content: bytes) -> None:
        """Have a file hold this content; a newer one takes its place while it waits."""
        with self._changed:
            if not self._closing:
                self._contents[path] = content
                self._wake()

    @property
    def dropped(self) -> int:
        """Entries that are lost."""
        return sum(inlet.dropped for inlet in self._inlets)

    @property
    def trouble(self) -> str:
        """Why nothing can be written just now, in a sentence; "" if it can."""
        errors = [inlet.error for inlet in self._inlets if inlet.error]
        full = any(2 * inlet.waiting_bytes > self._kept_bytes for inlet in self._inlets)
        if self._content_error:
            errors.append(self._content_error)
        if not errors and not full:
            return ""
        lost = f"; {self.dropped:,} entries are lost so far" if self.dropped else ""
        why = errors[0] if errors else "the disk does not answer"
        return f"{self._place} cannot be written: {why}{lost}; the run goes on"

    def close(self) -> None:
        """Write what waits, and tell what could not be written; waits for `CLOSE_S` at most."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            self._close_files()
        else:
            self._thread.join(CLOSE_S)
        with self._changed:
            for inlet in self._inlets:
                inlet.dropped += len(inlet.entries)
                inlet.entries.clear()
            lost = [f"{self.dropped:,} entries"] if self.dropped else []
            lost += [f"the newest {path.name}" for path in self._contents]
        if lost:
            self._told(f"missing in {self._place}, which cannot be written: {', '.join(lost)}")

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
            self._thread.start()
        elif self._idle:
            self._changed.notify()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:  # until it is closed
            with self._changed:
                self._idle = True
                self._changed.wait_for(self._due)
                self._idle = False
                closing = self._closing
            failed = self._write_all()
            if closing:
                break
            self._tell()
            with self._changed:
                self._changed.wait_for(lambda: self._closing, RETRY_S if failed else PAUSE_S)
        self._close_files()

    def _due(self) -> bool:
        return self._closing or bool(self._contents) or any(one.entries for one in self._inlets)

    def _write_all(self) -> bool:
        """Write what waits; a file that fails holds up no other."""
        for inlet in list(self._inlets):
            inlet.error = _error_of(partial(self._append, inlet))
        errors = [_error_of(partial(self._replace, path)) for path in list(self._contents)]
        self._content_error = next(filter(None, errors), "")
        return bool(self._content_error) or any(inlet.error for inlet in self._inlets)

    def _append(self, inlet: SpooledFile) -> None:
        while chunk := self._chunk(inlet):
            inlet.file.write(b"".join(chunk))
            self._written(inlet, chunk)

    def _replace(self, path: Path) -> None:
        content = self._contents[path]
        replace_file(path, content)
        with self._changed:
            if self._contents[path] is content:
                del self._contents[path]

    def _chunk(self, inlet: SpooledFile) -> list[bytes]:
        """The entries to be written next: one at least, if there are any."""
        room_bytes = min(CHUNK_BYTES, inlet.file.room_bytes)
        chunk: list[bytes] = []
        with self._changed:
            for entry in inlet.entries:
                chunk.append(entry)
                room_bytes -= len(entry)
                if room_bytes <= 0:
                    break
        return chunk

    def _written(self, inlet: SpooledFile, chunk: list[bytes]) -> None:
        with self._changed:
            for _ in range(min(len(chunk), len(inlet.entries))):
                inlet.waiting_bytes -= len(inlet.entries.popleft())

    def _tell(self) -> None:
        """Tell when it begins and when it is over, each once."""
        trouble = self.trouble
        if trouble and not self._told_trouble:
            self._told(trouble)
        elif self._told_trouble and not trouble:
            lost = f"; {self.dropped:,} entries are lost" if self.dropped else "; nothing is lost"
            self._told(f"{self._place} can be written again{lost}")
        self._told_trouble = trouble

    def _close_files(self) -> None:
        for inlet in self._inlets:
            with contextlib.suppress(OSError):
                inlet.file.close()


def _error_of(work: Callable[[], None]) -> str:
    """What an error of the disk says; "" if there is none."""
    try:
        work()
    except OSError as error:
        return error.strerror or str(error)
    return ""
