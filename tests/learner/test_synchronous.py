"""When a learner that waits for merges stands still, and what it sends and adopts when."""

from dataclasses import replace

import numpy as np
import pytest

from islands.protocol import identities
from islands.protocol.errors import SettingsError
from islands.protocol.learner.actions import AdoptValue, AllowSteps, PlanSnapshots
from islands.protocol.learner.schedule import Synchronous
from islands.protocol.messages.training import ContributionFate, FinalRound, Merged
from islands.protocol.settings.choices import Automatic, LearnerWaits
from islands.protocol.settings.run import RunSettings
from tests.learner import bench as states
from tests.learner.bench import stand_still, stepping_by
from tests.learner.test_boundary import BATCH, FIRST, Bench

LEASE = identities.Lease(0, 0, 0)


@pytest.mark.parametrize(
    ("interval_steps", "fragments", "due"),
    [
        (1, 1, [1, 2, 3, 4]),
        (500, 1, [500, 1000, 1500, 2000]),
        (10, 3, [4, 7, 10, 14]),
        (2, 3, [1, 2, 2, 3]),
        (10_000, 4096, [3, 5, 8, 10]),
    ],
)
def test_rounds_are_due_every_interval_over_the_fragments(
    interval_steps: int, fragments: int, due: list[int]
) -> None:
    schedule = Synchronous(interval_steps, fragments, overlap_steps=0)
    schedule.anchor = schedule.settled, 0
    assert [schedule.due(round_) for round_ in range(4)] == due
    assert schedule.due(7 * fragments - 1) == 7 * interval_steps


def test_a_learner_stands_still_tau_steps_after_the_oldest_round_that_is_not_settled() -> None:
    schedule = Synchronous(10, 2, overlap_steps=7)
    schedule.anchor = schedule.settled, 100
    assert schedule.limit_steps == 100 + 5 + 7
    assert schedule.snapshots() == {0: 105, 1: 110}
    schedule.settle(0, 112)
    assert schedule.limit_steps == 100 + 10 + 7
    assert schedule.snapshots() == {1: 110, 0: 115}


def test_one_that_joins_counts_from_the_newest_round_that_it_adopted() -> None:
    schedule = Synchronous(6, 1, overlap_steps=0)
    for round_ in (40, 41):
        schedule.settle(round_, 0)
    schedule.anchor = schedule.settled, 3
    assert (schedule.due(42), schedule.limit_steps) == (9, 9)
    schedule.end(sound=True)
    assert schedule.limit_steps is None
    assert schedule.snapshots() == {}


def test_a_round_that_was_merged_without_it_delays_the_next() -> None:
    """A slow learner takes H steps from the value that it adopted, as if it had joined there."""
    schedule = Synchronous(6, 1, overlap_steps=0)
    schedule.anchor = schedule.settled, 0
    schedule.settle(0, 4)
    assert schedule.due(1) == 10
    schedule.settle(0, 9)  # told once more
    assert schedule.due(1) == 10


def test_a_later_round_does_not_settle_one_that_is_under_way() -> None:
    schedule = Synchronous(10, 2, overlap_steps=7)
    schedule.anchor = schedule.settled, 0
    schedule.settle(2, 17, under_way={0})
    assert (schedule.settled, schedule.beyond) == (-1, {2})
    assert schedule.limit_steps == schedule.due(0) + 7
    schedule.settle(0, 17)
    assert (schedule.settled, schedule.beyond) == (2, set())
    assert schedule.limit_steps == schedule.due(3) + 7


def test_compute_adopts_a_value_at_its_step_and_not_before() -> None:
    bench = Bench()
    bench.do(
        bench.adopt(0),
        AllowSteps(10 * BATCH, (LEASE, identities.Lease(0, 1, 0))),
    )
    bench.do(replace(bench.adopt(1), at_steps=2))
    bench.step()
    bench.do()
    assert [event.version.number for event in bench.adopted] == [0]
    bench.step()
    bench.do()
    assert [(event.version.number, event.steps) for event in bench.adopted] == [(0, 0), (1, 2)]


def test_compute_without_quota_adopts_what_was_to_come_later() -> None:
    bench = Bench()
    bench.do(bench.adopt(0), AllowSteps(BATCH, (LEASE,)))
    bench.step()
    bench.do(replace(bench.adopt(1), at_steps=9))
    assert len(bench.adopted) == 1
    assert not bench.boundary.has_work()
    assert not bench.boundary.waiting
    assert [event.version.number for event in bench.adopted] == [0, 1]


def test_compute_waits_at_its_limit_of_steps() -> None:
    bench = Bench()
    bench.do(bench.adopt(0), AllowSteps(10 * BATCH, (LEASE,), until_steps=1))
    bench.step()
    bench.do(replace(bench.adopt(1), at_steps=2))
    assert not bench.boundary.has_work()
    assert bench.boundary.waiting
    assert len(bench.adopted) == 1
    bench.do(AllowSteps(10 * BATCH, (LEASE,), until_steps=2))
    bench.step()


