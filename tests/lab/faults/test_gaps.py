"""What of a gap is the machine's own, by tapes made by hand; and the loop that tells its stalls."""

from collections.abc import Callable, Iterator
from dataclasses import astuple
from itertools import pairwise
from math import floor, log10
from pathlib import Path

import pytest

from islands.lab.faults.bare_loop import STALLS_FILE, STEP_S, BareLoop, Stall, watch
from islands.lab.faults.fault import Injected
from islands.lab.faults.fleet import Stepped
from islands.lab.faults.gaps import Gap, gap_of, worst
from islands.lab.faults.schedule import injections_of
from islands.lab.faults.verdict import Control, finding_of, verdict_of
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.running_statistics import PER_DECADE
from islands.protocol.settings.run import Timing

NAME = "learner-0"
USUAL_S, LONG_S = 0.0005, 0.05
HEARTBEAT_S, STEPS = 0.2, 10
SPAN = (10.0, 16.0)


def told(
    gaps: dict[float, float], heard_s: Callable[[float], float] = lambda at_s: at_s
) -> Iterator[Stepped]:
    """Reports of a learner from 9 to 17 s, with these gaps by when they ended, beside usual ones.

    Args:
        gaps: lengths in seconds.
        heard_s: when the hub hears what is sent at a time.
    """
    ends = [9.0 + HEARTBEAT_S * index for index in range(41)]
    bins: dict[int, int] = {}
    largest_s = USUAL_S
    yield Stepped(heard_s(ends[0]), NAME, "one", 0, (), largest_s)
    for number, (before_s, at_s) in enumerate(pairwise(ends), start=1):
        late = [gap for ended_s, gap in gaps.items() if before_s < ended_s <= at_s]
        for gap in (*late, *(USUAL_S for _ in range(STEPS - len(late)))):
            index = floor(PER_DECADE * log10(gap))
            bins[index] = bins.get(index, 0) + 1
            largest_s = max(largest_s, gap)
        bins_told = tuple(sorted(bins.items()))
        yield Stepped(heard_s(at_s), NAME, "one", STEPS * number, bins_told, largest_s)


def of(rows: Iterator[Stepped], *stalls: Stall) -> Gap:
    """The gaps from 10 to 16 s beside these stalls of the machine."""
    gap = gap_of(list(rows), NAME, SPAN, stalls)
    assert gap is not None
    return gap


def broken(rows: Iterator[Stepped], *stalls: Stall) -> tuple[str, ...]:
    """The promises that a fault of another learner broke, which lasted from 10 to 13 s."""
    fault = {"fault": "freeze", "who": "learner-1", "for_s": 3}
    options = ChaosOptions(faults={"one": fault}, learners=2)
    blow = Injected(injections_of(options)[0], 10.0, 13.0, 16.0)
    control = Control(0.0, 9.0, Gap(0.001, 0.0, 0.001), {NAME: STEPS / HEARTBEAT_S})
    names = (NAME, "learner-1")
    found = finding_of(blow, [blow], names, list(rows), (), control, Timing(patience=0.2), stalls)
    verdict = verdict_of(options, [found], control, [])
    return tuple(told for told in verdict.judged[0].broken if "gap" in told)


# --- the judgement --------------------------------------------------------------------------------


def test_a_gap_without_a_stall_of_the_machine_is_the_products() -> None:
    gap = of(told({12.0: LONG_S}))
    assert astuple(gap) == pytest.approx((LONG_S, 0.0, LONG_S))
    assert broken(told({12.0: LONG_S})) == (
        "others had a gap of 50 ms between steps, the control had 1 ms; allowed are 20 ms more",
    )


def test_a_gap_while_the_machine_stood_still_is_shown_and_breaks_nothing() -> None:
    stall = Stall(11.952, 12.0)
    gap = of(told({12.0: LONG_S}), stall)
    assert astuple(gap) == pytest.approx((LONG_S, 0.048, 0.002))
    assert broken(told({12.0: LONG_S}), stall) == ()


def test_a_stall_delays_the_report_before_it_as_well() -> None:
    stall = Stall(11.79, 11.825)

    def heard_s(at_s: float) -> float:
        return 11.88 if at_s == pytest.approx(11.8) else at_s

    late = told({11.86: LONG_S}, heard_s)
    assert of(late, stall).left_s == pytest.approx(0.015)


@pytest.mark.parametrize("from_s", [9.2, 11.4, 12.5, 15.0])
def test_a_stall_at_another_time_excuses_nothing(from_s: float) -> None:
    stall = Stall(from_s, from_s + LONG_S)
    assert of(told({12.0: LONG_S}), stall).left_s == pytest.approx(LONG_S)
    assert len(broken(told({12.0: LONG_S}), stall)) == 1


