"""When a round may open, for whose answers it waits, and how long."""

from dataclasses import replace
from math import inf

import pytest

from islands.protocol.identities import LearnerName, Status
from islands.protocol.running_statistics import MovingAverage
from islands.protocol.settings.choices import Automatic, LearnerWaits, PaceBy
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.rounds import Pace
from islands.protocol.syncer.timeouts import Durations, Patience, grace_s, patience
from islands.protocol.tape.round_entries import Asked
from tests.syncer.bench import Bench, opened, seeded


def durations(step_s: float | None, quorum_s: float | None, sync_s: float | None) -> Durations:
    return Durations(MovingAverage(step_s), MovingAverage(quorum_s), MovingAverage(sync_s))


@pytest.mark.parametrize(
    ("step_s", "quorum_s", "sync_s", "overlap", "expected"),
    [
        (1.0, 0.5, 0.5, 2, 0.8),  # 0.8 · (2 − 1)
        (1.0, 0.1, 0.1, 4, 1.0),  # 0.8 · 3.8, at most a step
        (1.0, 1.5, 0.5, 2, 0.0),  # nothing is hidden
        (1.0, 3.0, 3.0, 2, 0.0),  # never negative
        (1.0, 0.0, 0.0, 0, 0.0),  # no overlap
    ],
)
def test_grace_is_a_share_of_what_the_overlap_hides(
    step_s: float, quorum_s: float, sync_s: float, overlap: int, expected: float
) -> None:
    known = durations(step_s, quorum_s, sync_s)
    assert grace_s(known, overlap_steps=overlap, safety=0.8) == pytest.approx(expected)


@pytest.mark.parametrize("missing", range(3))
def test_without_all_three_times_there_is_no_grace(missing: int) -> None:
    times: list[float | None] = [1.0, 0.1, 0.1]
    times[missing] = None
    assert grace_s(durations(*times), overlap_steps=2, safety=0.8) == 0.0


AUTO = Automatic.AUTO


@pytest.mark.parametrize(
    ("usual_s", "interval_s", "expected"),
    [
        ([], 24.0, Patience(12.0, 24.0)),  # nobody was asked
        ([None, None], 0.0, Patience(0.0, inf)),  # nothing is measured
        ([0.01, 0.02], 0.0, Patience(0.02, 0.04)),  # ξ_step is unknown
        ([0.01, 0.02, 0.015], 0.006, Patience(0.03, 0.06)),  # steps of 1 ms, H = 6
        ([1.0] * 7 + [10.0], 6.0, Patience(3.0, 6.0)),  # one is ten times slower
        ([1.0, 13.0], 24.0, Patience(12.0, 24.0)),
        ([30.0, 40.0], 24.0, Patience(60.0, 120.0)),  # both are behind slow links
        ([1.0] * 4096, 24.0, Patience(12.0, 24.0)),
        ([450.0, 500.0, 600.0], 1800.0, Patience(1000.0, 2000.0)),  # steps of 5 min, H = 6
    ],
)
def test_how_patient_a_round_is(
    usual_s: list[float | None], interval_s: float, expected: Patience
) -> None:
    assert patience(usual_s, interval_s) == expected


def test_who_is_awaited() -> None:
    assert [Patience(3.0, 6.0).awaits(each) for each in (1.0, 3.0, 3.1, None)] == [
        True,
        True,
        False,
        True,
    ]


PACED = RunSettings(interval_steps=24, fragments=1, quorum=AUTO, overlap_steps=0)


def measured(settings: RunSettings = PACED, /, **answers_s: float) -> Bench:
    """Learners that took so long to answer until now, with steps of a second."""
    bench = seeded(*answers_s, settings=settings, fragments=1)
    for name, answer_s in answers_s.items():
        learner = bench.learners[name]
        learner.step_time_s = 1.0
        bench.record(learner.name).exchange.answer(answer_s, 8)
    bench.core.rounds.durations.step_s.value = 1.0
    return bench


def merged(bench: Bench) -> list[str]:
    return [part.ticket.name for begun in bench.of(BeginMerge) for part in begun.parts]


