"""What Decoupled DiLoCo (arXiv 2604.21428) says of learners that wait for nobody, and of fragments.

Each test shows one sentence of protocol §2, §3.1 and §4, in our own words, on the production
states. [P] is the paper, as digests and implementations report it; [O] is ours, a deviation or an
addition that must never be claimed for the paper. No mark: the page names no source.
"""

from dataclasses import replace

import pytest

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.learner.actions import AllowSteps, PlanSnapshots
from islands.protocol.settings.choices import Adoption, PaceBy
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from tests.learner.bench import BATCH, stepping
from tests.syncer.bench import Bench, seeded

KIB = 1024 // 4  # elements in one KiB of float32
PACED = RunSettings(interval_steps=4, fragments=2)


def commit(bench: Bench, *names: str) -> int:
    """Those named answer the pulls of the last event and adopt the merge; returns its fragment.

    Whoever else was asked is waited for during a grace, a step of 0.1 s at the most.
    """
    pulls = [pull for pull in bench.pulls() if pull.ticket.name in names]
    begun = False
    for pull in pulls:
        bench.answer(pull)
        begun = begun or bool(bench.of(BeginMerge) and bench.merge())
    if not begun:
        bench.tick(0.2)
        bench.merge()
    bench.journal()
    for name in names:
        bench.adopt(name)
    return pulls[0].fragment


# --- a learner waits for nobody ----------------------------------------------------------------


def test_a_learner_steps_on_after_it_has_contributed() -> None:
    """§2: it sends what it did and goes on; nothing stops it until an update comes."""
    bench = stepping()
    bench.snapshot(0)
    bench.pull(0, 0)
    assert [one.steps for one in bench.contributed()] == [2]
    assert bench.of(AllowSteps) == []
    for _ in range(50):
        bench.step()
        assert bench.of(AllowSteps) == []


def test_an_update_is_adopted_when_it_arrives() -> None:
    """§2: at the next boundary; steps made meanwhile are neither awaited nor undone."""
    bench = stepping()
    bench.step()
    bench.adopt(0, 1)
    assert bench.state.accounts[0].version == Version(1, 1)
    assert bench.of(AllowSteps) == []


def test_adoption_overwrites_the_local_value() -> None:
    """[P] §2, α = 0: what was done since the base is gone, and its counters begin at 0 again.

    The tokens of four steps, of which none was merged, have the fate `overwritten`; the other
    fragment keeps its counters.
    """
    assert RunSettings().adoption is Adoption.OVERWRITE
    bench = stepping()
    bench.step()
    bench.step()
    bench.adopt(0, 1)
    first, second = bench.state.accounts
    assert (first.base_steps, first.overwritten_tokens) == (4, 4 * BATCH)
    assert (second.base_steps, second.overwritten_tokens) == (0, 0)
    bench.step()
    bench.snapshot(0, number=1)
    bench.pull(0, 1)
    assert [(one.base, one.steps) for one in bench.contributed()] == [(Version(1, 1), 1)]


def test_a_pull_is_answered_from_the_last_complete_step() -> None:
    """§2: the copy on the host is that of a boundary, so the answer does not wait for a step.

    Of ten tokens a step, two steps were done: what the contribution says of itself.
    """
    bench = stepping()
    bench.snapshot(0)
    bench.pull(0, 0)
    (answer,) = bench.contributed()
    assert (answer.steps, answer.tokens) == (2, 2 * BATCH)


def test_deviation_only_the_fragments_next_due_are_copied() -> None:
    """[O] §2: the paper copies all parameters at each step.

    One that has just been sent is not copied again before the next value of it is adopted.
    """
    bench = stepping()
    assert bench.state.core.pulls.planned == PlanSnapshots((FragmentIndex(0), FragmentIndex(1)))
    bench.snapshot(0)
    bench.pull(0, 0)
    planned = bench.of(PlanSnapshots)
    assert planned == [PlanSnapshots((FragmentIndex(1),))]


# --- the interval ------------------------------------------------------------------------------


