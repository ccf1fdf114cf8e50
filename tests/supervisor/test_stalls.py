"""A launched process that stands still is killed, each time later: no limit makes a circle."""

import pytest

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.messages.membership import Heartbeat
from islands.protocol.supervisor.actions import Action, KillProcess
from islands.protocol.supervisor.events import ProcessEnded
from islands.protocol.supervisor.eviction import LONGEST_S, StallPoint, Stalls, Standstill
from tests.supervisor.desk import Desk, beat


def killed(actions: list[Action]) -> list[str]:
    return [action.reason for action in actions if isinstance(action, KillProcess)]


class Host:
    """A host that starts a learner again whenever it is killed, and speaks for it."""

    def __init__(self) -> None:
        self.desk = Desk(launched=("a",))
        self.start()

    def start(self) -> None:
        if self.desk.state.members:
            self.desk.handle(ProcessEnded("a", "killed by SIGKILL (9)"))
            self.desk.wait(6)
        self.incarnation: Incarnation = self.desk.admit()

    def beat(self, phase: Phase, step: int = 0) -> Heartbeat:
        return beat(self.incarnation, phase=phase, step=step)

    def live_s(self, phase: Phase, step: int, limit_s: float) -> float:
        """Seconds for which it lasts in a phase without a step, at most so many."""
        for second in range(1, round(limit_s) + 1):
            if killed(self.desk.wait(1, self.beat(phase, step))):
                return second
        return limit_s

    def step(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            assert not killed(self.desk.wait(1, self.beat(Phase.STEPPING, step)))


def test_a_first_step_of_ninety_seconds_is_no_reason_to_kill() -> None:
    assert Host().live_s(Phase.STEPPING, 0, 90.0) == 90.0


@pytest.mark.parametrize(
    ("phase", "first_s"), [(Phase.COMPILING, 600.0), (Phase.STEPPING, 600.0)], ids=str
)
def test_each_kill_at_a_place_doubles_the_time_there(phase: Phase, first_s: float) -> None:
    host, lasted = Host(), []
    for _ in range(2):
        lasted.append(host.live_s(phase, 0, 2300.0))
        host.start()
    assert lasted == [pytest.approx(first_s, abs=1.0), pytest.approx(2 * first_s, abs=1.0)]
    assert host.live_s(phase, 0, 2300.0) == 2300.0


def test_a_hang_among_fast_steps_is_found_as_fast_as_ever() -> None:
    host = Host()
    host.step(1, 5)
    assert host.live_s(Phase.STEPPING, 5, 100.0) == pytest.approx(30.0, abs=1.0)
    host.start()
    host.step(1, 5)
    assert host.live_s(Phase.STEPPING, 5, 100.0) == pytest.approx(60.0, abs=1.0)


def test_a_kill_elsewhere_lengthens_nothing_here() -> None:
    host = Host()
    host.live_s(Phase.COMPILING, 0, 700.0)
    host.start()
    host.step(1, 5)
    assert host.live_s(Phase.STEPPING, 5, 100.0) == pytest.approx(30.0, abs=1.0)


def test_who_is_killed_is_told_why_and_what_the_next_start_has() -> None:
    host = Host()
    reasons = killed(host.desk.wait(660, host.beat(Phase.COMPILING)))
    assert reasons == ["stalled in compilation for 600 s; the next start has 1,200 s there"]


def test_a_long_step_that_is_rare_comes_through_in_the_end() -> None:
    host, lasted = Host(), []
    for _ in range(3):
        host.step(1, 3700)
        lasted.append(host.live_s(Phase.STEPPING, 3700, 90.0))
        if lasted[-1] < 90.0:
            host.start()
    assert lasted == [pytest.approx(30.0, abs=1.0), pytest.approx(60.0, abs=1.0), 90.0]


def test_a_device_that_hangs_again_and_again_is_always_found() -> None:
    stalls, limits = Stalls(), []
    for number in range(100):
        limits.append(stalls.limit_s(Standstill(StallPoint.STEP, 0.0, 30.0)))
        found = Standstill(StallPoint.STEP, limits[-1], 30.0)
        assert stalls.kill_because(found, Incarnation(1, number)) is not None
    assert limits[:3] == [30.0, 60.0, 120.0]
    assert limits[-1] == LONGEST_S
    assert stalls.limit_s(Standstill(StallPoint.STEP, 0.0, 2 * LONGEST_S)) == 2 * LONGEST_S
