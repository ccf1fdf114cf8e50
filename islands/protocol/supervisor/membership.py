"""Admission, heartbeats, and ends of members.

An admission gives an incarnation (epoch of this supervisor's start, counter) that is never given
again. A restarted supervisor has no members; it rebuilds its membership from the heartbeats of
members whose credentials its predecessor signed, and evicts nobody that it has not heard itself.

Of those that have ended only the last are remembered, so that names that come and go fill no
memory; an incarnation that this very start admitted and does not remember has therefore ended.
Those of earlier starts that ended are remembered for good. No event but a tick looks at every
member.
"""

from typing import Never

from islands.protocol.errors import OutdatedError, RefusedError
from islands.protocol.identities import Incarnation, Phase, Role, Status, wrong_name
from islands.protocol.invitations import Invitation
from islands.protocol.messages import membership as messages
from islands.protocol.messages.control import Drain, StepFigures
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.addresses import peer_host
from islands.protocol.supervisor import actions, events, eviction
from islands.protocol.supervisor.eviction import MemberRecord
from islands.protocol.supervisor.memory import EVENTS, MESSAGES, Drained, Follower, SupervisorMemory
from islands.protocol.tape import member_entries, process_entries
from islands.protocol.tape.round_entries import Finished
from messaging.plain_text import plain

SHOWN = 80
"""Most characters of a peer's text in a refusal."""

AGAIN = "start it again if it is to take part"

ASKED_S = messages.ASKS_AGAIN_S + 2.0
"""Whoever waits to take part has asked again after this time, if it is there."""

ASKING_MAX = 1024
"""Most learners that are remembered to wait."""


@MESSAGES.handles(messages.RunSpecRequest)
def on_spec_request(
    memory: SupervisorMemory, request: messages.RunSpecRequest, connection: int, now_s: float
) -> None:
    """Send the run spec to a process that speaks this protocol, while the run goes on."""
    reason = _mismatch(request.protocol)
    if reason is None and memory.finished is not None:
        reason = f"{messages.RUN_OVER}: {memory.finished}"
    again = reason is None and connection in memory.spec_sent
    if again:
        reason = "the run spec was sent over this link; ask again over another one"
    if reason is not None:
        memory.send(connection, messages.Refused(request.name, reason, retry=again))
        return
    memory.spec_sent[connection] = None
    if request.role is Role.LEARNER:
        asking = {name: at_s for name, at_s in memory.asking.items() if now_s - at_s < ASKED_S}
        memory.asking = dict(list(asking.items())[-ASKING_MAX + 1 :])
        memory.asking[request.name] = now_s
    memory.actions.append(actions.SendRunSpec(connection, request.name))


def ends_the_run(memory: SupervisorMemory, connection: int) -> bool:
    """Return whether a link is a syncer's, which alone may say that the run is over."""
    return any(name in memory.here[Role.SYNCER] for name in memory.linked.get(connection, ()))


@MESSAGES.handles(messages.Stop)
def on_stop(memory: SupervisorMemory, stop: messages.Stop, connection: int, now_s: float) -> None:
    """End the run and tell all members, on the word of a syncer; refuse any other sender."""
    if not ends_the_run(memory, connection):
        memory.record(process_entries.Refused("", "only a syncer ends the run"))
        return
    if memory.finished is not None:
        memory.send(connection, messages.Stop(memory.finished))
        return
    memory.finished = stop.reason
    for role in Role:
        for member in memory.here[role].values():
            memory.send(member.connection, messages.Stop(stop.reason))
    memory.record(Finished(stop.reason))
    memory.actions.append(actions.FinishRun(stop.reason, connection, _stay_s(memory, now_s)))


def _stay_s(memory: SupervisorMemory, now_s: float) -> float:
    """Return how long to stay after the run's end, so that learners who ask now and then hear it.

    They are no members, such as the hosts of an island of which one is away.
    """
    waiting = [
        at_s for name, at_s in memory.asking.items() if name not in memory.here[Role.LEARNER]
    ]
    return max([0.0, *(at_s + ASKED_S - now_s for at_s in waiting)])


