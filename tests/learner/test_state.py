"""The learner's decisions, event by event."""

from dataclasses import replace
from typing import get_args

import pytest

from islands.protocol import sessions
from islands.protocol.gossip.events import GossipEvent
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    Lease,
    Phase,
    Version,
)
from islands.protocol.learner import actions, events
from islands.protocol.learner.memory import EVENTS
from islands.protocol.messages import membership, training
from islands.protocol.settings.run import WELL_STEPS
from tests.learner.bench import ANA, BATCH, LEASES, NO_BYTES, Bench, phase_of, started, stepping


def test_each_event_has_a_handler() -> None:
    """After a timer, and for gossip, the schedule and the rules that follow every event do it."""
    others = (*get_args(GossipEvent), events.TimerDue)
    kinds = [kind for kind in get_args(events.Event) if kind not in others]
    assert [kind for kind in kinds if object.__new__(kind) not in EVENTS] == []


def test_a_heartbeat_tells_that_a_step_compiles() -> None:
    bench = started()
    bench.do(events.Ticked(compiling=True), after_s=1.0)
    assert [beat.phase for beat in bench.sent(membership.Heartbeat)] == [Phase.HEALING]
    bench = stepping()
    bench.do(events.Ticked(compiling=True), after_s=1.0)
    assert bench.state.phase is Phase.STEPPING
    assert [beat.phase for beat in bench.sent(membership.Heartbeat)] == [Phase.COMPILING]
    assert {progress.phase for progress in bench.sent(training.Progress)} == {Phase.STEPPING}
    bench.do(events.Ticked(), after_s=1.0)
    assert [beat.phase for beat in bench.sent(membership.Heartbeat)] == [Phase.STEPPING]


def test_nobody_steps_before_everything_is_adopted() -> None:
    bench = started()
    bench.grant(500)
    assert bench.of(actions.AllowSteps) == []
    bench.adopt(0, 0)
    assert bench.of(actions.AllowSteps) == []
    assert phase_of(bench) is Phase.HEALING
    bench.adopt(1, 0)
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]
    assert phase_of(bench) is Phase.STEPPING


def test_a_grant_and_an_end_that_are_said_again_change_nothing() -> None:
    bench = stepping()
    bench.grant(20_000)
    assert len(bench.of(actions.AllowSteps)) == 1
    bench.grant(20_000)
    assert bench.actions == []
    bench.hear(training.FinalRound(1, "tokens"))
    assert [allowed.until_tokens for allowed in bench.of(actions.AllowSteps)] == [0]
    bench.hear(training.FinalRound(1, "tokens"))
    assert bench.actions == []
    bench.grant(30_000)
    assert bench.of(actions.AllowSteps) == []


def test_it_is_starting_until_its_steps_do_not_compile_any_more() -> None:
    assert Bench().state.starting
    bench = started()
    assert bench.state.starting
    bench.adopt_all()
    bench.grant(10_000)
    bench.step()
    assert bench.state.starting
    bench.step()
    assert not bench.state.starting


def test_a_seed_is_offered_once_over_a_link() -> None:
    bench = Bench()
    bench.admit()
    request = training.FragmentRequest(1, FragmentIndex(0), attempt=1)
    bench.do(events.FromSyncer(request))
    assert bench.of(actions.ReadValue) == [], "it has none yet"
    bench.do(events.TrainerReady(BATCH))
    expected = actions.ReadValue(request, Incarnation(1, 1))
    for change in (None, events.SeedSkipped(FragmentIndex(0)), sessions.SyncerLinkChanged(up=True)):
        if change is not None:
            bench.do(change)
        bench.do(events.FromSyncer(request))
        assert bench.of(actions.ReadValue) == [expected]
        bench.do(events.FromSyncer(request))
        assert bench.of(actions.ReadValue) == []
    bench.do(events.FromSyncer(replace(request, attempt=2)))
    assert len(bench.of(actions.ReadValue)) == 1


