"""How a run ends."""

from copy import deepcopy
from dataclasses import replace

import pytest

from islands.protocol.identities import Fate, LearnerName, Phase, Status, Version
from islands.protocol.messages.membership import Refused, Stop
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import events
from islands.protocol.syncer.actions import BeginMerge, Exit, FinishRun
from islands.protocol.syncer.closing import waited_for
from islands.protocol.syncer.commits import in_time_fraction
from islands.protocol.syncer.members import UNANSWERED_MAX
from islands.protocol.syncer.memory import ClosingStage
from islands.run.records.summary import share_of
from tests.syncer.bench import BATCH, CONNECTION, Bench, Learner, opened, seeded

SETTINGS = RunSettings(interval_steps=40, fragments=4, budget_tokens=10_000)


def finish(bench: Bench, name: str) -> None:
    bench.learners[name].phase = Phase.FINISHED
    bench.report(name)


def stage_of(bench: Bench) -> ClosingStage | None:
    return None if bench.core.closing is None else bench.closing.stage


def finish_adopting(bench: Bench, name: str) -> None:
    bench.adopt(name)
    finish(bench, name)


def stopping(*finished: str) -> Bench:
    """Ana and ben have done a step when the run is to stop; some have stopped."""
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=4)
    bench.step("ana")
    bench.step("ben")
    bench.do(events.StopRequested("enough"))
    for name in finished:
        finish(bench, name)
    return bench


@pytest.mark.parametrize("names", [(), ("ana",)])
def test_a_run_that_has_no_values_yet_ends_too(names: tuple[str, ...]) -> None:
    bench = Bench(SETTINGS, fragments=4)
    for name in names:
        bench.hello(name)
    bench.do(events.StopRequested("enough"))
    if names:
        bench.seed()
    assert bench.closing.reason == "enough"
    for name in names:
        finish_adopting(bench, name)
    pass_time(bench, 2 * SETTINGS.timing.final_s)
    assert stage_of(bench) is ClosingStage.FINISHED
    assert bench.core.seeded is bool(names)


@pytest.mark.parametrize("returns", [False, True])
def test_values_that_a_member_holds_are_awaited_before_the_end(*, returns: bool) -> None:
    bench = Bench(SETTINGS, fragments=4, returns_s=60.0)
    bench.do(events.StopRequested("enough"))
    assert stage_of(bench) is None
    if returns:
        bench.hello("ana")
    bench.tick(after_s=61.0)
    assert (stage_of(bench) is None) is returns


def test_a_restarted_syncer_waits_for_those_who_have_yet_to_come_back() -> None:
    """Open tokens are not lost because their learners dial a moment later than it starts."""
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=4)
    bench.step("ana")
    bench.do(events.StopRequested("enough"))
    again = Bench(SETTINGS, fragments=4, durable=bench.core.durable, epoch=2)
    again.tick(0.0)
    assert stage_of(again) is ClosingStage.DRAINING
    assert not any(row.lost for row in again.state.ledger_rows())
    again.tick(SETTINGS.timing.final_s)
    assert stage_of(again) is ClosingStage.CUTTING


def test_what_only_the_end_merges_is_no_yield() -> None:
    settings = RunSettings(interval_steps=40, fragments=2, quorum=2)
    bench = seeded("ana", settings=settings)
    (first,) = opened(bench)
    bench.step("ana", 400 - bench.learners["ana"].steps)
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    bench.commit([first])
    (second,) = bench.pulls()
    bench.answer(second)
    bench.merge()
    assert bench.state.durable.merges == 2
    assert share_of(bench.state)["yield"] == 2 * 40 / 400


def test_the_last_to_stop_begins_the_merge_at_once() -> None:
    settings = replace(SETTINGS, quorum=2)
    bench = seeded("ana", "ben", settings=settings, fragments=4)
    ana, ben = opened(bench)
    bench.answer(ana)
    bench.decline(ben, "leaving")
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    assert (bench.of(BeginMerge), stage_of(bench)) == ([], ClosingStage.DRAINING)
    finish(bench, "ben")
    assert [part.ticket for part in bench.merge().parts] == [ana.ticket]


@pytest.mark.parametrize("overlap_steps", [5, 30])
def test_every_fragment_with_something_left_gets_a_round(overlap_steps: int) -> None:
    """Also where more rounds may be open at once than a learner is asked for."""
    settings = replace(SETTINGS, overlap_steps=overlap_steps)
    bench = seeded("ana", settings=settings, fragments=4)
    bench.step("ana")
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    assert sorted(closing_rounds(bench)) == [0, 1, 2, 3]


