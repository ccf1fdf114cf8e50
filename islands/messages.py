"""Every message between the roles, and the identities that fence them.

A message is a frozen dataclass, decoded once, at the edge. Reports are cumulative and commands are
idempotent, so a message may be lost, repeated or overtaken by bulk data without harm:

* a **ticket** (syncer epoch, round, name, incarnation) is answered by at most one contribution;
* a **version** (epoch, number) of a fragment is ordered lexicographically and only grows;
* an **incarnation** (supervisor epoch, counter) is given once, at an admission, and never again.

Which message carries a bulk payload is said in its docstring; all others are control messages.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

FragmentIndex = NewType("FragmentIndex", int)
LearnerName = NewType("LearnerName", str)

PROTOCOL = 1


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """One published value of a fragment: the syncer's epoch and the number of merges before it."""

    epoch: int
    number: int

    def __str__(self) -> str:
        """Render as ``epoch.number``."""
        return f"{self.epoch}.{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One admission of a learner: the supervisor's epoch and its counter of admissions."""

    epoch: int
    counter: int

    def __str__(self) -> str:
        """Render as ``epoch.counter``."""
        return f"{self.epoch}.{self.counter}"


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """The right to answer one pull once."""

    epoch: int
    round: int
    name: LearnerName
    incarnation: Incarnation

    def __str__(self) -> str:
        """Render as ``name/incarnation@epoch:round``."""
        return f"{self.name}/{self.incarnation}@{self.epoch}:{self.round}"


class Role(StrEnum):
    """What a process is in the run."""

    LEARNER = "learner"
    SYNCER = "syncer"
    SUPERVISOR = "supervisor"
    OBSERVER = "observer"


class Phase(StrEnum):
    """What a learner is doing; only ``STEPPING`` and ``FINISHED`` learners may contribute."""

    JOINING = "joining"
    COMPILING = "compiling"
    HEALING = "healing"
    STEPPING = "stepping"
    STARVED = "starved"
    FINISHED = "finished"


class Status(StrEnum):
    """What the supervisor thinks of a member."""

    LIVE = "live"
    SUSPECT = "suspect"
    STALLED = "stalled"
    EVICTED = "evicted"
    LEFT = "left"


class Fate(StrEnum):
    """What became of a contribution. Each has exactly one fate (SPEC §6)."""

    APPLIED = "applied"
    REJECTED = "rejected"
    LATE = "late"
    STALE = "stale"


# --- data positions ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Lease:
    """A virtual shard of one pass over the corpus, and the record from which to go on reading."""

    pass_index: int
    shard: int
    position: int
    done: bool = False


# --- membership: with the supervisor ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """Ask the supervisor for admission. `previous` is the incarnation whose memory is intact."""

    protocol: int
    run: str
    role: Role
    name: str
    fingerprint: str
    host_rank: int = 0
    host_count: int = 1
    previous: Incarnation | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class SyncerAddress:
    """One entry of the map fragment → syncer; None means every fragment."""

    address: str
    fragments: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Admission: an incarnation, a signed credential for the syncer, and the address map."""

    run: str
    name: str
    incarnation: Incarnation
    credential: str
    supervisor_epoch: int
    syncers: tuple[SyncerAddress, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The one asked does not admit the asker; `reason` is one sentence that says what differs."""

    name: str
    reason: str
    retry: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sign of life from an event loop, with what it is doing.

    `epoch` is the syncer's epoch (0 from a learner); `address` is where a syncer listens. The
    credential lets a restarted supervisor know its own admissions again.
    """

    role: Role
    name: str
    incarnation: Incarnation
    phase: Phase
    step: int
    credential: str = ""
    epoch: int = 0
    address: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAck:
    """The sender of a heartbeat is heard.

    The supervisor's carries its epoch, so that an old supervisor is fenced, and where syncers
    are now; a syncer's only shows its peers that it lives.
    """

    supervisor_epoch: int
    syncers: tuple[SyncerAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One name in the supervisor's view."""

    name: LearnerName
    incarnation: Incarnation
    status: Status


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """The supervisor's whole view, sorted by name; sent on a change and with every heartbeat."""

    supervisor_epoch: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Evicted:
    """This incarnation is over; the receiver may join again."""

    name: str
    incarnation: Incarnation
    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A learner departs on its own will, with the data positions it reached."""

    name: LearnerName
    incarnation: Incarnation
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over."""

    reason: str


