"""Recipients: which learners a round asks, and to which its value is sent."""

from islands.protocol.identities import Phase, Role, Version
from islands.protocol.settings.run import SendTo, Trigger
from islands.protocol.syncer.core import ClosingStage, Core
from islands.protocol.syncer.eligibility import stale_because
from islands.protocol.syncer.members import LearnerRecord


def asks_all(core: Core) -> bool:
    """Return whether a round asks all who are eligible, and not only the learner that opened it."""
    return core.settings.trigger is Trigger.PACE or core.closing is not None


def is_owed(core: Core, learner: LearnerRecord, fragment: int) -> bool:
    """Return whether a learner that does not hold the newest value of a fragment is to get it.

    With `send_to: contributors` those get it whose contribution it contains, and those who could
    not contribute without it: who has no base, or one that is too old. At the end of the run
    everybody gets it, once no round of the fragment is to come.
    """
    if core.settings.send_to is SendTo.ALL or learner.role is not Role.LEARNER:
        return True
    if learner.quarantined or learner.phase is Phase.HEALING:
        return True
    closing = core.closing
    if closing is not None and closing.stage is not ClosingStage.DRAINING:
        over = fragment not in closing.left and fragment not in core.rounds
        if over:
            return True
    return not _is_enough(core, learner, fragment, learner.holds(fragment))


def is_under_way(core: Core, learner: LearnerRecord, fragment: int) -> bool:
    """Return whether a value was sent that is enough for a learner, and its adoption not reported.

    A newer one is not sent on top of it: the learner is to begin its turn from one value. If the
    value is lost, the newest one is sent in its place (`retries.py`).
    """
    sent, held = learner.sent.get(fragment), learner.holds(fragment)
    if core.settings.send_to is SendTo.ALL or core.closing is not None or sent is None:
        return False
    if not sent.times:
        return False  # it was sent over an earlier link
    adopted = held is not None and held >= sent.version
    return not adopted and _is_enough(core, learner, fragment, sent.version)


def _is_enough(core: Core, learner: LearnerRecord, fragment: int, base: Version | None) -> bool:
    """Return whether a learner could contribute from a base, by all that is committed by now."""
    merged = core.merged_version(learner.name, fragment)
    if merged is not None and merged > core.version(fragment):
        merged = None  # that value is being journalled, and is sent then
    return stale_because(base, kept=core.kept[fragment], merged=merged) is None


def send_to_all(core: Core, fragments: list[int], now_s: float) -> None:
    """Send newest values to all who are owed them."""
    for name in core.names():
        learner = core.learners[name]
        for fragment in fragments if learner.adopting else ():
            if is_owed(core, learner, fragment) and not is_under_way(core, learner, fragment):
                core.send_update(learner, fragment, now_s)
