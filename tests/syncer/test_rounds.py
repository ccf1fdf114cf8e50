"""One round on the syncer's state: asking, admitting, closing, abandoning."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate, Incarnation, Phase, Status, Version
from islands.protocol.messages.membership import Refused
from islands.protocol.messages.training import ContributionFate, PullFragment
from islands.protocol.settings.choices import PaceBy
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.syncer.actions import BeginMerge, DropContribution
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.plausibility import Check
from islands.protocol.syncer.rounds import ABANDONED_KEPT, Pace, Round, Rounds, Stage
from islands.protocol.tape.round_entries import FateTold
from tests.syncer.bench import GOOD, Bench, opened, seeded

ALL = RunSettings(interval_steps=4, fragments=2, quorum=None, timing=Timing(round_s=10.0))
NOT_FINITE = Check(schema_ok=True, digest_ok=True, finite=False, norm=float("inf"))


def test_a_round_of_all_closes_at_the_last_arrival_and_is_sent_when_it_is_durable() -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, ben = pulls = opened(bench)
    assert [pull.ticket.name for pull in pulls] == ["ana", "ben"]
    assert {pull.ticket.round for pull in pulls} == {0}
    assert {pull.version for pull in pulls} == {Version(1, 0)}
    bench.answer(ben)
    assert bench.of(BeginMerge) == []
    bench.answer(ana)
    begun = bench.merge()
    assert [part.ticket.name for part in begun.parts] == ["ana", "ben"]
    assert (begun.current, begun.target) == (Version(1, 0), Version(1, 1))
    assert bench.updates() == []
    assert [record.fragment for record in bench.written()] == [0]
    bench.journal()
    updates = [update for update in bench.updates() if update.fragment == 0]
    assert [update.version for update in updates] == [Version(1, 1)] * 2
    assert sorted(u.merged.steps for u in updates if u.merged is not None) == [1, 2]


def test_the_first_arrival_closes_without_grace() -> None:
    bench = seeded("ana", "ben")
    ana, ben = opened(bench)
    bench.answer(ana)
    begun = bench.merge()
    assert len(begun.parts) == 1
    for fates in ([(Fate.LATE, "the round has closed")], []):
        bench.answer(ben)
        assert bench.fates() == fates
        assert bench.of(DropContribution) == [DropContribution(ben.ticket)]


@pytest.mark.parametrize(
    "forged", [{"epoch": 0}, {"round": 5}, {"incarnation": Incarnation(1, 9)}, {"name": "eve"}]
)
def test_nothing_but_the_ticket_identifies_an_answer(forged: dict[str, object]) -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, _ = opened(bench)
    bad = replace(ana.ticket, **forged)  # type: ignore[arg-type]
    bench.answer(ana, ticket=bad)
    assert bench.core.rounds.open[0].arrived == {}
    assert bench.of(DropContribution) == [DropContribution(bad)]


def test_an_answer_from_another_base_is_stale() -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, _ = opened(bench)
    bench.answer(ana, base=Version(0, 3))
    assert [fate for fate, _ in bench.fates()] == [Fate.STALE]
    assert bench.core.members.wrongs == {}


@pytest.mark.parametrize("quorum", [1, 2, None])
@pytest.mark.parametrize("breaks", ["before it arrives", "and is back before it arrives"])
def test_what_comes_over_a_lost_link_is_void_and_asked_again(
    quorum: int | None, breaks: str
) -> None:
    bench = seeded("ana", "ben", settings=replace(ALL, quorum=quorum))
    ana, ben = opened(bench)
    old, contribution = bench.connections["ana"], bench.contribution(ana)
    bench.drop("ana")
    assert bench.core.rounds.open[0].waiting == ["ben"]
    if breaks == "before it arrives":
        bench.do(ContributionArrived(contribution, GOOD, old))
    bench.hello("ana")
    assert bench.pulls() == [ana]
    if breaks != "before it arrives":
        bench.do(ContributionArrived(contribution, GOOD, old))
    assert bench.of(DropContribution) in ([], [DropContribution(ana.ticket, old)])
    assert bench.core.rounds.open[0].waiting == ["ana", "ben"]
    assert bench.core.rounds.open[0].arrived == {}
    bench.step("ana")
    bench.answer(ana)
    if quorum != 1:
        assert bench.of(BeginMerge) == []
        bench.answer(ben)
    begun = bench.merge()
    assert begun.parts[0].connection == bench.connections["ana"]
    assert begun.parts[0].steps == contribution.steps + 1
    assert Fate.LATE not in [fate for fate, _ in bench.fates()]


def test_an_answer_that_was_admitted_stays_though_its_link_and_a_repetition_are_void() -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, ben = opened(bench)
    old, contribution = bench.connections["ana"], bench.contribution(ana)
    bench.answer(ana)
    bench.drop("ana")
    bench.do(ContributionArrived(contribution, GOOD, old))
    assert bench.of(DropContribution) == []
    bench.answer(ben)
    assert [part.connection for part in bench.merge().parts] == [old, bench.connections["ben"]]


def test_the_third_wrong_contribution_refuses_its_sender_for_good() -> None:
    bench = seeded("ana", "ben")
    refused: list[object] = []
    for _ in range(3):
        assert refused == []
        pulls = opened(bench)
        for pull in pulls:
            bench.answer(pull, check=NOT_FINITE if pull.ticket.name == "ana" else GOOD)
            refused += bench.dismissed()
            if bench.of(BeginMerge):
                bench.commit()
        bench.adopt("ben")
        if not refused:
            bench.adopt("ana")
    (notice,) = refused
    assert isinstance(notice, Refused)
    assert not notice.retry
    assert "not finite" in notice.reason
    assert list(bench.core.members.learners) == ["ben"]


@pytest.mark.parametrize("status", [Status.SUSPECT, Status.STALLED])
def test_a_suspect_is_excused_and_may_still_answer(status: Status) -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, ben = opened(bench)
    bench.view("ben", status)
    assert bench.core.rounds.open[0].waiting == ["ana"]
    bench.answer(ben)
    bench.answer(ana)
    assert len(bench.merge().parts) == 2


def test_the_successor_of_a_fenced_contributor_is_asked_anew() -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, ben = opened(bench)
    bench.answer(ana)
    bench.hello("ana", counter=2)
    assert bench.of(DropContribution) == [DropContribution(ana.ticket)]
    told = [(entry.ticket, entry.reason) for entry in bench.entries(FateTold)]
    assert told == [(str(ana.ticket), "fenced")]
    assert bench.core.rounds.open[ana.fragment].arrived == {}
    bench.adopt("ana")
    bench.step("ana")
    bench.answer(ben)
    assert [part.ticket.name for part in bench.merge().parts] == ["ben"]


def test_a_fenced_contributor_does_not_count_for_the_quorum() -> None:
    bench = seeded("ana", "ben", "cho", settings=replace(ALL, quorum=2))
    ana, ben, cho = opened(bench)
    bench.core.rounds.durations.step_s.add(1.0)
    bench.core.rounds.durations.quorum_s.add(0.0)
    bench.core.rounds.durations.sync_s.add(0.0)
    bench.answer(ana)
    bench.answer(ben)
    bench.view("ana", Status.EVICTED)
    bench.tick(1.0)
    assert bench.core.rounds.open[0].stage is Stage.COLLECTING
    bench.answer(cho)
    assert [part.ticket.name for part in bench.merge().parts] == ["ben", "cho"]


def test_below_the_quorum_the_round_is_abandoned() -> None:
    bench = seeded("ana", "ben", settings=replace(ALL, quorum=2))
    ana, _ = opened(bench)
    bench.answer(ana)
    bench.tick(10.0)
    assert [fate for fate, _ in bench.fates()] == [Fate.LATE]
    assert [message.fate for message in bench.sent(ContributionFate)] == [Fate.LATE]
    assert 0 not in bench.core.rounds.open
    assert bench.state.version(0) == Version(1, 0)
    assert bench.state.ledger_rows()[0].imbalance == 0


def test_who_has_no_tokens_left_is_asked_but_does_not_set_the_pace() -> None:
    bench = seeded("ana", "ben", "cho", settings=ALL)
    for name in ("ana", "ben"):
        bench.learners[name].phase = Phase.STARVED
        bench.step(name)
    bench.step("cho")
    assert bench.pulls() == []
    bench.step("cho")
    assert [pull.ticket.name for pull in bench.pulls()] == ["ana", "ben", "cho"]
    bench = seeded("ana", "ben", settings=ALL)
    for name in ("ana", "ben"):
        bench.learners[name].phase = Phase.STARVED
        bench.step(name, 2)
    assert [pull.ticket.name for pull in bench.pulls()] == ["ana", "ben"]


def test_a_pull_is_repeated_while_it_is_unanswered_also_if_all_decline() -> None:
    bench = seeded("ana", settings=ALL)
    (ana,) = opened(bench)
    bench.tick(1.0)
    assert bench.pulls() == []
    bench.tick(1.5)
    assert bench.pulls() == [ana]
    bench.answer(ana)
    bench.tick(3.0)
    assert bench.pulls() == []
    bench = seeded("ana")
    (ana,) = opened(bench)
    bench.decline(ana)
    assert bench.pulls() == []
    bench.tick(2.5)
    assert bench.pulls() == [ana]
    bench.answer(ana)
    assert len(bench.merge().parts) == 1


ONE = RunSettings(interval_steps=1, fragments=1, overlap_steps=0, warmup_steps=0)
NAMES = ("ana", "ben", "eve")


def finish(bench: Bench) -> BeginMerge:
    """The merge that has begun is computed and durable, and everybody adopts it."""
    begun = bench.commit()
    for name in sorted(bench.learners):
        bench.adopt(name)
    bench.journal()
    return begun


def asked(bench: Bench, *names: str, steps: int = 1) -> list[PullFragment]:
    pulls: list[PullFragment] = []
    for name in names:
        bench.step(name, steps)
        pulls += bench.pulls()
        bench.journal()
    return pulls


def answer_all(bench: Bench, pulls: list[PullFragment], norms: dict[str, float]) -> None:
    while pulls:
        pull = pulls.pop(0)
        norm = norms.get(pull.ticket.name, GOOD.norm)
        bench.answer(pull, check=replace(GOOD, norm=norm))
        pulls += bench.pulls()


def test_whose_link_returns_is_not_asked_for_what_it_answered_nor_for_what_is_merging() -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, _ = opened(bench)
    bench.answer(ana)
    bench.drop("ana")
    bench.hello("ana")
    assert bench.pulls() == []
    bench.drop("ben")
    assert len(bench.of(BeginMerge)) == 1
    bench.hello("ben")
    assert bench.pulls() == []


def test_the_end_of_a_round_is_looked_for_in_time() -> None:
    bench = seeded("ana", "ben", settings=ALL)
    ana, _ = opened(bench)
    bench.answer(ana)
    (round_,) = bench.core.rounds.open.values()
    bench.core.health.swept_s = bench.now_s + 2 * round_.timeout_s  # nothing else is due before
    assert bench.state.deadline_s(bench.now_s) == round_.opened_s + round_.timeout_s


def test_a_fragment_has_one_round_at_a_time() -> None:
    settings = RunSettings(interval_steps=2, fragments=2, overlap_steps=2)
    bench = seeded("ana", "ben", settings=settings)
    (first, *_) = opened(bench)
    assert first.fragment == 0
    for _ in range(20):
        for name in ("ana", "ben"):
            bench.step(name)
            for pull in bench.pulls():
                if pull.fragment == 0:  # who becomes eligible is asked below the quorum
                    assert pull.ticket.round == first.ticket.round
                    continue
                bench.answer(pull)
                if bench.of(BeginMerge):
                    bench.commit()
    assert bench.core.rounds.open[0].number == first.ticket.round


def test_who_completes_the_quorum_after_a_withdrawal_begins_the_grace_anew() -> None:
    bench = seeded(*NAMES, settings=RunSettings(interval_steps=4, fragments=2))
    durations = bench.core.rounds.durations
    durations.step_s.value, durations.sync_s.value, durations.quorum_s.value = 1.0, 0.0, 0.0
    ana, ben, _ = opened(bench)
    durations.step_s.value = 1.0
    bench.answer(ana)
    assert bench.of(BeginMerge) == []
    bench.view("ana", Status.EVICTED)
    bench.tick(after_s=0.9)
    bench.answer(ben)
    durations.quorum_s.value = 0.0
    bench.tick(after_s=0.9)
    assert bench.of(BeginMerge) == []
    bench.tick(after_s=0.2)
    (begun,) = bench.of(BeginMerge)
    assert [part.ticket.name for part in begun.parts] == ["ben"]


def norm_of_last(bench: Bench, norms: list[float], *, steps: list[int]) -> float:
    """One learner contributes with these norms after so many steps each; the last one's scale."""
    scale = 1.0
    for norm, done in zip(norms, steps, strict=True):
        (pull,) = asked(bench, "ana", steps=done)
        bench.answer(pull, check=replace(GOOD, norm=norm))
        scale = finish(bench).parts[0].scale
    return scale


