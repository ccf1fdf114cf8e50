"""Data and token quotas: exact, and nothing unread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from islands.protocol.identities import Incarnation, LearnerName, Lease
from islands.protocol.messages.training import Progress
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.leases import (
    LEASES_HELD_MAX,
    LEASES_HELD_MIN,
    OUTAGE_S,
    QUOTA_TOKENS_MAX,
    LeaseBook,
    grant_steps,
)
from islands.protocol.tape.round_entries import DataEnded
from tests.syncer.bench import BATCH, Bench, Learner, report_of

RECORDS = 5
CHUNK = 8
ANA, BEN = LearnerName("ana"), LearnerName("ben")


def report(name: LearnerName, tokens: int, leases: tuple[Lease, ...] = ()) -> Progress:
    return report_of(name, tokens, leases=leases)


def book_of(budget: int | None, shards: int = 6) -> LeaseBook:
    return LeaseBook(shards, budget, CHUNK)


def top_up(book: LeaseBook, name: LearnerName, members: int = 1) -> bool:
    return book.top_up(name, batch_tokens=BATCH, members=members, chunk_steps=CHUNK)


def granted(budget: int | None = None, shards: int = 6) -> LeaseBook:
    """A book from which ana has her first grant."""
    book = book_of(budget, shards)
    book.open(ANA, Incarnation(1, 1))
    assert top_up(book, ANA)
    return book


def exhausted(book: LeaseBook) -> bool:
    """Neither the rest of the budget nor a quota is enough for a batch, as in `closing.py`."""
    spare = [holder.unused_tokens for holder in book.holders.values()]
    return book.remaining_tokens is not None and max(book.remaining_tokens, *spare) < BATCH


def test_a_learner_gets_shards_and_an_ordinary_grant() -> None:
    book = granted()
    holder = book.holders[ANA]
    assert holder.quota_tokens == CHUNK * BATCH
    assert holder.leases == [Lease(0, index, 0) for index in range(LEASES_HELD_MIN)]
    assert not top_up(book, ANA)


def test_half_a_grant_is_left_when_the_next_one_comes() -> None:
    """A learner is topped up at half of its grant, so that it need not wait."""
    book = granted()
    book.reported(report(ANA, CHUNK * BATCH // 2 - BATCH))
    assert not top_up(book, ANA)
    book.reported(report(ANA, CHUNK * BATCH // 2))
    assert top_up(book, ANA)


def test_an_ended_incarnation_gives_back_what_it_did_not_use() -> None:
    book = granted(200)
    book.reported(report(ANA, 30, (Lease(0, 0, 5, done=True), Lease(0, 1, 3))))
    assert book.close(ANA, 30) == [Lease(0, 1, 3)]
    assert book.remaining_tokens == 170
    book.open(BEN, Incarnation(1, 2))
    top_up(book, BEN)
    assert book.holders[BEN].leases[0] == Lease(0, 1, 3)


def test_what_is_left_of_a_shard_comes_on_top() -> None:
    """It may be less than a batch, and a loop that has nothing else would wait for ever."""
    book = granted()
    book.reported(report(ANA, 30, (Lease(0, 0, 4), Lease(0, 1, 3))))
    book.close(ANA, 30)
    book.open(BEN, Incarnation(1, 2))
    top_up(book, BEN)
    rests = [Lease(0, 0, 4), Lease(0, 1, 3)]
    assert book.holders[BEN].leases == [*rests, Lease(0, 2, 0), Lease(0, 3, 0)]
    assert len(rests) == LEASES_HELD_MIN


@pytest.mark.parametrize("whole", [299, 500], ids=["given back", "new"])
def test_the_leases_of_a_learner_are_bounded(whole: int) -> None:
    """However many shards were begun, a report has to name all that it holds.

    The last one is a whole shard: of the others, less than a batch may be left in all.
    """
    book = book_of(None, shards=1000)
    book.free = [Lease(0, shard, int(shard != whole)) for shard in range(500)]
    book.next_shard = 500
    book.open(ANA, Incarnation(1, 1))
    top_up(book, ANA)
    held = book.holders[ANA].leases
    assert held == [Lease(0, shard, 1) for shard in range(LEASES_HELD_MAX - 1)] + [
        Lease(0, whole, 0)
    ]
    assert len(book.free) == 500 - LEASES_HELD_MAX + (whole == 500)
    assert not set(held) & set(book.free)


def test_grants_shrink_towards_the_end() -> None:
    book = book_of(100)
    sizes = []
    for name in (ANA, BEN):
        book.open(name, Incarnation(1, 1))
    for name in (ANA, BEN, ANA, BEN, ANA, BEN):
        before = book.holders[name].quota_tokens
        top_up(book, name, members=2)
        sizes.append(book.holders[name].quota_tokens - before)
        book.reported(report(name, book.holders[name].quota_tokens))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 20
    assert sizes[-1] == BATCH


@given(st.floats(min_value=1e-3, max_value=100.0))
def test_half_a_grant_lasts_through_an_outage(step_time_s: float) -> None:
    assert grant_steps(8, step_time_s) * step_time_s / 2 >= min(OUTAGE_S, 8 * step_time_s / 2)
    assert grant_steps(8, step_time_s) >= 8


def test_a_shard_that_was_read_to_its_end_counts_once() -> None:
    book = granted()
    holder = book.holders[ANA]
    done = Lease(0, 0, RECORDS, done=True)
    for number in (1, 2, 3):
        book.reported(report(ANA, number * BATCH, (done, *holder.leases[1:])))
        assert holder.finished == 1


def test_small_shards_are_leased_in_greater_number() -> None:
    book = granted(shards=100)
    first = Lease(0, 0, RECORDS, done=True)
    book.reported(report(ANA, 2 * BATCH, (first, *book.holders[ANA].leases[1:])))
    top_up(book, ANA)
    assert len(book.holders[ANA].leases) == 1 + CHUNK // 2 // 2


class ReadingMachine(RuleBasedStateMachine):
    """Learners come, read, report, or die at any point; the book must stay exact.

    A record is read when its reader reported past it. What was read and not reported is read again
    by whoever gets the shard next.
    """

    def __init__(self) -> None:
        """A budget of 300 tokens over six shards of five records, one record per batch."""
        super().__init__()
        self.book = book_of(300)
        self.counter = 0
        self.used: dict[LearnerName, int] = {}
        self.positions: dict[LearnerName, dict[tuple[int, int], int]] = {}
        self.reported: set[tuple[int, int, int]] = set()
        self.twice: list[tuple[int, int, int]] = []
        self.closed = 0

    @rule(name=st.sampled_from([ANA, BEN]))
    def come(self, name: LearnerName) -> None:
        if name not in self.used:
            self.counter += 1
            self.book.open(name, Incarnation(1, self.counter))
            self.used[name] = 0
            self.positions[name] = {}

    @precondition(lambda self: self.used)
    @rule()
    def grant(self) -> None:
        for name in sorted(self.used):
            top_up(self.book, name, members=len(self.used))

    @rule(name=st.sampled_from([ANA, BEN]), steps=st.integers(1, 12), reports=st.booleans())
    def read(self, name: LearnerName, steps: int, *, reports: bool) -> None:
        if name not in self.used:
            return
        holder, mine = self.book.holders[name], self.positions[name]
        for _ in range(steps):
            todo = [x for x in holder.leases if self.position(name, x) < RECORDS]
            if not todo or self.used[name] + BATCH > holder.quota_tokens:
                break
            key = (todo[0].pass_index, todo[0].shard)
            mine[key] = self.position(name, todo[0]) + 1
            self.used[name] += BATCH
        if reports:
            self.report(name)

    def position(self, name: LearnerName, lease: Lease) -> int:
        return self.positions[name].get((lease.pass_index, lease.shard), lease.position)

    def report(self, name: LearnerName) -> None:
        told = []
        for lease in self.book.holders[name].leases:
            here = self.position(name, lease)
            told.append(Lease(lease.pass_index, lease.shard, here, here == RECORDS))
            for record in range(lease.position, here):
                entry = (lease.pass_index, lease.shard, record)
                self.twice += [entry] if entry in self.reported else []
                self.reported.add(entry)
        self.book.reported(report(name, self.used[name], tuple(told)))

    @rule(name=st.sampled_from([ANA, BEN]), reports=st.booleans())
    def go(self, name: LearnerName, *, reports: bool) -> None:
        if name in self.used:
            if reports:
                self.report(name)
            known = self.book.holders[name].used_tokens
            self.book.close(name, known)
            self.closed += known
            del self.used[name], self.positions[name]

    @invariant()
    def budget_is_exact(self) -> None:
        assert self.book.remaining_tokens is not None
        assert self.book.remaining_tokens >= 0
        assert all(self.used[n] <= h.quota_tokens for n, h in self.book.holders.items())
        granted = sum(holder.quota_tokens for holder in self.book.holders.values())
        assert granted + self.closed + self.book.remaining_tokens == 300

    @invariant()
    def no_record_is_skipped(self) -> None:
        """What was handed out is read up to the position the book knows, or is read whole."""
        held = [lease for holder in self.book.holders.values() for lease in holder.leases]
        known = {(x.pass_index, x.shard): x.position for x in [*self.book.free, *held]}
        handed_out = self.book.pass_index * self.book.shards + self.book.next_shard
        for number in range(handed_out):
            key = divmod(number, self.book.shards)
            expected = {(*key, record) for record in range(known.get(key, RECORDS))}
            assert expected == {entry for entry in self.reported if entry[:2] == key}

    @invariant()
    def no_record_is_counted_twice(self) -> None:
        assert not self.twice

    def teardown(self) -> None:
        """One learner finishes alone: the budget is used up to the last batch."""
        for name in sorted(self.used):
            self.go(name, reports=False)
        self.come(ANA)
        for _ in range(1000):
            self.grant()
            if exhausted(self.book):
                break
            self.read(ANA, 12, reports=True)
        assert exhausted(self.book)
        assert self.closed + self.used[ANA] == 300
        assert len(self.reported) == 300 // BATCH


TestReading = ReadingMachine.TestCase


def test_a_grant_fits_into_a_message_whatever_a_report_claims() -> None:
    book = book_of(None, shards=10**6)
    book.open(ANA, Incarnation(1, 1))
    for claimed in (2**60, 2**60, 1):
        holder = book.holders[ANA]
        holder.steps, holder.finished, holder.used_tokens = 1, 10**6, holder.quota_tokens
        book.top_up(ANA, batch_tokens=claimed, members=1, chunk_steps=10**6)
        assert 0 < holder.quota_tokens <= QUOTA_TOKENS_MAX
        assert len(holder.leases) == LEASES_HELD_MAX


def test_a_position_advances_by_at_most_the_tokens_that_were_reported() -> None:
    book = granted()
    far = Lease(0, 0, 10**12), Lease(0, 1, 10**12)
    for tokens in (0, BATCH, BATCH, 2 * BATCH):
        book.reported(report(ANA, tokens, far))
        assert sum(lease.position for lease in book.holders[ANA].leases) == tokens
    assert book.close(ANA, 2 * BATCH) == [Lease(0, 0, 2 * BATCH), Lease(0, 1, 0)]


def test_who_reads_on_may_advance_by_its_own_tokens_alone() -> None:
    book = book_of(None)
    book.free = [Lease(0, 5, 500)]
    book.open(ANA, Incarnation(1, 1))
    top_up(book, ANA)
    book.reported(report(ANA, BATCH, (Lease(0, 5, 500 + BATCH),)))
    assert book.holders[ANA].leases[-1] == Lease(0, 5, 500 + BATCH)


def test_the_first_to_step_leaves_their_share_to_those_who_still_compile() -> None:
    """Four connect, one begins: it gets an eighth of the budget, as if all of them trained."""
    settings = RunSettings(interval_steps=4, fragments=2, budget_tokens=4_000)
    bench = Bench(settings=settings)
    for name in ("ana", "ben", "cho", "dan"):
        bench.learners[name] = learner = Learner(name, 2, 1)
        if name != "ana":
            learner.batch_tokens = 0  # its task is not made yet
        bench.hello(name)
    bench.seed()
    assert bench.holder(ANA).quota_tokens == 500


def test_data_has_ended_once_a_whole_pass_had_nothing() -> None:
    assert book_of(None, shards=1).barren_passes == 0
    book = book_of(None)
    book.open(ANA, Incarnation(1, 1))
    book.reported(report(ANA, BATCH))
    for number in range(2 * book.shards):
        assert book.barren_passes == number // book.shards
        top_up(book, ANA)
        first, *rest = book.holders[ANA].leases
        empty = Lease(first.pass_index, first.shard, 0, done=True)
        book.reported(report(ANA, BATCH, (empty, *rest)))
    assert book.barren_passes == 2
    book.reported(report(ANA, 2 * BATCH))
    assert book.barren_passes == 0


def test_that_the_data_has_ended_is_recorded_and_when_it_goes_on() -> None:
    """Again each time that the passes without data have doubled, so that no log fills with it."""
    bench = Bench(RunSettings(interval_steps=4, fragments=2))
    bench.hello("ana")
    bench.seed()
    bench.journal()
    learner, found = bench.learners["ana"], list[tuple[int, int]]()
    book = bench.core.durable.leases
    for _ in range(5 * book.shards):
        held = book.holders[learner.name].unfinished
        learner.leases = (Lease(held[0].pass_index, held[0].shard, 0, done=True), *held[1:])
        bench.report("ana")
        found += [(entry.passes, entry.shards) for entry in bench.entries(DataEnded)]
        bench.journal()
    assert found == [(passes, book.shards) for passes in (1, 2, 4)]
    bench.step("ana")
    assert [entry.passes for entry in bench.entries(DataEnded)] == [0]
