"""How often a process is started again: growing delays, a limit an hour, forgotten after health."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.supervisor.eviction import (
    DELAY_MAX_S,
    FIRST_DELAY_S,
    HOUR_S,
    RESTARTS_MAX,
    Restarts,
)


def live(restarts: Restarts, lifetimes_s: list[float], patience: float = 1.0) -> list[float]:
    """Let a process live so long after each start; the delays until it is given up."""
    now_s, delays = 0.0, []
    for lifetime_s in lifetimes_s:
        now_s += lifetime_s
        delay_s = restarts.next_delay_s(now_s, patience)
        if delay_s is None:
            break
        delays.append(delay_s)
        now_s += delay_s
    return delays


def test_what_fails_at_once_waits_longer_each_time_until_it_is_given_up() -> None:
    restarts = Restarts()
    delays = live(restarts, [0.0] * 100)
    assert delays == pytest.approx([min(60.0, 0.2 * 1.5**n) for n in range(20)])
    assert restarts.given_up
    assert restarts.gave_up_because == "ended more than 20 times within an hour"


def test_what_says_the_same_each_time_is_for_its_author_to_mend() -> None:
    same, other = Restarts(), Restarts()
    delays = [same.next_delay_s(20.0 * number, 1.0, "a.py:24: no such file") for number in range(7)]
    assert [delay_s is None for delay_s in delays] == [False] * 5 + [True] * 2
    assert same.gave_up_because == "ended 6 times in a row with the same words"
    for number in range(10):
        assert other.next_delay_s(20.0 * number, 1.0, f"record {number // 5} is torn") is not None


@pytest.mark.parametrize("steps", [(), (0,), (1,), (0, 1)])
def test_what_fails_before_its_first_step_is_tried_three_times(steps: tuple[int, ...]) -> None:
    restarts = Restarts()
    delays = [
        restarts.next_delay_s(20.0 * number, 1.0, "a.py:24: no memory", trained=number in steps)
        for number in range(max(steps, default=-1) + 4)
    ]
    assert [delay_s is None for delay_s in delays] == [False] * (len(delays) - 1) + [True]
    told = restarts.gave_up_because
    assert told == f"ended {len(delays)} times in a row with the same words" + (
        "" if steps else " before its first step"
    )


def test_what_is_killed_before_its_first_step_is_given_up_too() -> None:
    mute, stepped = Restarts(), Restarts()
    delays = [mute.next_delay_s(100.0 * number, 1.0, trained=False) for number in range(6)]
    assert [delay_s is None for delay_s in delays] == [False] * 5 + [True]
    assert mute.gave_up_because == "ended 6 times in a row without a word before its first step"
    for number in range(10):
        assert stepped.next_delay_s(100.0 * number, 1.0, trained=True) is not None


@pytest.mark.parametrize(
    ("words", "every_s"),
    [("fault {}", 400.0), ("the host ends", 2 * HOUR_S)],
    ids=["other", "rare"],
)
def test_ends_without_a_step_by_other_faults_or_rarely_are_no_row(
    words: str, every_s: float
) -> None:
    restarts = Restarts()
    for number in range(10):
        text = words.format(number // 2)
        assert restarts.next_delay_s(every_s * number, 1.0, text, trained=False) is not None


def test_a_rare_fault_costs_next_to_nothing() -> None:
    restarts = Restarts()
    assert live(restarts, [3601.0] * 1000) == [FIRST_DELAY_S] * 1000
    assert not restarts.given_up


def test_long_health_makes_up_for_what_went_before() -> None:
    restarts = Restarts()
    live(restarts, [20.0] * 12)
    assert len(restarts.times_s) == 12
    assert not restarts.given_up
    last_s = restarts.times_s[-1]
    assert restarts.next_delay_s(last_s + HOUR_S, 1.0) == FIRST_DELAY_S
    assert len(restarts.times_s) == 1


def test_giving_up_is_final_and_nothing_is_told_before() -> None:
    restarts = Restarts()
    live(restarts, [0.0] * RESTARTS_MAX)
    assert (restarts.given_up, restarts.gave_up_because) == (False, "")
    live(restarts, [0.0])
    assert restarts.given_up
    assert restarts.next_delay_s(1e9, 1.0) is None


def test_patience_scales_delays_and_health() -> None:
    lifetimes_s = [1.0, 13.0, 40.0, 0.5, 3601.0, 200.0] + [13.0] * 50
    slow = live(Restarts(), lifetimes_s)
    fast = live(Restarts(), [0.2 * lifetime_s for lifetime_s in lifetimes_s], patience=0.2)
    assert fast == pytest.approx([0.2 * delay_s for delay_s in slow])


@given(st.lists(st.floats(0.0, 5000.0), max_size=300))
def test_no_hour_ever_holds_more_than_its_share(lifetimes_s: list[float]) -> None:
    restarts, now_s, starts_s = Restarts(), 0.0, list[float]()
    for lifetime_s in lifetimes_s:
        now_s += lifetime_s
        delay_s = restarts.next_delay_s(now_s, 1.0)
        if delay_s is None:
            break
        assert FIRST_DELAY_S <= delay_s <= DELAY_MAX_S
        starts_s.append(now_s + delay_s)
        now_s += delay_s
    for start_s in starts_s:
        later = [at_s for at_s in starts_s if start_s <= at_s < start_s + HOUR_S]
        assert len(later) <= RESTARTS_MAX
