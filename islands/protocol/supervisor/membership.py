"""Admission, heartbeats, and ends of members.

An admission gives an incarnation (epoch of this supervisor's start, counter) that is never given
again. A restarted supervisor has no members; it rebuilds its membership from the heartbeats of
members whose credentials its predecessor signed, and evicts nobody that it has not heard itself.
Of two supervisors, the one with the higher epoch goes on.

The number of present members is bounded by memory alone. Of those that have ended only the last are
remembered, so that names that come and go fill no memory; an incarnation that this very start
admitted and does not remember has therefore ended. The incarnations of earlier starts were of a
fixed number when this start began, so those of them that ended are remembered for good.

No event but a tick looks at every member.
"""

from typing import Never

from islands.protocol.errors import OutdatedError, RefusedError
from islands.protocol.identities import Incarnation, Role, Status, wrong_name
from islands.protocol.messages.control import Drain, StepFigures
from islands.protocol.messages.membership import (
    ASKS_AGAIN_S,
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
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.addresses import peer_host
from islands.protocol.supervisor import actions
from islands.protocol.supervisor.core import HANDLERS, Core, Drained
from islands.protocol.supervisor.eviction import (
    MemberRecord,
    Stalls,
    drain_limit_s,
    judge,
    standstill,
)
from islands.protocol.supervisor.names import Lineages, why_taken
from islands.protocol.supervisor.view import Follower
from islands.protocol.tape import member_entries, process_entries
from islands.protocol.tape.round_entries import Finished
from messaging.plain_text import plain

SHOWN = 80
"""Most characters of a peer's text in a refusal."""

AGAIN = "start it again if it is to take part"

ASKED_S = ASKS_AGAIN_S + 2.0
"""Whoever waits to take part has asked again after this time, if it is there."""

ASKING_MAX = 1024
"""Most learners that are remembered to wait."""


@HANDLERS.handles(RunSpecRequest)
def on_enquiry(core: Core, enquiry: RunSpecRequest, connection: int, now_s: float) -> None:
    """Send the run spec to a process that speaks this protocol, while the run goes on."""
    reason = _mismatch(enquiry.protocol)
    if reason is None and core.finished is not None:
        reason = f"{RUN_OVER}: {core.finished}"
    if reason is not None:
        core.send(connection, Refused(enquiry.name, reason, retry=False))
        return
    if connection in core.spec_told:
        reason = "the run spec was told over this link; ask again over another one"
        core.send(connection, Refused(enquiry.name, reason, retry=False))
        return
    core.spec_told[connection] = None
    if enquiry.role is Role.LEARNER:
        asking = {name: at_s for name, at_s in core.asking.items() if now_s - at_s < ASKED_S}
        core.asking = dict(list(asking.items())[-ASKING_MAX + 1 :])
        core.asking[enquiry.name] = now_s
    core.actions.append(actions.SendRunSpec(connection, enquiry.name))


def ends_the_run(core: Core, connection: int) -> bool:
    """Return whether a link is a syncer's, which alone may say that the run is over."""
    return any(name in core.here[Role.SYNCER] for name in core.linked.get(connection, ()))


@HANDLERS.handles(Stop)
def on_stop(core: Core, stop: Stop, connection: int, now_s: float) -> None:
    """End the run and tell all members, on the word of a syncer; refuse any other sender."""
    if not ends_the_run(core, connection):
        core.record(process_entries.Refused("", "only a syncer ends the run"))
        return
    if core.finished is not None:
        core.send(connection, Stop(core.finished))
        return
    core.finished = stop.reason
    for role in Role:
        for member in core.here[role].values():
            if member.connection is not None:
                core.send(member.connection, Stop(stop.reason))
    core.record(Finished(stop.reason))
    core.actions.append(actions.FinishRun(stop.reason, _stay_s(core, now_s)))


def _stay_s(core: Core, now_s: float) -> float:
    """Return how long to stay after the run's end, so that learners who wait hear of it.

    They are no members, such as the hosts of an island of which one is away: they ask now and then.
    """
    waiting = [at_s for name, at_s in core.asking.items() if name not in core.here[Role.LEARNER]]
    return max([0.0, *(at_s + ASKED_S - now_s for at_s in waiting)])


def on_join(
    core: Core, join: Join, connection: int, now_s: float, *, proven: bool, returns: bool
) -> None:
    """Admit a process, or refuse it with a sentence that says what differs.

    Args:
        core: the supervisor's memory.
        join: the request for admission.
        connection: the link on which the request came, and on which it is answered.
        now_s: the time on the supervisor's clock.
        proven: whether the joiner has proven that it holds the run's key.
        returns: whether the joiner has proven that it is the incarnation `join.previous`.
    """
    reason = _unlike(core, join, proven=proven) or _ordered_out(core, join, now_s)
    if reason is not None:
        _refuse(core, join, connection, reason, retry=False)
        return
    member, shown = core.members.get(join.name), join.previous if returns else None
    if member is not None and not member.status.ended:
        taken = why_taken(
            (join.name, join.role),
            holder=(member.role, member.incarnation),
            silent=member.status is Status.SUSPECT,
            lines=member.lines,
            shown=shown,
            proven=proven,
        )
        if taken is not None:
            _refuse(core, join, connection, taken[0], retry=taken[1])
            return
        end(core, member, Status.EVICTED, "replaced by a newer incarnation")
    elif (
        member is not None and member.status is Status.LEFT and join.previous != member.incarnation
    ):
        core.drained.pop(join.name, None)  # a new process of this name was started on purpose
    core.counter += 1
    core.asking.pop(join.name, None)
    incarnation = Incarnation(core.epoch, core.counter)
    lines = Lineages() if member is None else member.lines
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


def _ordered_out(core: Core, join: Join, now_s: float) -> str | None:
    """Return why an operator's order keeps a process out; None if it does not.

    Another process of an evicted name may join, and one of a drained name has all of the time to
    leave, since neither has been told of the order.
    """
    order = core.drained.get(join.name)
    if order is None:
        return None
    if join.previous is not None:
        return f"{order.reason}; {AGAIN}" if order.evicted else None
    order.since_s = now_s
    if order.evicted:
        del core.drained[join.name]
    return None


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
        return f"this is run {core.settings.run!r}, not {plain(join.run, SHOWN)!r}"
    if join.role is Role.SUPERVISOR:
        return "a supervisor asks nobody for admission; join as a learner or an observer"
    if join.fingerprint != core.fingerprint:
        return f"layout {plain(join.fingerprint, SHOWN)} differs from the run's {core.fingerprint}"
    alike = core.alike(join.name)
    if alike is not None:
        return (
            f"name is {join.name!r}, and {alike!r} is here, which differs from it in case only: "
            "their files would be the same on some disks; choose another"
        )
    if join.role is Role.SYNCER and not proven:
        return f"the syncer {join.name!r} does not hold this run's key; give it the hub's key file"
    if core.finished is not None:
        return f"{RUN_OVER}: {core.finished}"
    return None


def _refuse(core: Core, join: Join, connection: int, reason: str, *, retry: bool) -> None:
    core.record(process_entries.Refused(join.name, reason))
    core.send(connection, Refused(join.name, reason, retry))


def on_heartbeat(
    core: Core,
    beat: Heartbeat,
    connection: int,
    *,
    host: str | None = None,
    now_s: float,
) -> None:
    """Take in a member's heartbeat and answer it; fence an incarnation that has ended."""
    if beat.incarnation.epoch > core.epoch:
        give_way(core, beat.name, beat.incarnation.epoch, kept=False)
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
    reach, member.epoch, member.address = member.reach, beat.epoch, beat.address
    member.host = None if beat.address is None else peer_host(beat.address, host, core.address)
    member.heard(beat.phase, beat.step, now_s)
    _set_status(core, member, judge(member, core.settings.timing, now_s))
    core.send(connection, HeartbeatAck(core.epoch, core.addresses()))
    gossips = core.settings.gossip.on and member.role is Role.LEARNER
    if gossips and member.reach != reach:
        core.changed(member)
    if gossips or member.role is Role.SYNCER:
        _follow(core, member, connection)
    _repeat(core, member, connection)


def give_way(core: Core, name: str, epoch: int, *, kept: bool) -> Never:
    """End this supervisor, since a process follows one of a higher epoch."""
    told = f"{name} follows a supervisor of epoch {epoch}, this one has {core.epoch}"
    if kept:
        raise RefusedError(f"{told}, so it ends: a newer one has taken over its folder")
    raise OutdatedError(
        f"{told}, so it ends: another one runs elsewhere, or this folder is empty or an older "
        "copy; end the other one, and start this one again, which then goes on above it"
    )


@HANDLERS.handles(StepFigures)
def on_figures(core: Core, figures: StepFigures, connection: int, _now_s: float) -> None:
    """Count step figures that come over a member's link, until it is evicted."""
    for name in core.linked.get(connection, ()):
        if core.members[name].status is not Status.EVICTED:
            core.actions.append(actions.CountFigures(name, figures))


def _follow(core: Core, member: MemberRecord, connection: int) -> None:
    """Send a page of the view with each heartbeat, and over a new link the whole of it."""
    follower = core.followers.get(member.name)
    if follower is None or follower.connection != connection:
        core.followers[member.name] = Follower(connection)
    else:
        follower.due = True


def _repeat(core: Core, member: MemberRecord, connection: int) -> None:
    """Retransmit Stop or Drain at each heartbeat of a member that should have obeyed it."""
    if core.finished is not None:
        core.send(connection, Stop(core.finished))
    elif member.role is Role.SYNCER and core.stopping is not None:
        core.send(connection, Stop(core.stopping))
    elif member.name in core.drained:
        core.send(connection, Drain(core.drained[member.name].reason))


def _recognise(core: Core, beat: Heartbeat, now_s: float) -> MemberRecord:
    """Enter a member that an earlier start of the supervisor admitted."""
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
    """Move all deadlines if the supervisor's process was suspended.

    This runs at every event, before members are judged: after a suspension a closed link may be
    handled before a tick.
    """
    gap_s = now_s - core.ticked_s
    timing = core.settings.timing
    if gap_s >= timing.scaled(timing.heartbeat_s):
        core.ticked_s = now_s
        core.record(member_entries.StoodStill(gap_s))
        for member in core.members.values():
            member.shift(gap_s, timing)
        for order in core.drained.values():
            order.since_s += gap_s


def on_link_closed(core: Core, connection: int, now_s: float) -> None:
    """Judge the members that were heard over a closed link: they are suspect at once."""
    core.spec_told.pop(connection, None)
    for member in core.closed(connection):
        _set_status(core, member, judge(member, core.settings.timing, now_s))


def judge_all(core: Core, now_s: float) -> None:
    """Apply the table of `eviction.py` to every member that has not ended, in order of roles.

    A learner that does not obey a drain within its limit is evicted.
    """
    limit_s = drain_limit_s(core.settings.timing)
    for name, order in core.drained.items():
        learner = core.here[Role.LEARNER].get(name)
        if learner is not None and now_s - order.since_s >= limit_s:
            evict(core, learner, f"drained, and did not leave within {limit_s:g} s", now_s)
    for role in Role:
        for member in list(core.here[role].values()):
            _set_status(core, member, judge(member, core.settings.timing, now_s))
            if member.status is Status.STALLED and member.name in core.launched:
                _kill_stalled(core, member, now_s)


def _kill_stalled(core: Core, member: MemberRecord, now_s: float) -> None:
    """Kill a launched process that is stalled, once its time limit there has passed."""
    found = standstill(member, core.settings.timing, now_s)
    stalls = core.stalls.setdefault(member.name, Stalls())
    reason = None if found is None else stalls.kill_because(found, member.incarnation)
    if reason is not None:
        core.actions.append(actions.KillProcess(member.name, reason))


def _set_status(core: Core, member: MemberRecord, status: Status) -> None:
    if status is member.status:
        return
    if status.ended and core.finished is not None:  # its process ended with the run
        end(core, member, Status.LEFT, "the run is over")
        return
    if status.ended:
        end(core, member, status, "silent")
        return
    core.set_status(member, status)
    core.record(member_entries.StatusChanged(member.name, status))


def end(core: Core, member: MemberRecord, status: Status, reason: str) -> None:
    """End an incarnation; the tape gets exactly one entry, by which evictions are counted."""
    core.set_status(member, status)
    ended = member_entries.Evicted if status is Status.EVICTED else member_entries.Left
    core.record(ended(member.name, str(member.incarnation), reason))
    if member.connection is not None:
        core.send(member.connection, Evicted(member.name, member.incarnation, reason))


def evict(core: Core, member: MemberRecord, reason: str, now_s: float) -> None:
    """End a learner for good: its process may not come back, and is killed if it was launched."""
    core.drained[member.name] = Drained(reason, now_s, evicted=True)
    end(core, member, Status.EVICTED, reason)
    if member.name in core.launched:
        core.actions.append(actions.KillProcess(member.name, reason))


@HANDLERS.handles(Leave)
def on_leave(core: Core, leave: Leave, _connection: int, _now_s: float) -> None:
    """End the incarnation of a member that departs on its own will."""
    member = core.members.get(leave.name)
    known = member is not None and member.incarnation == leave.incarnation
    if member is not None and known and not member.status.ended:
        end(core, member, Status.LEFT, leave.reason)
