"""An operator's commands: each is answered by a sentence, and by the view of members after it.

=======  ==========================================================================================
status   show the members of all roles
drain    let a learner answer its pulls, return its leases, end, and not be started again
evict    end a learner at once: its process is killed, if launched here, and may not come back
add      start more learners of a kind, if learners are launched here
pause    let learners stop at their next step, and open no round; nothing is lost
resume   let all go on
stop     end the run in order: closing rounds, a final cut, summary and export; its target, if
         any, is the reason that is told
=======  ==========================================================================================

All are idempotent but `add`. What a member may have missed is retransmitted at its heartbeats.
"""

from typing import assert_never

from islands.protocol.identities import BLOCKED, OPERATOR, SYNCER, Phase, Role, Status
from islands.protocol.messages.control import Command, CommandAnswer, Drain, MemberFigures, Verb
from islands.protocol.messages.membership import Stop
from islands.protocol.supervisor.actions import KillProcess
from islands.protocol.supervisor.core import Core, Drained
from islands.protocol.supervisor.launching import add_learners
from islands.protocol.supervisor.membership import evict
from islands.protocol.tape.member_entries import Commanded
from islands.protocol.tape.process_entries import Refused

ADDED_MAX = 64
NAMES_MAX = 16
"""Most names in one sentence."""
PAGE_MEMBERS = 100
"""Most lines in one answer: with names of 64 characters of four bytes each it fits a frame."""

Answer = tuple[bool, str]
"""Whether the command was carried out, and the sentence that answers it."""


def on_command(
    core: Core, command: Command, connection: int, *, genuine: bool, now_s: float
) -> None:
    """Carry out a command if it is `genuine`, and answer it."""
    wish = command.verb, command.target, command.count
    if not genuine:
        told = "the proof of this command is not made with the run's key: use the key of its folder"
        core.record(Refused(OPERATOR, told, *wish))
        core.send(connection, CommandAnswer(done=False, told=told))
        return
    if core.finished is not None:
        done, told = command.verb is Verb.STATUS, f"the run is over: {core.finished}"
    else:
        done, told = _obey(core, command, now_s)
    if command.verb is not Verb.STATUS:
        core.record(Commanded(done, told, *wish))
    figures = _figures(core, now_s)
    while len(figures) > PAGE_MEMBERS:
        core.send(connection, CommandAnswer(done, told, figures[:PAGE_MEMBERS], more=True))
        figures = figures[PAGE_MEMBERS:]
    core.send(connection, CommandAnswer(done, told, figures))


def _obey(core: Core, command: Command, now_s: float) -> Answer:
    match command.verb:
        case Verb.STATUS:
            return _status(core)
        case Verb.DRAIN:
            return _drain(core, command.target, now_s)
        case Verb.EVICT:
            return _evict(core, command.target, now_s)
        case Verb.ADD:
            return _add(core, command.target, command.count)
        case Verb.PAUSE:
            return _pause(core, paused=True)
        case Verb.RESUME:
            return _pause(core, paused=False)
        case Verb.STOP:
            return _stop(core, command.target)
        case _:
            assert_never(command.verb)


def _status(core: Core) -> Answer:
    learners = core.present(Role.LEARNER)
    live = sum(member.status is Status.LIVE for member in learners)
    paused = core.paused or any(member.phase is Phase.PAUSED for member in learners)
    state = "is ending" if core.stopping else "is paused" if paused else "goes on"
    state += f", but {BLOCKED}," if core.blocked else ""
    told = f"run {core.settings.run} {state} with {len(learners)} learners, {live} of them live"
    return True, told if core.present(Role.SYNCER) else f"{told}; there is no syncer"


def _drain(core: Core, target: str, now_s: float) -> Answer:
    member = core.here[Role.LEARNER].get(target)
    if member is None:
        return _forget(core, target, now_s)
    order = core.drained.setdefault(target, Drained("drained by an operator", now_s))
    if member.connection is not None:
        core.send(member.connection, Drain(order.reason))
    return True, f"{target} answers what it is asked, leaves, and is not started again{_last(core)}"


def _evict(core: Core, target: str, now_s: float) -> Answer:
    member, last = core.here[Role.LEARNER].get(target), _last(core)
    if member is None:
        return _forget(core, target, now_s)
    evict(core, member, "evicted by an operator", now_s)
    return True, f"{target} is evicted: others get its tokens, and it is not started again{last}"


def _last(core: Core) -> str:
    alone = len(core.here[Role.LEARNER]) == 1
    return "; it was the last one: nothing is trained now" if alone else ""


def _forget(core: Core, target: str, now_s: float) -> Answer:
    """Answer about a learner that is not here: one that is launched is not waited for any more."""
    if target not in core.launched or target == SYNCER or target in core.drained:
        return False, _nobody(core, target)
    core.drained[target] = Drained("not waited for any more", now_s, evicted=True)
    core.actions.append(KillProcess(target, "drained before it has joined"))
    return True, f"{target} is not here; what was started for it ends, and is not started again"


def _nobody(core: Core, target: str) -> str:
    names = sorted(core.here[Role.LEARNER])
    here = ", ".join(names[:NAMES_MAX]) or "none"
    here += f", and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"there is no learner {target!r} here; the learners are: {here}"


def _add(core: Core, kind: str, number: int) -> Answer:
    if not core.launched:
        told = f"islands join --supervisor {core.address}"
        return False, f"nothing is launched here; start a learner by hand, on its host: {told}"
    if not 1 <= number <= ADDED_MAX:
        return False, f"{number} learners cannot be added; it must be 1 to {ADDED_MAX}"
    if (kind or core.kinds[0]) not in core.kinds:
        return False, f"there are no learners {kind!r} to add; there are: {', '.join(core.kinds)}"
    return True, f"started {', '.join(add_learners(core, number, kind or core.kinds[0]))}"


def _pause(core: Core, *, paused: bool) -> Answer:
    if core.paused is paused:  # None after a restart: then the syncer is told once more
        return True, "the run is paused already" if paused else "the run is not paused"
    core.paused = paused
    for follower in core.followers.values():
        follower.due = True
    if core.present(Role.SYNCER):
        later = ""
    else:
        later = "; there is no syncer now, it is told as soon as it is back"
    if paused:
        return True, f"learners stop after the step that they are in{later}"
    return True, f"learners go on{later}"


def _stop(core: Core, why: str) -> Answer:
    core.stopping = core.stopping or why or "stopped by an operator"
    told = [member for member in core.present(Role.SYNCER) if member.connection is not None]
    for member in told:
        assert member.connection is not None, "chosen for it"
        core.send(member.connection, Stop(core.stopping))
    if told:
        return True, "the syncer closes the last rounds, then the run ends"
    return True, "there is no syncer now; it ends the run properly as soon as it is back"


def _figures(core: Core, now_s: float) -> tuple[MemberFigures, ...]:
    """A line for each remembered name, ended ones included, ordered by role and name."""
    members = sorted(core.members.values(), key=lambda member: (member.role.value, member.name))
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
