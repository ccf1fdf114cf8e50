"""The end of an incarnation, and of a learner's work: what it leaves goes back to others.

The supervisor decides on evictions (`protocol/supervisor/eviction.py`); the end of a run is
`closing.py`.

**Quarantine.** Its incarnation goes on, so that it cannot come back as another one at once, but it
steps no more. So once it stands still, and knows all that it was granted, its totals are final:
what is left of its quota returns to the budget, and its unfinished shards go on from where it
reported to be.

A grant that is still under way to it would let it step on, past a quota that others have by then.
Therefore its report must name the whole quota and every unfinished lease. A restarted syncer does
not know of the quarantine; it ends an incarnation that remembers more than the books grant it
(`keeps_too_much`), which then comes back as another one.
"""

from islands.protocol.identities import LearnerName, Phase, Role
from islands.protocol.messages.membership import Evicted, Refused, Stop
from islands.protocol.messages.training import Hello
from islands.protocol.syncer.actions import Dismiss
from islands.protocol.syncer.contribution_admission import withdraw
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.leases import Holder
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.tape.member_entries import Retired
from islands.protocol.tape.round_entries import BookClosed, LeaseReturned, QuotaReturned


def retire(
    core: Core, name: LearnerName, reason: str, notice: Refused | Evicted | Stop | None = None
) -> None:
    """End an incarnation: fence it, close its accounts, free what it held.

    The last message to the learner is by default `Evicted`, after which it may come back under
    another incarnation.
    """
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


def end(core: Core, name: LearnerName, reason: str) -> None:
    """End an incarnation, linked or known from its account only."""
    if name in core.members.learners:
        retire(core, name, reason)
    else:
        close_accounts(core, name)
        core.journal.records.want()


def end_unsettled(core: Core, reason: str) -> None:
    """At the run's end, end incarnations that are absent or have pending tokens, which are lost."""
    books = core.durable.ledger.books
    for name in sorted(books):
        learner = core.members.learners.get(name)
        if learner is None:
            close_accounts(core, name)
        elif not learner.reachable or any(map(books[name].pending, range(core.fragments))):
            retire(core, name, "the run ended without it", Stop(reason))


def close_accounts(core: Core, name: LearnerName) -> None:
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


def take_back(core: Core, name: LearnerName) -> None:
    """Return what a quarantined learner that stands still has left; other learners keep theirs."""
    learner, holder = core.members.learners.get(name), core.durable.leases.holders.get(name)
    if learner is None or holder is None or not learner.quarantined:
        return
    if not _stands_still(learner, holder) or not (holder.unused_tokens or holder.unfinished):
        return
    returned = core.durable.leases.take_back(name)
    core.journal.gave_back(name)
    core.journal.records.want()
    core.record(QuotaReturned(name, str(holder.incarnation), holder.used_tokens))
    for lease in returned:
        core.record(LeaseReturned(name, lease.pass_index, lease.shard, lease.position))


def keeps_too_much(holder: Holder, hello: Hello) -> bool:
    """Return whether a learner knows a quota since taken back.

    Whoever was granted anything else has leases, also where the journal is an older copy.
    """
    taken_back = holder.quota_tokens > 0 and not holder.leases
    return taken_back and hello.progress.quota_tokens > holder.quota_tokens


def _stands_still(learner: LearnerRecord, holder: Holder) -> bool:
    report = learner.progress
    known = {(lease.pass_index, lease.shard) for lease in report.leases}
    return (
        learner.phase is Phase.STARVED
        and report.quota_tokens == holder.quota_tokens
        and known.issuperset((lease.pass_index, lease.shard) for lease in holder.unfinished)
    )
