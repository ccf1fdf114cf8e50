"""The ledger balances: by hand for each fate, and under any order of messages."""

from copy import deepcopy

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from islands.protocol.errors import InvariantError
from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Ticket,
    Version,
)
from islands.protocol.learner.account import Account
from islands.protocol.messages.training import (
    Contribution,
    FragmentProgress,
    FragmentUpdate,
    Merged,
    Progress,
)
from islands.protocol.syncer.ledger import DEPARTED_KEPT, Ledger
from tests.syncer.bench import BATCH, Learner, report_of

ANA = LearnerName("ana")
FIRST = Incarnation(1, 1)


def report(tokens: int, *told: FragmentProgress, incarnation: Incarnation = FIRST) -> Progress:
    return report_of(ANA, tokens, *told, batch=1, incarnation=incarnation)


def holding(number: int, settled: int, overwritten: int) -> FragmentProgress:
    return FragmentProgress(Version(1, number), settled, settled, overwritten)


def opened(tokens: int = 0) -> Ledger:
    """One fragment and incarnation, which holds version 1.0 and has done work on it."""
    ledger = Ledger.of(1)
    ledger.open(ANA, FIRST)
    ledger.report(report(tokens, holding(0, 0, 0)))
    return ledger


def test_applied_before_and_after_the_adoption() -> None:
    ledger = opened(40)
    ledger.apply(ANA, FIRST, 0, Merged(1, 0, 30, 30), Version(1, 1))
    assert (ledger.row(0).applied, ledger.row(0).pending) == (30, 10)
    ledger.report(report(50, holding(1, 45, 15)))
    row = ledger.row(0)
    assert (row.applied, row.overwritten, row.pending, row.imbalance) == (30, 15, 5, 0)


def test_what_was_late_and_then_merged_is_late_no_more() -> None:
    ledger = opened(40)
    ledger.claim(ANA, 0, Fate.LATE, 30)
    ledger.apply(ANA, FIRST, 0, Merged(1, 1, 40, 40), Version(1, 2))
    ledger.report(report(60, holding(2, 60, 20)))
    row = ledger.row(0)
    assert (row.applied, row.late, row.overwritten, row.imbalance) == (40, 0, 20, 0)


@pytest.mark.parametrize(("tokens", "possible"), [(15, True), (16, False)])
def test_tokens_with_a_fate_cannot_be_contributed_again(tokens: int, *, possible: bool) -> None:
    ledger = opened(40)
    ledger.apply(ANA, FIRST, 0, Merged(1, 0, 30, 30), Version(1, 1))
    ledger.report(report(50, holding(1, 35, 5)))
    ticket = Ticket(1, 1, ANA, FIRST)
    said = Contribution(ticket, FragmentIndex(0), Version(1, 1), 1, tokens, 50, "float32", "")
    assert ledger.can_hold(ANA, 0, said, 100) is possible


def test_no_more_is_charged_than_was_discarded() -> None:
    ledger = opened(40)
    ledger.claim(ANA, 0, Fate.LATE, 30)
    ledger.report(report(40, holding(1, 20, 20)))
    row = ledger.row(0)
    assert (row.late, row.overwritten, row.pending, row.imbalance) == (20, 0, 20, 0)


@pytest.mark.parametrize("fate", [Fate.LATE, Fate.REJECTED, Fate.STALE])
def test_a_refused_contribution_is_charged_when_it_is_discarded(fate: Fate) -> None:
    ledger = opened(40)
    ledger.claim(ANA, 0, fate, 30)
    assert ledger.row(0).pending == 40
    ledger.report(report(45, holding(1, 45, 45)))
    row = ledger.row(0)
    assert getattr(row, fate.value) == 30
    assert (row.overwritten, row.pending, row.imbalance) == (15, 0, 0)


def test_a_refused_contribution_may_still_be_merged() -> None:
    ledger = opened()
    ledger.claim(ANA, 0, Fate.LATE, 30)
    ledger.report(report(40, holding(0, 0, 0)))
    ledger.apply(ANA, FIRST, 0, Merged(1, 1, 40, 40), Version(1, 1))
    ledger.report(report(40, holding(1, 40, 0)))
    row = ledger.row(0)
    assert (row.applied, row.late, row.imbalance) == (40, 0, 0)


def test_a_late_report_lowers_nothing_that_a_contribution_has_proven() -> None:
    ledger = opened()
    ledger.attest(ANA, 60)
    ledger.report(report(40, holding(0, 0, 0)))
    assert ledger.processed == 60


