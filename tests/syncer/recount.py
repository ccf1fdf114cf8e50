"""What the syncer keeps about all learners, counted anew: the two must never differ.

`Bench` and the event model call `recount` after every event, so that each test of a rule also shows
that the rule left nothing out of date.
"""

from islands.protocol.identities import TRAINING, Role
from islands.protocol.syncer.closing import tokens_used_up
from islands.protocol.syncer.members import unready_because
from islands.protocol.syncer.memory import SyncerMemory


def recount(core: SyncerMemory) -> None:
    """Compare every index of the core with what it stands for."""
    names = sorted(core.members.learners)
    assert core.names() == names
    index, learners = core.members.index, core.members.learners
    assert index.learners == {n for n in names if learners[n].role is Role.LEARNER}
    assert index.readers == {n for n in names if learners[n].reads}
    assert index.claimants == {n for n in names if learners[n].claims}
    assert index.asking == {n for n in names if learners[n].asking}
    ready = [name for name in names if unready_because(learners[name]) is None]
    pace = core.rounds.pace
    ranks = {n: (learners[n].phase not in TRAINING, -pace.credits.get(n, 0.0), n) for n in ready}
    assert pace.ranked == ranks
    assert pace.ranking == sorted(ranks.values())
    leases = core.durable.leases
    assert leases.granted_tokens == sum(h.quota_tokens for h in leases.holders.values())
    for round_ in core.rounds.open.values():
        assert not round_.arrived.keys() & round_.excused.keys()
        assert round_.arrived.keys() | round_.excused.keys() <= round_.asked.keys()
        assert round_.unawaited.keys() <= set(round_.waiting)
        assert not round_.adopting.keys() & round_.asked.keys()
        awaited = set(round_.waiting) - round_.unawaited.keys() | round_.adopting.keys()
        assert round_.awaited == bool(awaited)
    if core.rounds.barren is not None and core.rounds.barren == core.durable.round and core.seeded:
        assert core.eligible(core.rounds.barren % core.fragments) == []
    if core.closing is None:
        shown = tokens_used_up(core)
        core.journal.forget_unspent()
        assert shown == tokens_used_up(core)
