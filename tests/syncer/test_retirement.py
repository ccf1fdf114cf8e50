"""What a quarantined learner leaves unused: when it goes back, and to whom."""

from dataclasses import replace

import pytest

from islands.protocol.identities import LearnerName, Lease, Phase
from islands.protocol.messages.membership import Evicted
from islands.protocol.messages.training import LeaseGranted
from islands.protocol.settings.run import RunSettings
from tests.syncer.bench import BATCH, Bench, seeded

BUDGET = 4000

BEN = LearnerName("ben")


def quarantined() -> Bench:
    """Ben has just been quarantined, in the midst of his quota; he knows all of his grants."""
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, budget_tokens=BUDGET))
    learner, holder = bench.learners["ben"], bench.core.durable.leases.holders[BEN]
    bench.step("ben")
    learner.quota, learner.leases = holder.quota_tokens, tuple(holder.leases)
    bench.core.members.learners[BEN].quarantined = True
    bench.core.touch(BEN)
    return bench


def test_what_is_left_goes_back_once_it_stands_still() -> None:
    bench = quarantined()
    holder, leases = bench.core.durable.leases.holders[BEN], bench.core.durable.leases
    bench.step("ben")
    left, unused, shards = leases.remaining_tokens, holder.unused_tokens, holder.unfinished
    assert left is not None
    assert unused >= BATCH
    assert shards
    bench.learners["ben"].phase = Phase.STARVED
    bench.report("ben")
    assert (holder.quota_tokens, holder.leases) == (2 * BATCH, [])
    assert leases.remaining_tokens == left + unused
    assert leases.free == shards
    assert bench.written()


@pytest.mark.parametrize("unknown", ["quota", "lease"])
def test_a_grant_that_is_under_way_to_it_keeps_it_from_going_back(unknown: str) -> None:
    bench = quarantined()
    learner, holder = bench.learners["ben"], bench.core.durable.leases.holders[BEN]
    if unknown == "quota":
        learner.quota -= BATCH
    else:
        learner.leases = learner.leases[:-1]
    learner.phase = Phase.STARVED
    before = holder.quota_tokens
    bench.report("ben")
    assert (holder.quota_tokens, bool(holder.leases)) == (before, True)


def test_others_spend_the_budget_to_its_end() -> None:
    bench = quarantined()
    bench.learners["ben"].phase = Phase.STARVED
    told = bench.learners["ben"].leases
    stood_at = Lease(told[0].pass_index, told[0].shard, 1)
    bench.learners["ben"].leases = (stood_at, *told[1:])
    bench.report("ben")
    read: list[Lease] = []
    ana, holder = bench.learners["ana"], bench.core.durable.leases.holders[LearnerName("ana")]
    for _ in range(40):
        read += holder.leases
        ana.quota = holder.quota_tokens
        ana.leases = tuple(Lease(one.pass_index, one.shard, 99, done=True) for one in holder.leases)
        bench.step("ana", ana.quota // BATCH - ana.steps)
    assert holder.quota_tokens == BUDGET - BATCH
    assert bench.core.durable.leases.remaining_tokens == 0
    assert stood_at in read
    assert bench.core.closing is not None
    assert bench.core.closing.reason == "tokens"


def test_a_smaller_batch_of_its_does_not_keep_the_run_open() -> None:
    bench = quarantined()
    bench.core.members.learners[BEN].progress = replace(
        bench.core.members.learners[BEN].progress, batch_tokens=BATCH // 2
    )
    leases = bench.core.durable.leases
    for holder in leases.holders.values():
        holder.used_tokens = holder.quota_tokens
    leases.budget_tokens = leases.granted_tokens + BATCH // 2
    bench.core.journal.forget_unspent()
    bench.tick(1.0)
    assert bench.core.closing is not None


def test_a_restarted_syncer_ends_who_remembers_what_was_taken_back() -> None:
    """It knows of no quarantine, and would let the learner step with a quota that others have."""
    bench = quarantined()
    learner = bench.learners["ben"]
    learner.phase = Phase.STARVED
    bench.report("ben")
    bench.hello("ben")
    assert bench.sent(Evicted) == []
    assert bench.sent(LeaseGranted)[-1].leases == ()
    del bench.core.members.learners[
        BEN
    ]  # as after a restart: accounts are known, the process is not
    bench.core.touch(BEN)
    bench.hello("ben")
    assert [notice.name for notice in bench.dismissed() if isinstance(notice, Evicted)] == [BEN]
