"""The supervisor's memory, and the few operations on it that several rules share.

`Core` is plain data plus the list of actions being collected while one event is handled. The rules
are functions over it; the package's docstring says where they are.
"""

from dataclasses import dataclass, field

from islands.config import RunSettings
from islands.identities import LearnerName, Role, Status
from islands.messages import Member, MembershipChanged, SyncerAddress
from islands.supervisor.actions import Action, Outgoing, Record, Send
from islands.supervisor.liveness import MemberRecord
from islands.supervisor.restarts import Restarts

ENDED = (Status.EVICTED, Status.LEFT)


@dataclass(slots=True)
class Core:
    """All that a supervisor knows.

    `address` is where others dial it. `launched` are the processes that it starts, and may kill,
    with their restarts. `drained` are the learners that an operator sent away, with the reason.
    `paused` is the operator's last word on it, and `stopping` why an operator wants the run to end.
    `ticked_s` is the time of the last tick.
    """

    settings: RunSettings
    fingerprint: str
    epoch: int
    address: str
    syncers: tuple[SyncerAddress, ...]
    launched: dict[str, Restarts]
    ticked_s: float
    members: dict[str, MemberRecord] = field(default_factory=dict)
    counter: int = 0
    evictions: int = 0
    drained: dict[str, str] = field(default_factory=dict)
    paused: bool | None = None
    stopping: str | None = None
    finished: str | None = None
    actions: list[Action] = field(default_factory=list)

    def record(self, kind: str, **fields: object) -> None:
        """Put an entry on the event tape."""
        self.actions.append(Record(kind, fields))

    def send(self, connection: int, message: Outgoing) -> None:
        """Send on a link."""
        self.actions.append(Send(connection, message))

    def present(self, role: Role) -> list[MemberRecord]:
        """Members of a role that have not ended, by name."""
        return [
            member
            for _, member in sorted(self.members.items())
            if member.role is role and member.status not in ENDED
        ]

    def addresses(self) -> tuple[SyncerAddress, ...]:
        """Where syncers are: as they say, or as configured."""
        heard = [
            SyncerAddress(member.address) for member in self.present(Role.SYNCER) if member.address
        ]
        return tuple(heard) or self.syncers

    def view(self) -> MembershipChanged:
        """All learners ever admitted, each in its newest incarnation."""
        members = tuple(
            Member(LearnerName(member.name), member.incarnation, member.status)
            for _, member in sorted(self.members.items())
            if member.role is Role.LEARNER
        )
        return MembershipChanged(self.epoch, members, self.paused)

    def publish(self) -> None:
        """Send the view to all syncers."""
        for member in self.present(Role.SYNCER):
            if member.connection is not None:
                self.send(member.connection, self.view())
