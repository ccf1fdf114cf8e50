"""K and τ as measured times say: how many answers are worth their wait."""

import pytest

from islands.protocol.messages.training import ContributionDeclined
from islands.protocol.settings.run import Automatic, RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.events import PullDeclined
from islands.protocol.syncer.timing import QuorumTarget, worth_waiting
from tests.syncer.bench import Bench, opened, seeded

AUTO = Automatic.AUTO


@pytest.mark.parametrize(
    ("answers_s", "interval_s", "expected"),
    [
        ([], 24.0, QuorumTarget(1)),  # nobody was asked
        ([None, None], 24.0, QuorumTarget(1)),  # nothing is measured
        ([2.0, None], 24.0, QuorumTarget(1, 2.0)),  # who never answered is not waited for
        ([0.01, 0.02], 0.0, QuorumTarget(1)),  # ξ_step is unknown
        ([0.01, 0.02, 0.015], 0.115, QuorumTarget(3, 0.02)),  # digits: steps of 1 ms, H = 115
        ([1.0] * 7 + [10.0], 24.0, QuorumTarget(7, 1.0)),  # 7·23/24 > 8·14/24
        ([1.0, 10.0], 24.0, QuorumTarget(2, 10.0)),  # 23/24 < 2·14/24
        ([1.0, 13.0], 24.0, QuorumTarget(1, 1.0)),  # 23/24 > 2·11/24
        ([30.0, 40.0], 24.0, QuorumTarget(1, 30.0)),  # beyond the interval nobody else is
        ([1.0, 1.0], 24.0, QuorumTarget(2, 1.0)),
        ([1.0] * 4096, 24.0, QuorumTarget(4096, 1.0)),
    ],
)
def test_what_is_worth_waiting_for(
    answers_s: list[float | None], interval_s: float, expected: QuorumTarget
) -> None:
    """The n for which n·(1 − a_n/(H·ξ_step)) is largest, by hand."""
    assert worth_waiting(answers_s, interval_s) == expected


def measured(quorum: int | Automatic, **answers_s: float) -> Bench:
    """Learners that took so long to answer until now, with steps of a second."""
    settings = RunSettings(interval_steps=24, fragments=1, quorum=quorum, overlap_steps=0)
    bench = seeded(*answers_s, settings=settings, fragments=1)
    for name, answer_s in answers_s.items():
        learner = bench.learners[name]
        learner.step_time_s = 1.0
        bench.core.members.learners[learner.name].exchange.answers_s.current = answer_s
    return bench


def merged(bench: Bench) -> list[str]:
    """Who takes part in the merge that begins now, if one does."""
    return [part.ticket.name for begun in bench.of(BeginMerge) for part in begun.parts]


@pytest.mark.parametrize(("quorum", "found"), [(1, ["ana"]), (AUTO, [])])
def test_a_round_waits_for_whom_it_expects(quorum: int | Automatic, found: list[str]) -> None:
    """With K = 1 and no overlap it closes with the first."""
    bench = measured(quorum, ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.answer(pulls["ana"])
    assert merged(bench) == found
    if quorum is AUTO:
        bench.answer(pulls["ben"])
        assert merged(bench) == ["ana", "ben"]


def test_who_was_expected_and_does_not_come_is_waited_for_no_longer() -> None:
    """The quorum holds for as long as the slowest of it took; then one answer is enough."""
    bench = measured(AUTO, ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    (round_,) = bench.core.rounds.open.values()
    bench.answer(pulls["ana"])
    assert bench.state.deadline_s(bench.now_s) <= round_.opened_s + 2.0
    bench.tick(after_s=1.9)
    assert merged(bench) == []
    bench.tick(after_s=0.2)
    assert merged(bench) == ["ana"]


def test_who_declines_is_waited_for_no_longer() -> None:
    """The round closes at once, and the learner that spares its link is asked for the next one."""
    bench = measured(AUTO, ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.answer(pulls["ana"])
    assert merged(bench) == []
    declined = ContributionDeclined(pulls["ben"].ticket, pulls["ben"].fragment, "spares its link")
    bench.do(PullDeclined(declined))
    assert merged(bench) == ["ana"]
    assert bench.core.ineligible(pulls["ben"].ticket.name, 0) is None


def test_nobody_has_come_in_time() -> None:
    """The first answer after that closes the round, which is not abandoned before."""
    bench = measured(AUTO, ana=0.5, ben=2.0)
    pulls = {str(pull.ticket.name): pull for pull in opened(bench)}
    bench.tick(after_s=5.0)
    bench.answer(pulls["ben"])
    assert merged(bench) == ["ben"]


@pytest.mark.parametrize(
    ("exchange_s", "interval_steps", "overlap_steps"),
    [(0.1, 24, 2), (3.5, 24, 5), (60.0, 24, 6), (3.5, 1, 2), (300.0, 500, 125), (None, 24, 2)],
)
def test_the_overlap_is_what_an_exchange_takes(
    exchange_s: float | None, interval_steps: int, overlap_steps: int
) -> None:
    """In steps, one more than it fills; two at least, and at most a quarter of the interval."""
    settings = RunSettings(interval_steps=interval_steps, overlap_steps=AUTO)
    core = seeded("ana", settings=settings).core
    if exchange_s is not None:
        core.rounds.durations.step_s.value, core.rounds.durations.sync_s.value = 1.0, 0.0
        core.rounds.durations.quorum_s.value = exchange_s
    assert core.overlap_steps == overlap_steps


def test_what_is_planned_for_is_the_most_that_it_may_become() -> None:
    """Memory and bandwidth are promised before anything is measured."""
    settings = RunSettings(interval_steps=24, fragments=24, overlap_steps=AUTO)
    assert settings.overlap_steps_max == 6
    assert settings.open_rounds_max(24) == 6