def test_a_pull_without_snapshot_waits_for_the_next_boundary() -> None:
    bench = stepping()
    bench.pull(1, 0)
    assert bench.contributed() == []
    bench.step()
    bench.snapshot(1)
    assert [message.steps for message in bench.contributed()] == [3]


def test_standing_still_it_answers_with_all_that_it_did() -> None:
    """The newest snapshot is on its way, and what it leaves out would never be merged."""
    bench = stepping()
    bench.snapshot(0)
    bench.step()
    bench.hear(training.FinalRound(1, "tokens"))
    bench.stop()
    bench.pull(0, 0)
    assert bench.contributed() == []
    bench.snapshot(0)
    assert [message.steps for message in bench.contributed()] == [3]


def test_every_pull_is_answered_or_declined() -> None:
    bench = stepping()
    ended = []
    for round_ in (4, 6, 5):  # there is no snapshot yet, so the newest stays open
        bench.pull(0, round_)
        ended += [one.ticket.round for one in bench.sent(training.ContributionDeclined)]
    bench.step()
    bench.snapshot(0)
    ended += [one.ticket.round for one in bench.contributed()]
    assert ended == [4, 5, 6]


def test_an_answer_that_a_newer_one_replaced_in_the_queue_is_declined() -> None:
    bench = stepping()
    bench.snapshot(0)
    bench.pull(0, 0)
    (older,) = bench.contributed()
    bench.pull(0, 2)
    assert len(bench.contributed()) == 1
    bench.do(events.ContributionSkipped(older.ticket, older.fragment))
    assert [one.ticket for one in bench.sent(training.ContributionDeclined)] == [older.ticket]
    bench.step()
    assert bench.contributed() == []  # the newer one is on its way


def test_pulls_of_others_are_ignored() -> None:
    bench = stepping()
    bench.hear(training.Welcome(2, (None, None)))
    bench.snapshot(0)
    bench.pull(0, 0, counter=9, epoch=2)
    assert bench.contributed() == []
    bench.pull(0, 0, epoch=1)
    assert bench.contributed() == []
    bench.pull(0, 0, epoch=2)
    assert len(bench.contributed()) == 1


def test_it_declines_what_it_has_nothing_for() -> None:
    """Without a base, and idle without a step since its base, it says so instead of waiting."""
    bench = started()
    bench.pull(0, 0)
    assert len(bench.sent(training.ContributionDeclined)) == 1
    bench.adopt_all()
    bench.pull(0, 1)
    assert len(bench.sent(training.ContributionDeclined)) == 1


def test_versions_only_grow() -> None:
    bench = stepping()
    bench.update(0, 2)
    adopt = actions.AdoptValue(FragmentIndex(0), Version(1, 2), 4.0, 1, Incarnation(1, 1), NO_BYTES)
    assert bench.of(actions.AdoptValue) == [adopt]
    for number in (2, 1, 0):
        bench.update(0, number)
        assert bench.of(actions.AdoptValue) == []
    bench.update(0, 3, intact=False)
    assert bench.of(actions.AdoptValue) == []
    bench.hear(training.Welcome(2, (None, None)))
    bench.update(0, 3)
    assert bench.of(actions.AdoptValue) == []
    bench.update(0, 3, epoch=2)
    assert len(bench.of(actions.AdoptValue)) == 1


def test_it_never_follows_an_older_syncer() -> None:
    bench = stepping()
    bench.hear(training.Welcome(3, (None, None)))
    bench.hear(training.Welcome(2, (None, None)))
    assert len(bench.of(sessions.DropSyncerLink)) == 1
    bench.hear(training.Welcome(4, (None, None, None)))
    assert len(bench.of(sessions.DropSyncerLink)) == 1, "of a run with more fragments"
    bench.do(sessions.SyncerLinkChanged(up=True))
    assert [hello.epoch_seen for hello in bench.sent(training.Hello)] == [3]


