"""Who is suspect, stalled or evicted, row by row; who is killed, each time later."""

import pytest

from islands.protocol.identities import Incarnation, Phase, Role, Status
from islands.protocol.settings.run import Timing
from islands.protocol.supervisor.eviction import (
    LONGEST_S,
    MemberRecord,
    StallPoint,
    Stalls,
    Standstill,
    judge,
    standstill,
)

TIMING = Timing()


def member(phase: Phase = Phase.STEPPING, *, connection: int | None = 1) -> MemberRecord:
    """A learner that was heard, and stepped, at time 0."""
    return MemberRecord(
        Role.LEARNER, "a", Incarnation(1, 1), Status.LIVE, connection, heard_s=0.0, phase=phase
    )


@pytest.mark.parametrize("patience", [0.2, 1.0, 7.0])
@pytest.mark.parametrize(
    ("silent_s", "status"),
    [
        *((0.0, Status.LIVE), (2.9, Status.LIVE), (2.99, Status.LIVE), (3.0, Status.SUSPECT)),
        *((4.9, Status.SUSPECT), (5.0, Status.EVICTED), (500.0, Status.EVICTED)),
    ],
)
def test_silence_makes_suspect_then_evicts(
    silent_s: float, status: Status, patience: float
) -> None:
    assert judge(member(), Timing(patience=patience), silent_s * patience) is status


def test_a_closed_link_makes_suspect_at_once_and_evicts_no_sooner() -> None:
    lost = member(connection=None)
    assert judge(lost, TIMING, 0.0) is Status.SUSPECT
    assert judge(lost, TIMING, 4.9) is Status.SUSPECT
    assert judge(lost, TIMING, 5.0) is Status.EVICTED


@pytest.mark.parametrize("status", [Status.EVICTED, Status.LEFT])
def test_what_has_ended_stays_ended(status: Status) -> None:
    ended = member()
    ended.status = status
    assert judge(ended, TIMING, 0.0) is status


def stepping(step_s: float, *, steps: int = 3) -> MemberRecord:
    """A learner whose last step was heard at time `steps * step_s`."""
    learner = member()
    for step in range(steps + 1):
        learner.heard(Phase.STEPPING, step, step * step_s)
    return learner


def heard(learner: MemberRecord, at_s: float, step: int = 0) -> Status:
    """The status of a learner that is heard in its present phase."""
    learner.heard(learner.phase, step, at_s)
    return judge(learner, TIMING, at_s)


def test_alive_without_a_step_is_stalled() -> None:
    hung = stepping(1.0)
    assert heard(hung, 32.9, 3) is Status.LIVE
    assert heard(hung, 33.0, 3) is Status.STALLED
    assert heard(hung, 33.5, 4) is Status.LIVE


@pytest.mark.parametrize(
    ("step_s", "limit_s"), [(0.001, 30.0), (1.0, 30.0), (40.0, 200.0), (300.0, 1500.0)]
)
def test_a_learner_gets_five_of_its_own_steps(step_s: float, limit_s: float) -> None:
    """At least `stalled_s`, so that fast steps are not judged by the way a heartbeat takes."""
    slow, last_s = stepping(step_s), 3 * step_s
    stall = standstill(slow, TIMING, last_s)
    assert stall is not None
    assert stall.point is StallPoint.STEP
    assert stall.limit_s == pytest.approx(limit_s)
    assert heard(slow, last_s + limit_s - 0.1, 3) is Status.LIVE
    assert heard(slow, last_s + limit_s + 0.1, 3) is Status.STALLED


@pytest.mark.parametrize("steps", [0, 1])
def test_before_a_step_was_measured_it_may_take_as_long_as_compiling(steps: int) -> None:
    first = stepping(90.0, steps=steps)
    assert heard(first, 90.0 * steps + 599.0, steps) is Status.LIVE
    assert heard(first, 90.0 * steps + 600.0, steps) is Status.STALLED


