"""Which precision a learner chooses, and how many pulls it answers, over links of every kind."""

import random
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from islands.protocol.identities import Incarnation, LearnerName, Ticket
from islands.protocol.learner.adaptation import (
    CONFIRMED,
    EVERY_MOST,
    Adaptation,
    Choice,
    Level,
    LinkEstimate,
)
from islands.protocol.settings.choices import Precision
from islands.protocol.tape.learner_entries import Adapted

GBIT, MBIT = 1e9 / 8, 1e6 / 8
FINEST, COARSEST = 0, 4


def ticket(round_: int, epoch: int = 1) -> Ticket:
    return Ticket(epoch, round_, LearnerName("ana"), Incarnation(1, 1))


def levels(size_bytes: int) -> list[Level]:
    """All precisions of a fragment that has so many bytes in float32."""
    shares = zip(list(Precision)[:5], (1, 2, 4, 8, 16), strict=True)
    return [Level(precision, max(1, size_bytes // by)) for precision, by in shares]


@dataclass(slots=True)
class Run:
    """A learner of a fleet in step, and a link that carries one contribution after the other.

    `varies` is the most by which the time of bytes exceeds what the bandwidth says.
    """

    size_bytes: int
    step_s: float = 1.0
    interval_steps: int = 8
    fragments: int = 4
    overlap_steps: int = 2
    bytes_per_s: float = GBIT
    latency_s: float = 0.01
    varies: float = 1.0
    seed: int = 0
    now_s: float = 0.0
    round: int = 0
    free_s: float = 0.0
    answered: list[int] = field(default_factory=list)
    changes: list[Adapted] = field(default_factory=list)
    coming: deque[tuple[float, int]] = field(default_factory=deque)
    chance: random.Random = field(init=False)
    learner: Adaptation = field(init=False)

    def __post_init__(self) -> None:
        """Begin, with a step of which the time is known."""
        self.chance = random.Random(self.seed)
        self.learner = Adaptation(
            levels(self.size_bytes),
            overlap_steps=self.overlap_steps,
            round_interval_steps=self.interval_steps / self.fragments,
            fragments=self.fragments,
        )
        self.learner.stepped(self.step_s)

    @property
    def choice(self) -> Choice:
        return self.learner.choice

    def periods(self, count: float) -> None:
        """Let so many intervals pass."""
        for _ in range(round(count * self.fragments)):
            self.pull()

    def exchanges(self, count: int) -> None:
        """Let the learner answer until so many more of its contributions have arrived."""
        wanted = len(self.answered) - len(self.coming) + count
        while len(self.answered) - len(self.coming) < wanted:
            self.pull()

    def pull(self) -> None:
        """One more round, which asks the learner."""
        self.now_s += self.step_s * self.interval_steps / self.fragments
        while self.coming and self.coming[0][0] <= self.now_s:
            arrived_s, round_ = self.coming.popleft()
            self._note(self.learner.received(ticket(round_), arrived_s))
        asked, fragment = ticket(self.round), self.round % self.fragments
        self._note(self.learner.pulled(asked, self.now_s))
        if self.learner.why_declined(fragment, asked, self.now_s) is None:
            self._offer(asked)
        self.round += 1

    def _offer(self, asked: Ticket) -> None:
        link, size_bytes = self.learner.link, levels(self.size_bytes)[self.choice.level].size_bytes
        link.offered(asked, size_bytes, self.now_s)
        link.answered(link.probe(self.now_s), self.now_s + self.latency_s)
        passes_s = size_bytes / self.bytes_per_s * self.chance.uniform(1.0, self.varies)
        self.free_s = max(self.free_s, self.now_s) + passes_s
        self.coming.append((self.free_s + self.latency_s, asked.round))
        self.answered.append(asked.round)

    def _note(self, adapted: Adapted | None) -> None:
        if adapted is not None:
            self.changes.append(adapted)


def loaded(load: float, away: float, **told: Any) -> Run:  # noqa: ANN401  the fields of a run
    """A run in which the coarsest bytes take a share of the time between two rounds.

    The latency too is given in the time between two rounds.
    """
    run = Run(**told)
    round_s = run.step_s * run.interval_steps / run.fragments
    run.bytes_per_s = run.size_bytes / 16 / (load * round_s)
    run.latency_s = away * round_s
    return run


runs = st.builds(
    loaded,
    load=st.floats(-5.0, 1.0).map(lambda power: 10.0**power),
    size_bytes=st.sampled_from([1024, 64 * 1024, 16 * 2**20, 2**30]),
    step_s=st.sampled_from([0.001, 0.1, 1.0, 300.0]),
    interval_steps=st.sampled_from([1, 8, 24, 500]),
    fragments=st.sampled_from([1, 4, 24]),
    overlap_steps=st.sampled_from([1, 2, 5]),
    away=st.sampled_from([0.0, 0.01, 0.9, 20.0]),
    varies=st.floats(1.0, 1.9),
    seed=st.integers(0, 100),
)


@settings(max_examples=100, deadline=None)
@given(runs)
def test_no_choice_comes_twice_on_a_steady_link(run: Run) -> None:
    run.exchanges(30)
    chosen = [(one.precision, one.every) for one in run.changes]
    assert len(chosen) == len(set(chosen))
    assert 1 <= run.choice.every <= EVERY_MOST


@settings(max_examples=60, deadline=None)
@given(runs)
def test_what_is_chosen_at_last_fits(run: Run) -> None:
    """On a steady link the bytes take at most n budgets, and a finer choice would take half."""
    run.varies = 1.0
    run.exchanges(20)
    budget_s, every = run.learner.budget_s, run.choice.every
    assert budget_s is not None
    sizes = [level.size_bytes for level in levels(run.size_bytes)]
    took_s = sizes[run.choice.level] / run.bytes_per_s
    assert took_s <= 1.001 * budget_s * every or every == EVERY_MOST
    if run.choice.level > FINEST and every == 1:
        assert sizes[run.choice.level - 1] / run.bytes_per_s >= 0.499 * budget_s


@pytest.mark.parametrize("fragments", [1, 4, 24])
@pytest.mark.parametrize("size_bytes", [24 * 2**20, 12 * 2**20, 4 * 2**20])
def test_a_cut_is_followed_within_three_periods_and_so_is_its_end(
    fragments: int, size_bytes: int
) -> None:
    size_bytes //= fragments
    run = Run(size_bytes, 1.0, 24, fragments, overlap_steps=6, bytes_per_s=GBIT)
    run.periods(30)
    assert run.choice == Choice(FINEST)
    run.bytes_per_s = 5 * MBIT
    run.periods(3)
    budget_s = run.learner.budget_s
    assert budget_s is not None
    took_s = [level.size_bytes / run.bytes_per_s for level in levels(size_bytes)]
    fitting = [index for index, each_s in enumerate(took_s) if each_s <= budget_s]
    assert run.choice == Choice(fitting[0])
    run.periods(20)
    run.bytes_per_s = GBIT
    run.periods(12)
    assert run.choice == Choice(FINEST)
    steady = len(run.changes)
    run.periods(20)
    assert len(run.changes) == steady


@pytest.mark.parametrize("size_bytes", [1024, 2**30])
@pytest.mark.parametrize("step_s", [0.001, 300.0])
def test_small_and_large_fragments_and_steps(size_bytes: int, step_s: float) -> None:
    run = Run(size_bytes, step_s, 24, 4, latency_s=0.0)
    run.periods(60)
    carried = 2 * step_s * GBIT
    if size_bytes <= carried / 2:
        assert run.choice == Choice(FINEST)
    else:
        assert run.choice == Choice(COARSEST, min(EVERY_MOST, run.choice.every))
        assert run.choice.every >= size_bytes / 16 / carried


def test_nothing_is_decided_before_anything_is_known() -> None:
    learner = Adaptation(levels(4096), overlap_steps=2, round_interval_steps=1.0, fragments=1)
    assert (learner.choice, learner.budget_s) == (Choice(COARSEST), None)
    learner.stepped(0.0)
    for round_ in range(5):
        assert learner.pulled(ticket(round_), 100.0 * round_) is None
        assert learner.why_declined(0, ticket(round_), 100.0 * round_) is None
        learner.link.offered(ticket(round_), 256, 100.0 * round_)
        assert learner.received(ticket(round_), 100.0 * round_ + 99) is None
    assert learner.choice == Choice(COARSEST)


def test_the_budget_by_hand() -> None:
    learner = Adaptation(levels(4096), overlap_steps=3, round_interval_steps=6.0, fragments=4)
    learner.stepped(2.0)
    assert learner.budget_s == pytest.approx(6.0)
    learner.link.latency.value = 0.5
    assert learner.budget_s == pytest.approx(5.5)
    learner.link.latency.value = 100.0
    assert learner.budget_s == pytest.approx(3.0)
    dense = Adaptation(levels(4096), overlap_steps=3, round_interval_steps=1.0, fragments=24)
    dense.stepped(2.0)
    assert dense.budget_s == pytest.approx(2.0)


def test_a_slow_learner_takes_the_step_time_of_the_fleet() -> None:
    learner = Adaptation(levels(4096), overlap_steps=3, round_interval_steps=2.0, fragments=4)
    learner.stepped(20.0)
    for round_ in range(9):
        learner.pulled(ticket(round_), 2.0 * round_)
    assert learner.budget_s == pytest.approx(min(3 * 1.0, 2.0))


def test_what_waits_in_line_is_not_counted_as_its_own_time() -> None:
    link = LinkEstimate()
    link.answered(link.probe(0.0), 1.0)
    link.offered(ticket(0), 100, 0.0)
    link.offered(ticket(1), 100, 2.0)
    first, second = link.received(ticket(0), 11.0), link.received(ticket(1), 21.0)
    assert first is not None
    assert second is not None
    assert (first.seconds, first.bytes_per_s) == (11.0, 10.0)
    assert (second.seconds, second.bytes_per_s) == (19.0, 10.0)


def test_a_contribution_that_replaced_another_is_the_one_that_is_awaited() -> None:
    link = LinkEstimate()
    link.offered(ticket(0), 100, 0.0)
    link.offered(ticket(4), 100, 5.0)
    assert link.received(ticket(4), 7.0) is not None
    assert link.received(ticket(0), 7.5) is None
    assert link.under_way(8.0) is None


def test_while_one_is_under_way_for_too_long_no_pull_is_answered() -> None:
    run = Run(16 * 2**20)
    run.periods(12)
    assert run.choice == Choice(FINEST)
    run.bytes_per_s = 1000.0
    run.periods(1)
    sent, asked = len(run.answered), ticket(run.round)
    for _ in range(2):
        assert "under way" in str(run.learner.why_declined(0, asked, run.now_s + 100))
    run.periods(5)
    assert len(run.answered) == sent
    assert run.changes[-1].reason == "an exchange is under way for too long"
    run.learner.link_changed()
    assert "under way" not in str(run.learner.why_declined(0, asked, run.now_s + 200))


@pytest.mark.parametrize("fragments", [1, 2, 6, 7, 24])
@pytest.mark.parametrize("every", [2, 3, 5, 6, 24])
def test_every_fragment_has_its_turn(fragments: int, every: int) -> None:
    learner = Adaptation(
        levels(4096), overlap_steps=1, round_interval_steps=1.0, fragments=fragments
    )
    learner.choice = replace(learner.choice, every=every)
    rounds = range((every + 1) * fragments * 6)
    answered = [
        round_
        for round_ in rounds
        if learner.why_declined(round_ % fragments, ticket(round_), float(round_)) is None
    ]
    assert {later - earlier for earlier, later in pairwise(answered)} <= {every, every + 1}
    counts = [sum(r % fragments == index for r in answered) for index in range(fragments)]
    assert max(counts) - min(counts) <= 1


def test_a_declined_pull_that_comes_again_is_answered() -> None:
    learner = Adaptation(levels(4096), overlap_steps=1, round_interval_steps=1.0, fragments=4)
    learner.choice = replace(learner.choice, every=3)
    assert learner.why_declined(0, ticket(0), 0.0) is None
    assert learner.why_declined(1, ticket(1), 1.0) is not None
    assert learner.why_declined(1, ticket(1), 3.0) is None


def test_a_choice_that_does_not_last_needs_more_evidence_the_next_time() -> None:
    run = Run(64 * 2**20, bytes_per_s=GBIT / 8)
    run.periods(12)
    waited = []
    for _ in range(4):
        run.bytes_per_s = GBIT / 800
        while run.choice.level < COARSEST:
            run.pull()
        run.bytes_per_s = GBIT / 8
        while "room to spare" not in run.changes[-1].reason:
            run.pull()
        waited.append(run.changes[-1].reason.split()[0])
    assert waited == [f"{CONFIRMED * 2**times}" for times in range(4)]
