"""`precision: adaptive`: which precision pulls name, over links of every kind."""

import random
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf, Role
from islands.numerics.codecs import largest_bytes
from islands.protocol.messages.training import ContributionOffered, PullFragment
from islands.protocol.sessions import Received
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.pulls import (
    CONFIRMED,
    FINEST_FIRST,
    AdaptivePrecision,
    Level,
    Transfer,
    budget_s,
    levels_of,
)
from islands.protocol.tape.member_entries import Adapted
from tests.syncer.bench import GOOD, Bench, opened, seeded

GBIT, MBIT = 1e9 / 8, 1e6 / 8
FINEST, COARSEST = 0, len(FINEST_FIRST) - 1


def levels(size_bytes: int) -> list[Level]:
    """All precisions of a fragment that has so many bytes in float32."""
    return [Level(each, max(1, size_bytes // 2**index)) for index, each in enumerate(FINEST_FIRST)]


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
    varies: float = 1.0
    seed: int = 0
    now_s: float = 0.0
    free_s: float = 0.0
    arrived: int = 0
    reasons: list[str] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    coming: deque[tuple[float, float, int]] = field(default_factory=deque)
    chance: random.Random = field(init=False)
    learner: AdaptivePrecision = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.learner = AdaptivePrecision(levels(self.size_bytes), COARSEST)

    @property
    def budget_s(self) -> float:
        run = RunSettings(interval_steps=self.interval_steps, overlap_steps=self.overlap_steps)
        return budget_s(run, self.fragments, step_s=self.step_s, before_s=0.0)

    def periods(self, count: float) -> None:
        for _ in range(round(count * self.fragments)):
            self.pull()

    def exchanges(self, count: int) -> None:
        wanted = self.arrived + count
        while self.arrived < wanted:
            self.pull()

    def pull(self) -> None:
        self.now_s += self.step_s * self.interval_steps / self.fragments
        while self.coming and self.coming[0][0] <= self.now_s:
            arrived_s, offered_s, size = self.coming.popleft()
            self.arrived += 1
            self._note(self.learner.arrived(self._transfer(offered_s, size, arrived_s), arrived_s))
        if len(self.coming) == 2:
            return
        size = levels(self.size_bytes)[self.learner.level].size_bytes
        passes_s = size / self.bytes_per_s * self.chance.uniform(1.0, self.varies)
        self.free_s = max(self.free_s, self.now_s) + passes_s
        self.coming.append((self.free_s, self.now_s, size))

    def _transfer(self, offered_s: float, size: int, now_s: float) -> Transfer:
        return Transfer(size, now_s - self.learner.began_s(offered_s), self.budget_s)

    def _note(self, reason: str | None) -> None:
        if reason is not None:
            self.reasons.append(reason)
            self.named.append(self.learner.level)


def loaded(load: float, **told: float) -> Run:
    """A run in which the coarsest bytes take a share of the time between two rounds."""
    run = Run(**told)  # type: ignore[arg-type]  # the fields of a run
    round_s = run.step_s * run.interval_steps / run.fragments
    run.bytes_per_s = run.size_bytes / 16 / (load * round_s)
    return run


runs = st.builds(
    loaded,
    load=st.floats(-5.0, 1.0).map(lambda power: 10.0**power),
    size_bytes=st.sampled_from([1024, 64 * 1024, 16 * 2**20, 2**30]),
    step_s=st.sampled_from([0.001, 0.1, 1.0, 300.0]),
    interval_steps=st.sampled_from([1, 8, 24, 500]),
    fragments=st.sampled_from([1, 4, 24]),
    overlap_steps=st.sampled_from([1, 2, 5]),
    varies=st.floats(1.0, 1.9),
    seed=st.integers(0, 100),
)


@settings(max_examples=100, deadline=None)
@given(runs)
def test_no_precision_comes_twice_on_a_steady_link(run: Run) -> None:
    run.exchanges(30)
    assert len(run.named) == len(set(run.named))


@settings(max_examples=60, deadline=None)
@given(runs)
def test_what_is_named_at_last_fits(run: Run) -> None:
    """On a steady link the bytes take at most the budget, and a finer one would take half."""
    run.varies = 1.0
    run.exchanges(20)
    level, sizes = run.learner.level, [each.size_bytes for each in levels(run.size_bytes)]
    took_s = sizes[level] / run.bytes_per_s
    assert took_s <= 1.001 * run.budget_s or level == COARSEST
    if level > FINEST:
        assert sizes[level - 1] / run.bytes_per_s >= 0.499 * run.budget_s


@pytest.mark.parametrize("fragments", [1, 4, 24])
@pytest.mark.parametrize("size_bytes", [24 * 2**20, 12 * 2**20, 4 * 2**20])
def test_a_cut_is_followed_within_three_periods_and_so_is_its_end(
    fragments: int, size_bytes: int
) -> None:
    size_bytes //= fragments
    run = Run(size_bytes, 1.0, 24, fragments, overlap_steps=6, bytes_per_s=GBIT)
    run.periods(30)
    assert run.learner.level == FINEST
    run.bytes_per_s = 5 * MBIT
    run.periods(3)
    took_s = [level.size_bytes / run.bytes_per_s for level in levels(size_bytes)]
    fitting = [index for index, each_s in enumerate(took_s) if each_s <= run.budget_s]
    assert run.learner.level == fitting[0]
    run.periods(20)
    run.bytes_per_s = GBIT
    run.periods(12)
    assert run.learner.level == FINEST
    steady = len(run.named)
    run.periods(20)
    assert len(run.named) == steady


def test_nothing_is_decided_before_the_pace_is_known() -> None:
    learner = AdaptivePrecision(levels(4096), COARSEST)
    for at_s in range(10):
        assert learner.arrived(Transfer(256, 0.001, 0.0), float(at_s)) is None
    assert learner.precision is Precision.TWO_BIT


@pytest.mark.parametrize(
    ("interval_steps", "fragments", "before_s", "expected_s"),
    [(24, 4, 0.0, 6.0), (24, 4, 0.5, 5.5), (24, 4, 100.0, 3.0), (24, 24, 0.0, 2.0)],
)
def test_the_budget_by_hand(
    interval_steps: int, fragments: int, before_s: float, expected_s: float
) -> None:
    run = RunSettings(interval_steps=interval_steps, overlap_steps=3)
    found = budget_s(run, fragments, step_s=2.0, before_s=before_s)
    assert found == pytest.approx(expected_s)


def test_room_is_that_of_each_exchange_where_the_budget_varies() -> None:
    """Two of 2.7 B/s and 6 s and one of 6 B/s and 3 s have room for 16, 16 and 18 bytes."""
    learner = AdaptivePrecision(levels(16), 2)
    for seconds, within_s in ((1 / 2.7, 6.0), (1 / 2.7, 6.0), (1 / 6, 3.0)):
        learner.arrived(Transfer(1, seconds, within_s), 0.0)
    assert learner.level == 1


def test_a_precision_that_did_not_last_needs_more_evidence_the_next_time() -> None:
    run = Run(64 * 2**20, bytes_per_s=GBIT / 8)
    run.periods(12)
    waited = []
    for _ in range(4):
        run.bytes_per_s = GBIT / 800
        while run.learner.level < COARSEST:
            run.pull()
        run.bytes_per_s = GBIT / 8
        while "room to spare" not in run.reasons[-1]:
            run.pull()
        waited.append(run.reasons[-1].split()[0])
    assert waited == [f"{CONFIRMED * 2**times}" for times in range(4)]


@pytest.mark.parametrize(
    ("changes", "coarsest", "count"),
    [
        ({}, "two_bit", 5),
        ({"error_feedback": False}, "fp4", 4),
        ({"merge_moments": True}, "bfloat16", 2),
    ],
)
def test_the_precisions_that_may_be_named(
    changes: dict[str, object], coarsest: str, count: int
) -> None:
    """Two bits only with error feedback; none with more bytes than a finer one.

    Moments are averaged, and sent exactly: with two thirds of the values, fp4 saves less than half.
    """
    leaves = [Leaf(f"layer/{index}", (64, 1024), "float32") for index in range(3)]
    if changes.get("merge_moments"):
        leaves[1:] = [replace(leaf, role=Role.STATE) for leaf in leaves[1:]]
    run = RunSettings(precision=Precision.ADAPTIVE, **changes)  # type: ignore[arg-type]
    found = levels_of(run, partial(largest_bytes, plan(leaves, count=1)))
    assert (found[0].precision, found[-1].precision, len(found)) == ("float32", coarsest, count)


# --- by the syncer's own rules --------------------------------------------------------------------


def asked() -> tuple[Bench, PullFragment]:
    """A learner of two fragments of 4096 bytes is asked for the first one; τ is 2."""
    run = RunSettings(interval_steps=2, fragments=2, overlap_steps=2, precision=Precision.ADAPTIVE)
    bench = seeded("ana", settings=run, levels=levels(4096))
    (pull,) = opened(bench)
    return bench, pull


def exchange(
    bench: Bench, pull: PullFragment, *, seconds: float, inspected_s: float = 0.0
) -> list[Adapted]:
    """The answer leaves, takes so long, and is inspected; returns what the tape says of it."""
    learner = bench.learners[pull.ticket.name]
    connection = bench.connections[learner.name]
    bench.do(Received(ContributionOffered(pull.ticket, 256), connection), after_s=0.004)
    answer = ContributionArrived(learner.contribution(pull), GOOD, connection, inspected_s)
    bench.do(answer, after_s=seconds + inspected_s)
    return bench.entries(Adapted)


def test_an_answer_that_takes_too_long_is_told_with_its_figures() -> None:
    bench, pull = asked()
    assert pull.precision is Precision.TWO_BIT, "the coarsest is named first"
    learner = bench.record(pull.ticket.name)
    learner.precision.level = FINEST
    (entry,) = exchange(bench, pull, seconds=0.25, inspected_s=5.0)
    assert (entry.name, entry.bytes) == (pull.ticket.name, 256)
    assert entry.reason == "an exchange took too long"
    figures = entry.seconds, entry.bytes_per_s, entry.before_s
    assert figures == pytest.approx((0.25, 1024.0, 0.004), rel=1e-6)
    assert learner.precision.level > FINEST


def test_who_says_nothing_of_its_contributions_is_not_measured() -> None:
    bench, pull = asked()
    learner = bench.record(pull.ticket.name)
    learner.precision.level = FINEST
    bench.answer(pull)
    assert learner.precision.level == FINEST
    assert bench.entries(Adapted) == []


@pytest.mark.parametrize("size_bytes", [0, -5])
def test_a_size_that_cannot_be_is_ignored(size_bytes: int) -> None:
    bench, pull = asked()
    connection = bench.connections[pull.ticket.name]
    bench.do(Received(ContributionOffered(pull.ticket, size_bytes), connection))
    record = bench.record(pull.ticket.name)
    assert record.pulls.open[pull.ticket.round].offered_s is None


def test_the_bytes_grow_by_four_at_most_however_fast_a_short_transfer_was() -> None:
    """From two bits to int8, and only from there to float32."""
    run = Run(1024)
    run.periods(12)
    assert run.named == [2, FINEST]