@pytest.mark.parametrize(("quorum", "found"), [(1, ["ana"]), (AUTO, [])])
def test_a_round_waits_for_whom_it_expects(quorum: int | Automatic, found: list[str]) -> None:
    bench = measured(replace(PACED, quorum=quorum), ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.answer(pulls["ana"])
    assert merged(bench) == found
    if quorum is AUTO:
        bench.answer(pulls["ben"])
        assert merged(bench) == ["ana", "ben"]


def test_who_does_not_come_is_waited_for_an_interval() -> None:
    bench = measured(ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    (round_,) = bench.core.rounds.open.values()
    bench.answer(pulls["ana"])
    assert bench.state.deadline_s(bench.now_s) <= round_.opened_s + 24.0
    bench.tick(after_s=23.9)
    assert merged(bench) == []
    bench.tick(after_s=0.2)
    assert merged(bench) == ["ana"]
    assert bench.core.rounds.durations.quorum_s.value == pytest.approx(24.1)


def test_who_is_ten_times_slower_is_asked_and_not_awaited() -> None:
    bench = measured(ana=0.5, ben=0.5, cy=13.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    assert sorted(pulls) == ["ana", "ben", "cy"]
    bench.answer(pulls["ana"])
    assert merged(bench) == []
    bench.answer(pulls["ben"])
    assert merged(bench) == ["ana", "ben"]


def test_where_learners_wait_for_merges_the_slowest_is_awaited() -> None:
    bench = measured(replace(PACED, learner_waits=LearnerWaits.AT_TAU), ana=0.5, ben=13.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.answer(pulls["ana"])
    bench.tick(after_s=30.0)
    assert merged(bench) == []
    bench.answer(pulls["ben"])
    assert merged(bench) == ["ana", "ben"]


def test_who_becomes_eligible_while_a_round_waits_is_asked_too() -> None:
    bench = measured(ana=0.5, ben=0.5)
    bench.view("ben", Status.SUSPECT)
    (ana,) = opened(bench)
    bench.view("ben", Status.LIVE)
    (ben,) = bench.pulls()
    (asked,) = bench.entries(Asked)
    assert asked.ticket == str(ben.ticket)
    bench.answer(ana)
    assert merged(bench) == []
    bench.answer(ben)
    assert merged(bench) == ["ana", "ben"]


def test_who_has_yet_to_adopt_its_last_contribution_is_awaited() -> None:
    """It is asked as soon as it has; else two learners of fast steps would take turns for ever."""
    bench = measured(ana=0.5, ben=0.5)
    bench.commit(opened(bench))
    bench.adopt("ana")
    (ana,) = opened(bench)
    bench.answer(ana)
    assert merged(bench) == []
    bench.adopt("ben")
    bench.step("ben")
    (ben,) = bench.pulls()
    bench.answer(ben)
    assert merged(bench) == ["ana", "ben"]


def test_who_declines_is_waited_for_no_longer() -> None:
    bench = measured(ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.answer(pulls["ana"])
    assert merged(bench) == []
    bench.decline(pulls["ben"], "spares its link")
    assert merged(bench) == ["ana"]
    assert bench.core.ineligible(pulls["ben"].ticket.name, 0) is None


def test_nobody_has_come_in_time() -> None:
    bench = measured(ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.tick(after_s=25.0)
    bench.answer(pulls["ben"])
    assert merged(bench) == ["ben"]


@pytest.mark.parametrize(
    ("exchange_s", "interval_steps", "overlap_steps"),
    [(0.1, 24, 2), (3.5, 24, 5), (60.0, 24, 6), (3.5, 1, 2), (300.0, 500, 125), (None, 24, 2)],
)
def test_the_overlap_is_what_an_exchange_takes(
    exchange_s: float | None, interval_steps: int, overlap_steps: int
) -> None:
    settings = RunSettings(interval_steps=interval_steps, overlap_steps=AUTO)
    core = seeded("ana", settings=settings).core
    if exchange_s is not None:
        core.rounds.durations.step_s.value, core.rounds.durations.sync_s.value = 1.0, 0.0
        core.rounds.durations.quorum_s.value = exchange_s
    assert core.overlap_steps == overlap_steps


def test_what_is_planned_for_is_the_most_that_it_may_become() -> None:
    settings = RunSettings(interval_steps=24, fragments=24, overlap_steps=AUTO)
    assert settings.overlap_steps_max == 6
    assert settings.open_rounds_max(24) == 6


NAMES = [LearnerName(text) for text in ("a", "b", "c", "d")]


def pace_with(by: PaceBy, interval: float, reported: list[float]) -> Pace:
    pace = Pace(by, interval)
    for name, steps in zip(NAMES, reported, strict=False):
        pace.credits[name] = steps
        pace.enter(name)
    return pace


def among(by: PaceBy, interval: float, *names: LearnerName) -> Pace:
    pace = Pace(by, interval)
    for name in names:
        pace.enter(name)
    return pace


@pytest.mark.parametrize(
    ("by", "setter"), [(PaceBy.FASTEST, "a"), (PaceBy.MEDIAN, "b"), (PaceBy.SLOWEST, "d")]
)
def test_the_pace_setter_is_chosen_by_credit_and_then_by_name(by: PaceBy, setter: str) -> None:
    assert pace_with(by, 2.0, [4.0, 3.0, 2.0, 1.0]).setter() == setter
    assert pace_with(by, 2.0, [1.0, 1.0, 1.0, 1.0]).setter() == setter


def test_only_the_eligible_set_the_pace_and_a_new_incarnation_begins_at_zero() -> None:
    pace = pace_with(PaceBy.FASTEST, 2.0, [9.0, 1.0])
    assert pace.ready()
    pace.leave(NAMES[0])
    assert not pace.ready()
    pace.leave(NAMES[1])
    assert not pace.ready()
    pace = pace_with(PaceBy.MEDIAN, 2.0, [2.0])
    pace.forget(NAMES[0])
    assert not pace.ready()


@pytest.mark.parametrize("next_interval", [0.5, 4.0, 9.0])
def test_a_round_opens_at_its_interval_and_everybody_pays_it(next_interval: float) -> None:
    pace = among(PaceBy.FASTEST, 4.0, *NAMES[:2])
    pace.progressed(NAMES[0], 3)
    assert not pace.ready()
    pace.progressed(NAMES[0], 1)
    pace.progressed(NAMES[1], 3)
    assert pace.ready()
    pace.opened(next_interval)
    assert pace.credits == {"a": 0.0, "b": -1.0}
    assert pace.round_interval_steps == next_interval
    assert not pace.ready()


def test_credits_are_bounded() -> None:
    pace = Pace(PaceBy.FASTEST, 8.0)
    pace.progressed(NAMES[0], 1000)
    assert pace.credits[NAMES[0]] == pace.cap_steps == 9.0
    for _ in range(10):
        pace.opened(pace.round_interval_steps)
    assert pace.credits[NAMES[0]] == -1.0


def test_below_one_step_per_round_the_credit_is_one_step() -> None:
    pace = among(PaceBy.FASTEST, 0.5, NAMES[0])
    pace.progressed(NAMES[0], 5)
    opened = 0
    while pace.ready():
        pace.opened(pace.round_interval_steps)
        opened += 1
    assert opened == 2