@EVENTS.handles(events.JoinArrived)
def on_join(memory: SupervisorMemory, event: events.JoinArrived, now_s: float) -> None:
    """Admit a process, or refuse it with a sentence that says what differs."""
    join, connection = event.message, event.connection
    reason = (
        _not_invited(memory, join.role, event.invitation)
        or _unlike(memory, join, proven=event.proven)
        or _ordered_out(memory, join, now_s)
        or _passed_over(memory, join, now_s)
    )
    if reason is not None:
        _refuse(memory, join, connection, reason, retry=join.takes_over != "")
        return
    member = memory.members.get(join.name)
    if member is not None and not member.status.ended:
        taken = _why_taken(event, member)
        if taken is not None:
            _refuse(memory, join, connection, taken[0], retry=taken[1])
            return
        end(memory, member, Status.EVICTED, "replaced by a newer incarnation")
    elif (
        member is not None and member.status is Status.LEFT and join.previous != member.incarnation
    ):
        memory.drained.pop(join.name, None)  # a new process of this name was started on purpose
    if join.takes_over:
        for other in (*memory.present(Role.SYNCER), *memory.present(Role.STANDBY)):
            end(memory, other, Status.EVICTED, f"{join.name}, a standby, was promoted")
        memory.promoted = join.name
        memory.record(member_entries.Promoted(join.name, join.takes_over))
        memory.actions.append(actions.KeepPromoted(join.name))
    memory.counter += 1
    memory.asking.pop(join.name, None)
    incarnation = Incarnation(memory.epoch, memory.counter)
    admitted = MemberRecord.admitted(join.role, join.name, incarnation, now_s, connection)
    admitted.invited = _person(event.invitation)
    memory.enter(admitted)
    invited = admitted.invited or None
    memory.record(member_entries.Admitted(join.name, join.role, str(incarnation), invited))
    joined = messages.Joined(
        run=memory.settings.run,
        name=join.name,
        incarnation=incarnation,
        credential="",
        supervisor_epoch=memory.epoch,
        syncers=memory.addresses(),
    )
    memory.send(connection, joined)


def _not_invited(memory: SupervisorMemory, role: Role, invitation: Invitation | None) -> str | None:
    if invitation is None or invitation.role.value == role.value:
        return None if invitation is None else invitation.revoked_by(memory.revoked)
    return f"the invitation of {invitation.name!r} is a {invitation.role}'s, not a {role.value}'s"


def _person(invitation: Invitation | None) -> str:
    return "" if invitation is None else invitation.name


def _why_taken(event: events.JoinArrived, holder: MemberRecord) -> tuple[str, bool] | None:
    """Return why a name stays with its holder, and whether to retry; None if it is given up.

    It is given up to a process of its role that proves to be the holder, or to any while the holder
    is silent; and to a syncer that has the run's key. So of two processes with one name the later
    one retries until the holder has ended.
    """
    name, role = event.message.name, event.message.role
    if holder.role is not role:
        if role is Role.SYNCER and event.proven:
            return None
        return f"the name {name!r} is that of a {holder.role.value}; choose another", False
    returns = event.returns and event.message.previous == holder.incarnation
    if holder.status is Status.SUSPECT or returns:
        return None
    return f"the name {name!r} is taken by a live {role.value}", True


def _ordered_out(memory: SupervisorMemory, join: messages.Join, now_s: float) -> str | None:
    """Return why an operator's order keeps a process out; None if it does not.

    Another process of an evicted name may join, and one of a drained name has all of the time to
    leave, since neither has been told of the order.
    """
    order = memory.drained.get(join.name)
    if order is None:
        return None
    if join.previous is not None:
        return f"{order.reason}; {AGAIN}" if order.evicted else None
    order.since_s = now_s
    if order.evicted:
        del memory.drained[join.name]
    return None


def _mismatch(protocol: int) -> str | None:
    if protocol != PROTOCOL:
        return f"protocol {protocol} is not spoken here, this run speaks {PROTOCOL}"
    return None


