"""The supervisor's memory, and the operations on it that several rules use.

The rules are functions over it: each is registered for its event or its message, where it stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status
from islands.protocol.messages.membership import Member, MembershipChanged
from islands.protocol.sessions import Handlers
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor.actions import Action, Send
from islands.protocol.supervisor.commands import Nonces
from islands.protocol.supervisor.eviction import MemberRecord, Restarts, Stalls
from islands.protocol.tape.entry import Entry, Record

ENDED_REMEMBERED = 32
ORDERS_REMEMBERED = 1024
"""Orders to leave that are kept for learners that are not here, in case one comes back."""

VIEW_PAGE_MEMBERS = 128
"""Most members in one page: with names of 64 characters of four bytes each it fits a frame."""


@dataclass(slots=True)
class Drained:
    """An operator's order that a learner leaves, given at `since_s`.

    Once `evicted`, its process may not come back, but one that is started anew under its name may.
    """

    reason: str
    since_s: float
    evicted: bool = False


@dataclass(slots=True)
class Follower:
    """A syncer, or a learner that gossips, that follows the membership view over one link.

    Links keep their order and lose nothing while they are open. So over a new link it is sent the
    `whole` view, in pages that fit a frame, then each member that `changed` once, and a page in any
    case if one is `due`.
    """

    connection: int
    whole: bool = True
    due: bool = True
    changed: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class SupervisorMemory:
    """The memory of a supervisor, and the `actions` that follow from the event in hand.

    `epoch` is the number of this start, higher than that of every start before it, `address` is
    where others dial it, and `fingerprint` is the layout's. `launched` are the processes that it
    starts, and may kill, with their restarts; `kinds` are the learners of which an operator can add
    more, as learner of learner-0; `stalls` counts the kills of those that were stalled. `drained`
    are the learners that an operator drained or evicted, `asking` those that asked for the run spec
    lately, with the time, and `spec_sent` the links over which that was answered. `paused` is the
    operator's last command to pause (True) or resume (False), and `stopping` why an operator wants
    the run to end. Commands are signed over `nonces`, and `revoked` are the revocations of
    invitations: names, each with a time in ms since 1970. `ticked_s` is the time of the last tick,
    and `counter` the number of admissions. `promoted` is the standby that was made the syncer last,
    `began_s` is when this start began, and `own_syncer` says that its host has the syncer, too.

    So that the cost of an event does not grow with the number of members, `here` holds the members
    that have not ended by role, `folded` the names by their lower case, `linked` the names that
    were last heard over each link, and `ended` the names that have ended and may be forgotten, in
    the order of their ends. `outlived` are the incarnations that earlier starts of the supervisor
    admitted, and that ended and were forgotten.
    """

    settings: RunSettings
    fingerprint: str
    epoch: int
    address: str
    syncers: tuple[str, ...]
    launched: dict[str, Restarts]
    kinds: tuple[str, ...]
    ticked_s: float
    nonces: Nonces
    revoked: Mapping[str, int] = field(default_factory=dict)
    members: dict[str, MemberRecord] = field(default_factory=dict)
    here: dict[Role, dict[str, MemberRecord]] = field(
        default_factory=lambda: {role: {} for role in Role}
    )
    folded: dict[str, str] = field(default_factory=dict)
    linked: dict[int, dict[str, None]] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    outlived: dict[str, Incarnation] = field(default_factory=dict)
    followers: dict[str, Follower] = field(default_factory=dict)
    stalls: dict[str, Stalls] = field(default_factory=dict)
    counter: int = 0
    drained: dict[str, Drained] = field(default_factory=dict)
    asking: dict[str, float] = field(default_factory=dict)
    spec_sent: dict[int, None] = field(default_factory=dict)
    paused: bool | None = None
    stopping: str | None = None
    own_syncer: bool = False
    promoted: str | None = None
    finished: str | None = None
    began_s: float = field(init=False)
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began_s = self.ticked_s

    def record(self, entry: Entry) -> None:
        self.actions.append(Record(entry))

    def send(self, connection: int | None, message: object) -> None:
        if connection is not None:
            self.actions.append(Send(connection, message))

    def present(self, role: Role) -> list[MemberRecord]:
        return [member for _, member in sorted(self.here[role].items())]

    @property
    def blocked(self) -> bool:
        """Whether a syncer says that it cannot write its journal, so that nothing is merged."""
        return any(one.phase is Phase.BLOCKED for one in self.here[Role.SYNCER].values())

    def addresses(self) -> tuple[str, ...]:
        """Address of the live syncer of the highest epoch, else those of the settings.

        An older one may live on: it was cut off, and one goes on from a copy of its journal.
        """
        heard = [(each.epoch, each.address) for each in self.present(Role.SYNCER) if each.address]
        newest = max((epoch for epoch, _ in heard), default=0)
        return tuple(address for epoch, address in heard if epoch == newest) or self.syncers

    def enter(self, member: MemberRecord) -> None:
        """Enter a name's new incarnation, which replaces the one before it."""
        name, before, connection = member.name, self.members.get(member.name), member.connection
        if before is not None:
            self.here[before.role].pop(name, None)
            self._unlink(before)
        self.ended.pop(name, None)
        self.members[name] = self.here[member.role][name] = member
        self.folded[name.lower()] = name
        if connection is not None:
            self.linked.setdefault(connection, {})[name] = None
        self.changed(member)

    def link(self, member: MemberRecord, connection: int) -> None:
        if member.connection != connection:
            self._unlink(member)
            member.connection = connection
            self.linked.setdefault(connection, {})[member.name] = None

    def _unlink(self, member: MemberRecord) -> None:
        if member.connection is not None:
            names = self.linked.get(member.connection, {})
            names.pop(member.name, None)
            if not names:
                self.linked.pop(member.connection, None)
            member.connection = None

    def closed(self, connection: int) -> list[MemberRecord]:
        """Forget a closed link; returns the members that were last heard over it."""
        members = [self.members[name] for name in self.linked.pop(connection, ())]
        for member in members:
            member.connection = None
        return members

    def set_status(self, member: MemberRecord, status: Status) -> None:
        member.status = status
        self.changed(member)
        if status.ended:
            self.here[member.role].pop(member.name, None)
            self.followers.pop(member.name, None)
            if member.name not in self.launched:
                self.ended[member.name] = None

    def launch_no_more(self, name: str) -> None:
        """Forget a launched process that departed for good; its member as others that ended."""
        del self.launched[name]
        self.stalls.pop(name, None)
        member = self.members.get(name)
        if member is not None and member.status.ended:
            self.ended[name] = None

    def forget_ended(self) -> None:
        """Forget all but the `ENDED_REMEMBERED` members that ended last, and old orders."""
        old_orders = islice(self.drained, max(0, len(self.drained) - ORDERS_REMEMBERED))
        for name in [name for name in old_orders if name not in self.here[Role.LEARNER]]:
            del self.drained[name]
        while len(self.ended) > ENDED_REMEMBERED:
            name = next(iter(self.ended))
            del self.ended[name]
            member = self.members.pop(name)
            self.folded.pop(name.lower(), None)
            self._unlink(member)
            if member.incarnation.epoch < self.epoch:
                self.outlived[name] = member.incarnation

    def alike(self, name: str) -> str | None:
        """A known name that differs from this one in case only; None if there is none."""
        known = self.folded.get(name.lower())
        if known is None:
            known = next((one for one in self.launched if one.lower() == name.lower()), None)
        return None if known == name else known

    def forgot(self, name: str, incarnation: Incarnation) -> bool:
        """Whether an incarnation, of a name that is not in `members`, has ended."""
        outlived = self.outlived.get(name)
        return incarnation.epoch == self.epoch or (outlived is not None and incarnation <= outlived)

    def changed(self, member: MemberRecord) -> None:
        """Note a change that those who follow the view have yet to hear of."""
        if member.role is Role.LEARNER:
            for follower in self.followers.values():
                follower.changed[member.name] = None

    def publish(self) -> None:
        """Send each follower what changed since its last page; at least one page if one is due."""
        learners = self.here[Role.LEARNER] if self.settings.gossip.on else {}
        informed = self.here[Role.SYNCER] | self.here[Role.STANDBY]
        for name, member in [*informed.items(), *learners.items()]:
            follower = self.followers.get(name)
            if follower is None or member.connection != follower.connection:
                continue  # no heartbeat has come over its present link yet
            if follower.due or follower.changed:
                self._send_pages(follower)
                if follower.whole and self.revoked and name in informed:
                    self.send(follower.connection, self._revocations())
                follower.whole, follower.due, follower.changed = False, False, {}

    def _send_pages(self, follower: Follower) -> None:
        names = self.members if follower.whole else follower.changed
        learners = [name for name in names if self.members[name].role is Role.LEARNER]
        for begin in range(0, max(1, len(learners)), VIEW_PAGE_MEMBERS):
            end = begin + VIEW_PAGE_MEMBERS
            page = MembershipChanged(
                supervisor_epoch=self.epoch,
                members=tuple(map(self._in_view, learners[begin:end])),
                paused=self.paused,
                begins=follower.whole and begin == 0,
                more=end < len(learners),
            )
            self.send(follower.connection, page)

    def _revocations(self) -> MembershipChanged:
        revoked = tuple(self.revoked.items())
        return MembershipChanged(self.epoch, (), self.paused, begins=False, revoked=revoked)

    def _in_view(self, name: str) -> Member:
        member = self.members[name]
        if not self.settings.gossip.on:
            return Member(LearnerName(name), member.incarnation, member.status)
        address, host, stepped = member.reach
        return Member(
            LearnerName(name), member.incarnation, member.status, address, stepped, host=host
        )


EVENTS = Handlers[SupervisorMemory, [float]]()
"""Handlers of events, which get the time."""

MESSAGES = Handlers[SupervisorMemory, [int, float]]()
"""Handlers of messages that are events as they come; they get the connection and the time."""
