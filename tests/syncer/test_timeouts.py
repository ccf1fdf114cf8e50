"""Every timeout of the syncer, at both ends of its range; and that abandoned rounds teach."""

from dataclasses import replace

import pytest

from islands.config import RunSettings, Timing
from islands.syncer.actions import BeginMerge, Record
from islands.syncer.timeouts import (
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
from tests.syncer.bench import Bench, opened, seeded

TIMING = Timing()
GIGABYTE_S = 1600.0
"""1 GB over 5 Mbit/s."""


def records(bench: Bench, kind: str) -> list[dict[str, object]]:
    """Entries of a kind that the last event put on the tape."""
    return [record.fields for record in bench.of(Record) if record.kind == kind]


@pytest.mark.parametrize("exchange_s", [None, 0.002, 12.0, 60.0, GIGABYTE_S])
@pytest.mark.parametrize("step_s", [0.0, 0.01, 1.0, 40.0, 300.0])
@pytest.mark.parametrize("fragments", [1, 24, 600])
def test_an_answer_has_time_to_come(
    fragments: int, step_s: float, exchange_s: float | None
) -> None:
    """Several times what it took lately; a copy of five steps fits where nothing is measured."""
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
    """Where nothing is slow every timeout is the one of the settings, scaled."""
    timing = Timing(patience=patience)
    fast = {"step_s": 0.0001, "exchange_s": 0.0001}
    assert answer_timeout_s(timing, fragments=1, **fast) == 10.0 * patience
    assert resend_s(timing, overlap_steps=2, **fast) == 2.0 * patience
    assert final_patience_s(timing, **fast) == 30.0 * patience
    assert warning_patience_s(timing, interval_steps=24, **fast) == 10.0 * patience


def test_slow_steps_and_links_stretch_all_of_them() -> None:
    """A step of 300 s, an exchange of a gigabyte."""
    slow = {"step_s": 300.0, "exchange_s": GIGABYTE_S}
    assert answer_timeout_s(TIMING, fragments=1, **slow) == 4 * GIGABYTE_S
    assert resend_s(TIMING, overlap_steps=2, **slow) == GIGABYTE_S
    assert final_patience_s(TIMING, **slow) == 4 * (300.0 + GIGABYTE_S)
    assert warning_patience_s(TIMING, interval_steps=24, **slow) == 3 * 24 * 300.0


def test_the_longest_sample_is_remembered_for_a_while_and_then_forgotten() -> None:
    """With P fragments of unlike sizes every one of them is in the window."""
    longest = Longest()
    longest.add(1.0, 24)
    for _ in range(3):
        for fragment in range(24):
            longest.add(100.0 if fragment == 7 else 1.0, 24)
            assert fragment < 7 or longest.value == 100.0
    for _ in range(2 * 24):
        longest.add(1.0, 24)
    assert longest.value == 1.0
    longest.add(1e9, SAMPLES_LEAST)
    assert longest.value == TIME_MAX_S
    assert Longest().value is None


def test_a_late_answer_tells_how_long_it_took() -> None:
    """From the first time it was asked; what was given up took longer than that."""
    exchange = Exchange()
    exchange.adoptions_s.add(3.0, 8)
    assert exchange.expected_s(0.5) == 7.0
    exchange.ask(4, 100.0)
    exchange.ask(4, 110.0)
    exchange.given_up(4, 140.0)
    assert exchange.expected_s(0.5) == 40.0
    exchange.answer(4, 160.0, 8)
    assert exchange.expected_s(0.5) == 60.0
    exchange.answer(4, 999.0, 8)
    assert exchange.expected_s(0.5) == 60.0


def silent_rounds(bench: Bench, rounds: int) -> list[float]:
    """Nobody answers; returns how long each round was open."""
    lasted_s: list[float] = []
    for _ in range(rounds):
        (pull,) = opened(bench)
        began_s = bench.now_s
        while pull.fragment in bench.core.rounds:
            due_s = bench.state.deadline_s(bench.now_s)
            bench.tick(due_s - bench.now_s)
        assert records(bench, "abandoned")[0]["reason"] == "0 of 1 answers"
        lasted_s.append(bench.now_s - began_s)
    return lasted_s


def test_an_abandoned_round_teaches() -> None:
    """Each further one waits longer, until an answer comes in time, and not for ever."""
    settings = RunSettings(interval_steps=4, fragments=1)
    bench = seeded("ana", settings=settings, fragments=1)
    first, second, third = silent_rounds(bench, 3)
    assert first == pytest.approx(10.0)
    assert second >= 2 * first
    assert third >= 2 * second
    silent_rounds(bench, 5)
    assert bench.core.rounds == {}
    assert silent_rounds(bench, 1)[0] <= MARGIN * TIME_MAX_S


def test_a_late_answer_is_in_time_the_next_round() -> None:
    """One-way six seconds: the first pull is given up too early, the next one is not."""
    settings = RunSettings(interval_steps=4, fragments=1)
    bench = seeded("ana", settings=settings, fragments=1)
    (pull,) = opened(bench)
    bench.tick(10.0)
    assert len(records(bench, "abandoned")) == 1
    bench.tick(2.0)
    bench.answer(pull)
    assert bench.core.learners[pull.ticket.name].exchange.late_s == 2.0
    (pull,) = opened(bench)
    for _ in range(12):
        bench.tick(1.0)
    bench.answer(pull)
    assert len(bench.of(BeginMerge)) == 1


def test_with_all_the_silent_are_excused_and_the_others_merged() -> None:
    """What has arrived is not thrown away because one of them does not answer."""
    settings = RunSettings(interval_steps=4, fragments=2, quorum=None)
    bench = seeded("ana", "ben", settings=settings)
    ana, _ = opened(bench)
    bench.answer(ana)
    bench.tick(9.0)
    assert bench.of(BeginMerge) == []
    bench.tick(1.0)
    assert [part.ticket for part in bench.merge().parts] == [ana.ticket]


@pytest.mark.parametrize("quorum", [1, 2])
def test_a_run_that_merges_nothing_says_so(quorum: int) -> None:
    """With the reason of each learner, and once a minute; not while it is paused."""
    settings = RunSettings(interval_steps=4, fragments=2, quorum=quorum)
    bench = seeded("ana", "ben", settings=settings)
    told: list[tuple[float, dict[str, object]]] = []
    bench.drop("ben")
    for _ in range(200):
        if not bench.core.rounds:
            bench.step("ana")
        bench.tick(1.0)
        told += [(bench.now_s, fields) for fields in records(bench, "nothing_merged")]
    assert 2 <= len(told) <= 4
    assert told[0][0] >= 10.0
    assert told[1][0] - told[0][0] >= 60.0
    because = told[0][1]["because"]
    assert isinstance(because, dict)
    assert because["ben"] == "link down"
    assert "has not answered" in because["ana"] or "two pulls unanswered" in because["ana"]


def test_a_run_that_merges_says_nothing() -> None:
    """Nor does one in which nobody steps."""
    bench = seeded("ana", settings=replace(RunSettings(), interval_steps=4, fragments=2))
    for _ in range(60):
        for pull in opened(bench):
            bench.answer(pull)
        bench.merge()
        bench.journal()
        bench.adopt("ana")
        bench.tick(1.0)
        assert records(bench, "nothing_merged") == []
