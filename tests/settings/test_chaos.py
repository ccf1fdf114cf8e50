"""A scenario is read as any settings are, and a fault that cannot work is one sentence."""

from dataclasses import replace

import pytest

from islands.lab.faults.fault import FaultKind
from islands.lab.settings.chaos import ChaosOptions, faults_of
from islands.protocol.errors import SettingsError


def test_a_fault_is_read_with_its_defaults() -> None:
    (fault,) = faults_of(ChaosOptions(faults={"one": {"fault": "freeze"}})).values()
    assert fault.kind is FaultKind.FREEZE
    assert (fault.who, fault.times, fault.for_s, fault.at_s) == ("learner", 1, 1.0, ())


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("kill", r"faults\.one is 'kill'; it must be a mapping"),
        ({"who": "syncer"}, r"faults\.one is .*; it must be a mapping"),
        ({"fault": "kil"}, r"faults\.one\.fault is 'kil'; it must be one of kill, "),
        ({"fault": "kill", "whom": "syncer"}, r"unknown key faults\.one\.whom; did you mean who\?"),
        ({"fault": "kill", "who": "learner-3"}, r"who is 'learner-3'; .* learner-0 to learner-2"),
        ({"fault": "freeze", "who": "all"}, r"who is all; only kill and"),
        ({"fault": "freeze", "for_s": 0}, r"for_s is 0.*; it must be above 0"),
        ({"fault": "freeze", "for_s": "long"}, r"faults\.one: Expected `float`"),
        ({"fault": "kill", "at_s": [1], "times": 2}, r"has at_s and every_s or times"),
        ({"fault": "kill", "at_s": [-1]}, r"at_s is -1\.0; it must be at least 0"),
        ({"fault": "kill", "every_s": 0}, r"every_s is 0.*; it must be above 0"),
        ({"fault": "kill", "times": 0}, r"times is 0; it must be in \[1, 1000\]"),
        (
            {"fault": "cut", "who": "syncer"},
            r"who is syncer; cut happens to the links of a learner",
        ),
        ({"fault": "hang", "who": "syncer"}, r"who is syncer; hang happens to learners alone"),
        ({"fault": "cut", "way": "out"}, r"faults\.one: Invalid enum value 'out'"),
        ({"fault": "latency", "latency_s": -1}, r"latency_s is -1.*; it must be at least 0"),
        ({"fault": "kill", "link": "syncer"}, r"one\.link does not go with kill; its keys"),
        ({"fault": "cut", "factor": 5}, r"one\.factor does not go with cut; its keys .* way, link"),
        ({"fault": "flap", "turn_s": 1e-6}, r"turn_s is 1e-06; it must be at least 0\.01"),
        ({"fault": "straggle", "factor": 1}, r"factor is 1.*; it must be above 1"),
    ],
)
def test_a_fault_that_cannot_work_is_refused(told: object, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        ChaosOptions(faults={"one": told})


def test_a_scenario_decides_itself_when_its_run_ends() -> None:
    options = ChaosOptions()
    run = replace(options.file.run, budget_tokens=1000)
    with pytest.raises(SettingsError, match="run has a budget"):
        replace(options, file=replace(options.file, run=run))


@pytest.mark.parametrize("name", ["control_s", "rest_s", "duration_s", "learners", "gap_most_s"])
def test_values_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is -1"):
        replace(ChaosOptions(), **{name: -1})  # type: ignore[arg-type]
