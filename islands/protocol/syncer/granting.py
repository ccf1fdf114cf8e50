"""Tokens and leases of data: granted for what is needed next, and given back by who has ended.

What a learner needs (`leases.py`) follows from its own reports, so only learners that events
concerned since the last grants are examined. Each grant is journalled, and then sent.
"""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.messages.membership import Evicted, Refused, Stop
from islands.protocol.syncer.actions import Dismiss
from islands.protocol.syncer.contribution_admission import withdraw
from islands.protocol.syncer.leases import OUTAGE_S, grant_steps
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import SyncerMemory
from islands.protocol.syncer.plausibility import believed_batch
from islands.protocol.tape.member_entries import Retired
from islands.protocol.tape.round_entries import BookClosed, Granted, LeaseReturned


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


def retire(
    core: SyncerMemory,
    name: LearnerName,
    reason: str,
    notice: Refused | Evicted | Stop | None = None,
) -> None:
    """End an incarnation; after `Evicted`, its last message by default, it may join anew."""
    learner = core.members.remove(name)
    core.touch(name)
    if learner.connection is not None:
        evicted = Evicted(name, learner.incarnation, reason)
        core.actions.append(Dismiss(learner.connection, notice or evicted))
    withdraw(core, name)
    core.versions.forget_seeder(name)
    core.record(Retired(name, str(learner.incarnation), reason))
    if learner.role is Role.LEARNER:
        core.versions.note_gone(name, [report.version for report in learner.progress.fragments])
        close_accounts(core, name)
        core.journal.records.want()


def end(core: SyncerMemory, name: LearnerName, reason: str) -> None:
    """End an incarnation, linked or known from its account only."""
    if name in core.members.learners:
        retire(core, name, reason)
    else:
        close_accounts(core, name)
        core.journal.records.want()


def end_unsettled(core: SyncerMemory, reason: str) -> None:
    """At the run's end, end incarnations that are absent or have pending tokens, which are lost."""
    books = core.durable.ledger.books
    for name in sorted(books):
        learner = core.members.learners.get(name)
        if learner is None:
            close_accounts(core, name)
        elif not learner.reachable or any(map(books[name].pending, range(core.fragments))):
            retire(core, name, "the run ended without it", Stop(reason))


def close_accounts(core: SyncerMemory, name: LearnerName) -> None:
    """Fence an incarnation; its pending tokens are lost, its quota and its leases go back."""
    durable = core.durable
    book = durable.ledger.books[name]
    durable.fence.end(name, book.incarnation)
    durable.ledger.close(name)
    returned = durable.leases.close(name, book.processed)
    core.rounds.pace.forget(name)
    core.members.present(name)
    core.journal.gave_back(name)  # its unused quota may be granted to others
    incarnation = str(book.incarnation)
    core.record(BookClosed(name, incarnation, book.processed))
    for lease in returned:
        core.record(LeaseReturned(name, lease.pass_index, lease.shard, lease.position))
