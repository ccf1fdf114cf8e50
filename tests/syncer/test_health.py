"""A run in which nobody gets anywhere from the published values ends, and says why."""

import pytest

from islands.protocol.identities import Incarnation, LearnerName, Status
from islands.protocol.messages.membership import Leave, MembershipChanged
from islands.protocol.sessions import Received
from islands.protocol.settings.run import WELL_STEPS, RunSettings
from islands.protocol.syncer.timeouts import DIVERGED, DIVERGED_MAX, Divergences, end_reason
from tests.syncer.bench import Bench, seeded

SETTINGS = RunSettings(interval_steps=40, fragments=2, learning_rate=0.5)


def diverge(bench: Bench, name: str, *, again: bool = True) -> None:
    """The loss of a learner is not finite; it comes back under its next incarnation."""
    learner = bench.learners[name]
    bench.do(Received(Leave(learner.name, learner.incarnation, "not finite", diverged=True), 0))
    if again:
        bench.hello(name, counter=learner.incarnation.counter + 10)
        bench.adopt(name)
        bench.step(name)


def reason_of(bench: Bench) -> str | None:
    return None if bench.core.closing is None else bench.closing.reason


def test_a_run_in_which_everybody_diverges_again_and_again_ends() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    for _ in range(DIVERGED_MAX):
        assert reason_of(bench) is None
        diverge(bench, "ana")
        diverge(bench, "ben")
    assert reason_of(bench) == end_reason(SETTINGS)
    assert end_reason(SETTINGS).startswith(DIVERGED)
    assert "run.learning_rate (now 0.5)" in end_reason(SETTINGS)


def test_a_paused_run_is_not_ended_by_that() -> None:
    """A hub pauses a run that has diverged, and may go back to where it had not."""
    bench = seeded("ana", settings=SETTINGS)
    bench.do(MembershipChanged(1, (), paused=True))
    for _ in range(2 * DIVERGED_MAX):
        diverge(bench, "ana")
    assert reason_of(bench) is None
    bench.do(MembershipChanged(1, (), paused=False))
    diverge(bench, "ana")
    assert reason_of(bench) == end_reason(SETTINGS)


def test_one_learner_that_diverges_ends_nobody_elses_run() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    for _ in range(4 * DIVERGED_MAX):
        diverge(bench, "ana")
    assert reason_of(bench) is None


def test_who_was_killed_a_moment_ago_is_waited_for() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ben")
    bench.drop("ben")
    for _ in range(2 * DIVERGED_MAX):
        diverge(bench, "ana")
    bench.tick(SETTINGS.timing.compile_s)
    diverge(bench, "ana")
    assert reason_of(bench) is None
    bench.view("ben", Status.EVICTED)
    diverge(bench, "ana")
    assert reason_of(bench) == end_reason(SETTINGS)


def test_a_restarted_syncer_waits_for_all_who_have_accounts() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ben")
    again = Bench(SETTINGS, durable=bench.core.durable, epoch=2)
    again.learners["ana"] = bench.learners["ana"]
    again.hello("ana")
    for _ in range(2 * DIVERGED_MAX):
        diverge(again, "ana")
    assert "ben" not in again.core.members.learners
    assert reason_of(again) is None


def test_an_old_word_of_leaving_ends_no_streak() -> None:
    """A link may deliver it late: the learner is back since, and diverges."""
    bench = seeded("ana", settings=SETTINGS)
    ana = bench.learners["ana"]
    gone = Leave(ana.name, ana.incarnation, "drained")
    for _ in range(DIVERGED_MAX):
        assert reason_of(bench) is None
        diverge(bench, "ana")
        bench.do(Received(gone, 0))
    assert reason_of(bench) == end_reason(SETTINGS)


@pytest.mark.parametrize(
    ("interval_steps", "steps", "ends"),
    [(1, WELL_STEPS, False), (1, WELL_STEPS - 1, True), (500, 500, False), (500, 499, True)],
)
def test_steps_that_go_well_end_a_streak(interval_steps: int, steps: int, *, ends: bool) -> None:
    settings = RunSettings(interval_steps=interval_steps)
    watch, ana = Divergences(), LearnerName("ana")
    for counter in range(DIVERGED_MAX):
        if counter == DIVERGED_MAX - 1:
            watch.heard(ana, steps, 1.0, settings)
        watch.diverged(ana, Incarnation(1, counter), 1.0, settings)
    assert watch.of_everyone([ana]) is ends
    assert not watch.of_everyone([ana, LearnerName("ben")])


def test_rounds_in_a_row_that_do_not_ask_a_learner_are_counted_from_the_first() -> None:
    ana = seeded("ana").record("ana")
    for count in (1, 2, 3):
        ana.waits_unasked("its link is silent", 4.0 + count)
        assert (ana.unasked_rounds, ana.unasked_s) == (count, 5.0)
    ana.waits_unasked("", 9.0)
    assert ana.unasked_rounds == 0


def test_a_word_that_comes_twice_counts_once() -> None:
    watch, ana = Divergences(), LearnerName("ana")
    told = [watch.diverged(ana, Incarnation(1, counter), 0.0, SETTINGS) for counter in (2, 2, 1, 5)]
    assert told == [1, 1, 1, 2]


def test_names_that_come_and_go_are_not_kept() -> None:
    watch = Divergences()
    for index in range(10_000):
        watch.heard(LearnerName(f"n{index}"), 1, 60.0 * index, SETTINGS)
    assert len(watch.streaks) == SETTINGS.timing.compile_s / 60