def test_a_stall_that_is_much_shorter_than_the_gap_excuses_little() -> None:
    stall = Stall(11.99, 11.998)
    assert of(told({12.0: LONG_S}), stall).left_s == pytest.approx(0.042)
    (sentence,) = broken(told({12.0: LONG_S}), stall)
    assert "42 ms between steps, the control had 1 ms (the machine's own" in sentence


def test_a_long_stall_excuses_one_gap_and_not_two() -> None:
    rows = {11.95: LONG_S, 11.99: 0.04}
    once, twice = Stall(11.94, 12.0), Stall(11.83, 11.86)
    assert of(told(rows), once).left_s == pytest.approx(0.04, rel=0.03)
    assert of(told(rows), once, twice).left_s == pytest.approx(0.01, rel=0.1)
    assert len(broken(told(rows), once)) == 1
    assert broken(told(rows), once, twice) == ()


def test_an_excused_gap_hides_no_shorter_one() -> None:
    stall = Stall(11.9, 12.0)
    gap = of(told({12.0: 0.1, 14.0: 0.04}), stall)
    assert astuple(gap) == pytest.approx((0.1, 0.1, 0.04), rel=0.03)
    (sentence,) = broken(told({12.0: 0.1, 14.0: 0.04}), stall)
    assert "a gap of 41 ms between steps" in sentence


def test_a_gap_while_the_hub_stood_still_lies_anywhere_in_that_time() -> None:
    def heard_s(at_s: float) -> float:
        return max(at_s, 13.5 + at_s / 1e6) if at_s > 11.1 else at_s

    rows = {12.0: LONG_S}
    assert of(told(rows, heard_s), Stall(11.95, 12.0)).left_s < 0.002
    assert of(told(rows, heard_s), Stall(14.0, 14.05)).left_s == pytest.approx(LONG_S)


def test_whoever_takes_no_step_has_the_machines_stalls_taken_off_too() -> None:
    rows = [Stepped(at_s, NAME, "one", 5, ((0, 5),), 0.1) for at_s in (9.0, 15.0)]
    assert gap_of(rows, NAME, SPAN) == Gap(6.0, 0.0, 6.0)
    assert gap_of(rows, NAME, SPAN, [Stall(11.0, 12.0)]) == Gap(6.0, 1.0, 5.0)


def test_of_several_learners_the_longest_gap_is_shown_and_what_is_left_of_any() -> None:
    assert worst([Gap(0.05, 0.05, 0.0), Gap(0.03, 0.0, 0.03)]) == Gap(0.05, 0.05, 0.03)
    assert worst([]) is None


# --- the loop -------------------------------------------------------------------------------------


class Machine:
    """A clock that sleeping moves on; at some times the machine stands still."""

    def __init__(self, stands: dict[float, float]) -> None:
        self.at_s = 100.0
        self._stands = stands

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds
        for from_s, to_s in self._stands.items():
            if from_s <= self.at_s < to_s:
                self.at_s = to_s


def watched(stands: dict[float, float], slow_s: float = 0.0) -> list[Stall]:
    """What is noted of a machine that stands still from some times to others, for a second."""
    machine, found = Machine(stands), list[Stall]()

    def note(stall: Stall) -> None:
        found.append(stall)
        machine.at_s += slow_s

    watch(note, lambda: machine.at_s < 101.0, machine, machine.sleep)
    return found


def test_each_late_waking_is_noted_from_when_to_when() -> None:
    assert watched({}) == []
    (one, other) = watched({100.3: 100.35, 100.7: 100.708})
    assert one.to_s == 100.35
    assert 0.05 - STEP_S <= one.length_s <= 0.05
    assert other.to_s == 100.708
    assert watched({100.3: 100.3005}) == []


def test_noting_a_stall_is_no_stall() -> None:
    assert len(watched({100.3: 100.35}, slow_s=0.3)) == 1


def test_stalls_are_read_as_far_as_they_are_written(tmp_path: Path) -> None:
    bare = BareLoop(tmp_path)
    assert bare.stalls() == []
    whole = b'{"from_s":1.0,"to_s":1.5}\n{"from_s":3.0,"to_s":3.25}\n'
    (tmp_path / STALLS_FILE).write_bytes(whole + b'{"from_s":4')
    assert bare.stalls() == [Stall(1.0, 1.5), Stall(3.0, 3.25)]
