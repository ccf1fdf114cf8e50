"""What a fault came to is measured from what was recorded, and judged by what was asked for."""

from dataclasses import astuple, replace

import msgspec
import pytest

from islands.lab.checker import Violation
from islands.lab.faults.fault import Injected
from islands.lab.faults.fleet import Stepped
from islands.lab.faults.gaps import Gap, gap_of, rate_of
from islands.lab.faults.schedule import injections_of
from islands.lab.faults.verdict import (
    HEADS,
    Control,
    Finding,
    control_of,
    demand_rates,
    figures,
    finding_of,
    verdict_of,
)
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.errors import UserError
from islands.protocol.identities import LearnerName, Role, Status
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.tape.entry import Entry, Line
from islands.protocol.tape.member_entries import Admitted, Evicted, StatusChanged
from islands.protocol.tape.process_entries import Started
from tests.protocol.tape.samples import MERGED

TIMING = Timing(patience=0.2)
NAMES = ("learner-0", "learner-1", "learner-2")
CONTROL = Control(0.0, 10.0, Gap(0.001, 0.0, 0.001), dict.fromkeys(NAMES, 50.0))


def injected(**fault: object) -> Injected:
    """An injection that took place at 10 s, and was over, with its rest, six seconds later."""
    injection = injections_of(ChaosOptions(faults={"one": {"who": "learner-2", **fault}}))[0]
    return Injected(injection, 10.0, 10.0 + injection.ends_s - injection.at_s, 16.0)


def row(at_s: float, name: str, steps: int, bins: dict[int, int], largest_s: float) -> Stepped:
    return Stepped(at_s, name, f"{name}'s", steps, tuple(bins.items()), largest_s)


def merged(at_s: float, *names: str) -> Line:
    people = [LearnerName(name) for name in names]
    return Line(at_s, "syncer", msgspec.structs.replace(MERGED, participants=people))


def supervisor(at_s: float, entry: Entry) -> Line:
    return Line(at_s, "supervisor", entry)


def find(blow: Injected, *lines: Line, rows: tuple[Stepped, ...] = ()) -> Finding:
    return finding_of(blow, [blow], NAMES, rows, lines, CONTROL, TIMING)


def test_gaps_and_rates_are_those_of_the_time_between_two_reports() -> None:
    rows = [
        row(0.0, "learner-0", 100, {-100: 1, -300: 99}, 0.1),
        row(10.0, "learner-0", 600, {-100: 1, -300: 598, -250: 1}, 0.1),
    ]
    gap = gap_of(rows, "learner-0", (1.0, 11.0))
    assert gap is not None
    assert astuple(gap) == pytest.approx((10**-2.49, 0.0, 10**-2.49))
    assert rate_of(rows, "learner-0", (1.0, 11.0)) == 50.0
    other = msgspec.structs.replace(rows[1], process="next")
    assert gap_of([rows[0], other], "learner-0", (1.0, 11.0)) is None
    assert rate_of(rows, "learner-1", (1.0, 11.0)) is None
    found = control_of(rows, NAMES, (1.0, 11.0))
    assert (found.rates, found.gap) == ({"learner-0": 50.0}, gap)


def test_the_others_are_those_whom_nothing_struck() -> None:
    rows = [
        row(at_s, n, int(50 * at_s), {-300: int(at_s)}, 0.002)
        for at_s in (9.0, 15.0)
        for n in NAMES[:2]
    ]
    rows.append(row(15.0, "learner-2", 0, {0: 1}, 5.0))
    found = find(injected(fault="kill"), rows=tuple(rows))
    assert found.rate_share == pytest.approx(1.0)
    assert found.gap is not None
    assert found.gap.longest_s == pytest.approx(10**-2.99)


def test_a_gap_that_no_step_ended_lasts_as_long_as_nothing_was_told() -> None:
    steps = {"learner-0": (450, 750), "learner-1": (450, 450)}
    rows = [row(9.0, name, before, {-300: 9}, 0.002) for name, (before, _) in steps.items()]
    rows += [
        row(15.0, name, after, {-300: 9 + (after > 450)}, 0.002)
        for name, (_, after) in steps.items()
    ]
    found = find(injected(fault="kill"), rows=tuple(rows))
    assert found.gap == Gap(6.0, 0.0, 6.0)
    assert found.unmeasured == ()


def test_a_control_without_steps_of_a_learner_is_refused() -> None:
    demand_rates(CONTROL, NAMES)
    for rates in ({}, {**CONTROL.rates, "learner-1": 0.0}):
        with pytest.raises(UserError, match=r"shows no steps of .*learner-1.*control_s"):
            demand_rates(replace(CONTROL, rates=rates), NAMES)


