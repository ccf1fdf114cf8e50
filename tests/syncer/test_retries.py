"""What is sent again and how often; every timeout at both ends of its range."""

from itertools import pairwise

import pytest

from islands.protocol.identities import LearnerName, Version
from islands.protocol.messages.training import ContributionDeclined, FragmentUpdate
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.contribution_admission import OVERTAKEN
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.members import Sent, unready_because
from islands.protocol.syncer.pulls import Pull, Pulls
from islands.protocol.syncer.timeouts import (
    DOUBLED_MAX,
    MARGIN,
    SAMPLES_LEAST,
    TIME_MAX_S,
    Exchange,
    Longest,
    answer_timeout_s,
    final_patience_s,
    resend_s,
    warning_patience_s,
)
from islands.protocol.tape.round_entries import Abandoned, Declined, NothingMerged
from tests.syncer.bench import GOOD, Bench, opened, seeded

TICK_S = 0.25


def behind() -> tuple[Bench, int, Version]:
    bench = seeded("ana", "ben")
    pull = next(pull for pull in opened(bench) if pull.ticket.name == "ana")
    bench.commit([pull])
    bench.adopt("ana")
    version = bench.state.version(pull.fragment)
    assert version is not None
    return bench, pull.fragment, version


def repeats(bench: Bench, seconds: float) -> list[tuple[float, FragmentUpdate]]:
    """Values that are sent again within so many seconds, and when."""
    sent: list[tuple[float, FragmentUpdate]] = []
    for _ in range(round(seconds / TICK_S)):
        bench.tick(TICK_S)
        sent += [(bench.now_s, update) for update in bench.updates()]
    return sent


def test_a_value_waits_twice_as_long_after_each_repetition() -> None:
    bench, fragment, version = behind()
    begun_s = bench.now_s
    sent = repeats(bench, 70.0)
    assert {(update.fragment, update.version) for _, update in sent} == {(fragment, version)}
    assert [round(at_s - begun_s) for at_s, _ in sent] == [2, 6, 14, 30, 62]


def test_a_newer_version_has_waited_for_nothing() -> None:
    learner = behind()[0].core.members.learners[LearnerName("ben")]
    for at_s in (0.0, 2.0, 6.0):
        learner.sending(0, Version(1, 7), at_s)
    assert learner.sent[0].due_s(2.0) == 14.0
    learner.sending(0, Version(1, 8), 7.0)
    assert learner.sent[0].due_s(2.0) == 9.0


def test_a_new_link_begins_anew() -> None:
    bench, fragment, version = behind()
    repeats(bench, 40.0)
    bench.drop("ben")
    bench.hello("ben")
    assert (fragment, version) in [(u.fragment, u.version) for u in bench.updates()]
    assert len(repeats(bench, 3.0)) >= 1


def test_repetitions_never_cease() -> None:
    often = Sent(Version(1, 1), 0.0, 0.0, times=1000)
    assert often.due_s(2.0) == 2.0 * 2**DOUBLED_MAX
    assert often.due_s(600.0) == TIME_MAX_S


TIMING = Timing()
GIGABYTE_S = 1600.0
"""1 GB over 5 Mbit/s."""


@pytest.mark.parametrize("exchange_s", [None, 0.002, 12.0, 60.0, GIGABYTE_S])
@pytest.mark.parametrize("step_s", [0.0, 0.01, 1.0, 40.0, 300.0])
@pytest.mark.parametrize("fragments", [1, 24, 600])
def test_an_answer_has_time_to_come(
    fragments: int, step_s: float, exchange_s: float | None
) -> None:
    limit_s = answer_timeout_s(TIMING, fragments=fragments, step_s=step_s, exchange_s=exchange_s)
    assert limit_s >= TIMING.round_s
    assert limit_s >= 4 * fragments * step_s
    if exchange_s is None:
        assert limit_s >= MARGIN * 6 * step_s
    else:
        assert limit_s >= MARGIN * exchange_s
        bound_s = MARGIN * max(exchange_s, fragments * step_s)
        assert limit_s <= max(TIMING.round_s, bound_s)


