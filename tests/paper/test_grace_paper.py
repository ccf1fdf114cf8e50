"""What Decoupled DiLoCo (arXiv 2604.21428) says of the grace of a round, its Eq. 3.

    grace = min(ξ_step, γ · max(0, τ·ξ_step − ξ_quorum − ξ_sync))

Each test shows one sentence of protocol §3.4, in our own words, on the syncer's state. All times
are sums of few powers of two, so that the hand-computed figures are exact. [P] is the paper, as
digests and implementations report it; [O] is ours, and must never be claimed for the paper.
"""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate
from islands.protocol.messages.training import ContributionFate, PullFragment
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.scheduling import current_grace_s
from tests.syncer.bench import Bench, opened, seeded

NAMES = ("ana", "ben", "eve")
EQ3 = RunSettings(
    interval_steps=4, fragments=1, quorum=1, overlap_steps=2, grace_safety=0.75
)  # τ = 2, γ = 3/4


def fleet(settings: RunSettings = EQ3, *, step_s: float = 1.0) -> Bench:
    """Three learners of one fragment; nothing is measured yet."""
    bench = seeded(*NAMES, settings=settings, fragments=1)
    for learner in bench.learners.values():
        learner.step_time_s = step_s
    return bench


def round_(bench: Bench) -> dict[str, PullFragment]:
    """The next round opens; its pulls by name."""
    return {str(pull.ticket.name): pull for pull in opened(bench)}


def merging(bench: Bench) -> list[str]:
    """Whose contributions the last event began to merge."""
    return [str(part.ticket.name) for begun in bench.of(BeginMerge) for part in begun.parts]


def exchange(bench: Bench, *, quorum_s: float, sync_s: float, names: tuple[str, ...]) -> None:
    """One whole round: the K-th of `names` answers after so long, and reports after so long."""
    pulls = round_(bench)
    bench.now_s += quorum_s
    for name in names:
        bench.answer(pulls[name])
    bench.merge()
    bench.journal()
    bench.now_s += sync_s
    for name in NAMES:
        bench.adopt(name)


def measured(
    settings: RunSettings = EQ3, *, step_s: float = 1.0, quorum_s: float, sync_s: float
) -> Bench:
    """Three learners, after one round with these times."""
    bench = fleet(settings, step_s=step_s)
    names = NAMES[: settings.quorum if isinstance(settings.quorum, int) else len(NAMES)]
    exchange(bench, quorum_s=quorum_s, sync_s=sync_s, names=names)
    return bench


# --- the equation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "step_s", "quorum_s", "sync_s", "grace_s"),
    [
        (2, 1.0, 0.5, 0.5, 0.75),  # 3/4 · (2 − 1/2 − 1/2)
        (2, 1.0, 0.25, 0.75, 0.75),  # only their sum counts
        (4, 0.5, 0.5, 0.5, 0.5),  # 3/4 · (2 − 1) is more than a step
        (2, 1.0, 0.125, 0.125, 1.0),  # 3/4 · 7/4 is more than a step
        (2, 1.0, 1.0, 1.0, 0.0),  # the exchange takes all that is hidden
        (2, 1.0, 2.0, 4.0, 0.0),  # never below 0
        (0, 1.0, 0.25, 0.25, 0.0),  # nothing is hidden without an overlap
        (32, 0.0625, 0.5, 0.5, 0.0625),  # a step of 62 ms: at most that
    ],
)
def test_grace_follows_the_equation(
    overlap: int, step_s: float, quorum_s: float, sync_s: float, grace_s: float
) -> None:
    """[P] Eq. 3, by hand, with γ = 3/4, from times that the state measured itself."""
    settings = replace(EQ3, overlap_steps=overlap)
    bench = measured(settings, step_s=step_s, quorum_s=quorum_s, sync_s=sync_s)
    assert current_grace_s(bench.core) == grace_s


def test_the_round_waits_for_exactly_its_grace() -> None:
    """[P] §3.4: it closes at the K-th arrival + grace: 1/2 + 3/4 s after its opening."""
    bench = measured(quorum_s=0.5, sync_s=0.5)
    pulls = round_(bench)
    bench.now_s += 0.5
    bench.answer(pulls["ana"])
    assert merging(bench) == []
    bench.tick(0.625)
    assert merging(bench) == []
    bench.tick(0.125)
    assert merging(bench) == ["ana"]


