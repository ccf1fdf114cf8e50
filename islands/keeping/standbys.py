"""Sends each record of the journal to the standbys on other hosts, as it becomes durable here.

A standby says which records it has. It gets the others, the oldest first, and then each new one, in
pieces, of which so many are under way that the link is never idle. What it has confirmed is on its
disk. Of a name that was written twice meanwhile a standby gets the newest record alone: until it
has all, its copy may be some versions behind in one fragment and not in another.

With `durability: mirrored`, and without a mirror, learners hear of a merge once some standby has
confirmed it; while there is none, nothing is merged.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec

from islands.files.disk import DiskFile
from islands.files.run_files import STANDBYS_FILE
from islands.files.slots import name_of
from islands.files.whole_files import read_sealed, write_sealed
from islands.protocol.errors import DamagedError, DiskError
from islands.protocol.messages.standby import Follow, PieceHeld, RecordPiece
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import CopyFailed, Mirrored
from islands.settings.wire_limits import RECORD_PIECE_BYTES
from islands.syncer.journal import Follower, Journal, Peers

WINDOW = 16
"""Most pieces that are sent and not confirmed: a part of what a link lets wait."""

WAITING_MAX = 256
"""Most files that are open for one standby."""

KNOWN_MAX = 16
"""Most standbys whose addresses are kept."""

NONE_FOLLOWS = "no standby follows, and durability is mirrored: nothing is merged until one does"


Piece = tuple[RecordPiece, tuple[memoryview, ...]]


@dataclass(frozen=True, slots=True)
class _Content:
    """One file of the journal, open at its beginning, and the number of the record in it.

    Once a standby has so many more that are `left`, it has all of the journal as of one moment.
    """

    file: str
    sequence: int
    left: int
    source: DiskFile


@dataclass(slots=True)
class _Standby:
    """One standby over one link.

    `held` are the digests of what it had at first, and `known` the numbers of what it has or is
    sent, by file; only the journal's worker looks at them. `newest` is the number up to which it
    has all. `behind`: more is to be sent than is `waiting`. `ends` are the last pieces of files
    that are under way, with the records' numbers.
    """

    name: str
    address: str
    held: dict[str, str]
    known: dict[str, int] = field(default_factory=dict)
    behind: bool = True
    newest: int = -1
    waiting: deque[_Content] = field(default_factory=deque)
    at: int = 0
    unsent: Piece | None = None
    sent: int = 0
    confirmed: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque)
    told: bool = False

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.ends

    def wait_for(self, content: _Content) -> None:
        """Send a file later, in place of an older one of its name that has not been begun."""
        for older in list(self.waiting)[self.at > 0 or self.unsent is not None :]:
            if name_of(older.file) == name_of(content.file):
                self.waiting.remove(older)
                older.source.close()
        self.waiting.append(content)

    @property
    def stands_still(self) -> bool:
        """Whether nothing is under way, though more is to be sent: a link may have had no room."""
        return self.sent == self.confirmed and (self.behind or bool(self.waiting))

    def next_piece(self) -> Piece | None:
        """Return the next piece, if one more may be under way; the same one until it is `passed`.

        Raises:
            DiskError: the file cannot be read.
        """
        if not self.waiting or self.sent - self.confirmed >= WINDOW:
            return None
        if self.unsent is not None:
            return self.unsent
        content = self.waiting[0]
        payload = bytearray(min(RECORD_PIECE_BYTES, content.source.size - self.at))
        if content.source.read_into(memoryview(payload)) < len(payload):
            raise DiskError(f"{content.file} of the journal cannot be read to its end")
        piece = RecordPiece(
            number=self.sent + 1,
            file=content.file,
            sequence=content.sequence,
            at=self.at,
            size_bytes=content.source.size,
            left=content.left,
        )
        self.unsent = piece, (memoryview(payload),)
        return self.unsent

    def passed(self, piece: RecordPiece, size_bytes: int) -> None:
        """Count a piece that was sent."""
        self.sent, self.at, self.unsent = piece.number, self.at + size_bytes, None
        if self.at == piece.size_bytes:
            self.waiting.popleft().source.close()
            self.at = 0
            self.ends.append((piece.number, -1 if piece.left else piece.sequence))

    def confirm(self, number: int) -> bool:
        """Take a confirmation; return whether it can be true."""
        if not self.confirmed <= number <= self.sent:
            return False
        self.confirmed = number
        while self.ends and self.ends[0][0] <= number:
            self.newest = max(self.newest, self.ends.popleft()[1])
        return True

    def close(self) -> None:
        while self.waiting:
            self.waiting.popleft().source.close()


class Standbys(Follower):
    """Keeps the copies of all standbys of one syncer.

    `waits`: a record is held once a standby has it. `known` are the addresses of standbys by name,
    which `keep` is given when they change.
    """

    def __init__(
        self,
        *,
        waits: bool,
        known: Mapping[str, str] = MappingProxyType({}),
        keep: Callable[[Mapping[str, str]], object] = lambda _: None,
    ) -> None:
        self._waits = waits
        self._keep = keep
        self._peers: Peers
        self._standbys: dict[int, _Standby] = {}
        self._known, self._kept = dict(known), dict(known)
        self._opened: deque[tuple[int, list[_Content], int | None]] = deque()
        self._news: deque[Entry] = deque()
        self._missed = False

    def attach(self, peers: Peers) -> None:
        self._peers = peers

    # --- on the journal's worker ----------------------------------------------------------------

    def follow(self, journal: Journal) -> None:
        """Open what each standby lacks; `followed` has it sent."""
        if self._kept != self._known:
            self._kept = dict(self._known)
            self._keep(self._kept)
        numbered = journal.numbered() if self._standbys else []
        newest = numbered[-1][0] if numbered else -1
        for connection, standby in list(self._standbys.items()):
            known, held = standby.known, standby.held
            if held:
                known |= {f: n for n, f in numbered if held.get(f) == journal.digest(f)}
                held.clear()
            lacks = [(n, file) for n, file in numbered if known.get(file, -1) < n]
            opened: list[_Content] = []
            try:
                for number, file in lacks[: max(0, WAITING_MAX - len(standby.waiting))]:
                    left = len(lacks) - 1 - len(opened)
                    opened.append(_opened(journal, number, file, left))
                    known[file] = number
            except DiskError as error:
                self._news.append(CopyFailed("standby", f"{standby.name}: {error}"))
            all_of_it = len(opened) == len(lacks)
            self._opened.append((connection, opened, newest if all_of_it else None))

    @property
    def wanted(self) -> bool:
        return any(each.stands_still for each in self._standbys.values())

    # --- on the loop ----------------------------------------------------------------------------

    def followed(self) -> None:
        while self._opened:
            connection, contents, newest = self._opened.popleft()
            standby = self._standbys.get(connection)
            if standby is None:
                for each in contents:
                    each.source.close()
                continue
            standby.behind = newest is None
            for each in contents:
                standby.wait_for(each)
            if standby.idle and newest is not None:
                standby.newest = newest
            self._send(connection)

    def receive(self, connection: int, message: Follow | PieceHeld) -> None:
        if isinstance(message, Follow) and connection in self._standbys:
            pass  # it came twice
        elif isinstance(message, Follow):
            self._standbys[connection] = _Standby(message.name, message.address, dict(message.held))
            self._known.pop(message.name, None)
            kept = [*self._known.items(), (message.name, message.address)]
            self._known = dict(kept[-KNOWN_MAX:])
            self._peers.look()
        elif connection not in self._standbys:
            self._peers.drop(connection, "said something before it followed")
        elif not self._standbys[connection].confirm(message.number):
            self._peers.drop(connection, "confirmed what was not sent")
        else:
            self._send(connection)
            if (standby := self._standbys[connection]).idle and standby.behind:
                self._peers.look()
            self._peers.confirm()

    def lost(self, connection: int) -> None:
        gone = self._standbys.pop(connection, None)
        if gone is not None:
            gone.close()
            self._news.append(CopyFailed("standby", f"{gone.name} at {gone.address} is gone"))

    def holds(self, sequence: int) -> bool:
        if not self._waits or any(one.newest >= sequence for one in self._standbys.values()):
            self._missed = False
            return True
        if not self._standbys and not self._missed:
            self._missed = True
            self._news.append(CopyFailed("standby", NONE_FOLLOWS))
        return False

    def news(self) -> Iterator[Entry]:
        while self._news:
            yield self._news.popleft()

    def close(self) -> None:
        for standby in self._standbys.values():
            standby.close()

    def _send(self, connection: int) -> None:
        standby = self._standbys[connection]
        try:
            while (found := standby.next_piece()) is not None:
                piece, payload = found
                if not self._peers.send(connection, piece, payload):
                    return  # there is no room, or the link is gone
                standby.passed(piece, len(payload[0]))
        except DiskError as error:
            self._peers.drop(connection, str(error))
            return
        if not standby.behind and standby.newest >= 0 and not standby.told:
            standby.told = True
            self._news.append(Mirrored(f"standby {standby.name} at {standby.address}"))


def _opened(journal: Journal, sequence: int, file: str, left: int) -> _Content:
    source = journal.open(file)
    if source is None:
        raise DiskError(f"{file} of the journal is gone")
    return _Content(file, sequence, left, source)


def addresses_in(folder: Path) -> dict[str, str]:
    """Return the addresses of a syncer's standbys by name, as far as its folder tells them."""
    try:
        content = read_sealed(folder / STANDBYS_FILE)
        return {} if content is None else msgspec.json.decode(content, type=dict[str, str])
    except (DamagedError, msgspec.MsgspecError):
        return {}


def keep_addresses(folder: Path, addresses: Mapping[str, str]) -> None:
    """Write the addresses of a syncer's standbys to its folder; a disk that fails has none."""
    with suppress(OSError):
        write_sealed(folder / STANDBYS_FILE, msgspec.json.encode(addresses))
