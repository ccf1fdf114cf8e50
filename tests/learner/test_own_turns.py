"""A learner that opens rounds of its own: when it asks, where it stands still, and until when."""

from dataclasses import replace

from islands.protocol.identities import Fate, FragmentIndex, Incarnation, Phase, Ticket, Version
from islands.protocol.learner.actions import AllowSteps, PlanSnapshots
from islands.protocol.learner.schedule import OwnTurns
from islands.protocol.messages import training
from islands.protocol.sessions import SyncerLinkChanged
from islands.protocol.settings.choices import LearnerWaits
from islands.protocol.settings.presets import PRESETS, Preset
from tests.learner import bench as states
from tests.learner.bench import stand_still, stepping_by

FIRST, SECOND = FragmentIndex(0), FragmentIndex(1)


def asynchronous(*, waits: bool = True, interval_steps: int = 4) -> states.Bench:
    """A learner of two fragments, stepping on version 1.0, whose turns have so many steps."""
    settings = replace(
        PRESETS[Preset.ASYNC_DILOCO],
        interval_steps=interval_steps,
        fragments=states.P,
        learner_waits=LearnerWaits.AT_TAU if waits else LearnerWaits.NEVER,
    )
    return stepping_by(settings)


def turns_of(bench: states.Bench) -> OwnTurns:
    """The schedule of such a learner, as if it had begun long ago."""
    bench.state.compute.origin_steps = 100
    schedule = bench.state.schedule
    assert isinstance(schedule, OwnTurns)
    return schedule


def update(fragment: FragmentIndex) -> training.FragmentUpdate:
    return training.FragmentUpdate(1, fragment, Version(1, 2), 1, f"{fragment}@2", 0.0, None)


def test_a_turn_is_due_h_steps_after_its_base() -> None:
    bench = asynchronous()
    state, turns = bench.state, turns_of(bench)
    turns.adopted(state, update(FIRST))
    turns.adopted(state, update(SECOND))
    state.accounts[FIRST].base_steps, state.accounts[SECOND].base_steps = 6, 8
    assert turns.until_steps(state) == 110
    due = {109: (), 110: (FIRST,), 111: (FIRST,), 112: (FIRST, SECOND)}
    for state.compute.steps, asked in due.items():
        assert turns.asking(state) == asked


def test_a_contribution_that_was_not_applied_begins_the_turn_anew() -> None:
    bench = asynchronous(waits=False)
    state, turns = bench.state, turns_of(bench)
    state.accounts[FIRST].base_steps = 15
    turns.refused_steps[FIRST] = 125
    assert turns.due(state, FIRST) == 129
    assert turns.until_steps(state) is None
    turns.adopted(state, update(FIRST))
    assert turns.due(state, FIRST) == 119


def fate(fragment: FragmentIndex) -> training.ContributionFate:
    """The answer to the pull of round 0 was not applied."""
    ticket = Ticket(1, 0, states.ANA, Incarnation(1, 1))
    return training.ContributionFate(ticket, fragment, Fate.LATE, "its round was abandoned")


def test_it_asks_at_the_step_where_its_turn_is_due() -> None:
    bench = asynchronous(waits=False, interval_steps=65)
    for _ in range(64):
        bench.step()  # and a report each fourth step
    bench.step()
    assert [report.due for report in bench.sent(training.Progress)] == [(FIRST, SECOND)]


def test_it_asks_where_it_stands_still_and_goes_on_with_its_own_value() -> None:
    bench = asynchronous()
    assert bench.of(AllowSteps)[-1].until_steps == 4
    assert bench.of(PlanSnapshots) == [PlanSnapshots((FIRST, SECOND), (4, 4))]
    for _ in range(3):
        bench.step()
    assert all(report.due == () for report in bench.sent(training.Progress))
    bench.step()
    stand_still(bench)
    assert states.phase_of(bench) is Phase.WAITING
    assert [report.due for report in bench.sent(training.Progress)] == [(FIRST, SECOND)]
    bench.pull(0, 0)
    bench.snapshot(0)
    assert [sent.steps for sent in bench.contributed()] == [4]
    bench.adopt(0, 1)
    assert bench.of(AllowSteps)[-1].until_steps == 4  # the second fragment is still to come
    bench.adopt(1, 1)
    assert bench.of(AllowSteps)[-1].until_steps == 8
    assert states.phase_of(bench) is Phase.STEPPING


def test_over_a_new_link_it_asks_again() -> None:
    bench = asynchronous()
    for _ in range(4):
        bench.step()
    stand_still(bench)
    bench.do(SyncerLinkChanged(up=False))
    bench.do(SyncerLinkChanged(up=True))
    assert [hello.progress.due for hello in bench.sent(training.Hello)] == [(FIRST, SECOND)]


def test_what_is_not_applied_is_not_waited_for() -> None:
    bench = asynchronous()
    for _ in range(4):
        bench.step()
    stand_still(bench)
    bench.hear(fate(FIRST))
    assert bench.of(AllowSteps) == []
    for fragment in (FIRST, SECOND):
        bench.pull(fragment, 0)
        bench.snapshot(fragment)
        bench.hear(fate(fragment))
    assert bench.of(AllowSteps)[-1].until_steps == 8


def test_who_does_not_wait_asks_and_steps_on() -> None:
    bench = asynchronous(waits=False)
    assert bench.of(AllowSteps)[-1].until_steps is None
    for _ in range(4):
        bench.step()
    assert [report.due for report in bench.sent(training.Progress)] == [(FIRST, SECOND)]
    bench.snapshot(0)
    bench.step()
    bench.pull(0, 0)
    assert [sent.steps for sent in bench.contributed()] == [4]


def test_a_pull_before_its_turn_is_declined() -> None:
    bench = asynchronous()
    bench.step()
    bench.pull(0, 0)
    assert [no.reason for no in bench.sent(training.ContributionDeclined)] == [
        "its turn is not due"
    ]


def test_at_the_end_of_the_run_it_answers_with_what_it_has() -> None:
    bench = asynchronous()
    bench.step()
    bench.hear(training.FinalRound(1, "tokens"))
    bench.stop()
    bench.pull(0, 0)
    bench.snapshot(0)
    assert [sent.steps for sent in bench.contributed()] == [1]
