"""What Decoupled DiLoCo (arXiv 2604.21428) says of pulls and quorums, on the syncer's state.

Each test shows one sentence of protocol §3.3 and §3.4, in our own words. [P] is the paper, as
digests and implementations report it; [O] is ours, and must never be claimed for the paper.
"""

import pytest

from islands.protocol.identities import Fate, Incarnation, Phase, Status, Ticket, Version
from islands.protocol.messages.training import ContributionFate, PullFragment
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from tests.syncer.bench import Bench, opened, seeded


def fleet(*names: str, quorum: int | None = 1) -> Bench:
    """Learners of one fragment with H = 4; nothing is measured yet, so the grace is 0."""
    settings = RunSettings(interval_steps=4, fragments=1, quorum=quorum)
    return seeded(*names, settings=settings, fragments=1)


def asked(bench: Bench) -> dict[str, PullFragment]:
    """The pulls of the round that opens next, by name."""
    return {str(pull.ticket.name): pull for pull in opened(bench)}


def merging(bench: Bench) -> list[str]:
    """Whose contributions the last event began to merge."""
    return [str(part.ticket.name) for begun in bench.of(BeginMerge) for part in begun.parts]


def fates(bench: Bench) -> list[Fate]:
    """The fates that the last event told to senders."""
    return [message.fate for message in bench.sent(ContributionFate)]


# --- the pull ----------------------------------------------------------------------------------


def test_on_opening_all_eligible_learners_are_asked() -> None:
    """[P] §3.3: opening a round asks everybody who may contribute, at that instant, once."""
    bench = fleet("ana", "ben", "eve")
    assert sorted(asked(bench)) == ["ana", "ben", "eve"]


@pytest.mark.parametrize("phase", [Phase.COMPILING, Phase.HEALING])
def test_a_learner_that_does_not_train_is_not_asked(phase: Phase) -> None:
    """[P] §3.3 with [O] §3.2: who compiles or heals has nothing to give, and delays no round."""
    bench = fleet("ana", "ben", "eve", quorum=None)
    bench.learners["eve"].phase = phase
    assert sorted(asked(bench)) == ["ana", "ben"]


def test_each_pull_is_a_ticket() -> None:
    """[O] §3.3: a ticket is (epoch, round, name, incarnation), so an answer fits one pull only."""
    bench = fleet("ana")
    assert asked(bench)["ana"].ticket == Ticket(1, 0, bench.learners["ana"].name, Incarnation(1, 1))


def test_a_contribution_answers_one_ticket() -> None:
    """[P] §3.3: a second copy of an answer adds nothing to the round that has the first."""
    bench = fleet("ana", "ben", quorum=2)
    pulls = asked(bench)
    bench.answer(pulls["ana"])
    bench.answer(pulls["ana"])
    assert merging(bench) == []
    bench.answer(pulls["ben"])
    assert merging(bench) == ["ana", "ben"]


# --- the quorum --------------------------------------------------------------------------------


@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_the_quorum_is_complete_with_the_kth_arrival(quorum: int) -> None:
    """[P] §3.4: K contributions that have arrived are enough; without a grace, nothing more."""
    bench = fleet("ana", "ben", "eve", "zoe", quorum=quorum)
    pulls, order = asked(bench), ["zoe", "ana", "eve", "ben"]
    for name in order[: quorum - 1]:
        bench.answer(pulls[name])
        assert merging(bench) == []
    bench.answer(pulls[order[quorum - 1]])
    assert merging(bench) == sorted(order[:quorum])


def test_by_default_the_first_answer_is_enough() -> None:
    """[P] §3.4: K = 1 by default."""
    assert RunSettings().quorum == 1


def test_arrivals_count_and_not_those_who_were_asked() -> None:
    """[P] §3.4: of K = 2, one that arrived and one that is expected are no quorum."""
    bench = fleet("ana", "ben", quorum=2)
    bench.answer(asked(bench)["ana"])
    bench.tick(1.0)
    assert merging(bench) == []


def test_it_closes_as_soon_as_everybody_has_answered() -> None:
    """[P] §3.4: with nobody left to wait for, a round closes at the last arrival."""
    bench = fleet("ana", "ben", "eve", quorum=None)
    for pull in asked(bench).values():
        assert merging(bench) == []
        bench.answer(pull)
    assert merging(bench) == ["ana", "ben", "eve"]


@pytest.mark.parametrize("how", ["link down", "suspect", "evicted"])
def test_it_waits_for_nobody_who_is_excused(how: str) -> None:
    """[P] §3.4: a failure closes the round for the others; K = all are all who can answer."""
    bench = fleet("ana", "ben", quorum=None)
    bench.answer(asked(bench)["ana"])
    assert merging(bench) == []
    if how == "link down":
        bench.drop("ben")
    else:
        bench.view("ben", Status(how))
    assert merging(bench) == ["ana"]


def test_what_comes_after_the_closing_is_late() -> None:
    """[P] §3.4: it is not merged into this version, and its sender is told so."""
    bench = fleet("ana", "ben")
    pulls = asked(bench)
    bench.answer(pulls["ana"])
    bench.merge()
    bench.answer(pulls["ben"])
    assert (merging(bench), fates(bench)) == ([], [Fate.LATE])


# --- below the quorum --------------------------------------------------------------------------


def test_below_the_quorum_the_round_stays_open_and_asks_whoever_comes() -> None:
    """[P] §3.4: recovery completes a quorum that a failure had broken, in the same round."""
    bench = fleet("ana", "ben", quorum=2)
    pulls = asked(bench)
    bench.answer(pulls["ana"])
    bench.drop("ben")
    bench.tick(1.0)
    assert merging(bench) == []
    bench.hello("ben")
    (again,) = bench.pulls()
    assert again.ticket == pulls["ben"].ticket
    bench.answer(again)
    assert merging(bench) == ["ana", "ben"]


def test_a_round_that_stays_below_its_quorum_is_abandoned() -> None:
    """[O] §3.4: after 4·P·ξ_step, 10 s at least, the fragment keeps its version; none is lost."""
    bench = fleet("ana", "ben", quorum=2)
    bench.answer(asked(bench)["ana"])
    bench.tick(9.75)
    assert fates(bench) == []
    bench.tick(0.25)
    assert (merging(bench), fates(bench)) == ([], [Fate.LATE])
    assert bench.state.version(0) == Version(1, 0)
    row = bench.state.ledger_rows()[0]
    assert row.processed == row.late + row.pending
