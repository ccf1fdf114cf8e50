"""Read the tapes of a run's folder as they grow, in the order of wall time, for whoever looks on.

The hub's tape and those of the processes on its host are read. Each counts seconds of a clock of
its own, which begins with `process_began`; where that was rotated away, the time at which the file
was last written tells. Of a long tape only the newest part is read, and `run.log` for the time
before.

A line has `t`, seconds of wall time, in place of `at_s`. Left out are kinds that a page does not
show (`LEFT_OUT`), reports of no new phase, and what a process has in its own tape as well.
"""

import mmap
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from islands.files.growing_files import older
from islands.files.run_files import LOG_FILE, TAPE_FILE
from islands.files.tailing import Position, Tail
from islands.files.whole_files import open_plain
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.protocol.tape import round_entries as rounds
from islands.protocol.tape.entry import kind_of
from islands.protocol.tape.kinds import kinds_of

NEWEST_BYTES = 4 * 2**20
"""Bytes of the newest part of a tape that are read at first."""
ORIGIN_BYTES = 2**25
"""Bytes of each file before those that are read in which the beginning of their clock is sought."""
LOG_BYTES = 2**20
PROCESSES_MOST = 64
"""Most tapes of processes that are read; further ones are left out, in the order of their names."""

LEFT_OUT = kinds_of(
    *(processes.TapeBegan, processes.ProcessBegan),
    *(members.Linked, members.Unlinked),
    *(rounds.Journal, rounds.Journalled, rounds.Granted, rounds.LeaseReturned),
    *(rounds.BookClosed, rounds.Duplicate),
    *(learners.Adopted, learners.Contributed, learners.MomentsGiven),
)
BEGAN, PROGRESS = kind_of(processes.ProcessBegan), kind_of(learners.Reported)
BEGAN_MARK = f'"kind":"{BEGAN}"'.encode()

LINE = re.compile(rb'\{"at_s":([-+.0-9eE]+),"actor":"([^"\\]*)","kind":"([a-z_]+)"(.*\})')
PHASE = re.compile(rb'"phase":"([a-z]+)"')

Entry = tuple[float, bytes]
"""An entry's wall time, and its line."""


class GrowingTape:
    """One tape, which a process may write meanwhile.

    `first_s` and `origin_s` are wall times: of the first entry that was read, and of the beginning
    of the entries' clock; None before they are known. `whole` says whether the tape was read from
    its beginning.
    """

    def __init__(self, path: Path, newest_bytes: int = NEWEST_BYTES) -> None:
        self._path = path
        self._newest_bytes = newest_bytes
        self._tail = Tail(path)
        self.origin_s: float | None = None
        self._phases: dict[bytes, bytes] = {}
        self.first_s: float | None = None
        self.whole = True

    def read(self) -> list[Entry]:
        """Return the entries that came since the last call; at first, the newest ones."""
        try:
            return self._entries(self._tail.read() if self._tail.position.inode else self._newest())
        except OSError:
            return []  # there is no such file yet

    def _newest(self) -> bytes:
        with open_plain(self._path) as file:
            status = os.fstat(file.fileno())
            start = max(0, status.st_size - self._newest_bytes)
            file.seek(start)
            text = file.read(status.st_size - start)
        text = text[: text.rfind(b"\n") + 1]
        self._tail.position = Position(status.st_ino, start + len(text))
        before = None if start else _tail(older(self._path), self._newest_bytes - len(text))
        if before is not None:
            self.whole, text = before[0], before[1] + text
        elif start:
            self.whole, text = False, text.partition(b"\n")[2]
        if not self.whole:
            self.origin_s = self._origin_before(start)
        return text

    def _origin_before(self, start: int) -> float | None:
        """Find where the clock of the entries from an offset on begins; None if that is gone."""
        for path, end in ((self._path, start), (older(self._path), None)):
            with (
                suppress(OSError, ValueError),  # there is no such file, or it is empty
                open_plain(path) as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
            ):
                until = len(text) if end is None else end
                at = text.rfind(BEGAN_MARK, max(0, until - ORIGIN_BYTES), until)
                if at >= 0:
                    begin = text.rfind(b"\n", 0, at) + 1
                    return _wall_s(text[begin : text.find(b"\n", at)])
        return None

    def _entries(self, text: bytes) -> list[Entry]:
        found = list(self._parsed(text.splitlines()))
        if self.first_s is None and found:
            self.first_s = found[0][0]
        return found

    def _parsed(self, lines: list[bytes]) -> Iterator[Entry]:
        for line in lines:
            match = LINE.fullmatch(line)
            if match is None:
                continue  # half written, as when a host died
            at_s, actor, kind, rest = match.groups()
            if kind == BEGAN.encode():
                self.origin_s = _wall_s(line)
            if kind.decode() in LEFT_OUT or not self._is_news(actor, kind, rest):
                continue
            wall_s = self._origin(lines) + float(at_s)
            yield wall_s, b'{"t":%.3f,"actor":"%b","kind":"%b"%b' % (wall_s, actor, kind, rest)

    def _is_news(self, actor: bytes, kind: bytes, rest: bytes) -> bool:
        """Whether a report tells another phase than the one before; other kinds always do."""
        if kind != PROGRESS.encode():
            return True
        match = PHASE.search(rest)
        phase = b"" if match is None else match[1]
        before, self._phases[actor] = self._phases.get(actor), phase
        return phase != before

    def _origin(self, lines: list[bytes]) -> float:
        """Return the wall time at which the writer's clock began, by the file's age if need be."""
        if self.origin_s is None:
            last = next(
                (found for line in reversed(lines) if (found := LINE.fullmatch(line))), None
            )
            written_s = self._path.stat().st_mtime
            self.origin_s = written_s - (0.0 if last is None else float(last[1]))
        return self.origin_s


