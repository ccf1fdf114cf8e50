"""The supervisor's state: events, an operator's commands, and the processes that it launches.

`handle(event, now_s)` returns actions, and performs none itself. An operator's command is answered
by a sentence, and by the table of members after it:

=======  ==========================================================================================
status   show the members of all roles
drain    let a learner answer its pulls, return its leases, end, and not be started again
evict    end a learner at once: its process is killed, if launched here, and may not come back
add      start more learners of a kind, if learners are launched here
pause    let learners stop at their next step, and open no round; nothing is lost
resume   let all go on
revoke   end all invitations of a person; who joined by one is evicted, and may not come back
stop     end the run in order: closing rounds, a final cut, summary and export; its target, if
         any, is the reason
=======  ==========================================================================================

All are idempotent but `add`. What a member may have missed is retransmitted at its heartbeats.

Launched processes are restarted when they end, but not one that left or was drained, and none once
the run is over.
"""

from itertools import count, islice

from islands.protocol.errors import UNFORESEEN
from islands.protocol.identities import BLOCKED, SYNCER, Phase, Role, Status
from islands.protocol.invitations import wrong_person
from islands.protocol.messages import membership as messages
from islands.protocol.messages.control import (
    Command,
    CommandAnswer,
    Drain,
    MemberFigures,
    Save,
    Verb,
)
from islands.protocol.sessions import Received
from islands.protocol.supervisor import events, membership
from islands.protocol.supervisor.actions import (
    Action,
    Drop,
    GiveUp,
    KillProcess,
    Revoke,
    StartProcess,
)
from islands.protocol.supervisor.commands import not_invited, operator_of
from islands.protocol.supervisor.eviction import MemberRecord, Restarts
from islands.protocol.supervisor.membership import evict
from islands.protocol.supervisor.memory import EVENTS, MESSAGES, Drained, SupervisorMemory
from islands.protocol.tape.member_entries import Commanded, GaveUp, ProcessEnded
from islands.protocol.tape.process_entries import Refused


class SupervisorState:
    """The pure state of one start of the supervisor."""

    def __init__(self, memory: SupervisorMemory) -> None:
        self.memory = memory

    @property
    def members(self) -> dict[str, MemberRecord]:
        """All members that were admitted or recognised and are not forgotten, by name."""
        return self.memory.members

    @property
    def finished(self) -> str | None:
        """Why the run is over; None while it goes on."""
        return self.memory.finished

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Return the actions that follow from an event; if it fails, close its peer's link."""
        memory = self.memory
        memory.actions = []
        membership.notice_suspension(memory, now_s)
        try:
            EVENTS.handle(memory, event, now_s)
        except UNFORESEEN as error:
            if not isinstance(event, events.PeerEvent):
                raise
            reason = f"what it said cannot be taken in: {error!r}"
            memory.record(Refused("", reason))
            memory.actions.append(Drop(event.connection, reason))
        memory.publish()
        memory.forget_ended()
        return memory.actions


@EVENTS.handles(Received)
def on_received(memory: SupervisorMemory, event: Received, now_s: float) -> None:
    MESSAGES.handle(memory, event.message, event.connection, now_s)


ADDED_MAX = 64
NAMES_MAX = 16
"""Most names in one sentence."""
PAGE_MEMBERS = 100
"""Most lines in one answer: with names of 64 characters of four bytes each it fits a frame."""

LATER = "; there is no syncer now, it is told as soon as it is back"

Answer = tuple[bool, str]
"""Whether the command was carried out, and the sentence that answers it."""


@EVENTS.handles(events.CommandArrived)
def on_command(memory: SupervisorMemory, event: events.CommandArrived, now_s: float) -> None:
    """Carry out a command whose signature and nonce are good, and answer it."""
    command, connection, by = event.message, event.connection, operator_of(event.invitation)
    refusal = _refusal(memory, event, now_s)
    if refusal is not None:
        if command.nonce or not refusal.nonce:  # else it asks for its nonce, as each one does
            wish = command.verb, command.target, command.count
            memory.record(Refused(by, refusal.told, *wish))
        memory.send(connection, refusal)
        return
    if memory.finished is not None:
        answer = command.verb is Verb.STATUS, f"the run is over: {memory.finished}"
    elif command.verb is Verb.REVOKE and wrong_person(command.target) is None:
        memory.actions.append(Revoke(command.target, by, connection))
        return
    else:
        answer = _obey(memory, command, now_s)
    _answer(memory, command, by, connection, answer, now_s)


def _refusal(
    memory: SupervisorMemory, event: events.CommandArrived, now_s: float
) -> CommandAnswer | None:
    command, keyless = event.message, not_invited(event.invitation, memory.revoked)
    if keyless is not None:
        return CommandAnswer(done=False, told=keyless)
    if command.nonce and not event.genuine:
        text = (
            "the signature of this command was not made for it with the run's key, nor with the "
            "invitation that was shown: use the key of the run's folder"
        )
        return CommandAnswer(done=False, told=text)
    wrong = (
        memory.nonces.use(command.nonce, now_s)
        if command.nonce
        else "this command is not signed yet"
    )
    if wrong is None:
        return None
    nonce = memory.nonces.issue(now_s)
    return CommandAnswer(
        done=False, told=f"{wrong}: it is to be signed over this nonce", nonce=nonce
    )


