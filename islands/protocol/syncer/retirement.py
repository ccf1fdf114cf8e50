"""The end of an incarnation, and of a learner's work: what it leaves goes back to others."""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.messages.membership import Evicted, Refused, Stop
from islands.protocol.syncer.actions import Dismiss
from islands.protocol.syncer.contribution_admission import withdraw
from islands.protocol.syncer.memory import SyncerMemory
from islands.protocol.tape.member_entries import Retired
from islands.protocol.tape.round_entries import BookClosed, LeaseReturned


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
