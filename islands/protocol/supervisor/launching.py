"""Launched processes: those that this supervisor starts, and restarts when they end.

A process that left or was drained is not restarted, and once the run is over none is.
"""

from itertools import count

from islands.protocol.identities import SYNCER, Phase, Role, Status
from islands.protocol.supervisor.actions import GiveUp, StartProcess
from islands.protocol.supervisor.core import Core
from islands.protocol.supervisor.restarts import Restarts
from islands.protocol.tape.member_entries import GaveUp, ProcessEnded

LEARNERS = "learner"
"""The kind of learners that run on the hub's own host: learner-0, learner-1 and so on."""


def on_process_ended(core: Core, name: str, reason: str, now_s: float) -> None:
    """Restart a process that has ended after a delay, or give up on it and say why."""
    core.record(ProcessEnded(name, reason))
    if core.finished is not None or name not in core.launched:
        return
    if _departed(core, name, reason):
        core.launch_no_more(name)
        return
    restarts = core.launched[name]
    delay_s = restarts.next_delay_s(
        now_s,
        core.settings.timing.patience,
        _words(reason),
        trained=name == SYNCER or _has_trained(core, name, restarts),
    )
    if delay_s is None:
        often = restarts.told.removeprefix("ended ")
        told = f"ended too often, {often}, last: {reason or 'without a word'}"
        core.record(GaveUp(name, told))
        core.actions.append(GiveUp(name, told))
    else:
        core.actions.append(StartProcess(name, delay_s))


def _words(reason: str) -> str:
    """The error message with which a process ended; empty if there is none, as after a signal."""
    return reason.partition(": ")[2]


def _has_trained(core: Core, name: str, restarts: Restarts) -> bool:
    """Whether a learner has taken a step since its last start, as far as heartbeats show."""
    member = core.members.get(name)
    if member is None or member.incarnation == restarts.incarnation:
        return False
    restarts.incarnation = member.incarnation
    return member.stepped


def _departed(core: Core, name: str, reason: str) -> bool:
    """Whether a process ended as intended: it was drained, or had left or finished in order."""
    member = core.members.get(name)
    done = member is not None and (
        member.status is Status.LEFT
        or (member.role is Role.LEARNER and member.phase is Phase.FINISHED)
    )
    return name in core.drained or (done and not reason)


def add_learners(core: Core, number: int, kind: str) -> list[str]:
    """Launch `number` more learners of a kind under unused names; returns the names."""
    added: list[str] = []
    for index in count():
        if len(added) == number:
            break
        name = f"{kind}-{index}"
        if name not in core.launched and name not in core.members:
            core.launched[name] = Restarts()
            core.actions.append(StartProcess(name, 0.0))
            added.append(name)
    return added
