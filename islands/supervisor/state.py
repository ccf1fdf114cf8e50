"""The supervisor's decisions.

An admission gives an incarnation (epoch of this supervisor's start, counter) that is never given
again. A supervisor that starts anew knows nobody; it rebuilds its view from the heartbeats of
members whose credentials its predecessor signed, and evicts nobody that it has not heard itself.
"""

from typing import assert_never

from islands.config import RunSettings
from islands.identities import Incarnation, LearnerName, Role, Status
from islands.messages import (
    PROTOCOL,
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
    Member,
    MembershipChanged,
    Refused,
    Stop,
    SyncerAddress,
)
from islands.supervisor.actions import (
    Action,
    FinishRun,
    GiveUp,
    KillProcess,
    Record,
    Send,
    StartProcess,
)
from islands.supervisor.events import (
    Event,
    HeartbeatArrived,
    JoinArrived,
    LeaveArrived,
    LinkClosed,
    ProcessEnded,
    StopArrived,
    Ticked,
)
from islands.supervisor.liveness import MemberRecord, judge
from islands.supervisor.restarts import Restarts

ENDED = (Status.EVICTED, Status.LEFT)


class SupervisorState:
    """One start of the supervisor.

    Args:
        settings: of the run.
        fingerprint: of the layout; a learner with another one is refused.
        epoch: of this start, higher than all before it.
        launched: names of the processes that this supervisor starts, and may kill.
        syncers: addresses known from the settings; heartbeats of syncers add to them.
        now_s: the time of the start.
    """

    def __init__(
        self,
        settings: RunSettings,
        fingerprint: str,
        *,
        epoch: int,
        launched: tuple[str, ...] = (),
        syncers: tuple[SyncerAddress, ...] = (),
        now_s: float,
    ) -> None:
        """Know nobody."""
        self.settings = settings
        self.epoch = epoch
        self.members: dict[str, MemberRecord] = {}
        self.evictions = 0
        self.finished: str | None = None
        self._fingerprint = fingerprint
        self._counter = 0
        self._syncers = syncers
        self._restarts = {name: Restarts() for name in launched}
        self._ticked_s = now_s
        self._actions: list[Action] = []

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Take in one event; returns what is to be done, in order."""
        self._actions = []
        before = self.view()
        self._notice_pause(now_s)
        match event:
            case Ticked():
                self._tick(now_s)
            case JoinArrived(message, connection):
                self._join(message, connection, now_s)
            case HeartbeatArrived(message, connection, trusted):
                self._heartbeat(message, connection, trusted=trusted, now_s=now_s)
            case LeaveArrived(message):
                self._leave(message)
            case LinkClosed(connection):
                for member in self.members.values():
                    if member.connection == connection:
                        member.connection = None
                self._judge_all(now_s)
            case ProcessEnded(name, reason):
                self._process_ended(name, reason, now_s)
            case StopArrived(message):
                self._finish(message.reason)
            case _:
                assert_never(event)
        if self.view() != before:
            self._publish()
        return self._actions

    def view(self) -> MembershipChanged:
        """All learners ever admitted, each in its newest incarnation."""
        members = tuple(
            Member(LearnerName(member.name), member.incarnation, member.status)
            for _, member in sorted(self.members.items())
            if member.role is Role.LEARNER
        )
        return MembershipChanged(self.epoch, members)

    def _publish(self) -> None:
        for _, member in sorted(self.members.items()):
            if member.role is Role.SYNCER and member.connection is not None:
                self._actions.append(Send(member.connection, self.view()))

    def _record(self, kind: str, **fields: object) -> None:
        self._actions.append(Record(kind, fields))

    # --- admission ----------------------------------------------------------------------------

    def _join(self, join: Join, connection: int, now_s: float) -> None:
        reason = self._mismatch(join)
        if reason is not None:
            self._refuse(join, connection, reason, retry=False)
            return
        member = self.members.get(join.name)
        if member is not None and member.status not in ENDED:
            same = join.previous == member.incarnation
            if not same and member.status is not Status.SUSPECT:
                reason = f"the name {join.name!r} is taken by a live {member.role.value}"
                self._refuse(join, connection, reason, retry=True)
                return
            self._end(member, Status.EVICTED, "replaced by a newer incarnation")
        self._counter += 1
        incarnation = Incarnation(self.epoch, self._counter)
        self.members[join.name] = MemberRecord(
            join.role,
            join.name,
            incarnation,
            Status.LIVE,
            connection,
            heard_s=now_s,
            phase_since_s=now_s,
            stepped_s=now_s,
        )
        self._record("admitted", name=join.name, role=join.role.value, incarnation=str(incarnation))
        joined = Joined(
            run=self.settings.run,
            name=join.name,
            incarnation=incarnation,
            credential="",
            supervisor_epoch=self.epoch,
            syncers=self._addresses(),
        )
        self._actions.append(Send(connection, joined))

    def _mismatch(self, join: Join) -> str | None:
        if join.protocol != PROTOCOL:
            return f"protocol {join.protocol} is not spoken here, this run speaks {PROTOCOL}"
        if join.run != self.settings.run:
            return f"this is run {self.settings.run!r}, not {join.run!r}"
        if join.role is not Role.SUPERVISOR and join.fingerprint != self._fingerprint:
            return f"layout {join.fingerprint} differs from the run's {self._fingerprint}"
        return None

    def _refuse(self, join: Join, connection: int, reason: str, *, retry: bool) -> None:
        self._record("refused", name=join.name, reason=reason)
        self._actions.append(Send(connection, Refused(join.name, reason, retry)))

    def _addresses(self) -> tuple[SyncerAddress, ...]:
        heard = [
            SyncerAddress(member.address)
            for _, member in sorted(self.members.items())
            if member.role is Role.SYNCER and member.address and member.status not in ENDED
        ]
        return tuple(heard) or self._syncers

    # --- liveness -----------------------------------------------------------------------------

    def _heartbeat(self, beat: Heartbeat, connection: int, *, trusted: bool, now_s: float) -> None:
        member = self.members.get(beat.name)
        if member is None or member.incarnation < beat.incarnation:
            if not trusted:
                return
            member = self._recognise(beat, now_s)
        fenced = beat.incarnation < member.incarnation or beat.epoch < member.epoch
        if fenced or member.status in ENDED:
            reason = "this incarnation has ended"
            self._actions.append(Send(connection, Evicted(beat.name, beat.incarnation, reason)))
            return
        member.connection = connection
        member.epoch = beat.epoch
        member.address = beat.address
        member.heard(beat.phase, beat.step, now_s)
        self._set_status(member, judge(member, self.settings.timing, now_s))
        self._actions.append(Send(connection, HeartbeatAck(self.epoch, self._addresses())))
        if beat.role is Role.SYNCER:
            self._actions.append(Send(connection, self.view()))

    def _recognise(self, beat: Heartbeat, now_s: float) -> MemberRecord:
        """A member that an earlier supervisor admitted."""
        member = MemberRecord(
            beat.role,
            beat.name,
            beat.incarnation,
            Status.LIVE,
            None,
            heard_s=now_s,
            phase=beat.phase,
            phase_since_s=now_s,
            step=beat.step,
            stepped_s=now_s,
        )
        self.members[beat.name] = member
        self._record("recognised", name=beat.name, incarnation=str(beat.incarnation))
        return member

    def _notice_pause(self, now_s: float) -> None:
        """Before anything is judged; after a pause a closed link may be handled before a tick."""
        gap_s = now_s - self._ticked_s
        timing = self.settings.timing
        if gap_s >= timing.scaled(timing.heartbeat_s):
            self._ticked_s = now_s
            self._record("paused", gap_s=gap_s)
            for member in self.members.values():
                member.shift(gap_s)

    def _tick(self, now_s: float) -> None:
        self._ticked_s = now_s
        self._judge_all(now_s)

    def _judge_all(self, now_s: float) -> None:
        for _, member in sorted(self.members.items()):
            self._set_status(member, judge(member, self.settings.timing, now_s))

    def _set_status(self, member: MemberRecord, status: Status) -> None:
        if status is member.status:
            return
        if status in ENDED:
            self._end(member, status, "silent")
            return
        member.status = status
        self._record("status", name=member.name, status=status.value)
        if status is Status.STALLED and member.name in self._restarts:
            self._actions.append(KillProcess(member.name, f"stalled in {member.phase.value}"))

    def _end(self, member: MemberRecord, status: Status, reason: str) -> None:
        member.status = status
        self.evictions += status is Status.EVICTED
        incarnation = str(member.incarnation)
        self._record(status.value, name=member.name, incarnation=incarnation, reason=reason)
        if member.connection is not None:
            evicted = Evicted(member.name, member.incarnation, reason)
            self._actions.append(Send(member.connection, evicted))

    def _leave(self, leave: Leave) -> None:
        member = self.members.get(leave.name)
        known = member is not None and member.incarnation == leave.incarnation
        if member is not None and known and member.status not in ENDED:
            self._end(member, Status.LEFT, leave.reason)

    # --- processes and the end ----------------------------------------------------------------

    def _process_ended(self, name: str, reason: str, now_s: float) -> None:
        self._record("process_ended", name=name, reason=reason)
        if self.finished is not None or name not in self._restarts:
            return
        delay_s = self._restarts[name].next_delay_s(now_s, self.settings.timing.patience)
        if delay_s is None:
            told = f"ended too often, last: {reason}"
            self._record("gave_up", name=name, reason=told)
            self._actions.append(GiveUp(name, told))
        else:
            self._actions.append(StartProcess(name, delay_s))

    def _finish(self, reason: str) -> None:
        if self.finished is not None:
            return
        self.finished = reason
        for _, member in sorted(self.members.items()):
            if member.connection is not None and member.status not in ENDED:
                self._actions.append(Send(member.connection, Stop(reason)))
        self._record("finished", reason=reason)
        self._actions.append(FinishRun(reason))
