"""What a syncer records of rounds, contributions, versions, tokens and its journal.

Versions stand on a tape as ``epoch.number``, incarnations as ``epoch.counter``, tickets as
``name/incarnation@epoch:round``, leases as (pass, shard, position).
"""

from dataclasses import dataclass

from islands.identities import Fate, LearnerName
from islands.tape.entry import Entry, Logged, Notable

Leases = list[tuple[int, int, int]]

# --- the run and its journal ----------------------------------------------------------------------


class Journal(Entry, frozen=True):
    """A syncer began to write a record: it holds everything decided so far."""

    sequence: int
    fragment: int | None
    version: str


class Journalled(Entry, frozen=True):
    """A record is durable."""

    sequence: int


class Seeded(Logged, frozen=True):
    """All fragments of version 0 have arrived."""

    name: str
    version: str


class SeedLate(Logged, frozen=True):
    """A learner did not send version 0, however often it was asked: another one is."""

    name: str
    asked: int
    arrived: int
    fragments: int


class SeedRefused(Entry, frozen=True):
    """A fragment of version 0 came damaged, or is not finite."""

    name: str
    fragment: int


class Extended(Logged, frozen=True):
    """A run that had ended, or was about to, was given more."""

    budget_tokens: int | None
    before: int | None
    ended: str


class Closing(Logged, frozen=True):
    """The run is ending: rounds merge whatever arrives."""

    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """The account of one fragment over the whole run; all fields in tokens."""

    processed: int
    applied: int
    rejected: int
    late: int
    stale: int
    overwritten: int
    lost: int
    pending: int

    @property
    def imbalance(self) -> int:
        """Processed minus all fates: 0."""
        fates = self.applied + self.rejected + self.late + self.stale
        return self.processed - (fates + self.overwritten + self.lost + self.pending)


class Finished(Logged, frozen=True):
    """A run is over. A syncer adds its ledger, and tokens per ``name/incarnation`` still open."""

    reason: str
    ledger: list[Row] | None = None
    processed: dict[str, int] | None = None


# --- rounds ---------------------------------------------------------------------------------------


class Opened(Entry, frozen=True):
    """A round began: whom it asked, and why not the others."""

    round: int
    fragment: int
    asked: list[LearnerName]
    left_out: dict[LearnerName, str | None]


class Closed(Entry, frozen=True):
    """A round waits no longer; `uninspected` came in time and are not measured yet."""

    round: int
    fragment: int
    arrived: list[LearnerName]
    excused: list[LearnerName]
    waiting: list[LearnerName]
    share: float
    staleness: float
    uninspected: list[str] | None = None


class Abandoned(Logged, frozen=True):
    """A round stayed below its quorum for too long; the first few of whom it asked."""

    round: int
    fragment: int
    reason: str
    after_s: float
    arrived: list[LearnerName]
    waiting: list[LearnerName]
    excused: dict[LearnerName, str]


class Merged(Notable, frozen=True):
    """A fragment's next value is computed. What is not finite stands on the tape as null."""

    round: int
    fragment: int
    version: str
    contributions: int
    participants: list[LearnerName]
    tokens: list[int]
    steps: list[int]
    weights: list[float]
    norms: list[float | None]
    direction_norm: float | None
    cosine: float | None
    digest: str
    merged_tokens: int
    clock: float
    asked: int
    learners: int
    opened_s: float
    closed_s: float | None


class Committed(Entry, frozen=True):
    """A version is durable, and is sent."""

    fragment: int
    version: str
    digest: str


class Swinging(Logged, frozen=True):
    """Merged directions of `fragments` out of `of` undo one another; or of none any more."""

    told: str
    fragments: int
    of: int
    cosine: float
    contributions: int


class GraceZero(Logged, frozen=True):
    """Exchanges take longer than the overlap hides: a round waits for nobody beyond its quorum."""

    exchange_s: float
    hidden_s: float
    lacking_s: float
    overlap_steps: int
    overlap_steps_needed: int


class NothingMerged(Logged, frozen=True):
    """Learners step and no version was committed for long; why, by learner."""

    for_s: float
    rounds_open: int
    rounds_abandoned: int
    quorum: int | str | None
    because: dict[str, str]


# --- contributions and tokens ---------------------------------------------------------------------


class Arrived(Entry, frozen=True):
    """A contribution was admitted to its round."""

    ticket: str
    tokens: int


class FateTold(Entry, frozen=True, kw_only=True, tag="fate"):
    """A contribution has its fate: a reason if it is not merged, else the version it is in."""

    ticket: str
    fragment: int
    fate: Fate
    reason: str | None = None
    tokens: int
    version: str | None = None


class KeptOut(Entry, frozen=True):
    """A contribution of an incarnation that has ended; `left_out` such entries came before."""

    ticket: str
    reason: str
    left_out: int | None = None


class Void(Entry, frozen=True):
    """A contribution over a link that is gone; `left_out` such entries came before."""

    ticket: str
    reason: str
    left_out: int | None = None


class Duplicate(Entry, frozen=True):
    """An answer to a pull that was answered before, over its sender's link so many times."""

    ticket: str
    copies: int


class Granted(Entry, frozen=True):
    """Quota and leases that an incarnation holds from now on."""

    name: str
    incarnation: str
    quota: int
    leases: Leases


class LeaseReturned(Entry, frozen=True):
    """A shard went back with the position from which the next holder goes on."""

    name: str
    pass_index: int
    shard: int
    position: int


class BookClosed(Entry, frozen=True):
    """An incarnation is over, having processed so many tokens as far as the syncer knows."""

    name: str
    incarnation: str
    processed: int
