"""How a learner departs, and how it stands still, by somebody else's will."""

import pytest

from islands.protocol.identities import Fate, FragmentIndex, Incarnation, Phase, Ticket, Version
from islands.protocol.learner import events
from islands.protocol.learner.actions import AllowSteps
from islands.protocol.messages import training
from islands.protocol.messages.control import Drain
from islands.protocol.messages.membership import Leave, Stop
from islands.protocol.sessions import (
    Exit,
    SupervisorLinkChanged,
    SyncerLinkChanged,
)
from tests.learner.bench import ANA, BATCH, LEASES, Bench, phase_of, started, stepping

TICKET = Ticket(1, 0, ANA, Incarnation(1, 1))


def left(bench: Bench) -> bool:
    """Whether the last event made it leave: said so to both, then the end."""
    if not bench.of(Exit):
        return False
    sent = [type(message) for message in bench.sent(object)]
    assert sent[-3:] == [training.Progress, Leave, Leave]
    assert (sent.count(Leave), bench.of(Exit)[0].failed) == (2, False)
    return True


# --------------------------------------------------------------------------------------- leaving


def test_a_drained_learner_stops_then_leaves() -> None:
    bench = stepping()
    bench.do(events.FromSupervisor(Drain("drained")))
    assert bench.of(AllowSteps) == [AllowSteps(0, LEASES)]
    assert not left(bench)
    bench.stop()
    assert not left(bench)
    (report, *_) = bench.sent(training.Progress)
    assert report.leases == LEASES
    assert report.phase is Phase.FINISHED, "quota that it has left is no shortage"
    bench.snapshot(0)
    bench.pull(0, 0)
    assert len(bench.contributed()) == 1
    bench.adopt_all(1)
    assert left(bench)


def test_the_word_may_come_more_than_once() -> None:
    bench = stepping()
    bench.do(events.FromSupervisor(Drain("drained")))
    bench.do(events.FromSupervisor(Drain("drained")))
    assert not bench.of(AllowSteps)
    bench.stop()
    bench.adopt_all(1)
    assert left(bench)
    bench.do(events.FromSupervisor(Drain("drained")))
    assert not bench.of(Exit)
    assert not bench.sent(Leave)


def test_what_was_asked_before_is_answered_and_awaited() -> None:
    """A contribution of an incarnation that has ended would not be merged."""
    bench = stepping()
    bench.pull(0, 0)
    bench.do(events.LeaveRequested("SIGTERM"))
    bench.stop()
    assert not left(bench)
    bench.snapshot(0)
    assert len(bench.contributed()) == 1
    bench.adopt(0, 1)
    assert not left(bench)
    bench.adopt(1, 1)
    assert left(bench)


def test_a_contribution_that_is_refused_may_be_asked_for_again() -> None:
    bench = stepping()
    bench.snapshot(0)
    bench.pull(0, 0)
    bench.do(events.LeaveRequested("SIGTERM"))
    bench.stop()
    assert not left(bench)
    bench.hear(training.ContributionFate(TICKET, FragmentIndex(0), Fate.LATE, "too late"))
    assert not left(bench)
    bench.do(events.Ticked(), after_s=4.9)
    assert not left(bench)
    bench.do(events.Ticked(), after_s=0.2)
    assert left(bench)


def test_a_contribution_in_doubt_is_awaited() -> None:
    """Its round may merge it yet: the value that came is of an earlier round."""
    bench = stepping()
    bench.snapshot(0)
    bench.pull(0, 5)
    bench.do(events.LeaveRequested("SIGTERM"))
    bench.stop()
    bench.adopt(0, 1)
    bench.adopt(1, 1)
    assert not left(bench)
    bench.adopt(0, 7)
    assert left(bench)


def test_it_does_not_wait_for_ever() -> None:
    bench = stepping()
    bench.do(events.LeaveRequested("SIGTERM"))
    bench.do(events.Ticked(), after_s=9.9)
    assert not left(bench)
    bench.do(events.Ticked(), after_s=0.2)
    assert left(bench)


def test_a_round_that_never_closes_is_not_waited_for_as_long_as_its_own_steps() -> None:
    """On a busy device steps are under way when its time is up: their tokens would be nobody's."""
    bench = stepping()
    bench.snapshot(0)
    bench.pull(0, 0)
    bench.do(events.LeaveRequested("SIGTERM"))
    bench.do(events.Ticked(), after_s=6.0)
    assert not left(bench)
    bench.step()
    bench.stop()
    assert left(bench)
    assert bench.sent(training.Progress)[0].tokens == bench.steps * BATCH


