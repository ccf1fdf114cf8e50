"""How far a loop had read its own data, for one that comes back: what is kept, and when it is told.

A scripted learner reads one record at each step, so its cursor is the number of its steps.

When the journal is written: few records, each with all that happened since the one before.
"""

from dataclasses import replace

import pytest

from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Role,
    Status,
    Ticket,
    Version,
)
from islands.protocol.messages.membership import Member, MembershipChanged, Refused
from islands.protocol.messages.training import (
    CURSOR_BYTES_MAX,
    Contribution,
    LeaseGranted,
    PullFragment,
    Welcome,
)
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import journalling
from islands.protocol.syncer.events import (
    ContributionArrived,
    JournalFinished,
    LinkOpened,
    MergeFacts,
    MergeFinished,
)
from islands.protocol.syncer.journalling import DEPARTED_KEPT, Positions, RecordSchedule
from islands.protocol.tape.round_entries import CursorNotKept
from islands.syncer.journal import decode, encode
from tests.syncer.bench import BATCH, GOOD, Bench, Learner, opened, seeded

ANA = LearnerName("ana")

ALONE = RunSettings(interval_steps=4, fragments=1, quorum=None)


def read(steps: int) -> bytes:
    """The cursor after so many steps."""
    return str(steps).encode()


def answer(bench: Bench, pull: PullFragment, cursor: bytes | None = None) -> None:
    """Answer a pull as a loop that tells how far it has read."""
    told = read(bench.learners[pull.ticket.name].steps) if cursor is None else cursor
    contribution = replace(bench.contribution(pull), cursor=told)
    bench.do(ContributionArrived(contribution, GOOD, bench.connections[pull.ticket.name]))


def merged(bench: Bench) -> int:
    """One round, merged and durable; returns the steps of ana at its boundary."""
    (pull,) = opened(bench)
    answer(bench, pull)
    steps = bench.learners["ana"].steps
    bench.merge()
    bench.journal()
    bench.adopt("ana")
    return steps


def position(bench: Bench, counter: int) -> bytes:
    """What a loop is told when it comes back under its name."""
    bench.hello("ana", counter=counter)
    (welcome,) = bench.sent(Welcome)
    return welcome.position


def test_what_a_crash_lost_is_exactly_read_again() -> None:
    """The records up to the position were applied; those after it are the lost ones."""
    bench = seeded("ana", settings=ALONE, fragments=1)
    assert position(bench, 1) == b""
    for _ in range(3):
        kept = merged(bench)
    bench.step("ana", 3)
    bench.drop("ana")
    told = int(position(bench, 2))
    row = bench.state.ledger_rows()[0]
    assert told == kept
    assert row.applied == told * BATCH
    assert row.lost == 3 * BATCH
    assert row.processed == row.applied + row.lost


def test_a_loop_that_comes_back_into_a_merge_is_welcomed_after_it() -> None:
    """It would read once more what is merged; so it is asked to come again, and then told."""
    bench = seeded("ana", settings=ALONE, fragments=1)
    merged(bench)
    (pull,) = opened(bench)
    answer(bench, pull)
    steps = bench.learners["ana"].steps
    bench.drop("ana")
    assert sent_away(bench)
    facts = MergeFacts("digest", (1.0,), (1.0,), 1.0, 0.0, None)
    bench.do(MergeFinished(pull.fragment, pull.ticket.round, facts))
    assert sent_away(bench), "it is computed, and not durable yet"
    bench.journal()
    assert position(bench, 2) == read(steps)


def sent_away(bench: Bench) -> bool:
    """Whether a restarted ana is asked to come again."""
    bench.hello("ana", counter=2)
    (word,) = bench.dismissed()
    return isinstance(word, Refused) and word.retry and not bench.sent(Welcome)


def test_what_was_not_merged_moves_nothing() -> None:
    """A contribution whose sender ended before its round closed is fenced, and read again."""
    settings = replace(ALONE, quorum=2)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    (pull, _) = opened(bench)
    answer(bench, pull)
    bench.drop("ana")
    assert position(bench, 2) == b""


