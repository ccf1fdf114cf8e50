"""Launched processes: those that this supervisor starts, and restarts when they end.

A process that left or was drained is not restarted, and once the run is over none is.
"""

from itertools import count, islice

from islands.protocol.identities import SYNCER, Phase, Role, Status
from islands.protocol.supervisor import events
from islands.protocol.supervisor.actions import GiveUp, StartProcess
from islands.protocol.supervisor.memory import EVENTS, SupervisorMemory
from islands.protocol.supervisor.restarts import Restarts
from islands.protocol.tape.member_entries import GaveUp, ProcessEnded

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
