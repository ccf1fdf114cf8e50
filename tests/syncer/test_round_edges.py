"""A round's rules where two of them meet: overlap, withdrawal, norms and quorum."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate, Status
from islands.protocol.messages.training import PullFragment
from islands.protocol.settings.learning_rate import learning_rate
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, DropContribution
from islands.protocol.syncer.timeouts import MARGIN
from tests.syncer.bench import GOOD, Bench, opened, seeded

ONE = RunSettings(interval_steps=1, fragments=1, overlap_steps=0, warmup_steps=0)
NAMES = ("ana", "ben", "eve")


def finish(bench: Bench) -> BeginMerge:
    """The merge that has begun is computed and durable, and everybody adopts it."""
    begun = bench.merge()
    bench.journal()
    for name in sorted(bench.learners):
        bench.adopt(name)
    bench.journal()
    return begun


def asked(bench: Bench, *names: str, steps: int = 1) -> list[PullFragment]:
    """These learners step, and are asked by the round that opens."""
    pulls: list[PullFragment] = []
    for name in names:
        bench.step(name, steps)
        pulls += bench.pulls()
        bench.journal()
    return pulls


def answer_all(bench: Bench, pulls: list[PullFragment], norms: dict[str, float]) -> None:
    """All who are asked answer, also those who are asked only after that."""
    while pulls:
        pull = pulls.pop(0)
        norm = norms.get(pull.ticket.name, GOOD.norm)
        bench.answer(pull, check=replace(GOOD, norm=norm))
        pulls += bench.pulls()


def test_a_fragment_has_one_round_at_a_time() -> None:
    """Its turn comes again while its round is open: the next one waits for it."""
    settings = RunSettings(interval_steps=2, fragments=2, overlap_steps=2)
    bench = seeded("ana", "ben", settings=settings)
    (first, *_) = opened(bench)
    assert first.fragment == 0
    for _ in range(20):
        for name in ("ana", "ben"):
            bench.step(name)
            for pull in bench.pulls():
                assert pull.fragment == 1
                bench.answer(pull)
                if bench.of(BeginMerge):
                    bench.merge()
                    bench.journal()
    assert bench.core.rounds.open[0].number == first.ticket.round


def test_who_completes_the_quorum_after_a_withdrawal_begins_the_grace_anew() -> None:
    """What an ended incarnation had contributed is gone, and the time of its arrival with it."""
    bench = seeded(*NAMES, settings=RunSettings(interval_steps=4, fragments=2))
    durations = bench.core.rounds.durations
    durations.step_s.value, durations.sync_s.value, durations.quorum_s.value = 1.0, 0.0, 0.0
    ana, ben, _ = opened(bench)
    durations.step_s.value = 1.0
    bench.answer(ana)
    assert bench.of(BeginMerge) == []
    bench.view("ana", Status.EVICTED)
    bench.tick(after_s=0.9)
    bench.answer(ben)
    durations.quorum_s.value = 0.0
    bench.tick(after_s=0.9)
    assert bench.of(BeginMerge) == []
    bench.tick(after_s=0.2)
    (begun,) = bench.of(BeginMerge)
    assert [part.ticket.name for part in begun.parts] == ["ben"]


def norm_of_last(bench: Bench, norms: list[float], *, steps: list[int]) -> float:
    """One learner contributes with these norms after so many steps each; the last one's scale."""
    scale = 1.0
    for norm, done in zip(norms, steps, strict=True):
        (pull,) = asked(bench, "ana", steps=done)
        bench.answer(pull, check=replace(GOOD, norm=norm))
        scale = finish(bench).parts[0].scale
    return scale


@pytest.mark.parametrize(("norm", "scale"), [(9.0, 1.0), (20.0, 0.5)])
def test_norms_are_compared_per_root_of_steps(norm: float, scale: float) -> None:
    """Sixteen steps go four times as far as one: neither is too long beside the other."""
    bench = seeded("ana", settings=ONE, fragments=1)
    norms, steps = [4.0] * 8 + [norm], [16] * 8 + [1]
    assert norm_of_last(bench, norms, steps=steps) == pytest.approx(scale)


def test_norms_are_compared_per_learning_rate() -> None:
    """In a warm-up they grow with the rate, and none is clipped for it."""
    settings = replace(ONE, warmup_steps=40, learning_rate=1.0, norm_limit=1.5)
    bench = seeded("ana", settings=settings, fragments=1)
    for _ in range(39):
        (pull,) = asked(bench, "ana")
        rate = learning_rate(settings, bench.core.clock)
        bench.answer(pull, check=replace(GOOD, norm=rate))
        assert finish(bench).parts[0].scale == 1.0


def test_a_refusal_at_closing_may_leave_a_round_below_its_quorum() -> None:
    """K = 3 have arrived, one of them far too long: the round goes on without a merge."""
    settings = replace(ONE, quorum=3)
    bench = seeded(*NAMES, settings=settings, fragments=1)
    for _ in range(3):
        answer_all(bench, asked(bench, *NAMES), {})
        finish(bench)
    answer_all(bench, asked(bench, *NAMES), {"ben": 1000.0})
    assert bench.fates() == [(Fate.REJECTED, "norm 100.0 times over")]
    assert bench.of(BeginMerge) == []


def test_what_was_merged_is_held_no_longer() -> None:
    """The payload of every contribution is dropped with its merge: memory does not grow."""
    bench = seeded(*NAMES, settings=replace(ONE, quorum=None), fragments=1)
    for _ in range(2):
        pulls = asked(bench, *NAMES)
        for pull in pulls:
            bench.answer(pull)
        bench.merge()
        dropped = [action.ticket for action in bench.of(DropContribution)]
        assert sorted(dropped) == sorted(pull.ticket for pull in pulls)
        bench.journal()
        for name in NAMES:
            bench.adopt(name)


def test_an_exchange_ends_with_the_adoptions_of_a_quorum_of_learners() -> None:
    """K = 2: one learner that reports twice is not two."""
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=2))
    for pull in opened(bench):
        bench.answer(pull)
    bench.merge()
    bench.journal()
    bench.adopt("ana")
    bench.step("ana")
    bench.report("ana")
    assert bench.core.rounds.durations.sync_s.value is None
    bench.tick(after_s=1.0)
    bench.adopt("ben")
    assert bench.core.rounds.durations.sync_s.value == 1.0


def test_unanswered_pulls_are_forgotten_after_the_time_of_a_round() -> None:
    """Two of them leave a learner in peace; later it is asked again, for it may have come back."""
    settings = RunSettings(interval_steps=2, fragments=2, overlap_steps=2)
    bench = seeded("ana", settings=settings)
    asked_for = [pull.fragment for _ in range(8) for pull in asked(bench, "ana")]
    assert asked_for == [0, 1]
    asked_s: list[float] = []  # given up after ten seconds, and left out for four times as long
    for _ in range(10):
        bench.tick(after_s=5.0)
        asked_s += [bench.now_s for pull in bench.pulls() if pull.ticket.round > 1]
    assert asked_s[0] == 10.0 + MARGIN * 10.0