def test_a_syncer_that_is_away_for_a_moment_still_gets_its_work() -> None:
    bench = stepping()
    bench.do(SyncerLinkChanged(up=False))
    bench.do(events.FromSupervisor(Drain("drained")))
    bench.stop()
    assert not bench.of(Exit)
    bench.do(SyncerLinkChanged(up=True))
    bench.do(events.FromSyncer(training.Welcome(1, (Version(1, 0), Version(1, 0)))))
    assert not bench.of(Exit)
    bench.snapshot(0)
    bench.pull(0, 0)
    assert len(bench.contributed()) == 1
    bench.adopt_all(1)
    assert left(bench)


@pytest.mark.parametrize("last", [SyncerLinkChanged(up=False), SupervisorLinkChanged(up=False)])
def test_with_both_links_gone_there_is_nothing_to_wait_for(
    last: SyncerLinkChanged | SupervisorLinkChanged,
) -> None:
    bench = stepping()
    bench.do(events.LeaveRequested("SIGTERM"))
    syncer = isinstance(last, SyncerLinkChanged)
    bench.do(SupervisorLinkChanged(up=False) if syncer else SyncerLinkChanged(up=False))
    assert not bench.of(Exit)
    bench.do(last)
    assert bench.of(Exit)


def test_who_is_evicted_while_it_leaves_is_gone() -> None:
    bench = stepping()
    bench.do(events.LeaveRequested("SIGTERM"))
    bench.evict()
    assert bench.of(Exit)


def test_who_has_not_begun_leaves_at_once() -> None:
    bench = Bench()
    bench.do(events.LeaveRequested("SIGTERM"))
    assert bench.of(Exit) == [Exit("SIGTERM", failed=False)]


def test_the_end_of_the_run_is_told_to_the_supervisor() -> None:
    """Otherwise it would start a learner again that ended because the run did."""
    bench = stepping()
    bench.do(events.FromSyncer(Stop("tokens")))
    assert bench.of(Exit) == [Exit("tokens", failed=False)]
    (leave,) = bench.sent(Leave)
    assert leave.reason == "the run is over: tokens"


# --------------------------------------------------------------------------------------- pausing


def pause(bench: Bench, *, paused: bool = True, epoch: int = 1) -> None:
    bench.hear(training.Paused(epoch, paused))


def test_a_pause_stops_at_the_next_boundary() -> None:
    bench = stepping()
    pause(bench)
    assert bench.of(AllowSteps) == [AllowSteps(0, LEASES)]
    assert phase_of(bench) is Phase.STEPPING
    bench.stop()
    assert phase_of(bench) is Phase.PAUSED
    assert [report.phase for report in bench.sent(training.Progress)] == [Phase.PAUSED]
    pause(bench)
    assert not bench.of(AllowSteps)


def test_while_paused_it_answers_and_adopts() -> None:
    bench = stepping()
    pause(bench)
    bench.stop()
    bench.snapshot(0)
    bench.pull(0, 0)
    assert len(bench.contributed()) == 1
    bench.adopt(0, 1)
    assert bench.state.accounts[0].version is not None
    bench.grant(99_999)
    assert not bench.of(AllowSteps)
    pause(bench, paused=False)
    assert bench.of(AllowSteps) == [AllowSteps(99_999, LEASES)]
    assert phase_of(bench) is Phase.STEPPING


def test_a_short_pause_never_looks_like_a_shortage() -> None:
    bench = stepping()
    pause(bench)
    paused_order = bench.state.compute.order
    pause(bench, paused=False)
    assert len(bench.of(AllowSteps)) == 1
    phases = [bench.state.phase]
    bench.do(events.Idled(bench.steps, bench.steps * BATCH, LEASES, paused_order))
    phases += [bench.state.phase, *[report.phase for report in bench.sent(training.Progress)]]
    assert set(phases) == {Phase.STEPPING}


def test_a_pause_that_comes_back_stays() -> None:
    bench = stepping()
    for paused in (True, False, True):
        pause(bench, paused=paused)
    bench.stop()
    assert not bench.of(AllowSteps)
    assert phase_of(bench) is Phase.PAUSED


def test_an_older_syncer_pauses_nobody() -> None:
    bench = stepping()
    bench.hear(training.Welcome(3, (None, None)))
    pause(bench, epoch=2)
    assert not bench.of(AllowSteps)


def test_who_is_paused_before_its_first_step_waits_with_it() -> None:
    bench = started()
    pause(bench)
    bench.adopt_all()
    assert phase_of(bench) is Phase.PAUSED
    bench.grant(10_000)
    assert not bench.of(AllowSteps)
    pause(bench, paused=False)
    assert bench.of(AllowSteps) == [AllowSteps(10_000, LEASES)]


@pytest.mark.parametrize("first", ["pause", "leave"])
def test_a_paused_learner_can_leave(first: str) -> None:
    bench = stepping()
    if first == "pause":
        pause(bench)
        bench.stop()
        bench.do(events.LeaveRequested("SIGTERM"))
        bench.stop()
    else:
        bench.do(events.LeaveRequested("SIGTERM"))
        pause(bench)
        bench.stop()
    bench.adopt_all(1)
    assert left(bench)
