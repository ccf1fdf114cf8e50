"""Recipients: whom a schedule lets a round ask, and to whom its value is sent."""

from collections.abc import Sequence

from islands.protocol.identities import FragmentIndex, Phase, Role, Version
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.settings.choices import Trigger
from islands.protocol.syncer.actions import SendValue
from islands.protocol.syncer.eligibility import stale_because
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import ClosingStage, SyncerMemory
from islands.protocol.syncer.versions import increments_since


def asks_all(core: SyncerMemory) -> bool:
    return core.settings.trigger is Trigger.PACE or core.closing is not None


def is_owed(core: SyncerMemory, learner: LearnerRecord, fragment: int) -> bool:
    """Return whether a learner that does not hold the newest value of a fragment is to get it.

    Where learners open rounds those get it whose contribution it contains, and those who could
    not contribute without it: who has no base, or one that is too old. At the end of the run
    everybody gets it, once no round of the fragment is to come.
    """
    if core.settings.trigger is Trigger.PACE or learner.role is not Role.LEARNER:
        return True
    if learner.phase is Phase.HEALING:
        return True
    closing = core.closing
    if closing is not None and closing.stage is not ClosingStage.DRAINING:
        over = fragment not in closing.left and fragment not in core.rounds.open
        if over:
            return True
    return not is_enough(core, learner, fragment, learner.holds(fragment))


def is_under_way(core: SyncerMemory, learner: LearnerRecord, fragment: int) -> bool:
    """Return whether a value that is enough for a learner was sent, and is not adopted yet.

    A newer one is not sent on top of it: the learner is to begin its turn from one value.
    """
    sent, held = learner.sent.get(fragment), learner.holds(fragment)
    if core.settings.trigger is Trigger.PACE or core.closing is not None or sent is None:
        return False
    if not sent.times:
        return False  # it was sent over an earlier link
    adopted = held is not None and held >= sent.version
    return not adopted and is_enough(core, learner, fragment, sent.version)


def is_enough(
    core: SyncerMemory, learner: LearnerRecord, fragment: int, base: Version | None
) -> bool:
    merged = core.durable.ledger.merged_version(learner.name, fragment)
    if merged is not None and merged > core.version(fragment):
        merged = None  # that value is being journalled, and is sent then
    return stale_because(base, kept=core.versions.kept[fragment], merged=merged) is None


def send_to_all(core: SyncerMemory, fragments: list[int], now_s: float) -> None:
    for name in core.names():
        learner = core.members.learners[name]
        for fragment in fragments if learner.adopting else ():
            if is_owed(core, learner, fragment) and not is_under_way(core, learner, fragment):
                send_update(core, learner, fragment, now_s)


def send_update(core: SyncerMemory, learner: LearnerRecord, fragment: int, now_s: float) -> None:
    """Send a fragment's committed version, and which of the receiver's work it contains."""
    published = core.versions.published[fragment]
    if published is None or learner.connection is None:
        return
    again = learner.sending(fragment, published.version, now_s)
    held, newest = None if again else learner.holds(fragment), published.version
    message = FragmentUpdate(
        epoch=core.durable.epoch,
        fragment=FragmentIndex(fragment),
        version=newest,
        round=published.round,
        digest=published.digest,
        clock=core.durable.clock,
        merged=core.durable.ledger.merged_into(learner.name, fragment, newest),
        since=increments_since(core.versions.increments, fragment, held, newest, core.settings),
        tokens=published.tokens,
    )
    core.actions.append(SendValue(learner.connection, message))


def send_lacking(
    core: SyncerMemory,
    learner: LearnerRecord,
    now_s: float,
    interval_s: float,
    digests: Sequence[str] | None = None,
) -> None:
    """Send a learner the versions that it lacks, or (by `digests`) whose values differ."""
    if not learner.adopting:
        return
    for index, published in enumerate(core.versions.published):
        if published is None:
            continue
        if learner.holds(index) == published.version:
            if digests is None or digests[index] == published.digest:
                continue
        elif not is_owed(core, learner, index):
            continue
        sent = learner.sent.get(index)
        newer = sent is None or sent.version < published.version
        newer = newer and not is_under_way(core, learner, index)
        if newer or (sent is not None and now_s >= sent.due_s(interval_s)):
            send_update(core, learner, index, now_s)
