"""The event tape: everything that was decided, one JSON object per line, the same in every run.

Times are seconds on the writer's own monotonic clock, from the start of the run; they are never
compared between hosts. The tape is what the history checker judges, and what one reads first when
something went wrong.
"""

from collections import deque
from pathlib import Path
from typing import Protocol

import msgspec

from islands.files.rotation import LIMIT_BYTES, RotatingFile
from islands.files.spool import Spool

LOGGED = frozenset(
    (
        *("admitted", "recognised", "status", "evicted", "left", "retired", "refused"),
        *("quarantined", "wrong_report", "moments_reset", "moments_taken", "moments_fresh"),
        *("paused", "resumed", "commanded", "process_started", "process_ended", "started"),
        *("seeded", "closing", "finished", "extended", "grace_zero", "swinging", "disk"),
        *("failed", "gave_up", "unsendable", "killed", "overloaded", "diverged"),
        *(
            "abandoned",
            "nothing_merged",
            "seed_late",
            "evaluation_failed",
            "notes_dropped",
            "damaged",
        ),
    )
)
"""Kinds of entries that a person wants to know about."""

NOTABLE = LOGGED | {"merged"}
"""Kinds of entries that go to the run's folder, whichever process they come from."""


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

    No disk is waited for. How many entries could not be written is noted as soon as some can.

    Args:
        path: of the tape.
        spool: writes it.
        limit_bytes: at which the file is turned over.
    """

    def __init__(self, path: Path, spool: Spool, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """The file is opened with the first entry."""
        self._spool = spool
        self._inlet = spool.inlet(RotatingFile(path, limit_bytes))
        self._noted = 0

    def write(self, at_s: float, actor: str, kind: str, fields: dict[str, object]) -> None:
        """Append one entry; a process that is killed has written all but the last moment's."""
        lost = self._inlet.dropped - self._noted
        if lost and not self._inlet.error:
            told = encode_entry(at_s, actor, "entries_lost", {"entries": lost}) + b"\n"
            self._noted += lost if self._inlet.add(told) else 0
        self._inlet.add(encode_entry(at_s, actor, kind, fields) + b"\n")

    def close(self) -> None:
        """Write what waits for this file and for all others of its spool."""
        self._spool.close()


def encode_entry(at_s: float, actor: str, kind: str, fields: dict[str, object]) -> bytes:
    """One entry in its one form: time, actor and kind first, then the fields as given.

    A field cannot take the place of the first three, whoever made it.
    """
    head = {"at_s": round(at_s, 6), "actor": actor, "kind": kind}
    return msgspec.json.encode(head | fields | head)
