"""Entries of a syncer about rounds, contributions, versions, tokens and its journal."""

from dataclasses import dataclass

from islands.protocol.identities import Fate, LearnerName
from islands.protocol.tape.entry import Entry, Logged, Notable

Leases = list[tuple[int, int, int]]


class Journal(Entry, frozen=True, tag="journal"):
    """A syncer began to write a journal record, which holds everything decided so far."""

    sequence: int
    fragment: int | None
    version: str


class Journalled(Entry, frozen=True, tag="journalled"):
    """A journal record is durable."""

    sequence: int


class Seeded(Logged, frozen=True, tag="seeded"):
    """All fragments of version 0 have arrived from the learner `name` (empty: from a file)."""

    name: str
    version: str


class TakenBack(Logged, frozen=True, tag="taken_back"):
    """There is no journal: version 0 is what `name` has of these versions, of so many `members`."""

    name: str
    versions: list[str]
    members: int


class SeedLate(Logged, frozen=True, tag="seed_late"):
    """A learner did not send version 0 after repeated requests; another one is asked."""

    name: str
    asked: int
    arrived: int
    fragments: int


class Extended(Logged, frozen=True, tag="extended"):
    """A run that had ended, or was closing, was extended by a larger budget."""

    budget_tokens: int | None
    before: int | None
    ended: str


class Closing(Logged, frozen=True, tag="closing"):
    """The run is closing: the last rounds merge whatever arrives."""

    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """One fragment's row of the ledger, over the whole run; all fields are in tokens."""

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
        """Processed tokens minus those of all fates; 0 if the ledger balances."""
        fates = self.applied + self.rejected + self.late + self.stale
        return self.processed - (fates + self.overwritten + self.lost + self.pending)


class Finished(Logged, frozen=True, tag="finished"):
    """The run is over. A syncer adds its ledger, and tokens by ``name/incarnation`` still open."""

    reason: str
    ledger: list[Row] | None = None
    processed: dict[str, int] | None = None


class Opened(Entry, frozen=True, tag="opened"):
    """A round opened: the learners that it asked, and the reasons why others were left out."""

    round: int
    fragment: int
    asked: list[LearnerName]
    left_out: dict[LearnerName, str | None]


class Asked(Entry, frozen=True, tag="asked"):
    """A learner that was eligible only after its round had opened was asked, too."""

    ticket: str
    fragment: int


class Closed(Entry, frozen=True, tag="closed"):
    """A round closed; the `uninspected` contributions came in time but are not measured yet.

    Of those that were asked, `excused` has the reasons why some are not waited for any more.
    """

    round: int
    fragment: int
    arrived: list[LearnerName]
    excused: dict[LearnerName, str]
    waiting: list[LearnerName]
    share: float
    staleness: float
    uninspected: list[str] | None = None


class Abandoned(Logged, frozen=True, tag="abandoned"):
    """A round stayed below its quorum for too long; the lists have only the first few learners."""

    round: int
    fragment: int
    reason: str
    after_s: float
    arrived: list[LearnerName]
    waiting: list[LearnerName]
    excused: dict[LearnerName, str]


class Merged(Notable, frozen=True, tag="merged"):
    """A fragment's next value is computed; numbers that are not finite are null on the tape.

    `behind` is how many versions each participant's base was behind the one that was replaced, and
    `belated` are the tokens of each that the end of the run alone merged, where there are any.
    `remainder_norm` is the length of what an increment leaves for the next. The `run_…` fields sum
    the run up as the ledger has it.
    """

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
    increment_bytes: int | None = None
    remainder_norm: float | None = None
    run_merges: int | None = None
    run_applied: int | None = None
    run_processed: int | None = None
    behind: list[int] | None = None
    belated: list[int] | None = None


class Committed(Entry, frozen=True, tag="committed"):
    """A version is durable, and is sent to the members."""

    fragment: int
    version: str
    digest: str


class NothingMerged(Logged, frozen=True, tag="nothing_merged"):
    """Learners step but no version was committed for `for_s`; `because` has reasons by learner."""

    for_s: float
    rounds_open: int
    rounds_abandoned: int
    quorum: int | str | None
    because: dict[str, str]


class LeftOut(Logged, frozen=True, tag="left_out"):
    """A learner that is live and linked was not asked for two cycles of P rounds."""

    name: LearnerName
    reason: str
    rounds: int


class AskedAgain(Logged, frozen=True, tag="asked_again"):
    """A learner that was left out is asked again, after so many rounds."""

    name: LearnerName
    rounds: int
    reason: str


class DataEnded(Logged, frozen=True, tag="data_ended"):
    """All shards of `passes` passes in a row had no batch, doubled each time; 0: one has again."""

    passes: int
    shards: int


class WaitsFor(Logged, frozen=True, tag="waits_for"):
    """The run waits for `members`, to go on or to end; `because` has reasons of the first few."""

    members: int
    because: dict[LearnerName, str]


class Arrived(Entry, frozen=True, tag="arrived"):
    """A contribution was admitted to its round."""

    ticket: str
    tokens: int


class Declined(Entry, frozen=True, tag="declined"):
    """A pull ended without a contribution, by its learner's word or, by `reason`, without it."""

    ticket: str
    fragment: int
    reason: str


class FateTold(Entry, frozen=True, kw_only=True, tag="fate"):
    """A contribution got its fate, with the version that it is merged into, or else a reason."""

    ticket: str
    fragment: int
    fate: Fate
    reason: str | None = None
    tokens: int
    version: str | None = None


class Duplicate(Entry, frozen=True, tag="duplicate"):
    """An answer to an answered pull came; it is number `copies` over its sender's link."""

    ticket: str
    copies: int


class Granted(Entry, frozen=True, tag="granted"):
    """An incarnation was granted a quota and leases, which replace its earlier ones."""

    name: str
    incarnation: str
    quota: int
    leases: Leases


class LeaseReturned(Entry, frozen=True, tag="lease_returned"):
    """A lease was returned, with the position from which the shard's next holder goes on."""

    name: str
    pass_index: int
    shard: int
    position: int


class BookClosed(Entry, frozen=True, tag="book_closed"):
    """An ended incarnation's account was closed, with the tokens that the syncer knows of."""

    name: str
    incarnation: str
    processed: int
