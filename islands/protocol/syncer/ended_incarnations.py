"""The end of an incarnation: it is fenced, its accounts are closed, its leases become free again.

The supervisor decides on evictions (`protocol/supervisor/eviction.py`); the end of a run is
`closing.py`.
"""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.messages.membership import Evicted, Refused, Stop
from islands.protocol.syncer.actions import Dismiss
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.old_values import note_gone
from islands.protocol.syncer.scheduling import withdraw
from islands.protocol.tape.member_entries import Retired
from islands.protocol.tape.round_entries import BookClosed, LeaseReturned


def retire(
    core: Core, name: LearnerName, reason: str, notice: Refused | Evicted | Stop | None = None
) -> None:
    """End an incarnation: fence it, close its accounts, free what it held.

    Args:
        core: the syncer's memory.
        name: the learner whose incarnation ends.
        reason: told to the tape and to the learner.
        notice: last message to the learner; by default `Evicted`, after which it may come back
            under another incarnation.
    """
    learner = core.learners.pop(name)
    note_gone(core, learner)
    core.touch(name)
    if learner.connection is not None:
        evicted = Evicted(name, learner.incarnation, reason)
        core.actions.append(Dismiss(learner.connection, notice or evicted))
    withdraw(core, name)
    forget_seed(core, name)
    core.record(Retired(name, str(learner.incarnation), reason))
    if learner.role is Role.LEARNER:
        close_accounts(core, name)
        core.records.want()


def forget_seed(core: Core, name: LearnerName) -> None:
    """Stop fetching version 0 from a learner that is gone, unless all of it has arrived."""
    seeding = core.seeding
    if seeding is not None and seeding.name == name and seeding.journalled is None:
        core.seeding = None


def end_unsettled(core: Core, reason: str) -> None:
    """At the run's end, end incarnations that are absent or have pending tokens, which are lost."""
    books = core.durable.ledger.books
    for name in sorted(books):
        learner = core.learners.get(name)
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
    core.pace.forget(name)
    core.grants.pop(name, None)
    core.absent.pop(name, None)
    core.hungry.pop(name, None)
    core.ungranted.update(core.hungry)  # its unused quota may be granted to them
    incarnation = str(book.incarnation)
    core.record(BookClosed(name, incarnation, book.processed))
    for lease in returned:
        core.record(LeaseReturned(name, lease.pass_index, lease.shard, lease.position))