class RunTapes:
    """All tapes of a run's folder, as one.

    At first, `newest_bytes` of each tape are read.
    """

    def __init__(self, folder: Path, newest_bytes: int = NEWEST_BYTES) -> None:
        self._folder = folder
        self._newest_bytes = newest_bytes
        self._hub = GrowingTape(folder / TAPE_FILE, newest_bytes)
        self._own: dict[str, GrowingTape] = {}
        self._begun = False

    @property
    def whole(self) -> bool:
        return self._hub.whole and all(tape.whole for tape in self._own.values())

    @property
    def names(self) -> list[str]:
        return list(self._own)

    @property
    def origin_s(self) -> float | None:
        """Wall time at which the clock of the hub's last start begins, as far as it was read."""
        return self._hub.origin_s

    def read(self) -> list[Entry]:
        """Return the entries that came since the last call, in order; at first, the newest ones."""
        for path in sorted(self._folder.glob(f"processes/*/{TAPE_FILE}"))[:PROCESSES_MOST]:
            self._own.setdefault(path.parent.name, GrowingTape(path, self._newest_bytes))
        own = [entry for tape in self._own.values() for entry in tape.read()]
        hub = [entry for entry in self._hub.read() if not self._is_copy(entry)]
        log: list[Entry] = []
        if not self._begun and not self._hub.whole and self._hub.first_s is not None:
            log += log_before(self._folder, self._hub.first_s)
        self._begun = True
        return sorted([*log, *hub, *own], key=lambda entry: entry[0])

    def _is_copy(self, entry: Entry) -> bool:
        """Whether a process has this entry of the hub's tape in its own, as far as that is read."""
        actor = entry[1].split(b'"', 6)[5].decode()
        tape = self._own.get(actor)
        return tape is not None and tape.first_s is not None and entry[0] >= tape.first_s


def log_before(folder: Path, before_s: float) -> Iterator[Entry]:
    """Yield the entries of the run's log, which has no merges, from before a time."""
    for path in (older(folder / LOG_FILE), folder / LOG_FILE):
        found = _tail(path, LOG_BYTES)
        for line in () if found is None else found[1].split(b"\n")[:-1]:
            try:
                row = msgspec.json.decode(line, type=dict[str, object])
                t = datetime.fromisoformat(str(row.pop("timestamp"))).timestamp()
                kind = row.pop("event")
            except (msgspec.MsgspecError, KeyError, ValueError):
                continue
            row.pop("at_s", None)
            if t < before_s:
                yield t, msgspec.json.encode({"t": round(t, 3), "kind": kind, **row})


def _tail(path: Path, most_bytes: int) -> tuple[bool, bytes] | None:
    """Return whether these are all, and the last whole lines of a file; None if there is none."""
    try:
        with open_plain(path) as file:
            start = max(0, os.fstat(file.fileno()).st_size - most_bytes)
            file.seek(start)
            text = file.read()
    except OSError:
        return None
    return (True, text) if start == 0 else (False, text.partition(b"\n")[2])


def _wall_s(line: bytes) -> float | None:
    try:
        row = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return None
    wall_s = row.get("wall_s")
    return float(wall_s) if isinstance(wall_s, int | float) else None
