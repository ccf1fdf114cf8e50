"""Files that grow as long as a run does: rotated at a limit, and written without waiting.

A file and the one before it, `older(path)`, never hold more than twice the limit (and a last
entry), whatever the run does and however long it takes.

Entries are queued in a `Spool`, so that no caller waits for a disk. A thread of its own writes them
every `PAUSE_S`, and keeps the order of each file; a process that is killed loses those of its last
moment. While a disk is full or does not answer, up to `KEPT_BYTES` wait for each file, and the
thread tries again for ever; what finds no room is dropped and counted, and the loss is reported.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol, TypeVar

from islands.files.whole_files import replace_file

LIMIT_BYTES = 256 * 2**20
T = TypeVar("T")


def older(path: Path) -> Path:
    """Return the path to which a full file of this name is renamed."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


class RotatingFile:
    """Appends lines to a file, and rotates it when it has grown to a limit.

    An existing file is continued, on a new line. `head` is a whole line that begins each file, and
    each continuation of one. The first `write` opens it, because the disk may be full before.
    """

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES, head: bytes = b"") -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._head = head
        self._file: IO[bytes] | None = None
        self._size = 0
        self._due = b""

    @property
    def room_bytes(self) -> int:
        return self._limit_bytes - self._size

    def write(self, data: bytes) -> None:
        """Append whole lines."""
        file = self._file
        if file is None or not _is_at(file, self._path):  # it was deleted, or moved away
            file = self._open()
        if self._size >= self._limit_bytes:
            self._path.replace(older(self._path))
            file = self._open()
        whole = self._due + data
        write_whole(file, whole, self._size)
        self._due = b""
        self._size += len(whole)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._file = self._path.open("ab", buffering=0)
        self._size = os.fstat(file.fileno()).st_size
        self._due = (b"\n" if _is_torn(self._path, self._size) else b"") + self._head
        return file


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one at a path; one that cannot be looked at counts as there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
    except OSError:
        return True


def write_whole(file: IO[bytes], data: bytes, size: int) -> None:
    """Append all of the data to an unbuffered file of this size, or nothing."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with contextlib.suppress(OSError):  # a device has no size
            os.ftruncate(file.fileno(), size)
        raise


def _is_torn(path: Path, size: int) -> bool:
    """Whether a file ends within a line, as it may after its host died."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, size - 1))
        return size > 0 and file.read(1) not in (b"\n", b"")
    return False


# --- writing without waiting -------------------------------------------------------------------

KEPT_BYTES = 8 * 2**20
"""Bytes that may wait for one file while it cannot be written."""
CHUNK_BYTES = 2**18
"""Most bytes of one write, unless one entry is longer."""
PAUSE_S = 0.1
RETRY_S = 1.0
CLOSE_S = 5.0


class GrowingFile(Protocol):
    """A file that takes the entries; only the spool's thread uses it."""

    @property
    def room_bytes(self) -> int:
        """How many bytes it takes before it is rotated; the entry that fills them ends a batch."""

    def write(self, data: bytes) -> None:
        """Append all of these whole entries; or none, and raise OSError."""

    def close(self) -> None: ...


def nobody(_: str) -> None:
    """Ignore a sentence."""


@dataclass(slots=True, eq=False)
class SpooledFile:
    """The queue of entries for one file.

    Attributes:
        dropped: How many entries are lost, for lack of room or since the spool closed.
        error: Why the last write to the file failed; "" if it succeeded.
    """

    spool: "Spool"
    file: GrowingFile
    entries: deque[bytes | memoryview] = field(default_factory=deque)
    waiting_bytes: int = 0
    dropped: int = 0
    error: str = ""

    def add(self, *entries: bytes | memoryview) -> bool:
        """Queue entries, which must not change; return whether there was room for all of them."""
        return self.spool.put(self, *entries)