def test_others_that_told_too_little_are_not_passed_over() -> None:
    rows = tuple(row(at_s, "learner-0", int(50 * at_s), {}, 0.0) for at_s in (9.0, 15.0))
    found = find(injected(fault="kill"), merged(12.0, *NAMES), rows=rows)
    assert found.unmeasured == ("learner-1",)
    told = broken(replace(GOOD, unmeasured=found.unmeasured))
    assert told == ("learner-1: gaps and step rate were not measured",)
    assert broken(replace(GOOD, unmeasured=("a",)), gap_most_s=None, step_rate_least=None) == ()


def test_where_no_fault_took_place_no_promise_was_kept() -> None:
    nothing = verdict_of(ChaosOptions(), [], CONTROL, [])
    assert not nothing.kept
    assert nothing.sentence == "nothing was judged, since no fault could be injected"
    some = verdict_of(ChaosOptions(), [GOOD], CONTROL, [])
    assert some.kept
    assert some.sentence == "every promise was kept under 1 faults"


def test_a_killed_learner_is_back_once_a_new_incarnation_is_merged() -> None:
    found = find(
        injected(fault="kill"),
        supervisor(10.2, StatusChanged("learner-2", Status.SUSPECT)),
        merged(10.3, *NAMES),
        supervisor(11.0, Evicted("learner-2", "1.3", "silent")),
        supervisor(12.0, Admitted("learner-2", Role.LEARNER, "1.4")),
        merged(12.4, "learner-0"),
        merged(12.5, *NAMES),
    )
    assert found.noticed_s == pytest.approx(0.2)
    assert found.evicted_s == pytest.approx(1.0)
    assert found.back_s == pytest.approx(2.5)
    assert (found.wrong, found.spared) == ((), ())


def test_a_killed_syncer_is_back_once_it_has_merged_everybody() -> None:
    blow = injected(fault="kill", who="syncer")
    lines = (
        Line(12.0, "syncer", Started(2, resumed=True, sequence=5)),
        merged(12.5, "learner-0", "learner-1"),
        merged(13.0, "learner-2"),
    )
    for control in (CONTROL, replace(CONTROL, rates={})):
        found = finding_of(blow, [blow], NAMES, (), lines, control, TIMING)
        assert found.back_s == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("fault", "evicted", "wrong", "spared"),
    [
        ({"fault": "freeze", "for_s": 0.6}, "learner-2", ("learner-2",), ()),
        ({"fault": "freeze", "for_s": 0.6}, "", (), ()),
        ({"fault": "freeze", "for_s": 1.1}, "learner-2", (), ()),
        ({"fault": "freeze", "for_s": 1.1}, "", (), ()),
        ({"fault": "freeze", "for_s": 3.0}, "learner-2", (), ()),
        ({"fault": "freeze", "for_s": 3.0}, "", (), ("learner-2",)),
        ({"fault": "kill"}, "learner-1", ("learner-1",), ()),
        ({"fault": "freeze", "for_s": 3.0, "who": "supervisor"}, "learner-0", ("learner-0",), ()),
        ({"fault": "straggle", "for_s": 3.0}, "learner-2", ("learner-2",), ()),
        ({"fault": "cut", "for_s": 3.0}, "", (), ("learner-2",)),
        ({"fault": "cut", "for_s": 0.3}, "learner-2", ("learner-2",), ()),
        ({"fault": "cut", "for_s": 0.6}, "learner-2", (), ()),
        ({"fault": "cut", "for_s": 1.8, "way": "down"}, "", (), ()),
        ({"fault": "cut", "for_s": 3.0, "way": "down"}, "", (), ("learner-2",)),
        ({"fault": "cut", "for_s": 3.0, "link": "syncer"}, "learner-2", ("learner-2",), ()),
        ({"fault": "latency", "for_s": 3.0}, "learner-2", ("learner-2",), ()),
        ({"fault": "reset", "for_s": 0.1}, "learner-2", (), ()),
    ],
)
def test_who_is_silent_for_long_is_evicted_and_nobody_else(
    fault: dict[str, object], evicted: str, wrong: tuple[str, ...], spared: tuple[str, ...]
) -> None:
    lines = [supervisor(11.2, Evicted(evicted, "1.3", "silent"))] if evicted else []
    found = find(injected(**fault), *lines)
    assert (found.wrong, found.spared) == (wrong, spared)


def test_while_the_supervisor_is_away_nobody_is_evicted_late() -> None:
    faults: dict[str, object] = {
        "learner": {"fault": "freeze", "who": "learner-2", "at_s": [0], "for_s": 20},
        "hub": {"fault": "freeze", "who": "supervisor", "at_s": [1], "for_s": 10},
    }
    learner, hub = injections_of(ChaosOptions(faults=faults))
    blows = [Injected(learner, 10.0, 30.0, 36.0), Injected(hub, 11.0, 21.0, 36.0)]
    lines = [supervisor(21.5, Evicted("learner-2", "1.3", "silent"))]
    found = finding_of(blows[0], blows, NAMES, (), lines, CONTROL, TIMING)
    assert found.hub_away_s == pytest.approx(12.0)
    untimed = ChaosOptions(gap_most_s=None, step_rate_least=None)
    told = verdict_of(untimed, [replace(found, back_s=1.0)], CONTROL, [])
    assert told.judged[0].broken == ()
    alone = finding_of(blows[0], blows[:1], NAMES, (), lines, CONTROL, TIMING)
    late = verdict_of(untimed, [replace(alone, back_s=1.0)], CONTROL, [])
    assert "the eviction came after 11.50 s" in late.judged[0].broken[0]
    short = replace(blows[0], ended_s=14.0)
    assert finding_of(short, [short, blows[1]], NAMES, (), (), CONTROL, TIMING).spared == ()


