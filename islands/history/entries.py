"""The entries of a tape that are evidence, in types; all others are for people.

Versions and incarnations stand on a tape as ``epoch.number``, tickets as
``name/incarnation@epoch:round``; here they become what can be compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from islands.syncer.ledger import Row

Pair = tuple[int, int]
"""(epoch, number) of a version, (epoch, counter) of an incarnation."""


class Entry(msgspec.Struct, frozen=True, tag_field="kind"):
    """One line of a tape."""

    at_s: float
    actor: str


class Started(Entry, frozen=True, tag="started"):
    """A supervisor or a syncer began; only a syncer has a journal with a sequence."""

    epoch: int
    resumed: bool = False
    sequence: int | None = None


class Journal(Entry, frozen=True, tag="journal"):
    """A syncer began to write a record: it holds everything decided so far."""

    sequence: int
    fragment: int | None
    version: str


class Journalled(Entry, frozen=True, tag="journalled"):
    """A record is durable."""

    sequence: int


class Seeded(Entry, frozen=True, tag="seeded"):
    """All fragments of version 0 have arrived."""

    version: str


class Closing(Entry, frozen=True, tag="closing"):
    """The run is ending: rounds merge whatever arrives."""


class Closed(Entry, frozen=True, tag="closed"):
    """A round waits no longer."""

    round: int
    fragment: int
    arrived: list[str]


class Merged(Entry, frozen=True, tag="merged"):
    """A fragment's next value is computed. What is not finite stands on the tape as null."""

    round: int
    fragment: int
    version: str
    participants: list[str]
    digest: str
    norms: list[float | None]
    direction_norm: float | None
    cosine: float | None


class Committed(Entry, frozen=True, tag="committed"):
    """A version is durable, and is sent."""

    fragment: int
    version: str
    digest: str


class Arrived(Entry, frozen=True, tag="arrived"):
    """A contribution was admitted to its round."""

    ticket: str
    tokens: int


class FateTold(Entry, frozen=True, tag="fate"):
    """A contribution has its fate."""

    ticket: str
    fragment: int
    fate: str
    tokens: int


class Granted(Entry, frozen=True, tag="granted"):
    """Quota and leases (pass, shard, position) that an incarnation holds from now on."""

    name: str
    incarnation: str
    quota: int
    leases: list[tuple[int, int, int]]


class LeaseReturned(Entry, frozen=True, tag="lease_returned"):
    """A shard went back with the position from which the next holder goes on."""

    name: str
    pass_index: int
    shard: int
    position: int


class BookClosed(Entry, frozen=True, tag="book_closed"):
    """An incarnation is over, having processed so many tokens as far as the syncer knows."""

    name: str
    incarnation: str
    processed: int


class Finished(Entry, frozen=True, tag="finished"):
    """A run is over. A syncer adds its ledger, and tokens per ``name/incarnation`` still open."""

    reason: str
    ledger: list[Row] | None = None
    processed: dict[str, int] = {}


class Adopted(Entry, frozen=True, tag="adopted"):
    """A learner holds a version from a boundary at which its incarnation had done `tokens`."""

    incarnation: str
    fragment: int
    version: str
    digest: str
    tokens: int


class Contributed(Entry, frozen=True, tag="contribute"):
    """A learner answered a pull with the last `tokens` of the `processed` ones."""

    ticket: str
    fragment: int
    base: str
    steps: int
    tokens: int
    processed: int


class Told(Entry, frozen=True, tag="progress"):
    """A learner's report: tokens of its incarnation, and the positions it has reached."""

    incarnation: str
    tokens: int
    leases: list[tuple[int, int, int]]


class MomentsTaken(Entry, frozen=True, tag="moments_taken", rename={"donor": "from"}):
    """A learner's process begins with a peer's inner moments."""

    donor: str
    pieces: int
    waited_s: float


class MomentsFresh(Entry, frozen=True, tag="moments_fresh"):
    """A learner's process begins with fresh inner moments."""

    reason: str
    waited_s: float


class MomentsGiven(Entry, frozen=True, tag="moments_given"):
    """A learner sent a piece of its inner moments to a peer."""

    to: str
    piece: int


class Admitted(Entry, frozen=True, tag="admitted"):
    """A supervisor gave an incarnation."""

    name: str
    role: str
    incarnation: str


class ProcessStarted(Entry, frozen=True, tag="process_started"):
    """A simulated process began."""

    name: str


class ProcessKilled(Entry, frozen=True, tag="process_killed"):
    """A simulated process was killed."""

    name: str
    mailbox_most: int = 0
    waiting_bytes_most: int = 0


class ProcessEnded(Entry, frozen=True, tag="process_ended"):
    """A simulated process ended by itself; `error` is empty if it meant to."""

    name: str
    error: str = ""
    mailbox_most: int = 0
    waiting_bytes_most: int = 0


class LeftOver(Entry, frozen=True, tag="left_over"):
    """A simulated process still ran when the run was over, or should have been."""

    name: str


class Healed(Entry, frozen=True, tag="healed"):
    """Faults have stopped: the system may take `recovery_s`; then `period_s` bounds its lag."""

    recovery_s: float
    period_s: float


class Final(Entry, frozen=True, tag="final"):
    """The published values with which a run ended."""

    versions: list[str]
    digests: list[str]
    finite: bool


KINDS: tuple[type[Entry], ...] = (
    Started,
    Journal,
    Journalled,
    Seeded,
    Closing,
    Closed,
    Merged,
    Committed,
    Arrived,
    FateTold,
    Granted,
    LeaseReturned,
    BookClosed,
    Finished,
    Adopted,
    Contributed,
    Told,
    MomentsTaken,
    MomentsFresh,
    MomentsGiven,
    Admitted,
    ProcessStarted,
    ProcessKilled,
    ProcessEnded,
    LeftOver,
    Healed,
    Final,
)


class _Kind(msgspec.Struct):
    kind: str


_DECODERS: dict[str, msgspec.json.Decoder[Entry]] = {
    str(kind.__struct_config__.tag): msgspec.json.Decoder(kind) for kind in KINDS
}
_KIND = msgspec.json.Decoder(_Kind)


def read(lines: Iterable[bytes]) -> list[Entry]:
    """The evidence of a tape, in order.

    Raises:
        msgspec.ValidationError: an entry lacks what its kind must have.
    """
    entries: list[Entry] = []
    for line in lines:
        decoder = _DECODERS.get(_KIND.decode(line).kind)
        if decoder is not None:
            entries.append(decoder.decode(line))
    return entries


@lru_cache(maxsize=4096)
def pair(text: str) -> Pair:
    """A version or an incarnation, to be compared."""
    epoch, _, number = text.partition(".")
    return int(epoch), int(number)


@dataclass(frozen=True, slots=True)
class TicketFacts:
    """A ticket taken apart."""

    name: str
    incarnation: Pair
    epoch: int
    round: int


@lru_cache(maxsize=4096)
def ticket(text: str) -> TicketFacts:
    """A ticket, taken apart."""
    who, _, right = text.rpartition("@")
    name, _, incarnation = who.rpartition("/")
    epoch, _, round_ = right.partition(":")
    return TicketFacts(name, pair(incarnation), int(epoch), int(round_))