def test_an_end_loses_what_has_no_fate() -> None:
    ledger = opened(40)
    ledger.apply(ANA, FIRST, 0, Merged(1, 0, 30, 30), Version(1, 1))
    ledger.attest(ANA, 60)
    ledger.close(ANA)
    row = ledger.row(0)
    assert (row.processed, row.applied, row.lost, row.pending) == (60, 30, 30, 0)


def test_a_merge_that_outlives_its_sender_is_applied() -> None:
    ledger = opened(40)
    ledger.close(ANA)
    ledger.open(ANA, Incarnation(1, 2))
    ledger.apply(ANA, FIRST, 0, Merged(1, 0, 40, 40), Version(1, 1))
    row = ledger.row(0)
    assert (row.applied, row.lost, row.imbalance) == (40, 0, 0)


def test_a_second_application_before_adoption_is_a_bug() -> None:
    ledger = opened(40)
    ledger.apply(ANA, FIRST, 0, Merged(1, 0, 40, 40), Version(1, 1))
    with pytest.raises(InvariantError, match="twice"):
        ledger.apply(ANA, FIRST, 0, Merged(1, 1, 40, 40), Version(1, 2))


def test_tokens_that_do_not_add_up_and_a_second_book_are_bugs() -> None:
    with pytest.raises(InvariantError, match="5 tokens"):
        opened().report(report(40, holding(0, 5, 0)))
    with pytest.raises(InvariantError, match="still open"):
        opened().open(ANA, Incarnation(1, 2))


def test_tokens_are_booked_by_name_over_all_incarnations() -> None:
    ledger = Ledger.of(1)
    for index in range(DEPARTED_KEPT + 8):
        for counter in (2 * index + 1, 2 * index + 2):
            learner = Learner(f"n{index:04}", 1, counter)
            learner.steps = counter
            ledger.open(learner.name, learner.incarnation)
            ledger.report(learner.progress())
            ledger.close(learner.name)
    assert len(ledger.by_name) == DEPARTED_KEPT
    assert next(iter(ledger.by_name.items())) == ("n0008", (17 + 18) * BATCH)
    back = Learner("n0008", 1, 2000)
    back.steps = 3
    ledger.open(back.name, back.incarnation)
    ledger.report(back.progress())
    assert ledger.by_name["n0008"] == (17 + 18 + 3) * BATCH  # type: ignore[index]
    steps = sum(range(1, 2 * (DEPARTED_KEPT + 8) + 1))
    assert ledger.processed == (steps + 3) * BATCH


