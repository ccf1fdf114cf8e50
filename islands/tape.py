"""The event tape: everything that was decided, one JSON object per line, the same in every run.

Times are seconds on the writer's own monotonic clock, from the start of the run; they are never
compared between hosts. The tape is what the history checker judges, and what one reads first when
something went wrong.
"""

import contextlib
from collections import deque
from pathlib import Path
from typing import Protocol

import msgspec

from islands.rotation import LIMIT_BYTES, RotatingFile

LOGGED = frozenset(
    (
        *("admitted", "recognised", "status", "evicted", "left", "retired", "refused"),
        *("quarantined", "wrong_report", "moments_reset", "moments_taken", "moments_fresh"),
        *("paused", "resumed", "commanded", "process_started", "process_ended", "started"),
        *("seeded", "closing", "finished", "extended", "grace_zero", "swinging", "disk"),
        *("failed", "gave_up", "unsendable", "killed", "overloaded", "diverged"),
        *("abandoned", "nothing_merged", "seed_late"),
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

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Open the file for appending."""
        self._file = RotatingFile(path, limit_bytes)
        self._flushed_s = float("-inf")
        self.dropped = 0

    def write(self, at_s: float, actor: str, kind: str, fields: dict[str, object]) -> None:
        """Append one entry; a process that is killed has written all but the last second's."""
        due = at_s - self._flushed_s >= FLUSH_S
        if due:
            self._flushed_s = at_s
        try:
            self._file.write(encode_entry(at_s, actor, kind, fields) + b"\n", flush=due)
        except OSError:  # a disk without room costs entries, not the process
            self.dropped += 1

    def close(self) -> None:
        """Write what is buffered."""
        with contextlib.suppress(OSError):
            self._file.close()


def encode_entry(at_s: float, actor: str, kind: str, fields: dict[str, object]) -> bytes:
    """One entry in its one form: time, actor and kind first, then the fields as given."""
    return msgspec.json.encode({"at_s": round(at_s, 6), "actor": actor, "kind": kind, **fields})