@pytest.mark.parametrize("patience", [0.1, 1.0, 10.0])
def test_the_settings_are_the_least(patience: float) -> None:
    timing = Timing(patience=patience)
    fast = {"step_s": 0.0001, "exchange_s": 0.0001}
    assert answer_timeout_s(timing, fragments=1, **fast) == 10.0 * patience
    assert resend_s(timing, overlap_steps=2, **fast) == 2.0 * patience
    assert final_patience_s(timing, **fast) == 30.0 * patience
    assert warning_patience_s(timing, interval_steps=24, **fast) == 10.0 * patience


def test_slow_steps_and_links_stretch_all_of_them() -> None:
    slow = {"step_s": 300.0, "exchange_s": GIGABYTE_S}
    assert answer_timeout_s(TIMING, fragments=1, **slow) == 4 * GIGABYTE_S
    assert resend_s(TIMING, overlap_steps=2, **slow) == GIGABYTE_S
    assert final_patience_s(TIMING, **slow) == 4 * (300.0 + GIGABYTE_S)
    assert warning_patience_s(TIMING, interval_steps=24, **slow) == 3 * 24 * 300.0


def test_the_longest_sample_is_remembered_for_a_while_and_then_forgotten() -> None:
    longest = Longest()
    longest.add(0.1, 24)
    for _ in range(3):
        for fragment in range(24):
            longest.add(100.0 if fragment == 7 else 0.1, 24)
            assert fragment < 7 or longest.value == 100.0
    for _ in range(2 * 24):
        longest.add(0.1, 24)
    assert longest.value == 0.1
    longest.add(1e9, SAMPLES_LEAST)
    assert longest.value == TIME_MAX_S
    assert Longest().value is None


def test_a_late_answer_tells_how_long_it_took() -> None:
    exchange, pulls = Exchange(), Pulls()
    exchange.adoptions_s.add(3.0, 8)
    assert exchange.measured_s(0.5) == 7.0
    assert exchange.usual_s is None
    pulls.send(4, 0, 100.0)
    pulls.send(4, 0, 110.0)
    ended = [pulls.end(4), pulls.end(4)]
    assert ended == [Pull(0, 100.0, 110.0, 2), None]
    exchange.answer(160.0 - 100.0, 8)
    assert exchange.measured_s(0.5) == 60.0
    assert exchange.usual_s == 60.0


def test_one_long_answer_is_not_usual() -> None:
    exchange = Exchange()
    for after_s in (0.1, 0.1, 30.0, 0.1):
        exchange.answer(after_s, 8)
    assert exchange.measured_s(0.5) == 30.0
    assert exchange.usual_s == 0.1


def test_a_learner_that_never_answers_is_asked_twice_and_reminded_ever_more_rarely() -> None:
    settings = RunSettings(interval_steps=4, fragments=1)
    bench = seeded("ana", settings=settings, fragments=1)
    opened(bench)
    abandoned, pulled_s = 0, list[float]()
    while bench.now_s < 3600.0:
        bench.tick(bench.state.deadline_s(bench.now_s) - bench.now_s)
        abandoned += len(bench.entries(Abandoned))
        pulled_s += [bench.now_s for pull in bench.pulls() if pull.ticket.round == 0]
        bench.step("ana")
    assert abandoned == 2
    waits_s = [later - before for before, later in pairwise(pulled_s)]
    assert all(b >= 1.9 * a for a, b in pairwise(waits_s))


def test_a_pull_that_both_sides_would_lose_ends_with_the_next_of_its_fragment() -> None:
    bench = seeded("ana", settings=RunSettings(interval_steps=4, fragments=1), fragments=1)
    (lost,) = opened(bench)
    bench.tick(10.0)
    (later,) = opened(bench)
    bench.answer(later)
    (declined,) = bench.entries(Declined)
    assert (declined.ticket, declined.reason) == (str(lost.ticket), OVERTAKEN)
    assert len(bench.record("ana").pulls) == 0


def test_a_decline_over_a_link_that_is_gone_ends_nothing() -> None:
    bench = seeded("ana", settings=RunSettings(interval_steps=4, fragments=1), fragments=1)
    (pull,) = opened(bench)
    before = bench.connections["ana"]
    bench.hello("ana")
    assert [each.ticket for each in bench.pulls()] == [pull.ticket]
    declined = ContributionDeclined(pull.ticket, pull.fragment, "old news")
    bench.do(Received(declined, before))
    assert list(bench.record("ana").pulls.open) == [pull.ticket.round]
    bench.decline(pull)
    assert not bench.record("ana").pulls.open


