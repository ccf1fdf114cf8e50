"""What a peer says that cannot be true ends its session, and not the syncer."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import msgspec
import pytest

from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Role,
    Status,
    Version,
)
from islands.protocol.messages.membership import Evicted, Refused
from islands.protocol.messages.training import (
    FragmentProgress,
    Progress,
    PullFragment,
)
from islands.protocol.sessions import Received
from islands.protocol.settings.choices import PaceBy
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import DropContribution
from islands.protocol.syncer.events import ContributionArrived
from islands.protocol.syncer.journalling import Durable
from islands.protocol.syncer.members import WRONGS_MAX
from islands.protocol.tape.member_entries import WrongReport
from islands.syncer.journal import encode
from tests.syncer.bench import BATCH, GOOD, Bench, opened, seeded


def running(settings: RunSettings | None = None) -> Bench:
    bench = seeded("ana", "ben", settings=settings)
    for name in ("ana", "ben"):
        bench.step(name, 2)
    return bench


def told(bench: Bench, progress: Progress) -> None:
    bench.do(Received(progress, bench.connections[progress.name]))


def fragment(progress: Progress, **changed: object) -> Progress:
    """A report that differs in what it says of fragment 1."""
    first, second = progress.fragments
    return replace(progress, fragments=(first, msgspec.structs.replace(second, **changed)))


WRONG: list[tuple[Callable[[Progress], Progress], str]] = [
    (lambda p: fragment(p, settled_tokens=9), "fragment 1 has 9 tokens unaccounted for"),
    (lambda p: fragment(p, version=Version(9, 9)), "holds version 9.9, the newest here is 1.0"),
    (lambda p: fragment(p, base_steps=-1), "a count below 0"),
    (lambda p: replace(p, tokens=10**9), "1000000000 tokens were processed"),
    (lambda p: replace(p, step_time_s=nan), "a step time of nan s"),
    (lambda p: replace(p, step_time_s=-1.0), "a step time of -1.0 s"),
    (lambda p: replace(p, step_time_s=inf), "a step time of inf s"),
    (lambda p: replace(p, step_time_s=1e308), "a step time of 1e+308 s"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG, ids=range(len(WRONG)))
def test_a_report_that_cannot_be_true_ends_its_senders_session(
    change: Callable[[Progress], Progress], sentence: str
) -> None:
    bench = running()
    told(bench, change(bench.learners["ana"].progress()))
    evicted = bench.last_word(Evicted)
    assert sentence in evicted.reason
    assert bench.entries(WrongReport)
    assert bench.core.durable.fence.names[LearnerName("ana")] == Incarnation(1, 1)
    assert all(row.imbalance == 0 for row in bench.state.ledger_rows())
    bench.step("ben")
    assert not bench.dismissed()


def test_who_is_wrong_again_and_again_is_refused_for_good() -> None:
    words: list[list[object]] = []
    for pause_s in (1.0, 700.0):
        bench = running()
        said: list[object] = []
        for counter in range(1, WRONGS_MAX + 1):
            if counter > 1:
                bench.hello("ana", counter=counter)
            bench.tick(pause_s)
            told(bench, replace(bench.learners["ana"].progress(), step_time_s=-1.0))
            said += bench.dismissed()
        words.append(said)
    often, rarely = words
    assert [type(word) for word in often] == [Evicted, Evicted, Refused]
    assert isinstance(often[-1], Refused)
    assert not often[-1].retry
    assert [type(word) for word in rarely] == [Evicted] * 3


def test_wrongs_that_no_longer_count_are_forgotten() -> None:
    bench = running()
    for name in ("ana", "ben"):
        told(bench, replace(bench.learners[name].progress(), step_time_s=-1.0))
        bench.tick(700.0)
    assert list(bench.core.members.wrongs) == ["ben"]


def test_its_quota_goes_to_others_as_far_as_it_was_believed() -> None:
    bench = running()
    told(bench, replace(bench.learners["ana"].progress(), tokens=10**9))
    assert bench.core.durable.leases.closed_tokens == 2 * BATCH
    assert bench.state.ledger_rows()[0].lost == 2 * BATCH


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, steps=1, tokens=BATCH),
        lambda p: replace(p, fragments=(FragmentProgress(), *p.fragments[1:])),
        lambda p: replace(p, incarnation=Incarnation(1, 7), steps=3, tokens=3 * BATCH),
        lambda p: replace(p, fragments=p.fragments[:1]),
    ],
    ids=["fewer steps", "an older version", "another incarnation", "fewer fragments"],
)
def test_a_report_of_another_time_is_ignored(change: Callable[[Progress], Progress]) -> None:
    bench = running()
    before = bench.record("ana").progress
    told(bench, change(bench.learners["ana"].progress()))
    assert not bench.dismissed()
    assert bench.record("ana").progress == before


def hello(bench: Bench, progress: Progress, *, role: Role = Role.LEARNER) -> None:
    bench.open(bench.learners["ana"], 50, progress=progress, role=role)


def test_a_hello_that_cannot_be_true_is_that_of_another_incarnation() -> None:
    bench = running()
    hello(bench, fragment(bench.learners["ana"].progress(), settled_tokens=9))
    evicted = bench.last_word(Evicted)
    assert "its report cannot be true: fragment 1" in evicted.reason
    assert all(row.imbalance == 0 for row in bench.state.ledger_rows())


def test_nobody_says_hello_with_anothers_report() -> None:
    bench = running()
    mine = bench.learners["ana"].progress()
    for progress in (
        replace(mine, name=LearnerName("ben")),
        replace(mine, incarnation=Incarnation(1, 9)),
    ):
        hello(bench, progress)
        refused = bench.last_word(Refused)
        assert "its report is of" in refused.reason
    hello(bench, mine, role=Role.OBSERVER)
    refused = bench.last_word(Refused)
    assert refused.reason == "ana is a learner, not a observer"


def test_an_incarnation_that_forgot_what_it_held_is_another_process() -> None:
    bench = running()
    again = Bench(bench.settings, durable=bench.core.durable, epoch=2)
    again.hello("ana")
    again.last_word(Evicted)


def restored(bench: Bench, copy: bytes) -> Bench:
    """A new start of the syncer on a journal that was copied earlier; learners live on."""
    again = Bench(bench.settings, durable=msgspec.json.decode(copy, type=Durable), epoch=2)
    again.learners = bench.learners
    return again


def merged_once(bench: Bench) -> None:
    while not bench.core.rounds.open:
        for name in sorted(bench.learners):
            bench.step(name)
    for round_ in list(bench.core.rounds.open.values()):
        for name in round_.waiting:
            ticket, index = round_.asked[name], FragmentIndex(round_.fragment)
            bench.answer(PullFragment(ticket, index, round_.version))
        bench.commit()
    for name in sorted(bench.learners):
        bench.adopt(name)


def test_after_a_restored_journal_learners_come_back_as_others() -> None:
    """They are ahead of its books, and hold versions that it lacks: no lie, and not their end.

    What they did since is in no book; the tape tells how many tokens that were. Coming back with
    nothing in their accounts, they adopt the restored versions, and the run goes on.
    """
    bench = running(RunSettings(interval_steps=4, fragments=2, quorum=None))
    copy = encode(bench.core.durable)
    for _ in range(3):
        merged_once(bench)
    again = restored(bench, copy)
    for number, name in enumerate(("ana", "ben"), start=1):
        known = again.core.durable.ledger.books[LearnerName(name)].processed
        done = bench.learners[name].steps * BATCH
        again.hello(name, connection=number)
        again.last_word(Evicted)
        (told_,) = again.entries(WrongReport)
        assert told_.untold_tokens == done - known > 0
    for number, name in enumerate(("ana", "ben"), start=3):
        again.hello(name, counter=number, connection=number)
        again.journal()
        again.adopt(name)
    for _ in range(2):
        merged_once(again)
    assert again.core.durable.merges >= 2
    assert all(row.imbalance == 0 for row in again.state.ledger_rows())


def test_a_version_that_the_journal_lacks_is_adopted_anew() -> None:
    bench = running()
    copy = encode(bench.core.durable)
    bench.learners["ana"].adopt(0, Version(1, 7))
    again = restored(bench, copy)
    again.hello("ana")
    evicted = again.last_word(Evicted)
    assert "holds version 1.7, the newest here is 1.0" in evicted.reason


def test_a_step_of_who_sets_the_pace_is_taken_in_once() -> None:
    settings = RunSettings(interval_steps=1000, fragments=2, pace_by=PaceBy.FASTEST)
    bench = seeded("ana", "ben", "cem", settings=settings)
    bench.learners["ben"].step_time_s = 0.3
    bench.step("ana")
    bench.step("ben", 2)
    measured_s = bench.core.step_s
    assert 0.1 < measured_s < 0.3
    bench.view("ben", Status.EVICTED)
    assert bench.core.pace_setter() == "ana"
    bench.step("cem")
    assert bench.core.pace_setter() == "ana"
    assert bench.core.step_s == measured_s
    bench.step("ana")
    assert bench.core.step_s < measured_s


@pytest.mark.parametrize(
    "changed",
    [{"tokens": 10**9}, {"tokens": 10**9, "processed_tokens": 10**9}, {"processed_tokens": 0}],
    ids=["more than it processed", "more than it was granted", "less than it sends"],
)
def test_tokens_that_were_not_processed_are_refused(changed: dict[str, int]) -> None:
    bench = seeded("ana", "ben")
    pull = next(pull for pull in opened(bench) if pull.ticket.name == "ana")
    bench.answer(pull, **changed)  # type: ignore[arg-type]
    assert bench.fates() == [(Fate.REJECTED, "more tokens than were processed")]
    assert len(bench.core.members.wrongs[LearnerName("ana")]) == 1
    assert (
        bench.core.durable.ledger.books[LearnerName("ana")].processed
        <= bench.learners["ana"].steps * BATCH
    )


def test_what_was_applied_is_not_applied_again() -> None:
    bench = seeded("ana")
    pull = opened(bench)[0]
    bench.commit([pull])
    bench.adopt("ana")
    again = next(one for one in opened(bench) if one.ticket.name == "ana")
    if again.fragment != pull.fragment:
        bench.commit([again])
        bench.adopt("ana")
        again = next(one for one in opened(bench) if one.ticket.name == "ana")
    bench.answer(again, tokens=bench.learners["ana"].steps * BATCH)
    assert bench.fates() == [(Fate.REJECTED, "more tokens than were processed")]


def test_leases_of_others_are_not_taken_up() -> None:
    bench = running()
    mine = bench.learners["ana"].progress()
    told(bench, replace(mine, leases=(*mine.leases, Lease(0, 7, 99), Lease(5, 0, -3))))
    held = bench.holder("ana").leases
    assert Lease(0, 7, 99) not in held
    assert not bench.dismissed()


def test_observers_do_not_contribute() -> None:
    bench = seeded("ana", "ben")
    bench.observe("eye", connection=70)
    pull = next(iter(opened(bench)))
    ticket = replace(pull.ticket, name=LearnerName("eye"))
    foreign = replace(bench.contribution(pull), ticket=ticket)
    bench.do(ContributionArrived(foreign, GOOD, 70))
    assert bench.of(DropContribution) == [DropContribution(ticket)]
    assert not bench.fates()