def closing_rounds(bench: Bench) -> list[int]:
    """Have `ana` answer and adopt until nothing is pulled; returns the fragments, in order."""
    done: list[int] = []
    pulls = bench.pulls()
    while pulls:
        pull = pulls.pop(0)
        done.append(pull.fragment)
        bench.answer(pull)
        pulls += bench.pulls()
        bench.merge()
        bench.journal()
        pulls += bench.pulls()
        finish_adopting(bench, "ana")
        pulls += bench.pulls()
    return done


def test_work_beside_a_merge_is_asked_for_once_that_is_adopted() -> None:
    """A learner that carries its work on has some left when it adopts what it contributed to."""
    bench = seeded("ana", settings=SETTINGS, fragments=4)
    (pull,) = opened(bench)
    ana, merged_steps = bench.learners["ana"], bench.learners["ana"].steps
    bench.answer(pull)
    bench.merge()
    bench.journal()
    bench.step("ana")
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    assert pull.fragment not in [each.fragment for each in bench.pulls()]
    ana.versions[pull.fragment], ana.marks[pull.fragment] = Version(1, 1), merged_steps
    asked = bench.pulls()
    bench.report("ana")
    asked += bench.pulls()
    while bench.core.rounds.open:
        bench.answer(asked.pop(0))
        bench.merge()
        bench.journal()
        asked += bench.pulls()
        if pull.fragment in [each.fragment for each in asked]:
            return
        finish_adopting(bench, "ana")
        asked += bench.pulls()
    pytest.fail(f"fragment {pull.fragment} was not asked for again")


def test_the_end_comes_without_the_silent() -> None:
    bench = stopping("ana")
    began_s, final_s = bench.now_s, SETTINGS.timing.final_s
    while stage_of(bench) is not ClosingStage.FINISHED:
        due_s = bench.state.deadline_s(bench.now_s)
        assert due_s > bench.now_s
        bench.tick(final_s)
        bench.journal()
    assert bench.now_s - began_s <= 4 * final_s


def test_the_end_waits_for_the_slowest() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=4)
    learners = bench.core.members.learners
    learners[LearnerName("ana")].step_s, learners[LearnerName("ben")].step_s = 0.1, 60.0
    quick_s, slow_s = map(bench.core.final_patience_s, learners.values())
    bench.do(events.StopRequested("enough"))
    assert bench.core.closing is not None
    assert bench.core.closing.patience_s == slow_s > quick_s


def test_a_rest_that_fits_no_waiting_batch_ends_a_run() -> None:
    """Batches may differ in tokens: who has no use for the rest of its quota says that it waits."""
    settings = RunSettings(interval_steps=4, fragments=2, budget_tokens=BATCH + BATCH // 2)
    bench = seeded("ana", settings=settings)
    ana, holder = bench.learners["ana"], bench.holder("ana")
    assert holder.unused_tokens == BATCH
    ana.phase, ana.quota, ana.leases = Phase.STARVED, BATCH, tuple(holder.leases)
    bench.report("ana")
    assert bench.closing.reason == "tokens"


def test_the_absent_are_ended_with_the_run() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=4)
    bench.step("ben")
    bench.drop("ben")
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    bench.journal()
    row = bench.state.ledger_rows()[0]
    assert (row.lost, row.pending, row.imbalance) == (BATCH, 0, 0)


def test_no_round_opens_while_a_run_closes() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=4)
    bench.do(events.StopRequested("enough"))
    assert bench.written(), "a hub that is killed now goes on ending"
    for _ in range(10):
        bench.step("ana")
        bench.step("ben")
        assert bench.pulls() == []


def pass_time(bench: Bench, seconds: float) -> None:
    """Time passes at the pace that the state asks for, with a sound journal."""
    until_s = bench.now_s + seconds
    while bench.now_s < until_s and stage_of(bench) is not ClosingStage.FINISHED:
        due_s = min(until_s, bench.state.deadline_s(bench.now_s))
        bench.tick(max(0.01, due_s - bench.now_s))
        bench.journal()