def test_with_long_heartbeats_an_eviction_may_be_a_heartbeat_late() -> None:
    patient = replace(ChaosOptions().file, run=RunSettings(timing=Timing(patience=10.0)))
    for evicted_s, count in ((58.0, 0), (61.0, 1)):
        told = broken(replace(GOOD, evicted_s=evicted_s), file=patient)
        assert len(told) == count


# --- the verdict ----------------------------------------------------------------------------------


def broken(found: Finding, **options: object) -> tuple[str, ...]:
    told = replace(ChaosOptions(), **options)  # type: ignore[arg-type]
    return verdict_of(told, [found], CONTROL, []).judged[0].broken


GOOD = Finding(
    injected(fault="freeze", for_s=3.0), gap=Gap(0.002, 0.0, 0.002), rate_share=1.0, back_s=1.0
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gap": Gap(0.03, 0.0, 0.03)}, "had a gap of 30 ms between steps, the control had 1 ms;"),
        ({"gap": Gap(0.07, 0.04, 0.03)}, "the control had 1 ms (the machine's own stalls are tak"),
        ({"rate_share": 0.9}, "others stepped at 0.900 of their rate; it must be 0.98"),
        ({"back_s": 11.0}, "in a merge after 11.00 s; it must within 10 s"),
        ({"back_s": None}, "did not take part in a merge again"),
        ({"wrong": ("learner-0",)}, "learner-0 was evicted, and nothing was wrong with it"),
        ({"spared": ("learner-2",)}, "learner-2 was silent for 3.0 s and was not evicted"),
        ({"evicted_s": 6.5}, "the eviction came after 6.50 s; it must within 6.00 s"),
    ],
)
def test_each_promise_is_told_that_is_broken(change: dict[str, object], sentence: str) -> None:
    (told,) = broken(replace(GOOD, **change))  # type: ignore[arg-type]
    assert sentence in told


def test_a_stall_in_the_control_loosens_no_limit() -> None:
    control = replace(CONTROL, gap=Gap(0.05, 0.049, 0.001))
    found = replace(GOOD, gap=Gap(0.03, 0.0, 0.03))
    (told,) = verdict_of(ChaosOptions(), [found], control, []).judged[0].broken
    assert "a gap of 30 ms between steps, the control had 1 ms" in told


@pytest.mark.parametrize(
    ("noticed_s", "sentence"),
    [
        (None, "it was never seen that the victim hangs; it must within 31.0 s"),
        (40.0, "it was after 40.0 s seen that the victim hangs"),
        (30.5, None),
    ],
)
def test_who_hangs_must_be_noticed(noticed_s: float | None, sentence: str | None) -> None:
    told = broken(replace(GOOD, injected=injected(fault="hang"), noticed_s=noticed_s))
    assert len(told) == (sentence is not None)
    assert sentence is None or sentence in told[0]


def test_what_depends_on_the_machine_may_be_measured_without_being_judged() -> None:
    found = replace(GOOD, gap=Gap(1.0, 0.0, 1.0), rate_share=0.1, back_s=60.0)
    assert broken(found, gap_most_s=None, step_rate_least=None, back_most_s=None) == ()


def test_a_fault_that_did_not_take_place_and_a_violation_break_the_run() -> None:
    missed = replace(injected(fault="kill"), missed="nobody of that name runs")
    found = find(missed)
    assert broken(found) == ("it did not take place: nobody of that name runs",)
    verdict = verdict_of(ChaosOptions(), [GOOD], CONTROL, [Violation("I1", "twice")])
    assert verdict.sentence == "the history shows 1 broken promises"


def test_the_table_of_a_scenario_has_every_figure() -> None:
    struck = injected(fault="freeze", for_s=3)
    found = Finding(struck, Gap(0.03, 0.012, 0.018), 0.5, 0.6, 5.1, 1.25)
    control = Control(100.0, 105.0, Gap(0.01, 0.002, 0.008), {"learner-0": 50.0, "learner-2": 49.0})
    shown = figures(found, control)
    assert shown == ("30.0 ms (+10.0)", "12.0 ms", "0.500", "", "0.60 s", "5.10 s", "1.25 s")
    assert len(shown) == len(HEADS)