def test_it_steps_on_without_its_links() -> None:
    bench = stepping()
    bench.pull(0, 0)
    bench.do(sessions.SyncerLinkChanged(up=False))
    bench.do(sessions.SupervisorLinkChanged(up=False))
    assert bench.of(actions.AllowSteps) == []
    bench.step()
    bench.snapshot(0)
    assert bench.actions == []
    bench.do(sessions.SyncerLinkChanged(up=True))
    (hello,) = bench.sent(training.Hello)
    assert (hello.progress.steps, hello.progress.phase) == (3, Phase.STEPPING)


def test_an_evicted_learner_joins_anew_with_its_memory() -> None:
    bench = stepping()
    bench.evict()
    assert actions.AllowSteps(0, ()) in bench.of(actions.AllowSteps)
    assert [join.previous for join in bench.sent(membership.Join)] == [Incarnation(1, 1)]
    assert bench.of(actions.ResetMoments) == []
    bench.admit(counter=2)
    (hello,) = bench.sent(training.Hello)
    assert hello.progress.tokens == 0
    assert {told.version for told in hello.progress.fragments} == {None}
    bench.adopt_all()
    bench.grant(100, counter=2)
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(20 + 100, LEASES)]


def test_a_value_that_an_ended_incarnation_asked_for_counts_for_nothing() -> None:
    bench = stepping()
    bench.update(0, 1)
    bench.evict()
    bench.admit(counter=2)
    bench.update(0, 1)
    late = events.ValueAdopted(FragmentIndex(0), Version(1, 1), 2, 20, Incarnation(1, 1))
    bench.do(late)
    assert bench.state.accounts[0].version is None
    bench.do(replace(late, incarnation=Incarnation(1, 2)))
    assert bench.state.accounts[0].version == Version(1, 1)


def test_a_step_that_ran_while_it_was_evicted_belongs_to_nobody() -> None:
    bench = stepping()
    bench.evict()
    bench.admit(counter=2)
    bench.step()
    bench.adopt_all()
    assert [report.tokens for report in bench.sent(training.Progress)] == [0]
    bench.grant(100, counter=2)
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(30 + 100, LEASES)]


def test_both_hear_why_an_incarnation_ends_whose_loss_is_not_finite() -> None:
    bench = stepping()
    bench.step(finite=False)
    assert [type(message) for message in bench.sent(object)] == [
        training.Progress,
        membership.Leave,
        membership.Leave,
        membership.Join,
    ]
    assert {leave.diverged for leave in bench.sent(membership.Leave)} == {True}
    assert bench.sent(training.Progress)[0].tokens == bench.steps * BATCH


def test_a_step_that_was_under_way_diverges_for_nobody() -> None:
    bench = stepping()
    bench.step(finite=False)
    bench.admit(counter=2)
    bench.steps += 1  # under way: adoption counts it
    bench.adopt_all()
    bench.grant(100, counter=2)
    under_way = events.StepFinished(
        bench.steps, bench.steps * BATCH, 3.0, finite=False, leases=LEASES
    )
    bench.do(under_way)
    assert bench.state.incarnation == Incarnation(1, 2)
    assert bench.sent(membership.Leave) == []
    bench.step(finite=False)
    assert len(bench.sent(membership.Leave)) == 2


def diverge(bench: Bench, counter: int, *, after_steps: int = 1) -> None:
    """Its loss is not finite so many steps after it was admitted anew."""
    bench.admit(counter)
    bench.adopt_all()
    bench.grant(1_000_000, counter=counter)
    for _ in range(after_steps - 1):
        bench.step()
    bench.step(finite=False)


def test_who_diverges_again_and_again_rests_in_between() -> None:
    bench = stepping()
    bench.step(finite=False)
    assert len(bench.sent(membership.Join)) == 1
    for counter, rest_s in enumerate((1, 2, 4, 8, 16, 32, 64, 128, 256, 256), start=2):
        diverge(bench, counter)
        assert bench.sent(membership.Join) == []
        bench.do(events.Ticked(), after_s=rest_s - 0.5)
        assert bench.sent(membership.Join) == []
        bench.do(events.Ticked(), after_s=0.5)
        assert len(bench.sent(membership.Join)) == 1
    diverge(bench, 20, after_steps=WELL_STEPS + 1)
    assert len(bench.sent(membership.Join)) == 1