def test_the_fragments_take_turns() -> None:
    """§3: each is due every H steps, H/P apart: of H = 4 and P = 2, rounds after 2, 4, 6."""
    bench = seeded("ana", settings=PACED)
    seen: list[tuple[int, int]] = []
    for step in range(1, 13):
        bench.step("ana")
        if bench.pulls():
            seen.append((step, commit(bench, "ana")))
    assert seen == [(2, 0), (4, 1), (6, 0), (8, 1), (10, 0), (12, 1)]


def test_a_slow_learner_delays_no_round() -> None:
    """[P] §3.4, §11: with K = 1 the fleet goes at its own speed, whatever the slowest does.

    Ana and ben step three times as often as eve: in twelve steps of theirs six rounds open and
    close, as if she were not here; with her pace there would be two.
    """
    bench = seeded("ana", "ben", "eve", settings=PACED)
    opened = 0
    for step in range(1, 13):
        if step % 3 == 0:
            bench.step("eve")
        for name in ("ana", "ben"):
            bench.step(name)
            if bench.pulls():
                opened += 1
                commit(bench, "ana", "ben")
    assert opened == 6
    assert bench.state.durable.merges == 6


@pytest.mark.parametrize(
    ("by", "opens_at"), [(PaceBy.FASTEST, 1), (PaceBy.MEDIAN, 2), (PaceBy.SLOWEST, 4)]
)
def test_deviation_the_interval_follows_the_upper_median(by: PaceBy, opens_at: int) -> None:
    """[O] §3.1: who sets the pace is unpublished; of steps 2:1:½ the median's second opens."""
    bench = seeded("ana", "ben", "eve", settings=replace(PACED, pace_by=by))
    opened_at = 0
    for turn in range(1, 5):
        for name, steps in (("ana", 2), ("ben", 1), ("eve", turn % 2 == 0)):
            if not opened_at and steps:
                bench.step(name, int(steps))
                opened_at = turn if bench.pulls() else 0
    assert opened_at == opens_at


@pytest.mark.parametrize(
    ("interval", "fragments", "overlap", "rounds"),
    [
        (24, 24, 2, 2),
        (24, 24, 0, 1),
        (500, 1, 2, 1),
        (100, 8, 5, 1),
        (4, 8, 2, 4),
        (1, 600, 2, 600),
    ],
)
def test_rounds_overlap_as_far_as_the_steps_hide_them(
    interval: int, fragments: int, overlap: int, rounds: int
) -> None:
    """[O] §3.1: min(P, max(1, ⌈τ·P/H⌉)) are open at once, never two on one fragment."""
    settings = RunSettings(interval_steps=interval, fragments=fragments, overlap_steps=overlap)
    assert settings.open_rounds_max(fragments) == rounds


# --- the fragments -----------------------------------------------------------------------------


def test_fragments_are_balanced_by_size() -> None:
    """[P] §4: in descending size, each to the lightest: 7, 6, 5, 4, 3 in two: 7+4+3 and 6+5."""
    sizes = {"a": 4, "b": 7, "c": 3, "d": 6, "e": 5}
    leaves = [Leaf(path, (1, size * 64 * KIB)) for path, size in sizes.items()]
    layout = plan(leaves, count=2)
    paths = [sorted(leaves[piece.leaf].path for piece in one.pieces) for one in layout.fragments]
    loads = [one.size // (64 * KIB) for one in layout.fragments]
    assert (paths, loads) == ([["a", "b", "c"], ["d", "e"]], [14, 11])


def test_the_largest_fragment_is_at_most_four_thirds_of_the_best() -> None:
    """[P] §4: the worst case for three bins, 5, 5, 4, 4, 3, 3, 3, makes 11; the best would be 9."""
    leaves = [Leaf(f"{i}", (1, size * 64 * KIB)) for i, size in enumerate((5, 5, 4, 4, 3, 3, 3))]
    loads = [one.size // (64 * KIB) for one in plan(leaves, count=3).fragments]
    assert sorted(loads) == [8, 8, 11]
    assert max(loads) <= 4 / 3 * 9


def test_deviation_a_tensor_above_the_fair_share_is_split_by_rows() -> None:
    """[O] §4: one of 12 rows and one of 4, in four fragments: 4 rows each."""
    row = 64 * KIB
    leaves = [Leaf("wide", (12, row)), Leaf("narrow", (4, row))]
    assert [one.size // row for one in plan(leaves, count=4).fragments] == [4] * 4
