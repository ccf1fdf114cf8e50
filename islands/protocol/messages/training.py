"""Messages between learners and the syncer, and between two learners through it."""

from islands.protocol.identities import (
    Compact,
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Role,
    Ticket,
    Version,
)
from islands.protocol.settings.choices import Precision
from messaging.envelope import message


class FragmentProgress(Compact, frozen=True):
    """What a learner did with one fragment, cumulative over its incarnation.

    `version` is its base (None before the first), `base_steps` the number of the incarnation's
    steps that are no open work (protocol §2). `settled_tokens` are the tokens whose fate the
    learner knows; of these, `overwritten_tokens` were discarded by adoptions without having been
    merged. No field changes with a mere step, so the syncer need not check equal entries again.
    """

    version: Version | None = None
    base_steps: int = 0
    settled_tokens: int = 0
    overwritten_tokens: int = 0


@message
class Progress:
    """A learner's cumulative report; `step_time_s` is of its last steps, without compilation.

    `due` names the fragments for which it asks for a round (`trigger: learner`).
    """

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
    due: tuple[FragmentIndex, ...] = ()


class Kept(Compact, frozen=True):
    """A fragment's value that an ended incarnation adopted, and that its process still has."""

    version: Version
    digest: str


@message
class Hello:
    """Open a session with a syncer: identity, credential, and the versions that the sender holds.

    `digests` are those of the held versions, in fragment order ("" where none is held).
    `epoch_seen` and `epoch_proof` are of the highest syncer epoch whose Welcome the sender got.
    `kept` are the values that it still has from before this incarnation, in fragment order, for a
    syncer that has lost its journal; empty if it has none.
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
    kept: tuple[Kept | None, ...] = ()


@message
class Welcome:
    """The syncer's answer to Hello: its epoch and the committed versions, in fragment order.

    `proof` proves to another start of the syncer that a start of it had this epoch. `donor` names
    the state donor whose inner moments the receiver may ask for.
    """

    epoch: int
    versions: tuple[Version | None, ...]
    donor: LearnerName | None = None
    proof: str = ""


@message
class LeaseGranted:
    """All leases the learner holds now, and its quota: the most tokens it may process in total."""

    epoch: int
    incarnation: Incarnation
    quota_tokens: int
    leases: tuple[Lease, ...]


@message
class PullFragment:
    """The syncer asks for a contribution; `version` is the fragment's committed version.

    `precision` is that of the answer, if the learner's own settings leave it open.
    """

    ticket: Ticket
    fragment: FragmentIndex
    version: Version
    precision: Precision = Precision.FLOAT32


@message
class Contribution:
    """Answer to one pull; payload: base − local value, flat, in `precision`.

    `steps` and `tokens` are those of the open work at the boundary at which the value was taken,
    and `processed_tokens` the incarnation's total there.
    """

    ticket: Ticket
    fragment: FragmentIndex
    base: Version
    steps: int
    tokens: int
    processed_tokens: int
    precision: str
    digest: str

    @property
    def name(self) -> LearnerName:
        return self.ticket.name


@message
class ContributionOffered:
    """A contribution leaves now, in the precision that its pull named: so the link is measured."""

    ticket: Ticket
    size_bytes: int

    @property
    def name(self) -> LearnerName:
        return self.ticket.name


@message
class ContributionDeclined:
    """The learner has nothing to contribute to this pull, and is excused from the round."""

    ticket: Ticket
    fragment: FragmentIndex
    reason: str

    @property
    def name(self) -> LearnerName:
        return self.ticket.name


@message
class ContributionFate:
    """The fate of a contribution that was not applied."""

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


class IncrementsSince(Compact, frozen=True):
    """An update's payload is increments: one per version from `base` on, encoded in `precision`."""

    base: Version
    precision: str


@message
class FragmentUpdate:
    """A committed version; payload: its value, flat float32, or increments to it (`since`).

    `round` is the round that made it (−1 for version 0): every ticket of an earlier or equal round
    has its fate. `merged` is the receiver's newest merged contribution to this fragment, if any.
    `clock` is the learning-rate clock in steps. `tokens` are those that the version accounts for:
    merged into it, or discarded before it was made. `digest` is that of the whole value.
    """

    epoch: int
    fragment: FragmentIndex
    version: Version
    round: int
    digest: str
    clock: float
    merged: Merged | None
    since: IncrementsSince | None = None
    tokens: int = 0


@message
class FragmentRequest:
    """Syncer → learner: send your value of this fragment, which becomes version 0.

    `attempt` distinguishes one search for version 0 from the next: within one a learner sends a
    fragment only once over the same link.
    """

    epoch: int
    fragment: FragmentIndex
    attempt: int = 0


@message
class FragmentSeed:
    """Answer to FragmentRequest; payload: the value adopted last, or the initial one, flat."""

    epoch: int
    fragment: FragmentIndex
    name: LearnerName
    incarnation: Incarnation
    digest: str


@message
class FinalRound:
    """The run is closing: stop stepping at the next boundary and answer the last pulls."""

    epoch: int
    reason: str


@message
class Paused:
    """The syncer pauses or resumes the run; learners step only while it is not paused."""

    epoch: int
    paused: bool


@message
class StateRequest:
    """Ask a state donor for one piece of its inner optimizer's state, if it has this `schema`.

    That is the digest of names, dtypes and shapes of the whole state.
    """

    incarnation: Incarnation
    piece: int
    schema: str


@message
class StateOffer:
    """Answer to a StateRequest; payload: the piece's bytes.

    `pieces` is the number of pieces of the state, 0 if the donor has none to offer.
    """

    piece: int
    pieces: int
    schema: str
    digest: str