@EVENTS.handles(events.Revoked)
def on_revoked(memory: SupervisorMemory, event: events.Revoked, now_s: float) -> None:
    """Evict who joined by invitations of this name, and tell the syncers and the operator."""
    reason = f"the invitation of {event.name!r} was revoked"
    memory.revoked = event.revoked
    for follower in memory.followers.values():
        follower.whole = follower.due = True
    guests = [
        member for role in Role for member in memory.present(role) if member.invited == event.name
    ]
    for member in guests:
        evict(memory, member, reason, now_s)
        memory.send(member.connection, messages.Refused(member.name, reason, retry=False))
    names = ", ".join(member.name for member in guests[:NAMES_MAX])
    here = f"evicted {names}" if names else "no member is here by one, so check the name"
    text = f"all invitations of {event.name!r} until now are revoked; {here}"
    if event.name not in event.revoked:
        text = f"nobody's invitation is revoked: {event.failure}"
    elif event.failure:
        text = f"{text}; but that ends with this start of the hub: {event.failure}"
    command = Command(Verb.REVOKE, event.name)
    _answer(memory, command, event.by, event.connection, (not event.failure, text), now_s)


def _answer(
    memory: SupervisorMemory,
    command: Command,
    by: str,
    connection: int,
    answer: Answer,
    now_s: float,
) -> None:
    done, text = answer
    if command.verb is not Verb.STATUS:
        wish = command.verb, command.target, command.count
        memory.record(Commanded(done, text, *wish, by))
    figures = _figures(memory, now_s)
    while len(figures) > PAGE_MEMBERS:
        memory.send(connection, CommandAnswer(done, text, figures[:PAGE_MEMBERS], more=True))
        figures = figures[PAGE_MEMBERS:]
    memory.send(connection, CommandAnswer(done, text, figures))


def _obey(memory: SupervisorMemory, command: Command, now_s: float) -> Answer:
    match command.verb:
        case Verb.STATUS:
            return _status(memory)
        case Verb.DRAIN | Verb.EVICT:
            member = memory.here[Role.LEARNER].get(command.target)
            if member is None:
                return _forget(memory, command.target, now_s)
            obey = _drain if command.verb is Verb.DRAIN else _evict
            return obey(memory, member, now_s)
        case Verb.ADD:
            return _add(memory, command.target, command.count)
        case Verb.PAUSE | Verb.RESUME:
            return _pause(memory, paused=command.verb is Verb.PAUSE)
        case Verb.REVOKE:
            return False, f"nobody is invited so: {wrong_person(command.target)}"
        case Verb.STOP:
            return _stop(memory, command.target)
        case Verb.SAVE:
            return _save(memory)


def _status(memory: SupervisorMemory) -> Answer:
    learners = memory.present(Role.LEARNER)
    live = sum(member.status is Status.LIVE for member in learners)
    paused = memory.paused or any(member.phase is Phase.PAUSED for member in learners)
    state = "is ending" if memory.stopping else "is paused" if paused else "goes on"
    state += f", but {BLOCKED}," if memory.blocked else ""
    text = f"run {memory.settings.run} {state} with {live} of {len(learners)} learners live"
    return True, text if memory.here[Role.SYNCER] else f"{text}; there is no syncer"


def _drain(memory: SupervisorMemory, member: MemberRecord, now_s: float) -> Answer:
    order = memory.drained.setdefault(member.name, Drained("drained by an operator", now_s))
    memory.send(member.connection, Drain(order.reason))
    wish = f"{member.name} answers what it is asked, leaves, and is not started again"
    return True, f"{wish}{_last(memory)}"


def _evict(memory: SupervisorMemory, member: MemberRecord, now_s: float) -> Answer:
    last = _last(memory)
    evict(memory, member, "evicted by an operator", now_s)
    wish = f"{member.name} is evicted: others get its tokens, and it is not started again"
    return True, f"{wish}{last}"


def _last(memory: SupervisorMemory) -> str:
    alone = len(memory.here[Role.LEARNER]) == 1
    return "; it was the last one: nothing is trained now" if alone else ""


def _forget(memory: SupervisorMemory, target: str, now_s: float) -> Answer:
    """Answer about a learner that is not here: one that is launched is not waited for any more."""
    if target not in memory.launched or target == SYNCER or target in memory.drained:
        names = sorted(memory.here[Role.LEARNER])
        here = ", ".join(names[:NAMES_MAX]) or "none"
        here += f", and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        return False, f"there is no learner {target!r} here; the learners are: {here}"
    memory.drained[target] = Drained("not waited for any more", now_s, evicted=True)
    memory.actions.append(KillProcess(target, "drained before it has joined"))
    return True, f"{target} is not here; what was started for it ends, and is not started again"


