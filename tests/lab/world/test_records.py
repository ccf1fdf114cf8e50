"""Learners, syncer and supervisor are killed and return: every record is read, few are repeated.

`--seeds 500` follows the records of 500 runs.
"""

from collections.abc import Callable

import pytest

from islands.lab.faults.fault import FaultKind
from tests.lab.world.records import follow, kills_and_rejoins

pytestmark = pytest.mark.simulation


def test_no_record_is_lost_and_only_the_unreported_tail_is_repeated(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    followed = follow(seed)
    record_property("steps", len(followed.read))
    record_property("repeats", followed.repeats)
    assert followed.faults == []
    assert followed.outcome.violations == ()


def test_the_runs_have_what_they_are_for() -> None:
    followed = [follow(seed) for seed in range(6)]
    assert sum(each.repeats for each in followed) > 0
    assert any(max(each.read)[0] > 0 for each in followed)
    killed = {
        name
        for seed in range(40)
        for injection in kills_and_rejoins(seed).of_kind(FaultKind.KILL)
        for name in injection.victims
    }
    assert {"syncer", "supervisor", "learner-0", "learner-1"} <= killed
