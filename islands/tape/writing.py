"""Where entries are written: in memory, or in a file, one JSON object per line.

A tape begins with its version (`HEAD`): each file, and each stretch of it that a process writes.
"""

from collections import deque
from pathlib import Path
from typing import Protocol

from islands.files.rotation import LIMIT_BYTES, RotatingFile
from islands.files.spool import Spool
from islands.tape.entry import VERSION, Entry, encode_entry
from islands.tape.process_entries import EntriesLost, TapeBegan

HEAD = encode_entry(0.0, "tape", TapeBegan(VERSION))
"""The first line of every tape."""


class Tape(Protocol):
    """Somewhere to write entries to."""

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Write one entry."""


class MemoryTape:
    """Keeps entries, as the bytes that a file would hold; the newest `limit` of them."""

    def __init__(self, limit: int | None = None) -> None:
        """Nothing is on the tape but its version."""
        self.lines: deque[bytes] = deque([HEAD], maxlen=limit)

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Keep one entry."""
        self.lines.append(encode_entry(at_s, actor, entry))


class FileTape:
    """Appends entries to a file; turns it over when it grows past a limit.

    No disk is waited for. How many entries could not be written is noted as soon as some can.

    Args:
        path: of the tape.
        spool: writes it.
        limit_bytes: at which the file is turned over.
    """

    def __init__(self, path: Path, spool: Spool, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """The file is opened with the first entry."""
        self._spool = spool
        self._inlet = spool.inlet(RotatingFile(path, limit_bytes, HEAD + b"\n"))
        self._noted = 0

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Append one entry; a process that is killed has written all but the last moment's."""
        lost = self._inlet.dropped - self._noted
        if lost and not self._inlet.error:
            told = encode_entry(at_s, actor, EntriesLost(lost)) + b"\n"
            self._noted += lost if self._inlet.add(told) else 0
        self._inlet.add(encode_entry(at_s, actor, entry) + b"\n")

    def close(self) -> None:
        """Write what waits for this file and for all others of its spool."""
        self._spool.close()