def test_who_never_answered_does_not_postpone_the_end() -> None:
    bench = seeded("ana", settings=SETTINGS, fragments=4)
    for _ in range(6):
        bench.step("ana", 10)
        pass_time(bench, 600.0)
    assert len(bench.record("ana").pulls) == UNANSWERED_MAX
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    assert bench.closing.patience_s == SETTINGS.timing.final_s
    pass_time(bench, 4 * SETTINGS.timing.final_s)
    assert stage_of(bench) is ClosingStage.FINISHED


def test_who_comes_back_again_and_again_does_not_postpone_the_end() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=4)
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    for counter in range(2, 60):
        pass_time(bench, 25.0)
        if stage_of(bench) is ClosingStage.FINISHED:
            break
        bench.learners["ben"] = Learner("ben", 4, counter)
        bench.learners["ben"].phase = Phase.STEPPING
        bench.hello("ben", counter=counter)
        bench.adopt("ben")
        bench.journal()
    assert stage_of(bench) is ClosingStage.FINISHED


@pytest.mark.parametrize("steps", [0, 3])
def test_nothing_postpones_the_end_beyond_what_was_said_at_its_beginning(steps: int) -> None:
    bench = seeded("ana", settings=SETTINGS, fragments=4)
    bench.step("ana", steps)
    bench.do(events.StopRequested("enough"))
    closing = bench.core.closing
    assert closing is not None
    latest_s = closing.latest_s
    assert latest_s >= 4 * SETTINGS.timing.final_s
    while bench.now_s < latest_s:
        assert closing.stage is not ClosingStage.FINISHED
        bench.core.went_forward()
        bench.core.health.standing.clear()  # as if it had just done some work (`sweep.py`)
        bench.tick(5.0)
        bench.journal()
        assert closing.latest_s == latest_s
    pass_time(bench, 1.0)
    assert stage_of(bench) is ClosingStage.FINISHED


# ------------------------------------------------------------------------- until it has been heard


def ended() -> Bench:
    bench = seeded("ana", settings=SETTINGS, fragments=4)
    bench.do(events.SupervisorLinkChanged(up=True))
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    bench.journal()
    assert stage_of(bench) is ClosingStage.FINISHED
    return bench


def test_the_end_is_over_when_the_supervisor_has_heard_it() -> None:
    bench = ended()
    bench.tick(10 * SETTINGS.timing.final_s)
    assert not bench.of(Exit), "a supervisor that can be reached will answer"
    bench.do(events.EndHeard())
    assert not bench.of(Exit)
    assert len(bench.written()) == 1
    bench.journal()
    assert bench.of(Exit) == [Exit("enough")]
    assert bench.core.durable.reported
    bench.do(events.EndHeard())
    assert not bench.actions, "once is enough"


def test_a_supervisor_that_cannot_be_reached_is_not_waited_for_for_ever() -> None:
    """`final_s` after its link went down the process ends; nothing says that it was heard."""
    bench = ended()
    bench.tick(100.0)
    bench.do(events.SupervisorLinkChanged(up=False))
    due_s = bench.state.deadline_s(bench.now_s)
    assert due_s == bench.now_s + SETTINGS.timing.final_s
    bench.tick(SETTINGS.timing.final_s - 0.1)
    assert not bench.of(Exit)
    bench.tick(0.1)
    assert bench.of(Exit) == [Exit("enough")]
    assert not bench.core.durable.reported


def test_who_dials_in_after_the_end_is_told_to_stop() -> None:
    bench = ended()
    bench.hello("ben")
    assert bench.dismissed() == [Stop("enough")]
    bench.open(bench.learners["ben"], 60, trusted=False)
    bench.last_word(Refused)
    assert "ben" not in bench.core.durable.ledger.books


def test_after_the_end_nothing_changes_the_books() -> None:
    bench = ended()
    before = deepcopy(bench.core.durable)
    bench.step("ana")
    bench.view("ana", Status.EVICTED)
    bench.drop("ana")
    assert bench.core.durable == before


def test_a_restart_after_the_end_has_only_that_to_tell() -> None:
    bench = ended()
    again = Bench(SETTINGS, fragments=4, durable=bench.core.durable, epoch=2)
    again.tick(0.0)
    assert again.of(FinishRun) == [FinishRun("enough")]
    again.do(events.SupervisorLinkChanged(up=True))
    again.do(events.EndHeard())
    again.journal()
    assert again.of(Exit) == [Exit("enough")]


