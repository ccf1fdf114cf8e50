"""When the journal is written: few records, each with all that happened since the one before."""

import pytest

from islands.protocol.identities import Incarnation, LearnerName, Lease, Phase, Status
from islands.protocol.messages.membership import Member, MembershipChanged
from islands.protocol.messages.training import LeaseGranted, PullFragment
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.events import JournalFinished
from islands.protocol.syncer.journalling import RecordSchedule
from tests.syncer.bench import BATCH, Bench, seeded

ANA = LearnerName("ana")
BUDGET = RunSettings(interval_steps=4, budget_tokens=10**6)
NAMES = tuple(f"learner-{index:02d}" for index in range(12))


def spend(bench: Bench, name: str, *, all_of_it: bool) -> list[PullFragment]:
    """A learner steps until its quota is used up, or until it is given more; returns its pulls."""
    learner, pulls = bench.learners[name], list[PullFragment]()
    holder = bench.holder(learner.name)
    given = holder.quota_tokens
    while holder.quota_tokens == given and learner.steps * BATCH < given:
        bench.step(name, given // BATCH - learner.steps if all_of_it else 25)
        pulls += bench.pulls()
    return pulls


def test_what_happens_while_a_record_is_written_goes_into_one_other() -> None:
    bench = seeded(*NAMES, settings=BUDGET)
    written = []
    for name in NAMES:
        spend(bench, name, all_of_it=True)
        written += bench.written()
    assert len(written) == 1
    granted: list[LeaseGranted] = []
    while bench.core.journal.journalling:
        bench.do(JournalFinished(bench.core.journal.journalling[-1][0]))
        written += bench.written()
        granted += bench.sent(LeaseGranted)
    assert len(written) == 2
    assert len(granted) == len(NAMES)


def test_a_disk_that_takes_nothing_for_ten_seconds_is_told_of() -> None:
    bench = seeded("ana", settings=BUDGET)
    spend(bench, "ana", all_of_it=True)
    (record,) = bench.written()
    for after_s, blocked in ((9.0, False), (2.0, True), (100.0, True)):
        bench.tick(after_s)
        assert (bench.state.phase is Phase.BLOCKED) == blocked
    bench.do(JournalFinished(record.sequence))
    assert bench.state.phase is Phase.MERGING


def test_what_is_durable_is_sent_although_more_was_granted_since() -> None:
    bench = seeded("ana", settings=BUDGET)
    ana = bench.learners["ana"]
    spend(bench, "ana", all_of_it=True)
    (first,) = bench.written()
    given = bench.holder(ana.name).quota_tokens
    one, *others = bench.holder(ana.name).leases
    ana.leases = (Lease(one.pass_index, one.shard, one.position, done=True), *others)
    bench.report("ana")  # it needs a further shard: granted, and in no record yet
    assert bench.core.journal.grants == {ana.name: None}
    bench.do(JournalFinished(first.sequence))
    (sent,) = bench.sent(LeaseGranted)
    assert (sent.quota_tokens, sent.leases) == (given, (one, *others))
    assert ana.name in bench.core.journal.grants
    bench.journal()
    (sent,) = bench.sent(LeaseGranted)
    assert sent.leases == tuple(bench.holder(ana.name).leases)
    assert not bench.core.journal.grants
    assert not bench.core.journal.written_grants


def test_a_grant_of_an_incarnation_that_ended_is_sent_to_nobody() -> None:
    bench = seeded("ana", settings=BUDGET)
    spend(bench, "ana", all_of_it=True)
    (record,) = bench.written()
    bench.hello("ana", counter=2)
    bench.do(JournalFinished(record.sequence))
    assert bench.sent(LeaseGranted) == []


def test_a_grant_that_is_not_needed_yet_travels_with_a_fragment() -> None:
    bench = seeded("ana", "ben", settings=BUDGET)
    pulls = spend(bench, "ana", all_of_it=False)
    assert bench.written() == []
    assert bench.learners["ana"].name in bench.core.journal.grants
    bench.answer(pulls[-1])
    bench.merge()
    (record,) = bench.written()
    assert record.fragment is not None
    bench.do(JournalFinished(record.sequence))
    assert len(bench.sent(LeaseGranted)) == 1


def test_a_grant_is_written_at_once_while_little_is_left() -> None:
    bench = seeded("ana", "ben", settings=BUDGET)
    holder = bench.holder("ana")
    given = holder.quota_tokens
    bench.learners["ana"].step_time_s = 0.01  # its steps turn out to be faster than was known
    bench.step("ana", 1)
    assert holder.quota_tokens > given
    assert bench.written()


def test_without_a_fragment_it_is_written_before_it_is_needed() -> None:
    bench = seeded("ana", "ben", settings=BUDGET)
    spend(bench, "ana", all_of_it=False)
    for _ in range(10):
        bench.tick(bench.state.deadline_s(bench.now_s) - bench.now_s)
        if bench.written():
            break
    left = bench.holder("ana").unused_tokens
    assert bench.written()
    assert bench.now_s < left / BATCH * 0.1


def test_a_thousand_ends_are_a_few_records() -> None:
    bench = seeded(*NAMES, settings=BUDGET)
    members = tuple(Member(LearnerName(name), Incarnation(1, 1), Status.EVICTED) for name in NAMES)
    bench.do(MembershipChanged(1, members))
    assert len(bench.written()) == 1
    bench.journal()
    assert bench.core.journal.all_durable
    assert bench.core.durable.ledger.books == {}


@pytest.mark.parametrize(("accounts", "distance_s"), [(1, 0.0), (999, 0.0), (100_000, 0.5)])
def test_large_records_keep_their_distance(accounts: int, distance_s: float) -> None:
    records = RecordSchedule(written_s=5.0)
    assert records.at_s(accounts) is None
    records.want(5.0)
    at_s = records.at_s(accounts)
    assert at_s == pytest.approx(5.0 + distance_s)


def test_the_earliest_wish_counts() -> None:
    records = RecordSchedule()
    records.want(9.0)
    records.want(3.0)
    records.want(7.0)
    assert records.at_s(1) == 3.0
    records.want()
    assert records.at_s(1) == float("-inf")
