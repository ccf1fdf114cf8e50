"""Members that are heard and do no step: when their tokens go to others, and who is told."""

from collections.abc import Iterator

import pytest

from islands.protocol.identities import LearnerName, Phase, Ticket
from islands.protocol.messages.membership import Evicted
from islands.protocol.settings.choices import LearnerWaits
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.closing import waited_for
from islands.protocol.syncer.events import StopRequested
from islands.protocol.syncer.memory import ClosingStage
from islands.protocol.syncer.sweep import still_limit_s
from islands.protocol.syncer.timeouts import IDLE_KEPT
from islands.protocol.tape.round_entries import WaitsFor
from tests.syncer.bench import BATCH, Bench, opened, seeded

BEN = LearnerName("ben")
SETTINGS = RunSettings(interval_steps=4, budget_tokens=4000)
STALLED_S, COMPILE_S = SETTINGS.timing.stalled_s, SETTINGS.timing.compile_s


def spend(bench: Bench, name: str = "ana") -> None:
    learner, holders = bench.learners[name], bench.core.durable.leases.holders
    while holders[learner.name].unused_tokens >= BATCH:
        bench.step(name)
        bench.journal()
    learner.quota = holders[learner.name].quota_tokens
    learner.leases, learner.phase = tuple(holders[learner.name].leases), Phase.STARVED
    bench.report(name)


def held_up(*, steps: int = 1) -> Bench:
    bench = seeded("ana", "ben", settings=SETTINGS)
    for _ in range(steps):
        bench.step("ben")
    spend(bench)
    assert bench.core.closing is None
    return bench


def wait(bench: Bench, seconds: float, *reports: str) -> list[WaitsFor]:
    """Let time pass in seconds, in which some say again what they said; returns who was named."""
    named: list[WaitsFor] = []
    for _ in range(round(seconds)):
        bench.tick(1.0)
        named += bench.entries(WaitsFor)
        for name in reports:
            bench.report(name)
    return named


@pytest.mark.parametrize(
    "phase", [Phase.STEPPING, Phase.STARVED, Phase.WAITING, Phase.PAUSED, Phase.FINISHED], ids=str
)
def test_who_only_says_that_it_lives_does_not_keep_the_run_from_ending(phase: Phase) -> None:
    bench = held_up()
    bench.learners["ben"].phase = phase
    wait(bench, 2 * STALLED_S - 3, "ben")
    assert BEN in bench.core.members.learners
    wait(bench, 5, "ben")
    assert BEN not in bench.core.durable.ledger.books
    spend(bench)
    wait(bench, 2)
    assert bench.closing.reason == "tokens"
    assert sum(row.processed for row in bench.state.ledger_rows()) == 2 * SETTINGS.budget_tokens  # type: ignore[operator]


def test_it_may_come_back() -> None:
    bench, notices = held_up(), list[object]()
    for _ in range(70):
        bench.tick(1.0)
        notices += bench.dismissed()
    (notice,) = notices
    assert isinstance(notice, Evicted)
    assert "took no step for" in notice.reason
    bench.hello("ben", counter=2)
    assert BEN in bench.core.members.learners


@pytest.mark.parametrize("away", ["link down", "never linked"])
def test_an_account_without_a_link_is_closed_too(away: str) -> None:
    bench = held_up()
    bench.drop("ben")
    if away == "never linked":  # as after a restart of the syncer
        del bench.core.members.learners[BEN]
        bench.core.touch(BEN)
    limit_s = STALLED_S if away == "link down" else COMPILE_S
    wait(bench, 2 * limit_s - 3)
    assert BEN in bench.core.durable.ledger.books
    wait(bench, 5)
    assert BEN not in bench.core.durable.ledger.books


def test_new_links_and_new_phases_are_no_work() -> None:
    bench = held_up()
    for _ in range(15):
        wait(bench, 5)
        if BEN not in bench.core.members.learners:
            return
        bench.hello("ben")
        bench.learners["ben"].phase = Phase.WAITING
        bench.report("ben")
    raise AssertionError("ben is still there")


@pytest.mark.parametrize("phase", [Phase.COMPILING, Phase.HEALING], ids=str)
def test_who_compiles_has_a_limit_of_its_own(phase: Phase) -> None:
    bench = held_up(steps=0)
    bench.learners["ben"].phase = phase
    bench.report("ben")
    wait(bench, 2 * COMPILE_S - 3)
    assert BEN in bench.core.members.learners
    wait(bench, 5)
    assert BEN not in bench.core.members.learners