def test_a_restarted_syncer_tells_what_was_durable() -> None:
    """The cursor is in the record that makes the merge durable."""
    bench = seeded("ana", settings=ALONE, fragments=1)
    steps = merged(bench)
    again = Bench(ALONE, fragments=1, durable=decode(encode(bench.core.durable)), epoch=2)
    assert position(again, 2) == read(steps)


def test_who_has_stepped_holds_its_place_itself() -> None:
    """A link that was lost and came back brings no position; nor does it to an observer."""
    bench = seeded("ana", settings=ALONE, fragments=1)
    merged(bench)
    assert position(bench, 1) == b""
    observer = replace(
        bench.hello_of(Learner("ana", 1, 2)), role=Role.OBSERVER, name=LearnerName("eye")
    )
    observer = replace(observer, progress=replace(observer.progress, name=observer.name))
    bench.do(LinkOpened(observer, 99, trusted=True))
    (welcome,) = bench.sent(Welcome)
    assert welcome.position == b""


def test_a_cursor_that_is_too_large_is_a_strike() -> None:
    """The journal holds each in all of its records, so its size is checked before it is kept."""
    bench = seeded("ana", settings=ALONE, fragments=1)
    (pull,) = opened(bench)
    answer(bench, pull, bytes(CURSOR_BYTES_MAX + 1))
    ((fate, reason),) = bench.fates()
    assert (fate, reason[:21]) == (Fate.REJECTED, "a cursor of 65537 byt")
    assert bench.core.durable.positions.held == {}
    (pull,) = opened(bench)
    answer(bench, pull, bytes(CURSOR_BYTES_MAX))
    bench.merge()
    bench.journal()
    assert position(bench, 2) == bytes(CURSOR_BYTES_MAX)


def contribution(
    processed: int, cursor: bytes, *, counter: int = 1, name: str = "ana"
) -> Contribution:
    """Taken when its sender had processed so many tokens."""
    ticket = Ticket(1, 0, LearnerName(name), Incarnation(1, counter))
    where = FragmentIndex(0), Version(1, 0)
    return Contribution(ticket, *where, 1, 1, processed, "float32", "", cursor=cursor)


def test_a_merge_of_an_earlier_boundary_moves_nothing_back() -> None:
    """Fragments are merged at different times, and not in the order in which they were taken."""
    held = Positions()
    for processed, cursor, kept in (
        (20, b"two", b"two"),
        (10, b"one", b"two"),
        (30, b"three", b"three"),
    ):
        held.merged([contribution(processed, cursor)], [ANA])
        assert held.of(ANA) == kept


def test_a_new_incarnation_counts_from_its_first_merge() -> None:
    """It may have begun anew, with less than its predecessor had read."""
    held = Positions()
    held.merged([contribution(50, b"old")], [ANA])
    held.merged([contribution(10, b"new", counter=2)], [ANA])
    held.merged([contribution(60, b"late")], [ANA])
    assert held.of(ANA) == b"new"


def test_a_loop_that_tells_no_cursor_any_more_has_no_position() -> None:
    """What it read since is not known."""
    held = Positions()
    held.merged([contribution(50, b"old")], [ANA])
    held.merged([contribution(10, b"", counter=2)], [ANA])
    assert held.of(ANA) == b""