class BalanceMachine(RuleBasedStateMachine):
    """One learner's account and the syncer's ledger over a network that delays, loses, repeats.

    Order holds per direction and lane, as in a session: reports overtake contributions, pulls
    overtake updates. The syncer may die at any point and goes on from its last record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ledger = opened()
        self.account = Account()
        self.incarnation = FIRST
        self.steps = 0
        self.epoch, self.number, self.round = 1, 0, 0
        self.version, self.made_by = Version(1, 0), -1
        self.kept = [self.version]
        self.asked: int | None = None
        self.arrived: tuple[int, int] | None = None
        self.contributions: list[tuple[int, int, Version, int, int]] = []
        self.updates: list[FragmentUpdate] = []
        self.reports: list[Progress] = []
        self.account.adopt(self.update(), steps=0, tokens=0)
        self.record = deepcopy((self.ledger, self.version, self.made_by, self.round))

    def update(self) -> FragmentUpdate:
        account = self.ledger.books[ANA].accounts[0]
        contained = account.merged_version is not None and account.merged_version <= self.version
        merged = account.merged if contained else None
        made = self.version, self.made_by
        return FragmentUpdate(self.epoch, FragmentIndex(0), *made, "", 0.0, merged)

    def progress(self) -> Progress:
        return report(self.steps, self.account.progress, incarnation=self.incarnation)

    @rule(count=st.integers(1, 5))
    def step(self, count: int) -> None:
        self.steps += count

    @rule(answered=st.booleans())
    def open_round(self, *, answered: bool) -> None:
        """The syncer asks; the learner answers from its base, or never gets the pull."""
        account = self.ledger.books[ANA].accounts[0]
        held, merged = account.reported.version, account.merged_version
        if self.asked is not None or held is None or held not in self.kept:
            return
        if merged is not None and held < merged:
            return
        self.asked, self.arrived = self.round, None
        self.round += 1
        tokens = self.steps - self.account.base_tokens
        base = self.account.version
        if answered and tokens and base is not None:
            self.account.answered(self.epoch, self.asked, tokens)
            self.contributions.append((self.epoch, self.asked, base, tokens, self.steps))

    @precondition(lambda self: self.contributions)
    @rule(lost=st.booleans())
    def arrive(self, *, lost: bool) -> None:
        """A contribution arrives: in time and fresh, or late; or it is lost."""
        epoch, round_, base, tokens, processed = self.contributions.pop(0)
        if lost:
            return
        self.ledger.attest(ANA, processed)
        merged = self.ledger.books[ANA].accounts[0].merged_version
        fresh = base in self.kept and (merged is None or base >= merged)
        if epoch == self.epoch and round_ == self.asked and fresh:
            self.arrived = (round_, tokens)
        else:
            self.ledger.claim(ANA, 0, Fate.LATE, tokens)

    @precondition(lambda self: self.asked is not None)
    @rule(abandoned=st.booleans(), crash=st.booleans())
    def close_round(self, *, abandoned: bool, crash: bool) -> None:
        """The round closes with what has arrived (others contribute, too), or is abandoned."""
        assert self.asked is not None
        number, self.asked = self.asked, None
        if abandoned:
            if self.arrived is not None:
                self.ledger.claim(ANA, 0, Fate.LATE, self.arrived[1])
            return
        self.version = Version(self.epoch, self.version.number + 1)
        self.made_by = number
        if self.arrived is not None:
            round_, tokens = self.arrived
            merged = Merged(self.epoch, round_, tokens, tokens)
            self.ledger.apply(ANA, self.incarnation, 0, merged, self.version)
        if crash:
            self.restart()
            return
        self.write()
        self.kept = [*self.kept, self.version][-3:]
        self.updates.append(self.update())

    @rule()
    def write(self) -> None:
        """A journal record: what a restart knows. Between merging and writing nothing is sent."""
        self.record = deepcopy((self.ledger, self.version, self.made_by, self.round))

    @rule()
    def restart(self) -> None:
        """The syncer dies and comes back; the session is new, so what was under way is lost."""
        self.ledger, self.version, self.made_by, self.round = deepcopy(self.record)
        self.epoch += 1
        self.kept, self.asked = [self.version], None
        self.contributions, self.updates, self.reports = [], [], []
        book = self.ledger.books.get(ANA)
        if book is None or book.incarnation < self.incarnation:
            if book is not None:
                self.ledger.close(ANA)
            self.ledger.open(ANA, self.incarnation)
        self.ledger.report(self.progress())
        self.account.welcomed(self.epoch, self.version)
        self.updates.append(self.update())

    @rule()
    def send_again(self) -> None:
        self.updates.append(self.update())

    @precondition(lambda self: self.updates)
    @rule(lost=st.booleans(), repeated=st.booleans())
    def adopt(self, *, lost: bool, repeated: bool) -> None:
        """An update arrives, perhaps twice, or is lost; an older one than is held is ignored."""
        update = self.updates.pop(0)
        for _ in range(2 if repeated else 1):
            held = self.account.version
            if not lost and (held is None or update.version > held):
                self.account.adopt(update, steps=self.steps, tokens=self.steps)

    @rule()
    def send_report(self) -> None:
        self.reports.append(self.progress())

    @precondition(lambda self: self.reports)
    @rule(lost=st.booleans())
    def take_report(self, *, lost: bool) -> None:
        """A report arrives, or is lost: the next one says everything again."""
        told = self.reports.pop(0)
        if not lost:
            self.ledger.report(told)

    @rule()
    def rejoin(self) -> None:
        """The incarnation ends; its successor begins at zero, and adopts what is committed."""
        self.ledger.close(ANA)
        self.incarnation = Incarnation(1, self.incarnation.counter + 1)
        self.ledger.open(ANA, self.incarnation)
        self.account, self.steps, self.asked = Account(), 0, None
        self.contributions, self.updates, self.reports = [], [self.update()], []

    @invariant()
    def it_balances(self) -> None:
        row = self.ledger.row(0)
        assert row.imbalance == 0
        assert row.pending >= 0
        assert row.lost >= 0

    def teardown(self) -> None:
        """When all is told and adopted, nothing is pending but the steps since."""
        self.restart()
        self.adopt(lost=False, repeated=True)
        self.ledger.report(self.progress())
        assert self.ledger.row(0).pending == self.steps - self.account.base_tokens
        assert self.account.doubtful == []


TestBalance = BalanceMachine.TestCase
TestBalance.settings = hypothesis_settings(max_examples=200, stateful_step_count=40)
