"""Grants of data and tokens: each is journalled, and then sent.

A learner is given what it will need next (`leases.py`). What it needs follows from its own reports,
so only learners that events concerned since the last grants are examined.
"""

from islands.protocol.identities import LearnerName
from islands.protocol.syncer.leases import OUTAGE_S, grant_steps
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import SyncerMemory
from islands.protocol.syncer.plausibility import believed_batch
from islands.protocol.tape.round_entries import Granted


def grant(core: SyncerMemory, now_s: float) -> None:
    """Grant learners the data and tokens they need next."""
    core.update_indexes()
    for name in core.journal.take_ungranted():
        _top_up(core, name, now_s)


def _top_up(core: SyncerMemory, name: LearnerName, now_s: float) -> None:
    book, learner = core.durable.leases, core.members.learners.get(name)
    if name not in core.members.index.readers or name not in book.holders or learner is None:
        return
    if not learner.reachable:
        return
    progress, batch = learner.progress, believed_batch(learner.progress)
    holder = book.holders[name]
    unused_tokens, held = holder.unused_tokens, holder.leases
    granted = book.top_up(
        name,
        batch_tokens=batch,
        members=len(core.members.index.claimants),
        reading=len(core.members.index.readers),
        chunk_steps=_chunk_steps(core, learner),
        proven=progress.steps > 0
        or not core.any_learner("proven", lambda one: one.reads and one.progress.steps > 0),
    )
    core.journal.set_hungry(name, hungry=holder.unused_tokens < batch)
    if granted:
        leases = [(lease.pass_index, lease.shard, lease.position) for lease in holder.leases]
        core.record(Granted(name, str(holder.incarnation), holder.quota_tokens, leases))
        lasts_s = progress.step_time_s * unused_tokens / max(1, batch)
        short = lasts_s < OUTAGE_S / 2  # the syncer may crash the next moment
        needed = holder.leases is not held or name in core.journal.grants or short
        core.journal.records.want(now_s if needed else now_s + min(lasts_s, core.resend_s()) / 2)
        core.journal.granted(name)


def _chunk_steps(core: SyncerMemory, learner: LearnerRecord) -> int:
    """Return the steps of an ordinary grant; one after it stood still, until it has stepped."""
    if learner.name in core.health.idle and not learner.progress.steps:
        return 1
    return grant_steps(core.durable.leases.chunk_steps, learner.progress.step_time_s)
