"""Rounds that learners open: each asks for one when it has done its steps (`trigger: learner`).

Such a round asks that learner alone and closes with its answer, so each contribution is an outer
step of its own. A fragment has one round at a time, as always; of the learners that ask for one,
the one with the oldest base comes first. So nobody is passed over, and the next one waits for as
long as one exchange takes.

What a learner asks for is in its reports and in its Hello. So nothing is lost with a link or with a
syncer: whoever waits asks again, and one that is not eligible now is asked as soon as it is. A
report asks once; if nothing came of the round, the next report asks anew.

The learning-rate clock goes on as such a round is merged, not as it is opened: nobody moves it by
asking. M merged turns are H/P steps of it.

Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
Deviation: there, transfers of several learners may overlap; here one round's exchange ends first.
"""

from islands.protocol.identities import LearnerName
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.scheduling import open_round


def open_turns(core: Core, now_s: float) -> None:
    """Open a round on each fragment that has none, for the learner that has waited longest.

    All that ask are looked at only where one of them was found eligible: a learner becomes so by a
    change of its own, never by a merge.
    """
    core.take_in()
    index = core.learner_index
    for name in index.asking_news:
        asking = core.learners[name].asking
        index.asked_for |= {each for each in asking if core.ineligible(name, each) is None}
    index.asking_news.clear()
    for fragment in sorted(index.asked_for - core.rounds.keys()):
        chosen = _next(core, fragment)
        if chosen is None:
            index.asked_for.discard(fragment)
            continue
        members = max(1, len(core.pace.ranked))
        core.pace.round_interval_steps = core.interval_steps / core.fragments / members
        core.learners[chosen].asking.discard(fragment)
        open_round(core, fragment, [chosen], None, now_s)


def _next(core: Core, fragment: int) -> LearnerName | None:
    """Return the eligible learner that asks for this fragment and has the oldest base of it."""
    asking = [
        (core.learners[name].holds(fragment), name)
        for name in core.learner_index.asking
        if fragment in core.learners[name].asking and core.ineligible(name, fragment) is None
    ]
    return min(asking)[1] if asking else None  # an eligible learner has a base