def test_a_grant_of_an_older_syncer_is_ignored() -> None:
    bench = started()
    bench.adopt_all()
    bench.hear(training.Welcome(2, (None, None)))
    bench.grant(500, epoch=1)
    assert bench.of(actions.AllowSteps) == []
    bench.grant(100, epoch=2)
    assert [action.until_tokens for action in bench.of(actions.AllowSteps)] == [100]


def test_a_grant_for_another_incarnation_is_ignored() -> None:
    bench = stepping()
    bench.grant(99_999, counter=2)
    assert bench.of(actions.AllowSteps) == []
    bench.grant(10)
    assert (bench.of(actions.AllowSteps), bench.state.compute.quota_tokens) == ([], 10_000)


def test_a_stop_from_before_the_last_grant_is_no_stop() -> None:
    bench = stepping()
    order = bench.state.compute.order
    bench.grant(20_000)
    bench.do(events.Idled(bench.steps, bench.steps * BATCH, LEASES, order))
    assert bench.state.phase is Phase.STEPPING
    assert bench.sent(training.Progress) == []
    bench.stop()
    assert [report.phase for report in bench.sent(training.Progress)] == [Phase.STARVED]
    bench.grant(30_000)
    assert bench.state.phase is Phase.STEPPING


def test_at_the_end_it_stops_and_answers() -> None:
    bench = stepping()
    bench.hear(training.FinalRound(1, "tokens"))
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(0, LEASES)]
    bench.stop()
    assert bench.state.phase is Phase.FINISHED
    bench.grant(99_999)
    assert bench.of(actions.AllowSteps) == []
    bench.snapshot(0)
    bench.pull(0, 5)
    assert [message.steps for message in bench.contributed()] == [2]
    bench.do(events.FromSyncer(membership.Stop("tokens")))
    assert bench.of(sessions.Exit) == [sessions.Exit("tokens", failed=False)]


def test_a_new_syncer_that_does_not_close_lets_it_step() -> None:
    bench = stepping()
    bench.hear(training.FinalRound(1, "enough"))
    bench.stop()
    bench.hear(training.Welcome(2, (None, None)))
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(10_000, LEASES)]
    assert bench.state.phase is Phase.STEPPING


def test_a_refusal_for_good_ends_the_process() -> None:
    bench = Bench()
    bench.do(events.FromSupervisor(membership.Refused(ANA, "the name is taken", retry=True)))
    assert bench.of(sessions.Exit) == []
    bench.do(events.FromSupervisor(membership.Refused(ANA, "layouts differ", retry=False)))
    (exit_,) = bench.of(sessions.Exit)
    assert exit_.failed
    assert "layouts differ" in exit_.reason


@pytest.mark.parametrize("reason", ["the run is over", "the run is over: tokens"])
def test_that_the_run_is_over_is_no_failure(reason: str) -> None:
    bench = Bench()
    bench.do(events.FromSupervisor(membership.Refused(ANA, reason, retry=False)))
    assert bench.of(sessions.Exit) == [
        sessions.Exit(f"the supervisor refused: {reason}", failed=False)
    ]


def test_positions_only_grow() -> None:
    bench = stepping()
    ahead = (Lease(0, 0, 7), LEASES[1])
    bench.do(events.StepFinished(3, 30, 0.1, finite=True, leases=ahead))
    bench.grant(20_000)
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(20_000, ahead)]
    further = (Lease(0, 0, 9), LEASES[1])
    bench.do(events.FromSyncer(training.LeaseGranted(1, Incarnation(1, 1), 20_000, further)))
    bench.step()
    bench.do(events.Ticked(), after_s=5.0)
    assert [report.leases for report in bench.sent(training.Progress)] == [further]
