"""The event tape: everything that was decided, one JSON object per line, the same in every run.

Times are seconds on the writer's own monotonic clock, from the start of the run; they are never
compared between hosts. The tape is what the history checker judges, and what one reads first when
something went wrong.
"""

import contextlib
from collections import deque
from pathlib import Path
from typing import IO, Protocol

import msgspec

LOGGED = frozenset(
    (
        *("admitted", "recognised", "status", "evicted", "left", "retired", "refused"),
        *("quarantined", "moments_reset", "moments_taken", "moments_fresh", "failed", "gave_up"),
        *("paused", "resumed", "commanded", "process_started", "process_ended", "started"),
        *("seeded", "closing", "finished", "extended", "grace_zero", "swinging", "disk"),
        *("unsendable", "killed"),
    )
)
"""Kinds of entries that a person wants to know about."""

NOTABLE = LOGGED | {"merged"}
"""Kinds of entries that go to the run's folder, whichever process they come from."""


FLUSH_S = 1.0


class Tape(Protocol):
    """Somewhere to write entries to."""

    def write(self, at_s: float, actor: str, kind: str, fields: dict[str, object]) -> None:
        """Write one entry."""


class MemoryTape:
    """Keeps entries, as the bytes that a file would hold; the newest `limit` of them."""

    def __init__(self, limit: int | None = None) -> None:
        """An empty tape."""
        self.lines: deque[bytes] = deque(maxlen=limit)

    def write(self, at_s: float, actor: str, kind: str, fields: dict[str, object]) -> None:
        """Keep one entry."""
        self.lines.append(encode_entry(at_s, actor, kind, fields))


class FileTape:
    """Appends entries to a file; turns it over when it grows past a limit.

    Attributes:
        dropped: Writes that failed, as the disk is full or broken; their entries may be lost.
    """

    def __init__(self, path: Path, *, limit_bytes: int = 256 * 2**20) -> None:
        """Open the file for appending."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._file: IO[bytes] = path.open("ab")
        self._size = path.stat().st_size
        self._flushed_s = float("-inf")
        self.dropped = 0

    def write(self, at_s: float, actor: str, kind: str, fields: dict[str, object]) -> None:
        """Append one entry; a process that is killed has written all but the last second's."""
        line = encode_entry(at_s, actor, kind, fields) + b"\n"
        try:
            self._append(line, at_s)
        except OSError:  # a disk without room costs entries, not the process
            self.dropped += 1

    def _append(self, line: bytes, at_s: float) -> None:
        self._file.write(line)
        self._size += len(line)
        if at_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = at_s
            self._file.flush()
        if self._size >= self._limit_bytes:
            self._turn_over()

    def close(self) -> None:
        """Write what is buffered."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _turn_over(self) -> None:
        """Keep one full file beside the growing one."""
        self._file.close()
        self._path.replace(self._path.with_suffix(".1.jsonl"))
        self._file, self._size = self._path.open("ab"), 0


def encode_entry(at_s: float, actor: str, kind: str, fields: dict[str, object]) -> bytes:
    """One entry in its one form: time, actor and kind first, then the fields as given."""
    return msgspec.json.encode({"at_s": round(at_s, 6), "actor": actor, "kind": kind, **fields})