def _unlike(memory: SupervisorMemory, join: messages.Join, *, proven: bool) -> str | None:
    wrong = _mismatch(join.protocol) or wrong_name(join.name, join.role)
    if wrong is not None:
        return wrong
    if join.run != memory.settings.run:
        return f"this is run {memory.settings.run!r}, not {plain(join.run, SHOWN)!r}"
    if join.role is Role.SUPERVISOR:
        return "a supervisor asks nobody for admission; join as a learner or an observer"
    if join.fingerprint != memory.fingerprint:
        return (
            f"layout {plain(join.fingerprint, SHOWN)} differs from the run's {memory.fingerprint}"
        )
    alike = memory.alike(join.name)
    if alike is not None:
        return (
            f"name is {join.name!r}, and {alike!r} is here, which differs from it in case only: "
            "their files would be the same on some disks; choose another"
        )
    if join.role in (Role.SYNCER, Role.STANDBY) and not proven:
        return (
            f"the {join.role.value} {join.name!r} does not hold this run's key; give it the hub's "
            "key file"
        )
    if memory.finished is not None:
        return f"{messages.RUN_OVER}: {memory.finished}"
    return None


def _passed_over(memory: SupervisorMemory, join: messages.Join, now_s: float) -> str | None:
    """Return why a syncer may not take part, as another one's journal counts; None if it may.

    A standby takes over only while no syncer lives, and only with a copy of the journal that
    counts: that of the standby promoted last, or of the first syncer if there was no promotion. Of
    several standbys it is one that has the newest copy, once none follows the syncer any more. A
    supervisor that has begun knows after one eviction timeout who lives.
    """
    if join.role is Role.STANDBY and memory.promoted == join.name:
        return (
            "it was promoted, and died before it could go on as the run's syncer: "
            "python -m islands.syncer goes on with what is in its folder"
        )
    if join.role is not Role.SYNCER or memory.promoted == join.name:
        return None
    if not join.takes_over:
        return memory.promoted and (
            f"the run goes on with the syncer {memory.promoted!r}, a standby that was promoted, "
            "and the journal here is an older copy: end this one; python -m islands.standby with "
            "another folder makes this host a standby"
        )
    return _too_early(memory, now_s) or _not_the_newest(memory, join)


def _too_early(memory: SupervisorMemory, now_s: float) -> str | None:
    """Return why no standby may take over now; None if one may."""
    timing = memory.settings.timing
    if memory.own_syncer:
        return "the run's syncer is a part of its hub, which lives: end the hub first"
    for syncer in memory.present(Role.SYNCER):
        if now_s - syncer.heard_s < timing.scaled(timing.suspect_s):
            return f"the run's syncer {syncer.name!r} is alive"
    if now_s - memory.began_s < timing.scaled(timing.evict_s):
        return "this supervisor has begun just now, and the run's syncer may be about to return"
    return None


def _not_the_newest(memory: SupervisorMemory, join: messages.Join) -> str | None:
    """Return why another journal, or another standby's copy of it, is to be preferred."""
    asking = memory.members.get(join.name)
    if memory.promoted is not None and memory.promoted != join.takes_over:
        return (
            f"its copy is of {plain(join.takes_over, SHOWN)!r}, and the run has gone on with "
            f"{memory.promoted!r} since"
        )
    for other in memory.present(Role.STANDBY):
        if other is not asking and other.phase is Phase.OBSERVING:
            return f"the standby {other.name!r} follows the run's syncer"
        if other is not asking and (asking is None or asking.step < other.step):
            return f"the copy of the standby {other.name!r} is newer"
    return None


def _refuse(
    memory: SupervisorMemory, join: messages.Join, connection: int, reason: str, *, retry: bool
) -> None:
    memory.record(process_entries.Refused(join.name, reason))
    memory.send(connection, messages.Refused(join.name, reason, retry))