def test_the_first_step_is_not_taken_for_the_length_of_a_step() -> None:
    learner = member()
    for step in range(4):
        learner.heard(Phase.STEPPING, step, 400.0 * (step > 0) + step)
    stall = standstill(learner, TIMING, 403.0)
    assert stall == Standstill(StallPoint.STEP, 0.0, 30.0)


def test_a_step_that_is_long_now_and_then_is_no_stall() -> None:
    learner, now_s = member(), 0.0
    for step in range(1, 40):
        now_s += 20.0 if step % 10 == 0 else 1.0
        learner.heard(Phase.STEPPING, step, now_s)
    stall = standstill(learner, TIMING, now_s)
    assert stall is not None
    assert stall.limit_s == pytest.approx(100.0)


def test_who_compiles_within_a_step_has_the_time_of_compiling() -> None:
    learner = stepping(1.0)
    for at_s in (4.0, 100.0, 590.0):
        learner.heard(Phase.COMPILING, 3, at_s)
        assert judge(learner, TIMING, at_s) is Status.LIVE
    learner.heard(Phase.STEPPING, 3, 595.0)
    learner.heard(Phase.STEPPING, 4, 596.0)
    assert standstill(learner, TIMING, 596.0) == Standstill(StallPoint.STEP, 0.0, 30.0)


def test_compiling_has_a_limit_of_its_own() -> None:
    compiling = member(Phase.COMPILING)
    assert heard(compiling, 599.0) is Status.LIVE
    assert heard(compiling, 600.0) is Status.STALLED


@pytest.mark.parametrize(
    "phase", [Phase.JOINING, Phase.HEALING, Phase.STARVED, Phase.PAUSED, Phase.FINISHED]
)
def test_who_does_not_step_by_intention_is_never_stalled(phase: Phase) -> None:
    assert heard(member(phase), 10_000.0) is Status.LIVE


def test_a_change_of_phase_starts_the_limit_anew() -> None:
    learner = member(Phase.COMPILING)
    learner.heard(Phase.STEPPING, 0, 500.0)
    assert heard(learner, 529.0) is Status.LIVE


def test_our_own_pause_moves_every_deadline() -> None:
    learner = member()
    learner.shift(10.0, TIMING)
    assert judge(learner, TIMING, 10.0) is Status.LIVE
    assert judge(learner, TIMING, 12.7) is Status.LIVE
    assert judge(learner, TIMING, 12.75) is Status.SUSPECT


@pytest.mark.parametrize("phase", [Phase.COMPILING, Phase.STEPPING])
def test_our_own_pause_is_no_part_of_a_members_work(phase: Phase) -> None:
    learner = member(phase)
    learner.heard(phase, 0, 300.0)
    learner.shift(400.0, TIMING)
    assert heard(learner, 999.0) is Status.LIVE
    assert heard(learner, 1000.0) is Status.STALLED


@pytest.mark.parametrize(
    ("gap_s", "evicted_s"), [(1.0, 4.75), (2.9, 4.75), (3.0, 9.75), (60.0, 9.75)]
)
def test_after_our_own_pause_there_is_time_to_dial_again(gap_s: float, evicted_s: float) -> None:
    learner = member()
    learner.shift(gap_s, TIMING)
    assert judge(learner, TIMING, gap_s + evicted_s - 0.1) is Status.SUSPECT
    assert judge(learner, TIMING, gap_s + evicted_s) is Status.EVICTED


def test_the_time_to_dial_again_is_given_once_in_a_silence() -> None:
    learner = member()
    for gap_s in (60.0, 3.0, 60.0):
        learner.shift(gap_s, TIMING)
    assert judge(learner, TIMING, 123.0 + 9.2) is Status.SUSPECT
    assert judge(learner, TIMING, 123.0 + 9.25) is Status.EVICTED
    learner.heard(Phase.STEPPING, 0, 140.0)
    assert judge(learner, TIMING, 145.0) is Status.EVICTED


# ------------------------------------------------------------- a launched process that is stalled


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