@pytest.mark.parametrize("members", [0, 1, 5])
def test_the_number_of_cursors_is_bounded(members: int) -> None:
    """Those of learners that are here, and of the newest that are not: names come and go."""
    held = Positions()
    here = [LearnerName(f"here{number}") for number in range(members)]
    for name in here:
        held.merged([contribution(1, b"here", name=name)], here)
    for number in range(3 * DEPARTED_KEPT):
        held.merged([contribution(1, b"gone", name=f"gone{number}")], here)
        assert len(held.held) <= members + DEPARTED_KEPT
        assert held.size_bytes == 4 * len(held.held)
    assert all(held.of(name) == b"here" for name in here)
    assert held.of(LearnerName(f"gone{3 * DEPARTED_KEPT - 1}")) == b"gone"
    assert held.of(LearnerName("gone0")) == b""


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 10 bytes of cursors."""
    monkeypatch.setattr(journalling, "HELD_BYTES_MAX", 10)


@pytest.mark.usefixtures("little_room")
def test_the_bytes_of_all_cursors_are_bounded() -> None:
    """Who left is forgotten first; then a name keeps what it has, or nothing, and is told of."""
    held, ben, here = Positions(), LearnerName("ben"), [ANA, LearnerName("ben")]
    for name in ("old", "new"):
        assert held.merged([contribution(1, b"1234", name=name)], here) == []
    assert held.merged([contribution(1, b"12345")], here) == []
    assert sorted(held.held) == ["ana", "new"], "who left longest ago is forgotten"
    both = [contribution(2, b"23456"), contribution(2, b"123456", name="ben")]
    assert held.merged(both, here) == [ben]
    assert (held.of(ANA), held.of(ben), held.size_bytes) == (b"23456", b"", 5)
    assert held.merged([contribution(3, b"12345", name="ben")], here) == []
    assert held.merged([contribution(4, b"123456", name="ben")], here) == [ben]
    assert held.of(ben) == b"12345", "it is read again from there"
    assert held.merged([contribution(5, b"54321", name="ben")], here) == []
    assert held.of(ben) == b"54321", "no more room than before is needed"


@pytest.mark.usefixtures("little_room")
def test_that_a_cursor_is_not_kept_is_told_once() -> None:
    """The merge goes on, and the run's log tells why a loop may read records again."""
    bench = seeded("ana", settings=ALONE, fragments=1)
    told: list[CursorNotKept] = []
    for _ in range(2):
        (pull,) = opened(bench)
        answer(bench, pull, bytes(11))
        bench.merge()
        told += bench.entries(CursorNotKept)
        bench.journal()
        bench.adopt("ana")
    assert told == [CursorNotKept("ana", 0, 0)]
    assert position(bench, 2) == b""


BUDGET = RunSettings(interval_steps=4, budget_tokens=10**6)

NAMES = tuple(f"learner-{index:02d}" for index in range(12))