@pytest.mark.parametrize(("norm", "scale"), [(9.0, 1.0), (20.0, 0.5)])
def test_norms_are_compared_per_root_of_steps(norm: float, scale: float) -> None:
    bench = seeded("ana", settings=ONE, fragments=1)
    norms, steps = [4.0] * 8 + [norm], [16] * 8 + [1]
    assert norm_of_last(bench, norms, steps=steps) == pytest.approx(scale)


def test_norms_are_compared_per_learning_rate() -> None:
    settings = replace(ONE, warmup_steps=40, learning_rate=1.0, norm_limit=1.5)
    bench = seeded("ana", settings=settings, fragments=1)
    for _ in range(39):
        (pull,) = asked(bench, "ana")
        rate = settings.learning_rate_at(bench.core.durable.clock)
        bench.answer(pull, check=replace(GOOD, norm=rate))
        assert finish(bench).parts[0].scale == 1.0


def test_a_norm_costs_its_sender_nothing_but_its_scale() -> None:
    settings = replace(ONE, quorum=3)
    bench = seeded(*NAMES, settings=settings, fragments=1)
    for _ in range(3):
        answer_all(bench, asked(bench, *NAMES), {})
        finish(bench)
    answer_all(bench, asked(bench, *NAMES), {"ben": 1000.0})
    (begun,) = bench.of(BeginMerge)
    scales = {str(part.ticket.name): part.scale for part in begun.parts}
    assert scales == {name: pytest.approx(0.01) if name == "ben" else 1.0 for name in scales}
    assert bench.core.members.wrongs == {}