def test_who_is_not_needed_keeps_what_it_has() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, budget_tokens=10**6))
    bench.step("ben")
    for _ in range(400):
        bench.step("ana")
        bench.journal()
        assert not wait(bench, 1)
    assert BEN in bench.core.members.learners


@pytest.mark.parametrize("step_s", [0.1, 20.0, 100.0])
def test_a_slow_learner_is_waited_for(step_s: float) -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    learner = bench.learners["ben"]
    learner.step_time_s = step_s
    bench.tick(step_s)
    bench.step("ben")
    spend(bench)
    for _ in range(3):
        wait(bench, 4 * step_s)
        bench.step("ben")
        assert BEN in bench.core.members.learners


def test_a_claimed_step_of_a_week_is_waited_for_no_longer_than_a_compilation() -> None:
    bench = held_up()
    bench.record(BEN).step_s = 7 * 86400.0
    assert still_limit_s(bench.core, bench.record(BEN)) == COMPILE_S


def test_a_round_is_due_once_who_waits_has_adopted_all() -> None:
    settings = RunSettings(interval_steps=100, learner_waits=LearnerWaits.AT_TAU)
    bench = seeded("ana", settings=settings, fragments=2)
    bench.step("ana", 60)
    bench.commit(bench.pulls())
    bench.journal()
    bench.learners["ana"].phase = Phase.WAITING
    bench.report("ana")
    assert bench.pulls() == []
    bench.adopt("ana")
    bench.learners["ana"].phase = Phase.WAITING
    bench.report("ana")
    assert len(bench.pulls()) == 1


def test_nobody_stands_still_while_the_run_is_paused() -> None:
    bench = held_up()
    wait(bench, 2 * STALLED_S - 10)
    bench.core.durable.paused = True
    wait(bench, 500)
    bench.core.durable.paused = False
    wait(bench, 2 * STALLED_S - 10)
    assert BEN in bench.core.members.learners


def test_a_suspended_syncer_does_not_blame_its_members() -> None:
    bench = held_up()
    wait(bench, 10)
    bench.tick(500.0)
    bench.tick(1.0)
    assert BEN in bench.core.members.learners


def test_the_tape_says_whom_the_run_waits_for() -> None:
    bench = held_up()
    assert not wait(bench, STALLED_S - 5)
    (named,) = wait(bench, 20)
    assert named.members == 1
    assert "others want its tokens" in named.because[BEN]


def test_whoever_stood_still_gets_a_single_batch_until_it_steps() -> None:
    bench = held_up()
    wait(bench, 70)
    bench.hello("ben", counter=2)
    bench.adopt("ben")
    holder = bench.holder(BEN)
    assert holder.quota_tokens <= BATCH
    assert len(bench.core.health.idle) == 1 <= IDLE_KEPT
    bench.journal()
    bench.step("ben")
    wait(bench, 2)
    assert not bench.core.health.idle


def test_a_closing_run_names_the_learners_it_waits_for() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ben")
    bench.do(StopRequested("enough"))
    bench.learners["ana"].phase = Phase.FINISHED
    bench.report("ana")
    (named,) = wait(bench, 10, "ben")
    assert named.because == {BEN: "has not stopped stepping"}


def test_the_closing_does_not_wait_for_who_stood_still_before() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4))
    bench.step("ana")
    bench.record(BEN).step_s = 0.0
    wait(bench, COMPILE_S + 5, "ben")
    bench.do(StopRequested("enough"))
    bench.learners["ana"].phase = Phase.FINISHED
    bench.report("ana")
    assert bench.closing.stage is not ClosingStage.DRAINING


class Read(dict[LearnerName, Ticket]):
    times = 0

    def __iter__(self) -> Iterator[LearnerName]:
        self.times += 1
        return super().__iter__()


def test_whom_the_end_waits_for_is_told_in_one_look_at_each_round() -> None:
    """With a look for each of 4,096 learners, one telling would block the hub for a second."""
    names = [f"learner-{number}" for number in range(12)]
    bench = seeded(*names, settings=SETTINGS)
    opened(bench)
    bench.do(StopRequested("enough"))
    (round_,) = bench.core.rounds.open.values()
    read = round_.asked = Read(round_.asked)
    assert waited_for(bench.core, bench.now_s)
    assert read.times == 1