@EVENTS.handles(events.HeartbeatArrived)
def on_heartbeat(memory: SupervisorMemory, event: events.HeartbeatArrived, now_s: float) -> None:
    """Take in a member's heartbeat and answer it; fence an incarnation that has ended."""
    beat, connection = event.message, event.connection
    if beat.incarnation.epoch > memory.epoch:
        _give_way(memory, beat.name, beat.incarnation.epoch, kept=False)
    member = memory.members.get(beat.name)
    forgotten = member is None and memory.forgot(beat.name, beat.incarnation)
    forgotten |= beat.role is Role.SYNCER and memory.promoted not in (None, beat.name)
    if not forgotten and (member is None or member.incarnation < beat.incarnation):
        member = _recognise(memory, beat, now_s)
    fenced = member is None or beat.incarnation < member.incarnation or beat.epoch < member.epoch
    if member is None or fenced or member.status.ended:
        ended = messages.Evicted(beat.name, beat.incarnation, "this incarnation has ended")
        memory.send(connection, ended)
        return
    memory.link(member, connection)
    member.invited = _person(event.invitation)
    reach, member.epoch, member.address = member.reach, beat.epoch, beat.address
    member.host = (
        None if beat.address is None else peer_host(beat.address, event.host, memory.address)
    )
    member.heard(beat.phase, beat.step, now_s)
    _set_status(memory, member, eviction.judge(member, memory.settings.timing, now_s))
    memory.send(connection, messages.HeartbeatAck(memory.epoch, memory.addresses()))
    gossips = memory.settings.gossip.on and member.role is Role.LEARNER
    if gossips and member.reach != reach:
        memory.changed(member)
    if gossips or member.role in (Role.SYNCER, Role.STANDBY):
        _follow(memory, member, connection)
    _repeat(memory, member, connection)


@EVENTS.handles(events.NewerSupervisorProven)
def on_newer_supervisor(
    memory: SupervisorMemory, event: events.NewerSupervisorProven, _now_s: float
) -> None:
    _give_way(memory, event.name, event.epoch, kept=event.kept)


def _give_way(memory: SupervisorMemory, name: str, epoch: int, *, kept: bool) -> Never:
    text = f"{name} follows a supervisor of epoch {epoch}, this one has {memory.epoch}"
    if kept:
        raise RefusedError(f"{text}, so it ends: a newer one has taken over its folder")
    raise OutdatedError(
        f"{text}, so it ends: another one runs elsewhere, or this folder is empty or an older "
        "copy; end the other one, and start this one again, which then goes on above it"
    )


@MESSAGES.handles(StepFigures)
def on_figures(
    memory: SupervisorMemory, figures: StepFigures, connection: int, _now_s: float
) -> None:
    """Count step figures that come over a member's link, until it is evicted."""
    for name in memory.linked.get(connection, ()):
        if memory.members[name].status is not Status.EVICTED:
            memory.actions.append(actions.CountFigures(name, figures))


def _follow(memory: SupervisorMemory, member: MemberRecord, connection: int) -> None:
    """Send a page of the view with each heartbeat, and over a new link the whole of it."""
    follower = memory.followers.get(member.name)
    if follower is None or follower.connection != connection:
        memory.followers[member.name] = Follower(connection)
    else:
        follower.due = True


def _repeat(memory: SupervisorMemory, member: MemberRecord, connection: int) -> None:
    """Retransmit Stop or Drain at each heartbeat of a member that should have obeyed it."""
    if memory.finished is not None:
        memory.send(connection, messages.Stop(memory.finished))
    elif member.role is Role.SYNCER and memory.stopping is not None:
        memory.send(connection, messages.Stop(memory.stopping))
    elif member.name in memory.drained:
        memory.send(connection, Drain(memory.drained[member.name].reason))


def _recognise(memory: SupervisorMemory, beat: messages.Heartbeat, now_s: float) -> MemberRecord:
    """Enter a member that an earlier start of the supervisor admitted."""
    member = MemberRecord.admitted(beat.role, beat.name, beat.incarnation, now_s)
    member.phase, member.step = beat.phase, beat.step
    memory.enter(member)
    memory.record(member_entries.Recognised(beat.name, str(beat.incarnation)))
    return member


