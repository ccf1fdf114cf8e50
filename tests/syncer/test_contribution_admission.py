"""Whether a contribution is admitted, and if not, why; answers that come late."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate
from islands.protocol.messages.training import ContributionFate, PullFragment
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, DropContribution
from islands.protocol.syncer.contribution_admission import Refusal, refusal
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.plausibility import (
    LATELY,
    NORM_LEARNERS_KEPT,
    NORM_SAMPLES_MIN,
    Check,
    NormGauge,
)
from islands.protocol.tape.process_entries import KeptOut
from tests.syncer.bench import BATCH, GOOD, Bench, opened, seeded

BROKEN = Check(schema_ok=False, digest_ok=False, finite=False, norm=0.0)


@pytest.mark.parametrize(
    ("check", "changed", "verdict"),
    [
        (GOOD, {}, None),
        (GOOD, {"ticket_open": False}, Refusal(Fate.LATE, "the round has closed")),
        (GOOD, {"stale": "old"}, Refusal(Fate.STALE, "old")),
        (GOOD, {"untrue": "0 steps"}, Refusal(Fate.REJECTED, "0 steps", wrong=True)),
        (replace(GOOD, schema_ok=False), {}, Refusal(Fate.REJECTED, "schema", wrong=True)),
        (replace(GOOD, digest_ok=False), {}, Refusal(Fate.REJECTED, "digest", wrong=True)),
        (replace(GOOD, finite=False), {}, Refusal(Fate.REJECTED, "not finite", wrong=True)),
        (BROKEN, {"stale": "old"}, Refusal(Fate.STALE, "old")),
        (
            BROKEN,
            {"ticket_open": False, "stale": "old"},
            Refusal(Fate.LATE, "the round has closed"),
        ),
    ],
)
def test_the_first_failing_check_decides(
    check: Check, changed: dict[str, object], verdict: Refusal | None
) -> None:
    facts = {"untrue": None, "ticket_open": True, "stale": None, **changed}
    assert refusal(check, **facts) == verdict  # type: ignore[arg-type]


def gauge(**learners: float) -> NormGauge:
    """One by which each of these learners had many norms of this size merged."""
    made = NormGauge(limit=10.0)
    for _ in range(NORM_SAMPLES_MIN):
        for name, rate in learners.items():
            made.merged(name, rate)
    return made


def test_nothing_is_clipped_before_a_few_were_merged() -> None:
    made = NormGauge(limit=10.0)
    for index in range(NORM_SAMPLES_MIN):
        assert made.scales({"a": 1.0, "b": 1.0, "c": 1e6}) == dict.fromkeys("abc", 1.0)
        made.merged("abc"[index % 3], 1.0)
    scales = made.scales({"a": 9.0, "b": 1.0, "c": 1000.0})
    assert scales == pytest.approx({"a": 1.0, "b": 1.0, "c": 0.01})


@pytest.mark.parametrize("others", ["a", "ab"])
def test_clipped_a_learner_keeps_one_voice(others: str) -> None:
    made = gauge(**dict.fromkeys(others, 1.0), c=1.0)
    for _ in range(100):
        rates = {**dict.fromkeys(others, 1.0), "c": 50.0}
        scales = made.scales(rates)
        assert scales == {**dict.fromkeys(others, 1.0), "c": 0.2}
        for name, rate in rates.items():
            made.merged(name, rate, scales[name])
    assert made.usual == 1.0


def test_who_answers_often_has_one_voice() -> None:
    made = gauge(a=1.0, b=1.0, c=1.0)
    for _ in range(1000):
        made.merged("c", 1e-9)
    assert made.usual == 1.0
    assert made.scales({"a": 1.0, "b": 1.0}) == {"a": 1.0, "b": 1.0}


def test_a_norm_that_grows_slowly_moves_nothing_from_three_learners_on() -> None:
    made = gauge(a=1.0, b=1.0, c=1.0)
    rate, scale = 1.0, 1.0
    for _ in range(20):
        rate *= 5
        scales = made.scales({"a": 1.0, "b": 1.0, "c": rate})
        scale = scales["c"]
        for name, each in scales.items():
            made.merged(name, rate if name == "c" else 1.0, each)
    assert scale * rate == pytest.approx(10.0)
    assert made.usual == 1.0


def test_a_new_regime_is_clipped_and_becomes_usual() -> None:
    made = gauge(a=1.0, b=1.0, c=1.0)
    scales = made.scales(dict.fromkeys("abc", 50.0))
    assert scales == dict.fromkeys("abc", 0.2)
    for _ in range(64):
        scales = made.scales(dict.fromkeys("abc", 50.0))
        for name, scale in scales.items():
            made.merged(name, 50.0, scale)
    assert scales == dict.fromkeys("abc", 1.0)


def test_a_regime_changes_for_one_learner_alone_too() -> None:
    made = gauge(a=1.0, b=1.0, c=1.0)
    for name in "bc":
        made.scales({name: 1.0})
    scales = [made.scales({"a": 50.0})["a"] for _ in range(LATELY - 1)]
    made.merged("a", 50.0, scales[-1])
    assert (scales[-1], made.usual) == (0.2, 1.0)
    made.scales({"a": 50.0})
    for _ in range(NORM_SAMPLES_MIN):
        made.merged("a", 50.0, 0.2)
    assert made.usual == 1.0  # of three medians; it is the limit that a alone may lift


@pytest.mark.parametrize("rate", [0.0, 0.003, 0.5])
def test_zero_norms_clip_nothing(rate: float) -> None:
    assert gauge(a=0.0, b=0.0).scales({"a": rate, "b": 0.0}) == {"a": 1.0, "b": 1.0}


def test_what_is_known_of_learners_is_bounded() -> None:
    made = NormGauge(limit=10.0)
    for number in range(10_000):
        made.scales({f"n{number}": 1.0})
        made.merged(f"n{number}", 1.0)
    assert made.known == (NORM_LEARNERS_KEPT, LATELY)


def merged_without(bench: Bench, pulls: list[PullFragment], name: str) -> PullFragment:
    """All but one answer and are merged; returns the pull that is left."""
    (left,) = [pull for pull in pulls if pull.ticket.name == name]
    for pull in pulls:
        if pull is not left:
            bench.commit([pull])
    return left


def late(bench: Bench) -> list[int]:
    assert all(row.imbalance == 0 for row in bench.state.ledger_rows())
    return [row.late for row in bench.state.ledger_rows()]


def test_the_answer_of_an_ended_incarnation_is_nobodys() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=2))
    ana, _ = opened(bench)
    contribution = bench.contribution(ana)
    bench.hello("ana", counter=2)
    bench.adopt("ana")
    bench.journal()
    bench.step("ana", 3)
    bench.do(ContributionArrived(contribution, GOOD, bench.connections["ana"]))
    assert bench.entries(KeptOut)
    assert bench.of(DropContribution) == [DropContribution(contribution.ticket)]
    assert bench.fates() == []
    assert bench.sent(ContributionFate) == []
    bench.learners["ana"].adopt(0, bench.core.version(0))
    bench.report("ana")
    assert late(bench) == [0, 0]


def test_tokens_that_were_discarded_are_not_claimed_again() -> None:
    """A report overtook the contribution: its tokens were counted when they were discarded.

    What its sender discards next was never in that contribution, so it has not come late.
    """
    bench = seeded("ana", "ben")
    pulls = opened(bench)
    (ana,) = [pull for pull in pulls if pull.ticket.name == "ana"]
    contribution = bench.contribution(ana)
    merged_without(bench, pulls, "ana")
    bench.adopt("ana")
    bench.adopt("ben")
    before = bench.state.ledger_rows()[0].overwritten
    assert before >= contribution.tokens
    bench.do(ContributionArrived(contribution, GOOD, bench.connections["ana"]))
    assert bench.fates() == [(Fate.LATE, "the round has closed")]
    bench.step("ana", 3)
    bench.learners["ana"].adopt(0, bench.core.version(0))
    bench.report("ana")
    assert late(bench) == [0, 0]
    assert bench.state.ledger_rows()[0].overwritten == before + 3 * BATCH


def test_tokens_that_are_still_held_are_claimed() -> None:
    bench = seeded("ana", "ben")
    pulls = opened(bench)
    (ana,) = [pull for pull in pulls if pull.ticket.name == "ana"]
    contribution = bench.contribution(ana)
    merged_without(bench, pulls, "ana")
    bench.do(ContributionArrived(contribution, GOOD, bench.connections["ana"]))
    bench.adopt("ana")
    assert late(bench) == [contribution.tokens, 0]


def test_a_late_contribution_that_is_contained_in_a_merged_one_is_charged_no_more() -> None:
    bench = seeded("ana", "ben", fragments=1, settings=RunSettings(interval_steps=4, fragments=1))
    pulls = opened(bench)
    left = merged_without(bench, pulls, "ana")
    bench.answer(left)
    assert bench.fates() == [(Fate.LATE, "the round has closed")]
    bench.adopt("ben")
    (ana,) = [pull for pull in opened(bench) if pull.ticket.name == "ana"]
    bench.answer(ana)
    bench.tick(after_s=1.0)  # the grace for ben is over
    bench.commit()
    bench.step("ana", 2)
    bench.adopt("ana")
    assert late(bench) == [0]
    assert bench.state.ledger_rows()[0].overwritten == 2 * BATCH


def test_grace_is_counted_from_the_arrival_that_completes_the_quorum() -> None:
    settings = RunSettings(interval_steps=4, fragments=2, quorum=2, overlap_steps=6)
    bench = seeded("ana", "ben", "eve", settings=replace(settings, grace_safety=1.0))
    durations = bench.core.rounds.durations
    for average, seconds in ((durations.step_s, 1.0), (durations.sync_s, 0.0)):
        average.value = seconds
    ana, ben, _ = opened(bench)
    durations.step_s.value = 1.0
    bench.answer(ana)
    bench.tick(after_s=4.0)
    bench.answer(ben)
    assert durations.quorum_s.value == 4.0
    assert bench.of(BeginMerge) == []
    assert bench.state.deadline_s(bench.now_s) == pytest.approx(bench.now_s + 1.0)
    bench.tick(after_s=0.99)
    assert bench.of(BeginMerge) == []
    bench.tick(after_s=0.01)
    (begun,) = bench.of(BeginMerge)
    assert [part.ticket.name for part in begun.parts] == ["ana", "ben"]