def test_compute_takes_a_planned_snapshot_once_at_its_step() -> None:
    bench = Bench()
    bench.do(
        bench.adopt(0),
        PlanSnapshots((FIRST,), (2,)),
        AllowSteps(10 * BATCH, (LEASE,)),
    )
    for _ in range(4):
        bench.step()
        bench.do()
    assert [taken.steps for taken in bench.taken] == [2]


def test_mixing_keeps_a_share_of_the_local_value() -> None:
    bench = Bench()
    bench.do(bench.adopt(3), AllowSteps(10 * BATCH, (LEASE,)))
    bench.step()
    local = bench.boundary.trainer.value(0)
    assert np.abs(local - 3).max() > 1e-4
    bench.do(replace(bench.adopt(5), local_share=0.25))
    np.testing.assert_allclose(bench.boundary.trainer.value(0), 0.25 * local + 0.75 * 5, rtol=2e-7)


def waiting(interval_steps: int = 4) -> states.Bench:
    """A learner of two fragments that waits at once, stepping on version 1.0."""
    settings = RunSettings(
        interval_steps=interval_steps,
        fragments=states.P,
        overlap_steps=0,
        learner_waits=LearnerWaits.AT_TAU,
    )
    return stepping_by(settings)


def test_a_learner_waits_for_the_value_of_its_round() -> None:
    bench = waiting()
    assert bench.of(AllowSteps)[-1].until_steps == 2
    assert bench.of(PlanSnapshots) == [PlanSnapshots((FIRST,), (2,))]
    bench.step()
    bench.pull(0, 0)
    bench.step()
    stand_still(bench)
    assert states.phase_of(bench) is identities.Phase.WAITING
    assert bench.contributed() == []
    bench.snapshot(0)
    (sent,) = bench.contributed()
    assert sent.steps == 2
    bench.adopt(0, 1)
    assert bench.of(AllowSteps)[-1].until_steps == 4
    assert bench.of(PlanSnapshots) == [PlanSnapshots((identities.FragmentIndex(1),), (4,))]
    assert states.phase_of(bench) is identities.Phase.STEPPING


def test_a_contribution_that_was_not_applied_is_not_waited_for() -> None:
    bench = waiting()
    bench.step()
    bench.step()
    bench.pull(0, 0)
    bench.snapshot(0)
    stand_still(bench)
    ticket = identities.Ticket(1, 0, states.ANA, identities.Incarnation(1, 1))
    bench.hear(ContributionFate(ticket, FIRST, identities.Fate.LATE, "its round was abandoned"))
    assert bench.of(AllowSteps)[-1].until_steps == 4


def test_a_value_without_its_contribution_is_adopted_on_arrival() -> None:
    bench = waiting()
    bench.step()
    bench.update(0, 1)
    assert [action.at_steps for action in bench.of(AdoptValue)] == [0]


def test_a_round_that_is_answered_before_it_was_due_is_adopted_without_a_further_interval() -> None:
    """Those before it are over; a slow learner would adopt as many intervals later as there were.

    Else others, below their quorum without it, abandon more rounds meanwhile (seed 1754).
    """
    bench = waiting()
    bench.step()
    bench.step()
    stand_still(bench)
    bench.pull(0, 6)
    bench.snapshot(0)
    (sent,) = bench.contributed()
    assert sent.steps == 2
    bench.update(0, 1, round_=6, merged=Merged(1, 6, 2, 2 * states.BATCH))
    assert [action.at_steps for action in bench.of(AdoptValue)] == [2]


def test_what_comes_as_the_run_closes_is_adopted_on_arrival() -> None:
    settings = RunSettings(
        interval_steps=4, fragments=states.P, overlap_steps=3, learner_waits=LearnerWaits.AT_TAU
    )
    for closing, at_steps in ((False, 2 + 3), (True, 0)):
        bench = stepping_by(settings)
        bench.step()
        bench.step()
        bench.pull(0, 0)
        bench.snapshot(0)
        if closing:
            bench.hear(FinalRound(1, "tokens"))
        bench.update(0, 1, merged=Merged(1, 0, 2, 2 * states.BATCH))
        assert [action.at_steps for action in bench.of(AdoptValue)] == [at_steps]


def test_a_new_incarnation_counts_anew() -> None:
    bench = waiting()
    bench.step()
    bench.step()
    bench.step(finite=False)
    assert bench.of(AllowSteps)[-1].until_steps is None
    schedule = bench.state.schedule
    assert isinstance(schedule, Synchronous)
    assert schedule.anchor is None


@pytest.mark.parametrize("overlap_steps", [Automatic.AUTO, 24, 100])
def test_where_learners_wait_the_overlap_is_a_number_below_the_interval(
    overlap_steps: int | Automatic,
) -> None:
    """Otherwise a learner would wait for a round that is due after the next one."""
    with pytest.raises(SettingsError, match="learner_waits"):
        RunSettings(learner_waits=LearnerWaits.AT_TAU, overlap_steps=overlap_steps)