def notice_suspension(memory: SupervisorMemory, now_s: float) -> None:
    """Move all deadlines if the supervisor's process was suspended.

    This runs at every event, before members are judged: a closed link may be handled before a tick.
    """
    gap_s = now_s - memory.ticked_s
    timing = memory.settings.timing
    if gap_s >= timing.scaled(timing.heartbeat_s):
        memory.ticked_s = now_s
        memory.record(member_entries.StoodStill(gap_s))
        for member in memory.members.values():
            member.shift(gap_s, timing)
        for order in memory.drained.values():
            order.since_s += gap_s


@EVENTS.handles(events.LinkClosed)
def on_link_closed(memory: SupervisorMemory, event: events.LinkClosed, now_s: float) -> None:
    """Judge the members that were heard over a closed link: they are suspect at once."""
    memory.spec_sent.pop(event.connection, None)
    for member in memory.closed(event.connection):
        _set_status(memory, member, eviction.judge(member, memory.settings.timing, now_s))


@EVENTS.handles(events.Ticked)
def on_tick(memory: SupervisorMemory, _event: events.Ticked, now_s: float) -> None:
    """Apply the table of `eviction.py` to every member that has not ended, in order of roles."""
    memory.ticked_s = now_s
    limit_s = eviction.drain_limit_s(memory.settings.timing)
    for name, order in memory.drained.items():
        learner = memory.here[Role.LEARNER].get(name)
        if learner is not None and now_s - order.since_s >= limit_s:
            evict(memory, learner, f"drained, and did not leave within {limit_s:g} s", now_s)
    for role in Role:
        for member in list(memory.here[role].values()):
            _set_status(memory, member, eviction.judge(member, memory.settings.timing, now_s))
            if member.status is Status.STALLED and member.name in memory.launched:
                _kill_stalled(memory, member, now_s)


def _kill_stalled(memory: SupervisorMemory, member: MemberRecord, now_s: float) -> None:
    stall = eviction.standstill(member, memory.settings.timing, now_s)
    stalls = memory.stalls.setdefault(member.name, eviction.Stalls())
    reason = None if stall is None else stalls.kill_because(stall, member.incarnation)
    if reason is not None:
        memory.actions.append(actions.KillProcess(member.name, reason))


def _set_status(memory: SupervisorMemory, member: MemberRecord, status: Status) -> None:
    if status is member.status:
        return
    if not status.ended:
        memory.set_status(member, status)
        memory.record(member_entries.StatusChanged(member.name, status))
    elif memory.finished is not None:  # its process ended with the run
        end(memory, member, Status.LEFT, "the run is over")
    else:
        end(memory, member, status, "silent")


def end(memory: SupervisorMemory, member: MemberRecord, status: Status, reason: str) -> None:
    """End an incarnation; the tape gets exactly one entry, by which evictions are counted."""
    memory.set_status(member, status)
    ended = member_entries.Evicted if status is Status.EVICTED else member_entries.Left
    memory.record(ended(member.name, str(member.incarnation), reason))
    memory.send(member.connection, messages.Evicted(member.name, member.incarnation, reason))


def evict(memory: SupervisorMemory, member: MemberRecord, reason: str, now_s: float) -> None:
    """End a learner for good: its process may not come back, and is killed if it was launched."""
    memory.drained[member.name] = Drained(reason, now_s, evicted=True)
    end(memory, member, Status.EVICTED, reason)
    if member.name in memory.launched:
        memory.actions.append(actions.KillProcess(member.name, reason))


@MESSAGES.handles(messages.Leave)
def on_leave(
    memory: SupervisorMemory, leave: messages.Leave, _connection: int, _now_s: float
) -> None:
    member = memory.members.get(leave.name)
    known = member is not None and member.incarnation == leave.incarnation
    if member is not None and known and not member.status.ended:
        end(memory, member, Status.LEFT, leave.reason)