def test_with_all_one_that_never_answers_does_not_stop_the_run() -> None:
    settings = RunSettings(interval_steps=4, fragments=2, quorum=None)
    bench = seeded("ana", "mute", settings=settings)
    waited_s: list[float] = []
    for _ in range(100):
        pulls = opened(bench)
        began_s = bench.now_s
        (mine,) = [pull for pull in pulls if pull.ticket.name == "ana"]
        bench.answer(mine)
        while not bench.of(BeginMerge):
            bench.tick(2.5)
        waited_s.append(bench.now_s - began_s)
        bench.commit()
        for name in ("ana", "mute"):
            bench.adopt(name)
        bench.tick(60.0)
    assert max(waited_s) == 10.0
    assert 2 <= sum(waited > 0 for waited in waited_s) <= 5


def test_a_late_answer_is_in_time_the_next_round() -> None:
    settings = RunSettings(interval_steps=4, fragments=1)
    bench = seeded("ana", settings=settings, fragments=1)
    (pull,) = opened(bench)
    bench.tick(10.0)
    assert len(bench.entries(Abandoned)) == 1
    bench.tick(2.0)
    bench.answer(pull)
    assert bench.record(pull.ticket.name).exchange.late_s == 2.0
    (pull,) = opened(bench)
    for _ in range(12):
        bench.tick(1.0)
    bench.answer(pull)
    assert len(bench.of(BeginMerge)) == 1


@pytest.mark.parametrize("quorum", [1, 2])
def test_a_run_that_merges_nothing_says_so(quorum: int) -> None:
    settings = RunSettings(interval_steps=4, fragments=2, quorum=quorum)
    bench = seeded("ana", "ben", settings=settings)
    told: list[tuple[float, NothingMerged]] = []
    bench.drop("ben")
    for _ in range(200):
        if not bench.core.rounds.open:
            bench.step("ana")
        bench.tick(1.0)
        told += [(bench.now_s, entry) for entry in bench.entries(NothingMerged)]
    assert 2 <= len(told) <= 4
    assert told[0][0] >= 10.0
    assert told[1][0] - told[0][0] >= 60.0
    because = told[0][1].because
    assert because["ben"] == "link down"
    assert "has not answered" in because["ana"] or "two pulls unanswered" in because["ana"]


def test_the_end_waits_for_copies_as_old_as_those_before() -> None:
    bench = seeded("ana", settings=RunSettings(interval_steps=40, fragments=2))
    ana = bench.learners["ana"]
    ana.step_time_s = 300.0
    (pull,) = opened(bench)
    before_s = bench.core.final_patience_s(bench.record(ana.name))
    answer = bench.contribution(pull)
    for _ in range(10):
        bench.now_s += 300.0
        bench.step("ana")
    bench.do(ContributionArrived(answer, GOOD, bench.connections["ana"]))
    learner = bench.record(ana.name)
    age_s = learner.exchange.ages_s.value
    assert age_s is not None
    assert age_s == pytest.approx(10 * learner.step_s)
    assert bench.core.final_patience_s(learner) >= before_s + MARGIN * age_s


def merged_round(bench: Bench, *, without: frozenset[str] = frozenset()) -> set[str]:
    """One round: all who are asked answer but some; it is merged and adopted. Who was asked?"""
    pulls = opened(bench)
    for pull in sorted(pulls, key=lambda pull: pull.ticket.name, reverse=True):  # ben first
        if pull.ticket.name not in without:
            bench.answer(pull)
    if not bench.of(BeginMerge):
        bench.tick(0.0)
    bench.merge()
    bench.journal()
    for name in sorted(bench.learners):
        bench.adopt(name)
    bench.tick(0.05)
    return {str(pull.ticket.name) for pull in pulls}


def test_who_answers_all_other_pulls_is_not_silent() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=1))
    merged_round(bench, without=frozenset({"ben"}))
    left_out_s = 0.0
    while bench.now_s < 60.0:
        before_s = bench.now_s
        if "ben" not in merged_round(bench):
            left_out_s += bench.now_s - before_s
    assert left_out_s == 0.0
    assert unready_because(bench.record("ben")) is None
    assert len(bench.record("ben").pulls) == 0
