"""A run that stands still by the will of an operator, and the time that counts.

While a run is paused no round opens and nothing is granted; learners stop at their next boundary
and keep what they have. A round that is open ends as ever: by its contributions, or by its timeout,
and then its tokens are still in the local values of their senders. So no token is lost, and none is
counted twice, however long it lasts.

The pause is journalled: a restarted syncer goes on pausing. Who missed the word is told again, as
long as its reported phase shows it.

Time counts against `budget_s` from version 0 on, while the run neither is paused nor closes, and
over all starts of the syncer: a budget is of work, not of waiting. What passed since the last
journal record of a syncer that died does not count.
"""

from islands.identities import LearnerName, Phase, Role
from islands.messages.training import Paused
from islands.syncer.actions import Send
from islands.syncer.core import Core
from islands.tape import member_entries


def set_paused(core: Core, *, paused: bool) -> None:
    """Pause the run, or let it go on; does nothing if it is so already."""
    if core.durable.paused is paused:
        return
    core.durable.paused = paused
    core.record(member_entries.Paused() if paused else member_entries.Resumed())
    core.records.want()
    core.adoptions.clear()  # a wait for adoptions says nothing of the network if it spans a pause
    for name in core.names():
        tell_paused(core, name)


def tell_paused(core: Core, name: LearnerName) -> None:
    """Tell a learner whether the run is paused."""
    learner = core.learners[name]
    if learner.role is Role.LEARNER and learner.connection is not None:
        word = Paused(core.durable.epoch, core.durable.paused)
        core.actions.append(Send(learner.connection, word))


def missed_pause(core: Core, name: LearnerName) -> bool:
    """Whether a learner steps although the run is paused, or the other way round."""
    phase = core.learners[name].phase
    return phase is (Phase.STEPPING if core.durable.paused else Phase.PAUSED)


def count_time(core: Core, now_s: float) -> None:
    """Count the time since the last event against the budget, if it is time that counts."""
    if core.seeded and core.closing is None and not core.durable.paused:
        core.durable.elapsed_s += now_s - core.counted_s
    core.counted_s = now_s