class Spool:
    """Writes to the files of one folder, on a thread that starts with the first entry.

    `report` is called on that thread with a sentence when files cannot be written and when they can
    be again, and by `close` with what was lost.
    """

    def __init__(
        self,
        folder: Path,
        report: Callable[[str], object] = nobody,
        *,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._folder = folder
        self._report = report
        self._kept_bytes = kept_bytes
        self._inlets: list[SpooledFile] = []
        self._contents: dict[Path, bytes] = {}
        self._content_error = ""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._reported_trouble = ""

    def inlet(self, file: GrowingFile) -> SpooledFile:
        """Return the queue for a file, which this spool closes when it ends."""
        inlet = SpooledFile(self, file)
        with self._lock:
            self._inlets.append(inlet)
        return inlet

    def put(self, inlet: SpooledFile, *entries: bytes | memoryview) -> bool:
        """Queue entries for a file, and return True, unless too much waits for it: then none."""
        size_bytes = sum(map(len, entries))
        with self._lock:
            if self._closing.is_set() or inlet.waiting_bytes + size_bytes > self._kept_bytes:
                inlet.dropped += 1
                return False
            inlet.entries.extend(entries)
            inlet.waiting_bytes += size_bytes
            self._start()
        return True

    def replace(self, path: Path, content: bytes) -> None:
        """Queue this content to replace a file; a newer content supersedes one that waits."""
        with self._lock:
            if not self._closing.is_set():
                self._contents[path] = content
                self._start()

    @property
    def dropped(self) -> int:
        return sum(inlet.dropped for inlet in self._inlets)

    @property
    def trouble(self) -> str:
        """A sentence that says why files cannot be written now; "" if they can."""
        failed = (*(inlet.error for inlet in self._inlets), self._content_error)
        errors = [error for error in failed if error]
        full = any(2 * inlet.waiting_bytes > self._kept_bytes for inlet in self._inlets)
        if not errors and not full:
            return ""
        lost = f"; {self.dropped:,} entries are lost so far" if self.dropped else ""
        why = errors[0] if errors else "the disk does not answer"
        return f"{self._folder} cannot be written: {why}{lost}; the run goes on"

    def close(self) -> None:
        """Write what waits, for at most `CLOSE_S`, and report what could not be written."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        if self._thread is None:
            self._close_files()
        else:
            self._thread.join(CLOSE_S)
        with self._lock:
            for inlet in self._inlets:
                inlet.dropped += len(inlet.entries)
                inlet.entries.clear()
            lost = [f"{self.dropped:,} entries"] if self.dropped else []
            lost += [f"the newest {path.name}" for path in self._contents]
        if lost:
            self._report(f"missing in {self._folder}, which cannot be written: {', '.join(lost)}")

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
            self._thread.start()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        failed = False
        while not self._closing.wait(RETRY_S if failed else PAUSE_S):
            failed = self._write_all()
            self._report_trouble()
        self._write_all()
        self._close_files()

    def _write_all(self) -> bool:
        """Write what waits to every file, even if one fails; return whether any failed."""
        for inlet in list(self._inlets):
            inlet.error = _error_of(self._append, inlet)
        errors = [_error_of(self._replace, path) for path in list(self._contents)]
        self._content_error = next(filter(None, errors), "")
        return bool(self._content_error) or any(inlet.error for inlet in self._inlets)

    def _append(self, inlet: SpooledFile) -> None:
        while chunk := self._chunk(inlet):
            inlet.file.write(b"".join(chunk))
            with self._lock:
                for _ in range(min(len(chunk), len(inlet.entries))):
                    inlet.waiting_bytes -= len(inlet.entries.popleft())

    def _replace(self, path: Path) -> None:
        content = self._contents[path]
        replace_file(path, content)
        with self._lock:
            if self._contents[path] is content:
                del self._contents[path]

    def _chunk(self, inlet: SpooledFile) -> list[bytes | memoryview]:
        """Return the entries to write next: at least one, if there are any."""
        room_bytes = min(CHUNK_BYTES, inlet.file.room_bytes)
        chunk: list[bytes | memoryview] = []
        with self._lock:
            for entry in inlet.entries:
                chunk.append(entry)
                room_bytes -= len(entry)
                if room_bytes <= 0:
                    break
        return chunk

    def _report_trouble(self) -> None:
        """Report once when trouble begins, and once when it is over."""
        trouble = self.trouble
        if trouble and not self._reported_trouble:
            self._report(trouble)
        elif self._reported_trouble and not trouble:
            lost = f"; {self.dropped:,} entries are lost" if self.dropped else "; nothing is lost"
            self._report(f"{self._folder} can be written again{lost}")
        self._reported_trouble = trouble

    def _close_files(self) -> None:
        for inlet in self._inlets:
            with contextlib.suppress(OSError):
                inlet.file.close()


def _error_of(work: Callable[[T], None], what: T) -> str:
    try:
        work(what)
    except OSError as error:
        return error.strerror or str(error)
    return ""
