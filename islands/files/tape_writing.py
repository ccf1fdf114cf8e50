"""Writers of tapes, in memory or to a file, with one JSON object per line.

Each file begins with its version (`HEAD`), and so does each part of it that a process appends.
"""

from collections import deque
from pathlib import Path
from typing import Protocol

from islands.files.growing_files import LIMIT_BYTES, RotatingFile, Spool
from islands.protocol.tape.entry import VERSION, Entry, encode_entry
from islands.protocol.tape.process_entries import EntriesLost, TapeBegan

HEAD = encode_entry(0.0, "tape", TapeBegan(VERSION))
"""The first line of every tape."""


class Tape(Protocol):
    """A destination for entries."""

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Write one entry."""


class MemoryTape:
    """Keeps the newest `limit` entries in memory, as the bytes that a file would hold."""

    def __init__(self, limit: int | None = None) -> None:
        self.lines: deque[bytes] = deque([HEAD], maxlen=limit)

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        self.lines.append(encode_entry(at_s, actor, entry))


class FileTape:
    """Appends entries to a file, and rotates it when it grows past a limit.

    Writing never waits for the disk. If entries are lost, their number is written as soon as the
    disk works again.
    """

    def __init__(self, path: Path, spool: Spool, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._spool = spool
        self._inlet = spool.inlet(RotatingFile(path, limit_bytes, HEAD + b"\n"))
        self._noted = 0

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Queue one entry; a process that is killed loses only the entries of its last moment."""
        lost = self._inlet.dropped - self._noted
        if lost and not self._inlet.error:
            note = encode_entry(at_s, actor, EntriesLost(lost)) + b"\n"
            self._noted += lost if self._inlet.add(note) else 0
        self._inlet.add(encode_entry(at_s, actor, entry) + b"\n")

    def close(self) -> None:
        """Write all that is queued for this file and for the other files of its spool."""
        self._spool.close()