def test_what_was_merged_is_held_no_longer() -> None:
    bench = seeded(*NAMES, settings=replace(ONE, quorum=None), fragments=1)
    for _ in range(2):
        pulls = asked(bench, *NAMES)
        for pull in pulls:
            bench.answer(pull)
        bench.merge()
        dropped = [action.ticket for action in bench.of(DropContribution)]
        assert sorted(dropped) == sorted(pull.ticket for pull in pulls)
        bench.journal()
        for name in NAMES:
            bench.adopt(name)


def test_an_exchange_ends_with_the_adoptions_of_a_quorum_of_learners() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=2))
    bench.commit(opened(bench))
    bench.adopt("ana")
    bench.step("ana")
    bench.report("ana")
    assert bench.core.rounds.durations.sync_s.value is None
    bench.tick(after_s=1.0)
    bench.adopt("ben")
    assert bench.core.rounds.durations.sync_s.value == 1.0


def test_two_unanswered_pulls_are_repeated_and_no_other_is_sent() -> None:
    settings = RunSettings(interval_steps=2, fragments=2, overlap_steps=2)
    bench = seeded("ana", settings=settings)
    pulls = [pull for _ in range(8) for pull in asked(bench, "ana")]
    assert [pull.fragment for pull in pulls] == [0, 1]
    again: list[int] = []
    for _ in range(10):
        bench.tick(after_s=5.0)
        again += [pull.ticket.round for pull in bench.pulls()]
        bench.step("ana")
    assert set(again) == {0, 1}
    bench.answer(pulls[0])
    assert [pull.ticket.round for pull in bench.pulls()] == [2]


def test_the_newest_abandoned_rounds_are_remembered() -> None:
    rounds = Rounds(Pace(PaceBy.MEDIAN, 1.0), [])
    for number in range(ABANDONED_KEPT + 3):
        one = Round(number, 0, Version(1, 0), None, float(number), 10.0)
        rounds.add(one)
        rounds.abandon(one, float(number))
    assert list(rounds.abandoned_s) == list(range(3, ABANDONED_KEPT + 3))
