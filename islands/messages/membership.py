"""Messages of members to the supervisor, and its answers: who takes part, and who lives."""

from dataclasses import dataclass

from islands.identities import (
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Status,
)

NOT_FINITE = "its loss is not a finite number"
"""Why an incarnation ends that has diverged."""

RUN_OVER = "the run is over"
"""How the reason of a refusal begins that leaves nothing to mend."""


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
class RunSpecRequest:
    """Ask the supervisor what the run is, before there is anything to join with."""

    protocol: int
    role: Role
    name: str


@dataclass(frozen=True, slots=True)
class RunSpecReply:
    """What the run is: settings and task as JSON (`settings.run_spec`); payload: its layout."""

    run: str
    spec: str
