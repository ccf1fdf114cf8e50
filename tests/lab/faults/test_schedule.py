"""Which fault hits whom and when follows from the scenario and its seed alone."""

from dataclasses import replace
from itertools import pairwise

import pytest

from islands.lab.faults.schedule import injections_of
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.errors import SettingsError
from islands.protocol.identities import SUPERVISOR, SYNCER

THREE: dict[str, object] = {
    "frozen": {"fault": "freeze", "who": "learner-1", "for_s": 3, "times": 2},
    "killed": {"fault": "kill", "who": "syncer"},
    "hub": {"fault": "kill", "who": "supervisor", "for_s": 0.5},
}


def test_faults_without_a_time_come_one_after_another() -> None:
    injections = injections_of(ChaosOptions(faults=THREE, rest_s=2.0))
    assert [(s.name, s.at_s, s.ends_s, s.until_s) for s in injections] == [
        ("frozen 1", 0.0, 3.0, 5.0),
        ("frozen 2", 5.0, 8.0, 10.0),
        ("killed", 10.0, 10.0, 12.0),
        ("hub", 12.0, 12.5, 14.5),
    ]
    assert not injections[0].overlaps(injections[1])


def test_faults_with_times_of_their_own_may_overlap() -> None:
    faults: dict[str, object] = {
        "late": {"fault": "kill", "at_s": [9.0, 1.0]},
        "long": {"fault": "freeze", "at_s": [0.0], "for_s": 4.0},
    }
    injections = injections_of(ChaosOptions(faults=faults, rest_s=1.0))
    assert [(s.name, s.at_s) for s in injections] == [
        ("long", 0.0),
        ("late 2", 1.0),
        ("late 1", 9.0),
    ]
    assert injections[0].overlaps(injections[1])
    assert not injections[0].overlaps(injections[2])


@pytest.mark.parametrize(
    ("second", "apart"),
    [
        ({"fault": "cut", "link": "syncer"}, False),
        ({"fault": "cut", "link": "supervisor"}, True),
        ({"fault": "cut", "who": "learner-0"}, True),
        ({"fault": "cut", "who": "all", "link": "both"}, False),
        ({"fault": "cut", "at_s": [10.0]}, True),
        ({"fault": "freeze"}, True),
    ],
)
def test_two_faults_of_one_link_at_once_are_refused(
    second: dict[str, object], *, apart: bool
) -> None:
    """The end of the first would end the second; with another link, or later, both are played."""
    first = {"fault": "latency", "who": "learner-1", "link": "syncer", "at_s": [0], "for_s": 10}
    given = {"who": "learner-1", "at_s": [5.0], "for_s": 10, **second}
    options = ChaosOptions(faults={"slow": first, "second": given})
    if apart:
        assert len(injections_of(options)) == 2
        return
    with pytest.raises(SettingsError, match=r"faults\.second begins while faults\.slow lasts"):
        injections_of(options)


def test_a_fault_that_is_drawn_gives_way_to_what_still_lasts() -> None:
    frozen = {"fault": "freeze", "who": "learner-0", "every_s": 2.0, "for_s": 4.0}
    killed = {"fault": "kill", "who": "learner-0", "at_s": [20.0]}
    injections = injections_of(ChaosOptions(faults={"frozen": frozen, "killed": killed}))
    assert len(injections) > 5
    assert "killed" in [injection.name for injection in injections]
    assert not any(a.undoes(b) for a, b in pairwise(injections))


def test_a_rate_draws_times_up_to_the_duration() -> None:
    faults: dict[str, object] = {"often": {"fault": "kill", "who": "random", "every_s": 2.0}}
    options = ChaosOptions(faults=faults, duration_s=200.0)
    injections = injections_of(options)
    assert 60 < len(injections) < 150
    assert injections[-1].at_s < 200.0
    assert {name for s in injections for name in s.victims} == {SYNCER, *options.names}
    assert injections_of(options) == injections
    assert injections_of(replace(options, seed=1)) != injections
    limited = replace(options, faults={"often": {"fault": "kill", "every_s": 2.0, "times": 5}})
    assert len(injections_of(limited)) == 5


def test_all_are_struck_at_once() -> None:
    """`all` is the hub, the syncer and every learner."""
    options = ChaosOptions(faults={"dark": {"fault": "kill", "who": "all"}}, learners=2)
    assert injections_of(options)[0].victims == (SUPERVISOR, SYNCER, "learner-0", "learner-1")
