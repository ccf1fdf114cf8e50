"""Who is admitted, who is heard, who has ended.

An admission gives an incarnation (epoch of this supervisor's start, counter) that is never given
again. A supervisor that starts anew knows nobody; it rebuilds its view from the heartbeats of
members whose credentials its predecessor signed, and evicts nobody that it has not heard itself.
Of two supervisors, the one with the higher epoch goes on.

As many may be present as memory holds. Of those that have ended only the last are remembered, so
that names that come and go fill no memory; an incarnation of this very start that is not remembered
has therefore ended. Of earlier starts there were only so many when this one began, and those of
them that ended are known for good.

No event but a tick looks at every member.
"""

from islands.errors import RefusedError
from islands.identities import Incarnation, Role, Status, wrong_name
from islands.messages.control import Drain
from islands.messages.membership import (
    RUN_OVER,
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
    Refused,
    RunSpecRequest,
    Stop,
)
from islands.messages.protocol import PROTOCOL
from islands.supervisor.actions import CountFigures, KillProcess, SendRunSpec
from islands.supervisor.core import Core
from islands.supervisor.events import FiguresArrived
from islands.supervisor.eviction import MemberRecord, judge, standstill
from islands.supervisor.names import IncarnationLines, taken_because
from islands.supervisor.stalls import Stalls
from islands.supervisor.view import Follower
from islands.tape import member_entries, process_entries


def take_enquiry(core: Core, enquiry: RunSpecRequest, connection: int) -> None:
    """Tell whoever speaks our protocol what the run is."""
    reason = _mismatch(enquiry.protocol)
    if reason is None:
        core.actions.append(SendRunSpec(connection, enquiry.name))
    else:
        core.send(connection, Refused(enquiry.name, reason, retry=False))


def take_join(
    core: Core, join: Join, connection: int, now_s: float, *, proven: bool, returns: bool
) -> None:
    """Admit a process, or refuse it with a sentence that says what differs.

    Args:
        core: the supervisor's memory.
        join: what it asks for.
        connection: the link that it asks on.
        now_s: the time.
        proven: whether it shows that it holds the run's key.
        returns: whether it shows that it is the incarnation which it says that it was.
    """
    reason = _unlike(core, join, proven=proven)
    if reason is not None:
        _refuse(core, join, connection, reason, retry=False)
        return
    member, shown = core.members.get(join.name), join.previous if returns else None
    if member is not None and not member.status.ended:
        taken = taken_because(
            (join.name, join.role),
            holder=(member.role, member.incarnation),
            silent=member.status is Status.SUSPECT,
            lines=member.lines,
            shown=shown,
            proven=proven,
        )
        if taken is not None:
            reason, retry = taken
            _refuse(core, join, connection, reason, retry=retry)
            return
        end(core, member, Status.EVICTED, "replaced by a newer incarnation")
    elif (
        member is not None and member.status is Status.LEFT and join.previous != member.incarnation
    ):
        core.drained.pop(join.name, None)  # another process: whoever starts it again means it
    core.counter += 1
    incarnation = Incarnation(core.epoch, core.counter)
    lines = IncarnationLines() if member is None else member.lines
    lines.admit(incarnation, shown)
    core.enter(
        MemberRecord(
            join.role,
            join.name,
            incarnation,
            Status.LIVE,
            connection,
            heard_s=now_s,
            phase_since_s=now_s,
            stepped_s=now_s,
            lines=lines,
        )
    )
    core.record(member_entries.Admitted(join.name, join.role, str(incarnation)))
    joined = Joined(
        run=core.settings.run,
        name=join.name,
        incarnation=incarnation,
        credential="",
        supervisor_epoch=core.epoch,
        syncers=core.addresses(),
    )
    core.send(connection, joined)


def _mismatch(protocol: int) -> str | None:
    if protocol != PROTOCOL:
        return f"protocol {protocol} is not spoken here, this run speaks {PROTOCOL}"
    return None


def _unlike(core: Core, join: Join, *, proven: bool) -> str | None:
    if join.protocol != PROTOCOL:
        return _mismatch(join.protocol)
    wrong = wrong_name(join.name, join.role)
    if wrong is not None:
        return wrong
    if join.run != core.settings.run:
        return f"this is run {core.settings.run!r}, not {join.run!r}"
    if join.role is not Role.SUPERVISOR and join.fingerprint != core.fingerprint:
        return f"layout {join.fingerprint} differs from the run's {core.fingerprint}"
    if join.role is Role.SYNCER and not proven:
        return f"the syncer {join.name!r} does not hold this run's key; give it the hub's key file"
    if core.finished is not None:
        return f"{RUN_OVER}: {core.finished}"
    return None


def _refuse(core: Core, join: Join, connection: int, reason: str, *, retry: bool) -> None:
    core.record(process_entries.Refused(join.name, reason))
    core.send(connection, Refused(join.name, reason, retry))