def test_who_arrives_within_the_grace_is_merged_and_who_comes_later_is_late() -> None:
    """[P] §3.4: the stragglers that the grace is for take part; after it nobody does."""
    bench = measured(quorum_s=0.5, sync_s=0.5)
    pulls = round_(bench)
    bench.now_s += 0.5
    bench.answer(pulls["ana"])
    bench.now_s += 0.5
    bench.answer(pulls["ben"])
    bench.tick(0.25)
    assert merging(bench) == ["ana", "ben"]
    bench.answer(pulls["eve"])
    assert [message.fate for message in bench.sent(ContributionFate)] == [Fate.LATE]


def test_when_all_have_answered_the_grace_is_over() -> None:
    """[P] §3.4: nobody is left to wait for."""
    bench = measured(quorum_s=0.5, sync_s=0.5)
    for pull in round_(bench).values():
        assert merging(bench) == []
        bench.answer(pull)
    assert merging(bench) == ["ana", "ben", "eve"]


def test_without_grace_only_the_fastest_are_merged() -> None:
    """[P] §3.4: γ = 0 is the paper's K = 1 without grace, which loses what it was measured for."""
    bench = measured(replace(EQ3, grace_safety=0.0), quorum_s=0.5, sync_s=0.5)
    bench.answer(round_(bench)["ben"])
    assert merging(bench) == ["ben"]


# --- the times in it ---------------------------------------------------------------------------


def test_grace_is_zero_until_all_three_times_are_known() -> None:
    """[P] §3.4: without ξ_sync, which needs a whole round, nobody is waited for."""
    bench = fleet()
    bench.answer(round_(bench)["ana"])
    assert merging(bench) == ["ana"]
    bench.merge()
    bench.journal()
    assert (
        bench.core.rounds.durations.step_s.value,
        bench.core.rounds.durations.quorum_s.value,
    ) == (1.0, 0.0)
    assert current_grace_s(bench.core) == 0.0
    bench.now_s += 1.0
    bench.adopt("ben")
    assert current_grace_s(bench.core) == 0.75


def test_quorum_time_is_from_the_opening_to_the_kth_arrival() -> None:
    """[P] §3.4: with K = 2, arrivals after 1/4 s and 3/4 s make ξ_quorum 3/4 s."""
    bench = fleet(replace(EQ3, quorum=2))
    pulls = round_(bench)
    for name in ("ben", "ana"):
        bench.now_s += 0.25 if name == "ben" else 0.5
        bench.answer(pulls[name])
    assert bench.core.rounds.durations.quorum_s.value == 0.75


def test_sync_time_is_from_the_closing_to_the_kth_report_of_adoption() -> None:
    """[P] §3.4: with K = 2, reports after 1/4 s and 3/4 s make ξ_sync 3/4 s; a third adds none."""
    bench = fleet(replace(EQ3, quorum=2))
    pulls = round_(bench)
    bench.answer(pulls["ana"])
    bench.answer(pulls["ben"])
    bench.merge()
    bench.journal()
    for name, after_s in (("eve", 0.25), ("ana", 0.5), ("ben", 8.0)):
        bench.now_s += after_s
        bench.adopt(name)
    assert bench.core.rounds.durations.sync_s.value == 0.75


def test_step_time_is_that_of_the_learner_that_sets_the_pace() -> None:
    """[P] §3.4: of three with the same steps, the middle one by name; the others' do not enter."""
    bench = seeded(*NAMES, settings=EQ3, fragments=1)
    for name, step_s in zip(NAMES, (0.25, 0.5, 1.0), strict=True):
        bench.learners[name].step_time_s = step_s
    for name in NAMES:
        bench.step(name)
    for name in NAMES:
        bench.step(name)
    assert bench.core.pace_setter() == "ben"
    assert bench.core.rounds.durations.step_s.value == 0.5


def test_times_are_moving_averages_with_a_fifth_for_the_newest() -> None:
    """[O] §3.4: 1/2 s and then 3/2 s make 1/2 + 1/5 · 1 s."""
    bench = measured(replace(EQ3, grace_safety=0.0), quorum_s=0.5, sync_s=0.5)
    exchange(bench, quorum_s=1.5, sync_s=0.5, names=("ana",))
    assert bench.core.rounds.durations.quorum_s.value == pytest.approx(0.7)


def test_four_fifths_of_the_hidden_time_is_ours() -> None:
    """[O] §3.4: γ is unpublished; 0.8 is our default."""
    assert RunSettings().grace_safety == 0.8