# --- training: with the syncer ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FragmentProgress:
    """What a learner did with one fragment, cumulative over its incarnation.

    `version` is the published value it holds as its base (None before the first). `pending_*`
    count since that base, plus tokens in contributions whose fate the learner does not know yet.
    `overwritten_tokens` were discarded by adoptions without having been merged, as far as the
    learner knows.
    """

    version: Version | None
    pending_steps: int
    pending_tokens: int
    overwritten_tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A learner's cumulative report. `step_time_s` is of its last steps, compilation excluded."""

    name: LearnerName
    incarnation: Incarnation
    phase: Phase
    steps: int
    tokens: int
    step_time_s: float
    batch_tokens: int
    quota_tokens: int
    fragments: tuple[FragmentProgress, ...]
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens a session with a syncer: who, with which right, holding what.

    `digests` are of the held versions, in fragment order ("" where nothing is held).
    """

    protocol: int
    run: str
    role: Role
    name: LearnerName
    incarnation: Incarnation
    credential: str
    fingerprint: str
    progress: Progress
    digests: tuple[str, ...]
    epoch_seen: int = 0
    host_rank: int = 0
    host_count: int = 1


@dataclass(frozen=True, slots=True)
class Welcome:
    """The syncer's answer to Hello: its epoch and the committed versions, in fragment order."""

    epoch: int
    versions: tuple[Version | None, ...]


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """All leases the learner holds now, and the tokens its incarnation may process in total."""

    epoch: int
    incarnation: Incarnation
    quota_tokens: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class PullFragment:
    """The syncer asks for a contribution. `version` is the fragment's committed version."""

    ticket: Ticket
    fragment: FragmentIndex
    version: Version


@dataclass(frozen=True, slots=True)
class Contribution:
    """Answer to one pull; payload: base − local value, flat, in `precision`.

    `steps` and `tokens` are those done since `base` was adopted, up to the boundary at which the
    value was taken; `processed_tokens` is the incarnation's total at that boundary.
    """

    ticket: Ticket
    fragment: FragmentIndex
    base: Version
    steps: int
    tokens: int
    processed_tokens: int
    precision: str
    digest: str


@dataclass(frozen=True, slots=True)
class ContributionDeclined:
    """The learner has nothing to answer this pull with; it is excused from the round."""

    ticket: Ticket
    fragment: FragmentIndex
    reason: str


@dataclass(frozen=True, slots=True)
class ContributionFate:
    """What became of a contribution that was not applied."""

    ticket: Ticket
    fragment: FragmentIndex
    fate: Fate
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The receiver's own contribution that a version (or one before it) contains.

    `epoch` and `round` are those of its ticket, `steps` and `tokens` those it declared.
    """

    epoch: int
    round: int
    steps: int
    tokens: int


@dataclass(frozen=True, slots=True)
class FragmentUpdate:
    """A committed version; payload: the published value, flat float32.

    `round` is the round that made it (−1 for version 0): every ticket of an earlier or equal round
    is decided. `merged` is the receiver's newest merged contribution to this fragment, if any.
    `clock` is the learning-rate clock in steps.
    """

    epoch: int
    fragment: FragmentIndex
    version: Version
    round: int
    digest: str
    clock: float
    merged: Merged | None


@dataclass(frozen=True, slots=True)
class FragmentRequest:
    """Syncer → learner: send your value of this fragment, it becomes version 0."""

    epoch: int
    fragment: FragmentIndex


@dataclass(frozen=True, slots=True)
class FragmentSeed:
    """Answer to FragmentRequest; payload: the local value, flat float32."""

    epoch: int
    fragment: FragmentIndex
    name: LearnerName
    incarnation: Incarnation
    digest: str


@dataclass(frozen=True, slots=True)
class FinalRound:
    """The run is closing: stop stepping at the next boundary and answer the last pulls."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Three strikes within ten minutes: nothing of this incarnation is applied any more."""

    name: LearnerName
    incarnation: Incarnation
    reason: str


MESSAGE_TYPES: tuple[type, ...] = (
    Join,
    Joined,
    Refused,
    Heartbeat,
    HeartbeatAck,
    MembershipChanged,
    Evicted,
    Leave,
    Stop,
    Hello,
    Welcome,
    Progress,
    LeaseGranted,
    PullFragment,
    Contribution,
    ContributionDeclined,
    ContributionFate,
    FragmentUpdate,
    FragmentRequest,
    FragmentSeed,
    FinalRound,
    Quarantined,
)
