"""Pausing of a run by an operator, and which time counts against the time budget.

While a run is paused no round opens and nothing is granted; learners stop at their next boundary.
A round that is open ends as usual, so no token is lost, and none is counted twice. The pause is
journalled, so a restarted syncer stays paused.

Time counts against `budget_s` from version 0 on, while the run neither is paused nor closes, and
over all starts of the syncer, without the time between the last record of one and its crash.
"""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.messages.training import Paused
from islands.protocol.syncer.memory import SyncerMemory
from islands.protocol.tape import member_entries


def set_paused(core: SyncerMemory, *, paused: bool) -> None:
    if core.durable.paused is paused:
        return
    core.durable.paused = paused
    core.record(member_entries.Paused() if paused else member_entries.Resumed())
    core.journal.records.want()
    core.rounds.forget_adoptions()
    for name in core.names():
        send_paused(core, name)


def send_paused(core: SyncerMemory, name: LearnerName) -> None:
    learner = core.members.learners[name]
    if learner.role is Role.LEARNER:
        core.send(learner.connection, Paused(core.durable.epoch, core.durable.paused))


def count_time(core: SyncerMemory, now_s: float) -> None:
    """Count the time since the last event against the budget, if the run was at work in it."""
    passed_s = core.journal.count_until(now_s)
    if core.seeded and core.closing is None and not core.durable.paused:
        core.durable.elapsed_s += passed_s