def _add(memory: SupervisorMemory, kind: str, number: int) -> Answer:
    if not memory.launched:
        command = f"islands join --supervisor {memory.address}"
        return False, f"nothing is launched here; start a learner by hand, on its host: {command}"
    if not 1 <= number <= ADDED_MAX:
        return False, f"{number} learners cannot be added; it must be 1 to {ADDED_MAX}"
    if (kind or memory.kinds[0]) not in memory.kinds:
        return False, f"there are no learners {kind!r} to add; there are: {', '.join(memory.kinds)}"
    return True, f"started {', '.join(add_learners(memory, number, kind or memory.kinds[0]))}"


def _pause(memory: SupervisorMemory, *, paused: bool) -> Answer:
    if memory.paused is paused:  # None after a restart: then the syncer hears of it once more
        return True, "the run is paused already" if paused else "the run is not paused"
    memory.paused = paused
    for follower in memory.followers.values():
        follower.due = True
    later = "" if memory.here[Role.SYNCER] else LATER
    return True, f"learners {'stop after the step that they are in' if paused else 'go on'}{later}"


@EVENTS.handles(events.RunDiverged)
def on_run_diverged(memory: SupervisorMemory, _event: events.RunDiverged, _now_s: float) -> None:
    _pause(memory, paused=True)


def _stop(memory: SupervisorMemory, why: str) -> Answer:
    memory.stopping = memory.stopping or why or "stopped by an operator"
    if _tell_syncers(memory, messages.Stop(memory.stopping)):
        return True, "the syncer closes the last rounds, then the run ends"
    return True, "there is no syncer now; it ends the run properly as soon as it is back"


def _tell_syncers(memory: SupervisorMemory, message: object) -> bool:
    """Send a message to the syncers that are linked; return whether there is any."""
    linked = [one.connection for one in memory.present(Role.SYNCER) if one.connection is not None]
    for connection in linked:
        memory.send(connection, message)
    return bool(linked)


def _save(memory: SupervisorMemory) -> Answer:
    if _tell_syncers(memory, Save("asked by an operator")):
        return True, "the syncer takes a checkpoint; islands checkpoints lists it once it is whole"
    return False, "there is no syncer now, so nothing can be saved; ask again once it is back"


def _figures(memory: SupervisorMemory, now_s: float) -> tuple[MemberFigures, ...]:
    """A line for each remembered name, ended ones included, ordered by role and name."""
    members = sorted(memory.members.values(), key=lambda member: (member.role.value, member.name))
    return tuple(
        MemberFigures(
            name=member.name,
            role=member.role,
            incarnation=member.incarnation,
            status=member.status,
            phase=member.phase,
            step=member.step,
            silent_s=0.0 if member.status.ended else now_s - member.heard_s,
        )
        for member in members
    )


LEARNERS = "learner"
"""The kind of learners that run on the hub's own host: learner-0, learner-1 and so on."""


@EVENTS.handles(events.ProcessEnded)
def on_process_ended(memory: SupervisorMemory, event: events.ProcessEnded, now_s: float) -> None:
    """Restart a process that has ended after a delay, or give up on it and say why."""
    name, reason = event.name, event.reason
    memory.record(ProcessEnded(name, reason))
    if memory.finished is not None or name not in memory.launched:
        return
    if _departed(memory, name, reason):
        memory.launch_no_more(name)
        return
    restarts = memory.launched[name]
    delay_s = restarts.next_delay_s(
        now_s,
        memory.settings.timing.patience,
        reason.partition(": ")[2],  # its error message; there is none after a signal
        trained=name == SYNCER or _has_trained(memory, name, restarts),
    )
    if delay_s is None:
        often = restarts.gave_up_because.removeprefix("ended ")
        text = f"ended too often, {often}, last: {reason or 'without a word'}"
        memory.record(GaveUp(name, text))
        memory.actions.append(GiveUp(name, text))
    else:
        memory.actions.append(StartProcess(name, delay_s))


def _has_trained(memory: SupervisorMemory, name: str, restarts: Restarts) -> bool:
    """Whether a learner has taken a step since its last start, as far as heartbeats show."""
    member = memory.members.get(name)
    if member is None or member.incarnation == restarts.incarnation:
        return False
    restarts.incarnation = member.incarnation
    return member.stepped


def _departed(memory: SupervisorMemory, name: str, reason: str) -> bool:
    """Whether a process ended as intended: it was drained, or had left or finished in order."""
    member = memory.members.get(name)
    done = member is not None and (
        member.status is Status.LEFT
        or (member.role is Role.LEARNER and member.phase is Phase.FINISHED)
    )
    return name in memory.drained or (done and not reason)


def add_learners(memory: SupervisorMemory, number: int, kind: str) -> list[str]:
    """Launch `number` more learners of a kind under unused names; returns the names."""
    names = (f"{kind}-{index}" for index in count())
    unused = (name for name in names if not (name in memory.launched or name in memory.members))
    added = list(islice(unused, number))
    for name in added:
        memory.launched[name] = Restarts()
        memory.actions.append(StartProcess(name, 0.0))
    return added
