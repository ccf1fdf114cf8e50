"""Answers that come late: of an incarnation that has ended, or with tokens discarded since."""

from dataclasses import replace

from islands.protocol.identities import Fate
from islands.protocol.messages.training import ContributionFate, PullFragment
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, DropContribution
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.tape.round_entries import KeptOut
from tests.syncer.bench import BATCH, GOOD, Bench, opened, seeded


def merged_without(bench: Bench, pulls: list[PullFragment], name: str) -> PullFragment:
    """All but one answer and are merged; returns the pull that is left."""
    (left,) = [pull for pull in pulls if pull.ticket.name == name]
    for pull in pulls:
        if pull is not left:
            bench.answer(pull)
    bench.merge()
    bench.journal()
    return left


def late(bench: Bench) -> list[int]:
    """Tokens that were discarded after they had come too late, per fragment."""
    assert all(row.imbalance == 0 for row in bench.state.ledger_rows())
    return [row.late for row in bench.state.ledger_rows()]


def test_the_answer_of_an_ended_incarnation_is_nobodys() -> None:
    """Its successor is neither told of its fate, nor charged with it, nor fenced for it."""
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


def test_the_answer_of_an_ended_incarnation_does_not_close_a_round() -> None:
    """A round that its successor was asked for anew waits for the successor."""
    settings = RunSettings(interval_steps=4, fragments=2, quorum=2)
    bench = seeded("ana", "ben", settings=settings)
    ana, ben = opened(bench)
    contribution = bench.contribution(ana)
    bench.hello("ana", counter=2)
    bench.adopt("ana")
    bench.journal()
    bench.answer(ben)
    bench.do(ContributionArrived(contribution, GOOD, bench.connections["ana"]))
    assert bench.of(BeginMerge) == []


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
    """No report overtook it: what its sender discards next has come late."""
    bench = seeded("ana", "ben")
    pulls = opened(bench)
    (ana,) = [pull for pull in pulls if pull.ticket.name == "ana"]
    contribution = bench.contribution(ana)
    merged_without(bench, pulls, "ana")
    bench.do(ContributionArrived(contribution, GOOD, bench.connections["ana"]))
    bench.adopt("ana")
    assert late(bench) == [contribution.tokens, 0]


def test_a_late_contribution_that_is_contained_in_a_merged_one_is_charged_no_more() -> None:
    """The later one from the same base has its tokens; they are applied, and not late as well."""
    bench = seeded("ana", "ben", fragments=1, settings=RunSettings(interval_steps=4, fragments=1))
    pulls = opened(bench)
    left = merged_without(bench, pulls, "ana")
    bench.answer(left)
    assert bench.fates() == [(Fate.LATE, "the round has closed")]
    bench.adopt("ben")
    (ana,) = [pull for pull in opened(bench) if pull.ticket.name == "ana"]
    bench.answer(ana)
    bench.tick(after_s=1.0)  # the grace for ben is over
    bench.merge()
    bench.journal()
    bench.step("ana", 2)
    bench.adopt("ana")
    assert late(bench) == [0]
    assert bench.state.ledger_rows()[0].overwritten == 2 * BATCH


def test_grace_is_counted_from_the_arrival_that_completes_the_quorum() -> None:
    """And so is ξ_quorum: K = 2, so the first of three arrivals begins nothing."""
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
    bench.tick(after_s=0.99)
    assert bench.of(BeginMerge) == []
    bench.tick(after_s=0.01)
    (begun,) = bench.of(BeginMerge)
    assert [part.ticket.name for part in begun.parts] == ["ana", "ben"]
