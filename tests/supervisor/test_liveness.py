"""Who is suspect, stalled or evicted: the table of `liveness.py`, row by row."""

import pytest

from islands.config import Timing
from islands.identities import Incarnation, Phase, Role, Status
from islands.supervisor.liveness import STALLED_STEPS, MemberRecord, judge

TIMING = Timing()


def member(phase: Phase = Phase.STEPPING, *, connection: int | None = 1) -> MemberRecord:
    """A learner that was heard, and stepped, at time 0."""
    return MemberRecord(
        Role.LEARNER, "a", Incarnation(1, 1), Status.LIVE, connection, heard_s=0.0, phase=phase
    )


@pytest.mark.parametrize(
    ("silent_s", "status"),
    [
        (0.0, Status.LIVE),
        (2.9, Status.LIVE),
        (3.0, Status.SUSPECT),
        (4.9, Status.SUSPECT),
        (5.0, Status.EVICTED),
        (500.0, Status.EVICTED),
    ],
)
def test_silence_makes_suspect_then_evicts(silent_s: float, status: Status) -> None:
    """Suspect after three seconds without a heartbeat, evicted after five."""
    assert judge(member(), TIMING, silent_s) is status


@pytest.mark.parametrize("patience", [0.2, 1.0, 7.0])
def test_one_setting_scales_all_timeouts(patience: float) -> None:
    """Patience stretches suspicion and eviction alike."""
    timing = Timing(patience=patience)
    assert judge(member(), timing, 2.99 * patience) is Status.LIVE
    assert judge(member(), timing, 3.01 * patience) is Status.SUSPECT
    assert judge(member(), timing, 5.01 * patience) is Status.EVICTED


def test_a_closed_link_makes_suspect_at_once_and_evicts_no_sooner() -> None:
    """A socket that closed says that something happened, not that the member is dead."""
    lost = member(connection=None)
    assert judge(lost, TIMING, 0.0) is Status.SUSPECT
    assert judge(lost, TIMING, 4.9) is Status.SUSPECT
    assert judge(lost, TIMING, 5.0) is Status.EVICTED


@pytest.mark.parametrize("status", [Status.EVICTED, Status.LEFT])
def test_what_has_ended_stays_ended(status: Status) -> None:
    """No sign of life brings an ended incarnation back."""
    ended = member()
    ended.status = status
    assert judge(ended, TIMING, 0.0) is status


def test_alive_without_a_step_is_stalled() -> None:
    """Heartbeats go on, steps do not: stalled after the limit, live again with the next step."""
    hung = member()
    hung.heard(Phase.STEPPING, 1, 1.0)
    hung.heard(Phase.STEPPING, 1, 30.9)
    assert judge(hung, TIMING, 30.9) is Status.LIVE
    hung.heard(Phase.STEPPING, 1, 31.0)
    assert judge(hung, TIMING, 31.0) is Status.STALLED
    hung.heard(Phase.STEPPING, 2, 31.5)
    assert judge(hung, TIMING, 31.5) is Status.LIVE


def test_slow_steps_are_no_stall() -> None:
    """A learner whose steps take a minute gets five of its own steps."""
    slow = member()
    slow.heard(Phase.STEPPING, 1, 60.0)
    slow.heard(Phase.STEPPING, 2, 120.0)
    patient_s = STALLED_STEPS * 60.0
    slow.heard(Phase.STEPPING, 2, 120.0 + patient_s - 1)
    assert judge(slow, TIMING, 120.0 + patient_s - 1) is Status.LIVE
    slow.heard(Phase.STEPPING, 2, 120.0 + patient_s)
    assert judge(slow, TIMING, 120.0 + patient_s) is Status.STALLED


def test_compiling_has_a_limit_of_its_own() -> None:
    """A slow compilation is not a stall until its own, long limit."""
    compiling = member(Phase.COMPILING)
    compiling.heard(Phase.COMPILING, 0, 599.0)
    assert judge(compiling, TIMING, 599.0) is Status.LIVE
    compiling.heard(Phase.COMPILING, 0, 600.0)
    assert judge(compiling, TIMING, 600.0) is Status.STALLED


@pytest.mark.parametrize(
    "phase", [Phase.JOINING, Phase.HEALING, Phase.STARVED, Phase.PAUSED, Phase.FINISHED]
)
def test_who_does_not_step_by_intention_is_never_stalled(phase: Phase) -> None:
    """Without data, or at the end, there is nothing to step on."""
    waiting = member(phase)
    waiting.heard(phase, 0, 10_000.0)
    assert judge(waiting, TIMING, 10_000.0) is Status.LIVE


def test_a_change_of_phase_starts_the_limit_anew() -> None:
    """After a long compilation the first step has its own time."""
    learner = member(Phase.COMPILING)
    learner.heard(Phase.STEPPING, 0, 500.0)
    learner.heard(Phase.STEPPING, 0, 529.0)
    assert judge(learner, TIMING, 529.0) is Status.LIVE


def test_our_own_pause_moves_every_deadline() -> None:
    """Who slept ten seconds has heard nobody, and may hold that against nobody."""
    learner = member()
    learner.shift(10.0)
    assert judge(learner, TIMING, 10.0) is Status.LIVE
    assert judge(learner, TIMING, 13.0) is Status.SUSPECT
