"""Every message between the roles.

A message is a frozen dataclass (its long tables hold structs, `identities.Compact`), decoded once,
at the edge. Reports are cumulative and commands are
idempotent, so a message may be lost, repeated or overtaken by bulk data without harm:

* a **ticket** (syncer epoch, round, name, incarnation) is answered by at most one contribution;
* a **version** (epoch, number) of a fragment is ordered lexicographically and only grows;
* an **incarnation** (supervisor epoch, counter) is given once, at an admission, and never again.

Which message carries a bulk payload is said in its docstring; all others are control messages.
"""

from dataclasses import dataclass

from islands.identities import (
    Compact,
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Role,
    Status,
    Ticket,
    Version,
)
from islands.operation import (
    Command,
    CommandAnswer,
    Drain,
    Note,
    RunEnded,
    StepFigures,
)

PROTOCOL = 3

NOT_FINITE = "its loss is not a finite number"
"""Why an incarnation ends that has diverged."""

RUN_OVER = "the run is over"
"""How the reason of a refusal begins that leaves nothing to mend."""


# --- membership: with the supervisor ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """Ask the supervisor for admission.

    `previous` is the incarnation whose memory is intact, and `credential` what it was given: a name
    that somebody has is given up to no one on a word alone.
    `proof` is of a syncer, which must hold the run's key: a credential of its name under the
    incarnation 0.0.
    """

    protocol: int
    run: str
    role: Role
    name: str
    fingerprint: str
    host_rank: int = 0
    host_count: int = 1
    previous: Incarnation | None = None
    address: str | None = None
    proof: str = ""
    credential: str = ""


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

    `epoch` is the syncer's epoch (0 from a learner); `address` is where a syncer listens;
    `view_epoch` and `view` say whose view it knows, and up to which change. The credential lets a
    restarted supervisor know its own admissions again.
    """

    role: Role
    name: str
    incarnation: Incarnation
    phase: Phase
    step: int
    credential: str = ""
    epoch: int = 0
    address: str | None = None
    view_epoch: int = 0
    view: int = 0


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
    """A page of the supervisor's view: the learners that changed after change number `after`.

    A page after 0 begins the view anew. Whoever has taken it in knows the view up to `number`, and
    all of it if that is `latest`. Sent on a change, and as the answer to every heartbeat.

    `paused` is the operator's last word to this supervisor; None if there was none.
    """

    supervisor_epoch: int
    members: tuple[Member, ...]
    paused: bool | None = None
    after: int = 0
    number: int = 0
    latest: int = 0


@dataclass(frozen=True, slots=True)
class Evicted:
    """This incarnation is over; the receiver may join again."""

    name: str
    incarnation: Incarnation
    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A learner's incarnation ends by its own word.

    It departs on its own will; or its loss is not a finite number (`diverged`), and its process
    asks for another incarnation.
    """

    name: LearnerName
    incarnation: Incarnation
    reason: str
    diverged: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Enquiry:
    """Ask the supervisor what the run is, before there is anything to join with."""

    protocol: int
    role: Role
    name: str


@dataclass(frozen=True, slots=True)
class RunTold:
    """What the run is: settings and task as JSON (`islands.run_spec`); payload: its layout."""

    run: str
    spec: str


# --- training: with the syncer ----------------------------------------------------------------


class FragmentProgress(Compact, frozen=True):
    """What a learner did with one fragment, cumulative over its incarnation.

    `version` is the published value it holds as its base (None before the first), `base_steps` the
    incarnation's steps when it was adopted. `settled_tokens` are the incarnation's tokens whose
    fate the learner knows: all up to then, less those in contributions that it is in doubt about.
    Of these, `overwritten_tokens` were discarded by adoptions without having been merged.

    None of it changes with a step, so most entries of a report are those of the one before it, and
    what has not changed need not be checked again.
    """

    version: Version | None = None
    base_steps: int = 0
    settled_tokens: int = 0
    overwritten_tokens: int = 0


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

    `digests` are of the held versions, in fragment order ("" where nothing is held). `epoch_seen`
    is the highest epoch that welcomed the sender, and `epoch_proof` what that Welcome brought.
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
    epoch_proof: str = ""
    host_rank: int = 0
    host_count: int = 1


@dataclass(frozen=True, slots=True)
class Welcome:
    """The syncer's answer to Hello: its epoch and the committed versions, in fragment order.

    `proof` shows another start of the syncer that this one had that epoch: the receiver passes it
    on. `donor` names a healthy learner whose inner moments the receiver may ask for.
    """

    epoch: int
    versions: tuple[Version | None, ...]
    donor: LearnerName | None = None
    proof: str = ""


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


class Merged(Compact, frozen=True):
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
    """Syncer → learner: send your value of this fragment, it becomes version 0.

    `attempt` tells one search for a version 0 from the next; within one of them, what was offered
    over the same link is not offered again: it is on its way.
    """

    epoch: int
    fragment: FragmentIndex
    attempt: int = 0


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


@dataclass(frozen=True, slots=True)
class Paused:
    """The syncer pauses or resumes the run: learners step only while it is not paused."""

    epoch: int
    paused: bool


# --- between peers, relayed by the syncer: the envelope's recipient is a learner ----------------


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Ask a peer for one piece of its inner optimizer's state.

    `schema` is the digest of names, dtypes and shapes of the whole state: unlike states are not
    offered.
    """

    incarnation: Incarnation
    piece: int
    schema: str


@dataclass(frozen=True, slots=True)
class StateOffer:
    """Answer to a StateRequest; payload: the piece's bytes. `pieces` is 0 if there is none."""

    piece: int
    pieces: int
    schema: str
    digest: str


PEER_TYPES: tuple[type, ...] = (StateRequest, StateOffer)
"""What a hub passes on to the learner that the envelope names, and does not read."""


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
    Enquiry,
    RunTold,
    Drain,
    Command,
    CommandAnswer,
    Note,
    StepFigures,
    RunEnded,
    Paused,
    StateRequest,
    StateOffer,
)
