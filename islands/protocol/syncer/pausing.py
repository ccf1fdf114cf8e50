"""Pausing of a run by an operator, and which time counts against the time budget.

While a run is paused no round opens and nothing is granted; learners stop at their next boundary
and keep what they have. A round that is open ends as usual: by its contributions, or by its
timeout, and then its tokens are still in the local values of their senders. So no token is lost,
and none is counted twice, however long the pause lasts.

The pause is journalled, so a restarted syncer stays paused. The command is sent again to a learner
as long as its reported phase shows that it missed it.

Time counts against `budget_s` from version 0 on, while the run neither is paused nor closes, and
over all starts of the syncer: the budget is one of work, not of waiting. The time between the last
journal record of a syncer and its crash does not count.
"""

from islands.protocol.identities import TRAINING, LearnerName, Phase, Role
from islands.protocol.messages.training import Paused
from islands.protocol.syncer.core import Core
from islands.protocol.tape import member_entries


def set_paused(core: Core, *, paused: bool) -> None:
    """Pause or resume the run; do nothing if it is so already."""
    if core.durable.paused is paused:
        return
    core.durable.paused = paused
    core.record(member_entries.Paused() if paused else member_entries.Resumed())
    core.journal.records.want()
    core.rounds.forget_adoptions()
    for name in core.names():
        send_paused(core, name)


def send_paused(core: Core, name: LearnerName) -> None:
    learner = core.members.learners[name]
    if learner.role is Role.LEARNER:
        core.send(learner.connection, Paused(core.durable.epoch, core.durable.paused))


def missed_pause(core: Core, name: LearnerName) -> bool:
    """Return whether a learner steps although the run is paused, or the other way round."""
    phase = core.members.learners[name].phase
    return phase in TRAINING if core.durable.paused else phase is Phase.PAUSED


def count_time(core: Core, now_s: float) -> None:
    """Count the time since the last event against the budget, if the run was at work in it."""
    passed_s = core.journal.count_until(now_s)
    if core.seeded and core.closing is None and not core.durable.paused:
        core.durable.elapsed_s += passed_s
