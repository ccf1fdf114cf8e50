"""What a quarantined learner leaves unused: it goes back and is granted to others.

Its incarnation goes on, so that it cannot come back as another one at once, but it steps no more.
So once it stands still, and knows all that it was granted, its totals are final: what is left of
its quota returns to the budget, and its unfinished shards go on from where it reported to be.

A grant that is still under way to it would let it step on, past a quota that others have by then.
Therefore its report must name the whole quota and every unfinished lease. A restarted syncer does
not know of the quarantine; it ends an incarnation that remembers more than the books grant it
(`keeps_too_much`), which then comes back as another one.
"""

from islands.protocol.identities import LearnerName, Phase
from islands.protocol.messages.training import Hello
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.leases import Holder
from islands.protocol.syncer.roster import LearnerRecord
from islands.protocol.tape.round_entries import LeaseReturned, QuotaReturned


def take_back(core: Core, name: LearnerName) -> None:
    """Return what a quarantined learner that stands still has left; other learners keep theirs."""
    learner, holder = core.learners.get(name), core.durable.leases.holders.get(name)
    if learner is None or holder is None or not learner.quarantined:
        return
    if not _stands_still(learner, holder) or not (holder.unused_tokens or holder.unfinished):
        return
    returned = core.durable.leases.take_back(name)
    core.grants.pop(name, None)
    core.hungry.pop(name, None)
    core.ungranted.update(core.hungry)
    core.records.want()
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
    told = learner.progress
    known = {(lease.pass_index, lease.shard) for lease in told.leases}
    return (
        learner.phase is Phase.STARVED
        and told.quota_tokens == holder.quota_tokens
        and known.issuperset((lease.pass_index, lease.shard) for lease in holder.unfinished)
    )
