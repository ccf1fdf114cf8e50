"""A run that an operator pauses, and the time that counts against a budget."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate, Phase
from islands.protocol.messages.membership import MembershipChanged
from islands.protocol.messages.training import FinalRound, LeaseGranted, Paused
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.events import StopRequested
from tests.syncer.bench import BATCH, Bench, opened, seeded

SETTINGS = RunSettings(interval_steps=4, fragments=2, budget_tokens=10_000)
HOURS_S = 5 * 3600.0


def pause(bench: Bench, *, paused: bool | None = True, epoch: int = 1) -> None:
    """The supervisor tells the operator's last word, with a view of everybody as before."""
    bench.do(MembershipChanged(epoch, (), paused))


def stand_still(bench: Bench) -> None:
    for name in sorted(bench.learners):
        bench.learners[name].phase = Phase.PAUSED
        bench.report(name)


def test_a_pause_is_journalled_and_told_once() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    pause(bench)
    assert bench.sent(Paused) == [Paused(1, paused=True)] * 2
    assert bench.written()
    pause(bench)
    assert not bench.sent(Paused)
    pause(bench, paused=False)
    assert bench.sent(Paused) == [Paused(1, paused=False)] * 2


def test_without_an_operators_word_nothing_changes() -> None:
    bench = seeded("ana", settings=SETTINGS)
    pause(bench, epoch=2)
    for paused, epoch in ((None, 3), (False, 2)):
        pause(bench, paused=paused, epoch=epoch)
        assert bench.core.durable.paused


def test_while_paused_no_round_opens_and_nothing_is_granted() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    pause(bench)
    for name in ("ana", "ben"):
        for _ in range(8):
            bench.step(name)
            assert not bench.pulls()
            bench.journal()
            assert not bench.sent(LeaseGranted)


def test_a_round_that_is_open_ends_as_ever() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    (mine, *_) = opened(bench)
    pause(bench)
    stand_still(bench)
    bench.answer(mine)
    assert len(bench.merge().parts) == 1


def test_hours_of_pause_abandon_a_round_and_lose_no_token() -> None:
    bench = seeded("ana", "ben", settings=replace(SETTINGS, quorum=2))
    pulls = opened(bench)
    bench.answer(next(pull for pull in pulls if pull.ticket.name == "ana"))
    pause(bench)
    stand_still(bench)
    bench.tick(HOURS_S)
    assert not bench.core.rounds.open
    assert (Fate.LATE, "its round was abandoned") in bench.fates()
    row = bench.state.ledger_rows()[0]
    assert (row.processed, row.pending, row.lost, row.imbalance) == (row.pending, row.pending, 0, 0)
    pause(bench, paused=False)
    for name in ("ana", "ben"):
        bench.learners[name].phase = Phase.STEPPING
    assert opened(bench)


def test_a_pause_says_nothing_of_the_network() -> None:
    """Who adopts only after hours would make the exchange look hopeless, and grace zero."""
    bench = seeded("ana", settings=SETTINGS)
    bench.commit([opened(bench)[0]])
    assert bench.core.rounds.adoptions
    pause(bench)
    bench.tick(HOURS_S)
    pause(bench, paused=False)
    bench.adopt("ana")
    assert bench.core.rounds.durations.sync_s.value is None


def test_who_missed_the_word_is_told_again() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    pause(bench)
    bench.learners["ana"].phase = Phase.PAUSED
    bench.report("ana")
    bench.tick(2.0)
    assert bench.sent(Paused) == [Paused(1, paused=True)], "ben steps on"
    stand_still(bench)
    pause(bench, paused=False)
    bench.learners["ben"].phase = Phase.STEPPING
    bench.report("ben")
    bench.tick(2.0)
    assert bench.sent(Paused) == [Paused(1, paused=False)], "ana stands still"


def test_who_comes_back_learns_how_it_is() -> None:
    bench = seeded("ana", settings=SETTINGS)
    for paused in (True, False):
        bench.drop("ana")
        pause(bench, paused=paused)
        bench.hello("ana")
        assert bench.sent(Paused) == [Paused(1, paused=paused)]


def test_a_restarted_syncer_goes_on_pausing() -> None:
    bench = seeded("ana", settings=SETTINGS)
    pause(bench)
    again = Bench(SETTINGS, durable=bench.core.durable, epoch=2)
    again.learners, again.connections = bench.learners, {}
    again.hello("ana")
    assert again.sent(Paused) == [Paused(2, paused=True)]
    for _ in range(8):
        again.step("ana")
        assert not again.pulls()


def test_a_paused_run_can_be_ended() -> None:
    bench = seeded("ana", settings=replace(SETTINGS, interval_steps=40))
    bench.step("ana")
    pause(bench)
    stand_still(bench)
    bench.do(StopRequested("enough"))
    assert bench.sent(FinalRound)
    assert not bench.pulls()
    bench.learners["ana"].phase = Phase.FINISHED
    bench.report("ana")
    assert bench.pulls()


def test_a_pause_with_quota_left_is_no_shortage() -> None:
    settings = replace(SETTINGS, budget_tokens=4 * BATCH)
    bench = seeded("ana", settings=settings)
    bench.learners["ana"].quota = bench.holder("ana").quota_tokens
    bench.learners["ana"].leases = tuple(bench.holder("ana").leases)
    bench.step("ana")
    bench.journal()
    pause(bench)
    stand_still(bench)
    bench.tick(HOURS_S)
    assert bench.core.closing is None


BY_TIME = RunSettings(interval_steps=4, fragments=2, budget_s=5.0)


def test_paused_time_does_not_count() -> None:
    bench = seeded("ana", settings=BY_TIME)
    bench.tick(3.0)
    pause(bench)
    bench.tick(HOURS_S)
    pause(bench, paused=False)
    bench.tick(1.9)
    assert not bench.sent(FinalRound)
    bench.tick(0.2)
    assert [final.reason for final in bench.sent(FinalRound)] == ["time"]


def test_time_counts_over_all_starts() -> None:
    bench = seeded("ana", settings=BY_TIME)
    bench.tick(4.0)
    again = Bench(BY_TIME, durable=bench.core.durable, epoch=2)
    again.tick(0.9)
    assert again.core.closing is None
    again.tick(0.2)
    assert again.core.closing is not None


def test_waiting_for_the_first_learner_does_not_count() -> None:
    bench = Bench(BY_TIME)
    bench.tick(HOURS_S)
    bench.hello("ana")
    bench.seed()
    assert bench.core.durable.elapsed_s == pytest.approx(0.0)
    assert bench.core.closing is None
    assert not bench.of(BeginMerge)
