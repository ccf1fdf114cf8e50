"""Messages between members and the supervisor: admission, heartbeats, the membership view."""

from dataclasses import dataclass

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status
from messaging.envelope import message

NOT_FINITE = "its loss is not a finite number"
"""The reason for which an incarnation that has diverged ends."""

TEXTS_MAX = {"name": 256, "reason": 1000}
"""Most characters of these fields of a message; names that are admitted are shorter still."""
RUN_OVER = "the run is over"
"""Beginning of the reason of a refusal that needs no action, since the run has ended."""

ASKS_AGAIN_S = 5.0
"""So often a process that waits to take part asks for the run spec, to hear if the run is over."""


@message
class Join:
    """Ask the supervisor for admission.

    `previous` is the sender's incarnation so far, which `credential` proves; `proof` shows that a
    syncer or a standby holds the run's key. `supervisor_epoch` is the highest epoch of a supervisor
    that the sender has heard, and `supervisor_proof` proves it: an older supervisor ends when it
    sees it. A standby that would be the syncer says whose journal it has copied (`takes_over`).
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
    supervisor_epoch: int = 0
    supervisor_proof: str = ""
    takes_over: str = ""


@message
class Joined:
    """Admission: an incarnation, a signed credential for the syncer, and the address map.

    `supervisor_proof` proves the supervisor's epoch to other supervisors.
    """

    run: str
    name: str
    incarnation: Incarnation
    credential: str
    supervisor_epoch: int
    syncers: tuple[str, ...]
    supervisor_proof: str = ""


@message
class Refused:
    """Refusal of an admission, a session or the run spec, which may succeed later if `retry`."""

    name: str
    reason: str
    retry: bool


@message
class Heartbeat:
    """A member's event loop is alive; the phase and step say what it is doing.

    `epoch` is the syncer's epoch (0 from a learner), and `address` is where a syncer listens, or a
    learner that gossips. By the credential a restarted supervisor recognises the admissions of its
    earlier starts. `supervisor_epoch` and `supervisor_proof` are those of `Join`.
    """

    role: Role
    name: str
    incarnation: Incarnation
    phase: Phase
    step: int
    credential: str = ""
    epoch: int = 0
    address: str | None = None
    supervisor_epoch: int = 0
    supervisor_proof: str = ""


@message
class HeartbeatAck:
    """Acknowledgement of a heartbeat.

    The supervisor's carries its epoch with the proof of it, so that an old supervisor is fenced,
    and the addresses of syncers; a syncer's only shows its peers that it is alive.
    """

    supervisor_epoch: int
    syncers: tuple[str, ...] = ()
    supervisor_proof: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One learner in the supervisor's membership view.

    Where learners gossip, `address` is where it listens, `stepped` says that it trains, and `proof`
    is what it and the receiver show each other. It is dialled at `host`, from where its session
    with the supervisor comes, whatever its address names; None: there.
    """

    name: LearnerName
    incarnation: Incarnation
    status: Status
    address: str | None = None
    stepped: bool = False
    proof: str = ""
    host: str | None = None


@message
class MembershipChanged:
    """A page of the membership view; one that `begins` has the first learners of the whole view.

    Others have those that changed since the page before, or, while there is `more` of the whole
    view, further ones. `paused` is the operator's last command to this supervisor to pause (True)
    or resume (False); None if there was none. `revoked` are all revocations of invitations: names,
    each with a time in ms since 1970; empty in a page that says nothing of them.
    """

    supervisor_epoch: int
    members: tuple[Member, ...]
    paused: bool | None = None
    begins: bool = True
    more: bool = False
    revoked: tuple[tuple[str, int], ...] = ()


@message
class Evicted:
    """This incarnation is over; the receiver may join again.

    `unknown`: it belongs to another beginning of the run, as do the epochs that the receiver knows.
    """

    name: str
    incarnation: Incarnation
    reason: str
    unknown: bool = False


@message
class Leave:
    """A learner departs on its own will, or joins again as its loss is not finite (`diverged`)."""

    name: LearnerName
    incarnation: Incarnation
    reason: str
    diverged: bool = False


@message
class Stop:
    """The run is over."""

    reason: str


@message
class RunSpecRequest:
    """Ask the supervisor for the run spec, which a process needs before it can join."""

    protocol: int
    role: Role
    name: str


@message
class LayoutWanted:
    """The answer to a request for the run spec, until a user's own loop has told the layout."""

    name: str


@message
class LayoutTold:
    """The layout that a loop would train; payload: its leaves as JSON (`layout.loop_layout`)."""

    protocol: int
    name: str


@message
class LayoutTaken:
    """The run has a layout now, this one or that of another loop; the run spec tells which."""

    name: str


@message
class RunSpecReply:
    """The run spec: settings and task as JSON (`settings.run_spec`); payload: the run plan.

    `supervisor_epoch` and `supervisor_proof` are those of `Joined`.
    """

    run: str
    spec: str
    supervisor_epoch: int = 0
    supervisor_proof: str = ""
