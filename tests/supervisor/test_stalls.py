"""A launched process that is stalled is killed, each time later: no limit makes a circle."""

import pytest

from islands.protocol.identities import Incarnation
from islands.protocol.supervisor.eviction import LONGEST_S, StallPoint, Stalls, Standstill


def kill(stalls: Stalls, point: StallPoint, waited_s: float, number: int) -> bool:
    """Whether a start is killed at a point whose limit is 30 s."""
    stall = Standstill(point, waited_s, 30.0)
    return stalls.kill_because(stall, Incarnation(1, number)) is not None


@pytest.mark.parametrize("point", StallPoint)
def test_each_kill_at_a_point_doubles_the_time_there_and_nowhere_else(point: StallPoint) -> None:
    stalls = Stalls()
    for number, limit_s in enumerate((30.0, 60.0, 120.0)):
        assert not kill(stalls, point, limit_s - 1.0, number)
        assert kill(stalls, point, limit_s, number)
        assert not kill(stalls, point, 9 * limit_s, number), "a start is killed once"
    for other in {*StallPoint} - {point}:
        assert stalls.limit_s(Standstill(other, 0.0, 30.0)) == 30.0


def test_who_is_killed_is_told_why_and_what_the_next_start_has() -> None:
    stall = Standstill(StallPoint.COMPILATION, 600.0, 600.0)
    reason = Stalls().kill_because(stall, Incarnation(1, 1))
    assert reason == "stalled in compilation for 600 s; the next start has 1,200 s there"


def test_a_device_that_hangs_again_and_again_is_always_found() -> None:
    stalls, limits = Stalls(), []
    for number in range(100):
        limits.append(stalls.limit_s(Standstill(StallPoint.STEP, 0.0, 30.0)))
        found = Standstill(StallPoint.STEP, limits[-1], 30.0)
        assert stalls.kill_because(found, Incarnation(1, number)) is not None
    assert limits[:3] == [30.0, 60.0, 120.0]
    assert limits[-1] == LONGEST_S
    assert stalls.limit_s(Standstill(StallPoint.STEP, 0.0, 2 * LONGEST_S)) == 2 * LONGEST_S