def take_heartbeat(
    core: Core, beat: Heartbeat, connection: int, *, trusted: bool, now_s: float
) -> None:
    """A member lives, or somebody believes to be one.

    Raises:
        RefusedError: a supervisor of a higher epoch admitted it; this one must end.
    """
    if not trusted:
        return
    if beat.incarnation.epoch > core.epoch:
        message = (
            f"{beat.name} follows a supervisor of epoch {beat.incarnation.epoch}, this one has "
            f"{core.epoch}: another one runs, or the folder with its epoch was lost"
        )
        raise RefusedError(message)
    member = core.members.get(beat.name)
    forgotten = member is None and core.forgot(beat.name, beat.incarnation)
    if not forgotten and (member is None or member.incarnation < beat.incarnation):
        member = _recognise(core, beat, now_s)
    fenced = member is None or beat.incarnation < member.incarnation or beat.epoch < member.epoch
    if member is None or fenced or member.status.ended:
        reason = "this incarnation has ended"
        core.send(connection, Evicted(beat.name, beat.incarnation, reason))
        return
    core.link(member, connection)
    member.epoch = beat.epoch
    member.address = beat.address
    member.heard(beat.phase, beat.step, now_s)
    _set_status(core, member, judge(member, core.settings.timing, now_s))
    core.send(connection, HeartbeatAck(core.epoch, core.addresses()))
    if member.role is Role.SYNCER:
        _follow(core, member, beat, connection, now_s)
    _repeat(core, member, connection)


def take_figures(core: Core, event: FiguresArrived) -> None:
    """Figures are of the name's own incarnation, and end with it."""
    member = core.members.get(event.name)
    if member is None or member.status is Status.EVICTED:
        return
    if member.connection == event.connection:
        core.actions.append(CountFigures(event.name, event.message))


def _follow(
    core: Core, member: MemberRecord, beat: Heartbeat, connection: int, now_s: float
) -> None:
    """Note up to where a syncer knows the view, by its own word on this link."""
    known = core.view.start(beat.view) if beat.view_epoch == core.epoch else 0
    follower = core.followers.get(member.name)
    if follower is None or follower.connection != connection:
        core.followers[member.name] = Follower(connection, known, known, now_s)
        return
    timing = core.settings.timing
    follower.hear(known, now_s, timing.scaled(timing.resend_s))


def _repeat(core: Core, member: MemberRecord, connection: int) -> None:
    """Say again what may have been lost, as long as its receiver is here to be told."""
    if core.finished is not None:
        core.send(connection, Stop(core.finished))
    elif member.role is Role.SYNCER and core.stopping is not None:
        core.send(connection, Stop(core.stopping))
    elif member.name in core.drained:
        core.send(connection, Drain(core.drained[member.name]))


def _recognise(core: Core, beat: Heartbeat, now_s: float) -> MemberRecord:
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
    core.enter(member)
    core.record(member_entries.Recognised(beat.name, str(beat.incarnation)))
    return member


def notice_pause(core: Core, now_s: float) -> None:
    """Before anything is judged; after a pause a closed link may be handled before a tick."""
    gap_s = now_s - core.ticked_s
    timing = core.settings.timing
    if gap_s >= timing.scaled(timing.heartbeat_s):
        core.ticked_s = now_s
        core.record(member_entries.StoodStill(gap_s))
        for member in core.members.values():
            member.shift(gap_s)


def close_link(core: Core, connection: int, now_s: float) -> None:
    """Whoever was heard over a link that is gone is suspect at once."""
    for member in core.closed(connection):
        _set_status(core, member, judge(member, core.settings.timing, now_s))


def judge_all(core: Core, now_s: float) -> None:
    """Apply the table of `eviction.py` to everybody who has not ended, in the order of roles."""
    for role in Role:
        for member in list(core.here[role].values()):
            _set_status(core, member, judge(member, core.settings.timing, now_s))
            if member.status is Status.STALLED and member.name in core.launched:
                _kill_stalled(core, member, now_s)


def _kill_stalled(core: Core, member: MemberRecord, now_s: float) -> None:
    """End a process of ours that stands still, once its time there is over."""
    found = standstill(member, core.settings.timing, now_s)
    stalls = core.stalls.setdefault(member.name, Stalls())
    reason = None if found is None else stalls.kill_because(found, member.incarnation)
    if reason is not None:
        core.actions.append(KillProcess(member.name, reason))


def _set_status(core: Core, member: MemberRecord, status: Status) -> None:
    if status is member.status:
        return
    if status.ended:
        end(core, member, status, "silent")
        return
    core.set_status(member, status)
    core.record(member_entries.StatusChanged(member.name, status))


def end(core: Core, member: MemberRecord, status: Status, reason: str) -> None:
    """An incarnation is over; whoever counts evictions counts these entries, once each."""
    core.set_status(member, status)
    ended = member_entries.Evicted if status is Status.EVICTED else member_entries.Left
    core.record(ended(member.name, str(member.incarnation), reason))
    if member.connection is not None:
        core.send(member.connection, Evicted(member.name, member.incarnation, reason))


def take_leave(core: Core, leave: Leave) -> None:
    """A member departs on its own will."""
    member = core.members.get(leave.name)
    known = member is not None and member.incarnation == leave.incarnation
    if member is not None and known and not member.status.ended:
        end(core, member, Status.LEFT, leave.reason)