def spend(bench: Bench, name: str, *, all_of_it: bool) -> list[PullFragment]:
    """A learner steps until its quota is used up, or until it is given more; returns its pulls."""
    learner, pulls = bench.learners[name], list[PullFragment]()
    holder = bench.core.durable.leases.holders[learner.name]
    given = holder.quota_tokens
    while holder.quota_tokens == given and learner.steps * BATCH < given:
        bench.step(name, given // BATCH - learner.steps if all_of_it else 25)
        pulls += bench.pulls()
    return pulls


def test_what_happens_while_a_record_is_written_goes_into_one_other() -> None:
    """Twelve learners have used up their tokens at once: two records grant to all of them."""
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
    """The supervisor hears of it by the phase; once the record is durable all is well again."""
    bench = seeded("ana", settings=BUDGET)
    spend(bench, "ana", all_of_it=True)
    (record,) = bench.written()
    for after_s, blocked in ((9.0, False), (2.0, True), (100.0, True)):
        bench.tick(after_s)
        assert (bench.state.phase is Phase.BLOCKED) == blocked
    bench.do(JournalFinished(record.sequence))
    assert bench.state.phase is Phase.MERGING


def test_what_is_granted_is_sent_when_its_record_is_durable() -> None:
    """A record that was under way before says nothing of it."""
    bench = seeded("ana", "ben", settings=BUDGET)
    spend(bench, "ana", all_of_it=True)
    (first,) = bench.written()
    spend(bench, "ben", all_of_it=True)
    assert bench.written() == []
    bench.do(JournalFinished(first.sequence))
    assert len(bench.sent(LeaseGranted)) == 1
    (second,) = bench.written()
    bench.do(JournalFinished(second.sequence))
    assert len(bench.sent(LeaseGranted)) == 1


def test_what_is_durable_is_sent_although_more_was_granted_since() -> None:
    """A slow disk: the learner steps on what one record holds while the next one is written."""
    bench = seeded("ana", settings=BUDGET)
    ana = bench.learners["ana"]
    spend(bench, "ana", all_of_it=True)
    (first,) = bench.written()
    given = bench.core.durable.leases.holders[ana.name].quota_tokens
    one, *others = bench.core.durable.leases.holders[ana.name].leases
    ana.leases = (Lease(one.pass_index, one.shard, one.position, done=True), *others)
    bench.report("ana")  # it needs a further shard: granted, and in no record yet
    assert bench.core.journal.grants == {ana.name: None}
    bench.do(JournalFinished(first.sequence))
    (sent,) = bench.sent(LeaseGranted)
    assert (sent.quota_tokens, sent.leases) == (given, (one, *others))
    assert ana.name in bench.core.journal.grants
    bench.journal()
    (sent,) = bench.sent(LeaseGranted)
    assert sent.leases == tuple(bench.core.durable.leases.holders[ana.name].leases)
    assert not bench.core.journal.grants
    assert not bench.core.journal.written_grants


def test_a_grant_of_an_incarnation_that_ended_is_sent_to_nobody() -> None:
    """Its record is durable when the next incarnation is already here."""
    bench = seeded("ana", settings=BUDGET)
    spend(bench, "ana", all_of_it=True)
    (record,) = bench.written()
    bench.hello("ana", counter=2)
    bench.do(JournalFinished(record.sequence))
    assert bench.sent(LeaseGranted) == []


def test_a_grant_that_is_not_needed_yet_travels_with_a_fragment() -> None:
    """Half of the last grant is left, so the new one costs no record of its own."""
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
    """The syncer may die the next moment: no learner has less than an outage may take for long."""
    bench = seeded("ana", "ben", settings=BUDGET)
    holder = bench.core.durable.leases.holders[LearnerName("ana")]
    given = holder.quota_tokens
    bench.learners["ana"].step_time_s = 0.01  # its steps turn out to be faster than was known
    bench.step("ana", 1)
    assert holder.quota_tokens > given
    assert bench.written()


def test_without_a_fragment_it_is_written_before_it_is_needed() -> None:
    """The state asks to be woken in time, although no round comes to an end."""
    bench = seeded("ana", "ben", settings=BUDGET)
    spend(bench, "ana", all_of_it=False)
    for _ in range(10):
        bench.tick(bench.state.deadline_s(bench.now_s) - bench.now_s)
        if bench.written():
            break
    left = bench.core.durable.leases.holders[LearnerName("ana")].unused_tokens
    assert bench.written()
    assert bench.now_s < left / BATCH * 0.1


def test_a_thousand_ends_are_a_few_records() -> None:
    """The supervisor evicts everybody at once: one record for the first, one for the rest."""
    bench = seeded(*NAMES, settings=BUDGET)
    members = tuple(Member(LearnerName(name), Incarnation(1, 1), Status.EVICTED) for name in NAMES)
    bench.do(MembershipChanged(1, members))
    assert len(bench.written()) == 1
    bench.journal()
    assert bench.core.journal.all_durable
    assert bench.core.durable.ledger.books == {}


@pytest.mark.parametrize(("accounts", "distance_s"), [(1, 0.0), (999, 0.0), (100_000, 0.5)])
def test_large_records_keep_their_distance(accounts: int, distance_s: float) -> None:
    """They take at most a tenth of the time, however often something is to be durable."""
    records = RecordSchedule(written_s=5.0)
    assert records.at_s(accounts) is None
    records.want(5.0)
    at_s = records.at_s(accounts)
    assert at_s == pytest.approx(5.0 + distance_s)


def test_the_earliest_wish_counts() -> None:
    """What can wait does not hold up what cannot."""
    records = RecordSchedule()
    records.want(9.0)
    records.want(3.0)
    records.want(7.0)
    assert records.at_s(1) == 3.0
    records.want()
    assert records.at_s(1) == float("-inf")