def test_who_was_silent_once_is_asked_no_more() -> None:
    """Its late answer makes it reachable again, and the end would wait for it once more."""
    bench = stopping("ana", "ben")
    pulls = {str(pull.ticket.name): pull for pull in bench.pulls()}
    bench.answer(pulls["ana"])
    begun = bench.tick(SETTINGS.timing.final_s)
    bench.answer(pulls["ben"])
    assert bench.fates() == [(Fate.LATE, "the round has closed")]
    bench.actions = begun
    bench.merge()
    asked = bench.pulls()
    bench.journal()
    for name in ("ana", "ben"):
        asked += bench.pulls()
        finish_adopting(bench, name)
    asked += bench.pulls()
    assert [pull.ticket.name for pull in asked] == ["ana"]


@pytest.mark.parametrize(
    ("steps", "usual", "interval", "share"),
    [
        (6, 6, 6.0, 1.0),
        (12, 6, 6.0, 1.0),
        (485, 6, 6.0, 12 / 485),  # beside others with an interval, twice that
        (485, 100, 6.0, 200 / 485),  # beside others that were alone for long, too
        (485, 485, 6.0, 1.0),  # all were, or there are no others
        (60, 6, 60.0, 1.0),  # ten times as fast as the pace: its interval is ten times as long
        (1, 1, 1.0, 1.0),
        (10**6, 500, 500.0, 1e-3),
    ],
)
def test_lone_steps_do_not_outweigh_the_others_at_the_end(
    steps: int, usual: int, interval: float, share: float
) -> None:
    assert in_time_fraction(steps, usual, interval) == pytest.approx(share)


def test_a_learner_that_was_cut_off_is_bounded_in_its_last_merges() -> None:
    settings = RunSettings(interval_steps=4, fragments=1, quorum=None, budget_tokens=10**6)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    for name, steps in (("ana", 100), ("ben", 4)):
        bench.learners[name].steps = steps
        bench.learners[name].phase = Phase.FINISHED
    bench.do(events.StopRequested("enough"))
    pulls = [pull for name in ("ana", "ben") for _ in bench.report(name) for pull in bench.pulls()]
    for pull in dict.fromkeys(pulls):
        bench.answer(pull)
    (begun,) = bench.of(BeginMerge)
    parts = {str(part.ticket.name): part for part in begun.parts}
    assert (parts["ben"].steps, parts["ben"].scale) == (4, 1.0)
    assert (parts["ana"].steps, parts["ana"].tokens) == (8, 8 * BATCH)
    assert parts["ana"].scale == pytest.approx(0.08)


# --- observers ------------------------------------------------------------------------------------


def observed() -> Bench:
    """A run with one learner, whose last merge was just sent to it and to an observer."""
    bench = seeded("ana", settings=SETTINGS, fragments=4)
    bench.observe("reader")
    report(bench, "ana")
    bench.step("ana")
    bench.do(events.StopRequested("enough"))
    finish(bench, "ana")
    closing_rounds(bench)
    return bench


def report(bench: Bench, holding: str) -> None:
    """The observer reports to hold what a learner holds."""
    fragments = bench.record(holding).progress.fragments
    told = replace(bench.record("reader").progress, phase=Phase.OBSERVING, fragments=fragments)
    bench.do(Received(told, CONNECTION))


def test_the_end_waits_until_an_observer_holds_the_last_values() -> None:
    bench = observed()
    assert stage_of(bench) is ClosingStage.ADOPTING
    bench.tick(SETTINGS.timing.final_s / 2)
    assert stage_of(bench) is ClosingStage.ADOPTING
    assert waited_for(bench.core, bench.now_s) == {"reader": "has not adopted the last versions"}
    report(bench, "ana")
    assert stage_of(bench) is ClosingStage.CUTTING


def test_an_observer_whose_link_does_not_keep_up_delays_the_end_by_a_limit() -> None:
    """However often the last values are sent to it again, over however many links."""
    bench = observed()
    until_s = bench.now_s + SETTINGS.timing.final_s
    bench.closing.wait_until(until_s + 1000.0)  # as learners may need
    while stage_of(bench) is ClosingStage.ADOPTING:
        assert bench.now_s < until_s
        bench.tick(1.0)
        bench.record("reader").opened(CONNECTION, bench.now_s)
    assert bench.now_s == pytest.approx(until_s)


def test_an_observer_that_is_gone_is_not_waited_for() -> None:
    bench = observed()
    bench.do(events.LinkClosed("reader", CONNECTION))
    assert stage_of(bench) is ClosingStage.CUTTING
