"""What is sent is durable, and sent again to whoever does not hold it; old values are freed."""

from dataclasses import replace

import pytest

from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Status,
    Version,
)
from islands.protocol.messages.training import FragmentRequest, FragmentSeed, LeaseGranted
from islands.protocol.sessions import Received
from islands.protocol.settings.choices import UpdatePrecision
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import actions, events
from islands.protocol.tape.round_entries import SeedLate
from islands.syncer.journal import decode, encode
from tests.syncer.bench import CONNECTION, GOOD, Bench, opened, seeded


def seed_of(bench: Bench, fragment: int) -> FragmentSeed:
    seeding = bench.core.versions.seeding
    assert seeding is not None
    return FragmentSeed(1, FragmentIndex(fragment), seeding.name, seeding.incarnation, "")


def test_the_first_learner_by_name_is_asked_for_version_zero() -> None:
    bench = Bench()
    bench.hello("ben")
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1]
    bench.hello("ana")
    assert bench.sent(FragmentRequest) == []


def test_a_few_fragments_of_version_zero_are_on_their_way_at_once() -> None:
    bench = Bench(fragments=7)
    bench.hello("ana")
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1, 2, 3]
    for arrived, further in ((1, [4]), (0, [5]), (3, [6]), (2, [])):
        bench.do(events.SeedArrived(seed_of(bench, arrived), intact=True))
        assert [request.fragment for request in bench.sent(FragmentRequest)] == further
    bench.do(events.SeedArrived(seed_of(bench, 3), intact=True))
    assert bench.sent(FragmentRequest) == []
    bench.tick(2.5)
    bench.tick(2.5)
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [4, 5, 6]


def test_a_seed_that_takes_long_is_not_asked_for_over_and_over() -> None:
    bench = Bench()
    bench.hello("ana")
    asked_s: list[float] = []
    for _ in range(1600):
        bench.tick(1.0)
        assert bench.entries(SeedLate) == []  # nobody else could be asked
        if bench.sent(FragmentRequest):
            asked_s.append(bench.now_s)
    assert len(asked_s) <= 10
    assert asked_s[0] <= 3.0


def test_who_never_offers_makes_place_for_another() -> None:
    bench = Bench()
    bench.hello("ana")
    bench.hello("ben")
    asked, since_s, spans_s = ["ana"], 0.0, list[float]()
    while len(asked) < 5:
        bench.tick(1.0)
        assert bench.now_s < 3600.0
        if bench.seeding.name != asked[-1]:
            assert [entry.name for entry in bench.entries(SeedLate)] == [asked[-1]]
            assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1]
            spans_s.append(bench.now_s - since_s)
            asked.append(bench.seeding.name)
            since_s = bench.now_s
    assert asked == ["ana", "ben", "ana", "ben", "ana"]
    assert spans_s[2] > 1.5 * spans_s[0]
    bench.seed()
    assert bench.state.version(0) == Version(1, 0)


def test_a_seed_that_goes_on_is_waited_for() -> None:
    bench = Bench(fragments=8)
    bench.hello("ana")
    bench.hello("ben")
    for index in range(7):
        for _ in range(100):
            bench.tick(1.0)
        assert bench.seeding.name == "ana"
        bench.do(events.SeedArrived(seed_of(bench, index), intact=True))


@pytest.mark.parametrize("gone", [False, True], ids=["damaged", "gone"])
def test_another_learner_is_asked_when_the_first_fails(*, gone: bool) -> None:
    bench = Bench()
    bench.hello("ana")
    bench.hello("ben")
    bench.do(events.SeedArrived(seed_of(bench, 0), intact=gone))
    if gone:
        bench.drop("ana")
    else:
        bench.tick(2.5)
    assert (bench.seeding.name, bench.seeding.digests) == ("ben", {})
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1]


def test_a_seed_of_somebody_else_is_ignored() -> None:
    bench = Bench()
    bench.hello("ana")
    good = seed_of(bench, 0)
    for bad in (
        replace(good, incarnation=Incarnation(1, 9)),
        replace(good, epoch=0),
        replace(good, fragment=FragmentIndex(7)),
    ):
        bench.do(events.SeedArrived(bad, intact=True))
    assert bench.seeding.digests == {}


def test_version_zero_is_sent_when_all_of_it_is_durable() -> None:
    bench = Bench(fragments=3)
    bench.hello("ana")
    for index in range(3):
        bench.do(events.SeedArrived(seed_of(bench, index), intact=True))
    assert len(bench.of(actions.InstallSeed)) == 1
    for index in range(3):
        assert [record.fragment for record in bench.written()] == [index]
        named = [held is not None for held in bench.core.durable.published]
        assert named == [True] * (index + 1) + [False] * (2 - index)
        assert bench.updates() == []
        bench.do(events.JournalFinished(bench.core.durable.sequence))
    assert sorted(update.fragment for update in bench.updates()) == [0, 1, 2]


def test_the_seed_survives_its_sender() -> None:
    bench = Bench()
    bench.hello("ana")
    for index in range(2):
        bench.do(events.SeedArrived(seed_of(bench, index), intact=True))
    bench.drop("ana")
    bench.journal()
    assert [bench.state.version(index) for index in range(2)] == [Version(1, 0)] * 2


def test_an_initial_value_is_taken_once_and_no_learner_is_asked() -> None:
    bench = Bench(initial=True)
    bench.hello("ana")
    bench.tick(10.0)
    assert not bench.sent(FragmentRequest)
    bench.do(events.InitialRead(("zero", "one")))
    (install,) = bench.of(actions.InstallSeed)
    assert install == actions.InstallSeed(Version(1, 0), ("zero", "one"))
    assert not bench.updates()
    bench.journal()
    assert [(update.version, update.digest) for update in bench.updates()] == [
        (Version(1, 0), "zero"),
        (Version(1, 0), "one"),
    ]
    assert bench.state.version(1) == Version(1, 0)
    bench = seeded("ana")
    bench.do(events.InitialRead(("zero", "one")))
    assert not bench.of(actions.InstallSeed)


def test_an_initial_value_may_come_before_anybody_else() -> None:
    bench = Bench(initial=True)
    bench.do(events.InitialRead(("zero", "one")))
    bench.journal()
    bench.hello("ana")
    assert bench.receivers(0) == ["ana"]


def test_a_version_carries_the_tokens_that_it_accounts_for() -> None:
    """None for initial values; then those merged, or discarded before, also after a restart.

    What learners have done since, and in the overlap, is in no value yet.
    """
    settings = RunSettings(interval_steps=4, fragments=1, quorum=None)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    bench.step("ana", 3)
    bench.hello("late")
    bench.adopt("late")
    assert bench.core.versions.published[0] is not None
    assert bench.core.versions.published[0].tokens == 0
    pulls = opened(bench)
    contributions = [bench.contribution(pull) for pull in pulls]
    merged = sum(contribution.tokens for contribution in contributions)
    bench.step("ana", 2)
    for contribution in contributions:
        connection = bench.connections[contribution.ticket.name]
        bench.do(events.ContributionArrived(contribution, GOOD, connection))
    bench.commit()
    assert {update.tokens for update in bench.updates()} == {merged}
    bench.step("ben", 2)
    again = Bench(settings, fragments=1, durable=decode(encode(bench.core.durable)), epoch=2)
    again.hello("watcher")
    assert bench.core.durable.ledger.processed > merged == again.state.published_tokens


def test_a_grant_waits_for_its_own_record() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    for pull in opened(bench):
        bench.answer(pull)
    bench.merge()
    (merged,) = bench.written()
    holders = bench.core.durable.leases.holders
    before = holders[bench.learners["ben"].name].quota_tokens
    bench.step("ben", 1100)
    record = bench.written() or [a for a in bench.tick(2.0) if isinstance(a, actions.WriteJournal)]
    assert holders[bench.learners["ben"].name].quota_tokens > before

    def granted() -> bool:
        return any(grant.quota_tokens > before for grant in bench.sent(LeaseGranted))

    assert not granted()
    bench.do(events.JournalFinished(merged.sequence))
    assert not granted()
    bench.do(events.JournalFinished(record[-1].sequence))
    assert granted()


def test_an_update_does_not_name_what_only_a_later_version_contains() -> None:
    settings = RunSettings(interval_steps=4, fragments=1, quorum=None)
    bench = seeded("ana", settings=settings, fragments=1)
    rounds = []
    for _ in range(2):
        bench.journal()
        bench.adopt("ana")
        (pull,) = opened(bench)
        bench.answer(pull)
        bench.merge()
        rounds.append(pull.ticket.round)
    bench.hello("ana")
    (update,) = bench.updates()
    assert update.version == Version(1, 1)
    assert update.merged is None or update.merged.round == rounds[0]
    bench.journal()
    (update,) = bench.updates()
    assert update.version == Version(1, 2)
    assert update.merged is not None
    assert update.merged.round == rounds[1]


def test_a_learner_that_holds_other_bytes_of_a_version_is_sent_it_again() -> None:
    settings = RunSettings(interval_steps=4, fragments=1, quorum=None)
    bench = seeded("ana", settings=settings, fragments=1)
    (pull,) = opened(bench)
    bench.commit([pull])
    bench.adopt("ana")
    published = bench.core.versions.published[0]
    assert published is not None
    for connection, digest, again in ((2, published.digest, 0), (3, "another", 1)):
        bench.open(bench.learners["ana"], connection, digests=(digest,))
        assert len(bench.updates()) == again


def test_a_grant_is_repeated_until_it_is_told() -> None:
    bench = seeded("ana")
    granted = bench.holder("ana").quota_tokens
    bench.tick(after_s=3.0)
    assert [grant.quota_tokens for grant in bench.sent(LeaseGranted)] == [granted]
    bench.learners["ana"].quota = granted
    bench.report("ana")
    bench.tick(after_s=3.0)
    assert bench.sent(LeaseGranted) == []


SETTINGS = RunSettings(interval_steps=4, fragments=1, quorum=None)
INCREMENT = events.IncrementFacts(10, 1000, 0.0)


def merged(bench: Bench, increment: events.IncrementFacts | None = None) -> Version:
    """A round until its quorum, durable and sent to all; the version that it made."""
    for pull in opened(bench):
        bench.answer(pull)
        if bench.of(actions.BeginMerge):
            break
    made = bench.merge(increment=increment).target
    bench.journal()
    return made


def released(bench: Bench) -> list[tuple[int, Version]]:
    return [(action.fragment, action.version) for action in bench.of(actions.ReleaseValues)]


def test_old_values_are_freed_once_everybody_has_adopted() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == []
    assert len(bench.core.versions.kept[0]) == 2
    bench.adopt("ben")
    assert released(bench) == [(0, newest)]
    assert list(bench.core.versions.kept[0]) == [newest]
    bench.report("ben")
    assert released(bench) == []


def test_who_is_behind_contributes_as_before() -> None:
    settings = replace(SETTINGS, quorum=1)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    of_ana = next(pull for pull in opened(bench) if pull.ticket.name == "ana")
    bench.commit([of_ana])
    bench.adopt("ana")
    assert released(bench) == []
    of_ben = next(pull for pull in opened(bench) if pull.ticket.name == "ben")
    bench.answer(of_ben)
    bench.tick(0.5)
    (begun,) = bench.of(actions.BeginMerge)
    assert [part.base for part in begun.parts] == [Version(1, 0)]
    assert begun.current == Version(1, 1)


def test_nothing_is_freed_while_a_round_is_open() -> None:
    settings = replace(SETTINGS, quorum=1)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    merged(bench)
    bench.adopt("ana")
    pulls = opened(bench)
    assert {pull.ticket.name for pull in pulls} == {"ana", "ben"}
    of_ben = next(pull for pull in pulls if pull.ticket.name == "ben")
    answer = bench.contribution(of_ben)
    bench.adopt("ben")
    assert released(bench) == []
    assert answer.base in bench.core.versions.kept[0]


def test_who_was_evicted_comes_back_with_its_work() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    bench.view("ben", Status.EVICTED)
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == []
    bench.hello("ben", counter=2)
    ben = bench.learners["ben"]
    ben.phase, ben.versions[0] = Phase.STEPPING, Version(1, 0)
    bench.report("ben")
    assert released(bench) == []
    bench.journal()
    bench.step("ben")
    assert bench.core.ineligible(LearnerName("ben"), 0) is None
    bench.adopt("ben")
    assert released(bench) == [(0, newest)]


def test_who_never_comes_back_costs_memory_for_a_while_only() -> None:
    bench = seeded("ana", "ben", settings=replace(SETTINGS, staleness_max=2), fragments=1)
    bench.view("ben", Status.EVICTED)
    found: list[bool] = []
    for _ in range(4):
        merged(bench)
        bench.adopt("ana")
        found.append(bool(released(bench)))
    assert found == [False, False, True, True]


def test_a_learner_that_left_from_the_newest_version_delays_nothing() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    newest = merged(bench)
    bench.adopt("ben")
    bench.view("ben", Status.EVICTED)
    assert released(bench) == []
    bench.adopt("ana")
    assert released(bench) == [(0, newest)]


def test_a_restarted_syncer_waits_for_those_in_its_books() -> None:
    first = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    bench = Bench(SETTINGS, fragments=1, durable=first.core.durable, epoch=2)
    bench.learners = {"ana": first.learners["ana"]}
    bench.hello("ana")
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == []
    bench.learners["ben"] = first.learners["ben"]
    bench.hello("ben")
    assert Version(1, 0) in bench.core.versions.kept[0]
    bench.adopt("ben")
    assert released(bench) == [(0, newest)]


def test_a_sweep_frees_what_no_report_did() -> None:
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    newest = merged(bench)
    bench.adopt("ana")
    bench.learners["ben"].adopt(0, newest, 0)
    bench.drop("ben")
    bench.hello("ben", counter=2)
    bench.learners["ben"].versions[0] = newest
    bench.report("ben")
    bench.tick(60.0)
    assert list(bench.core.versions.kept[0]) == [newest]


@pytest.mark.parametrize("precision", [UpdatePrecision.FLOAT32, UpdatePrecision.INT8])
def test_observers_count_where_updates_are_increments(precision: UpdatePrecision) -> None:
    bench = seeded("ana", settings=replace(SETTINGS, update_precision=precision), fragments=1)
    bench.observe("reader")
    reader = replace(bench.record("reader").progress)
    one = bench.record("ana").progress.fragments
    bench.do(Received(replace(reader, fragments=one), CONNECTION))
    newest = merged(bench, INCREMENT if precision.of_increments else None)
    bench.adopt("ana")
    assert bool(released(bench)) is not precision.of_increments
    assert bench.record("reader").role is Role.OBSERVER
    now = bench.record("ana").progress.fragments
    bench.do(Received(replace(reader, fragments=now), CONNECTION))
    assert list(bench.core.versions.kept[0]) == [newest]


def test_who_comes_back_after_increments_were_freed_gets_the_value() -> None:
    settings = replace(SETTINGS, update_precision=UpdatePrecision.INT8, staleness_max=0)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    bench.view("ben", Status.EVICTED)
    newest = merged(bench, INCREMENT)
    assert [a.message.since is not None for a in bench.of(actions.SendValue)] == [True]
    bench.adopt("ana")
    assert released(bench) == [(0, newest)]
    bench.hello("ben", counter=2)
    ben = bench.learners["ben"]
    ben.phase, ben.versions[0] = Phase.STEPPING, Version(1, 0)
    bench.report("ben")
    bench.tick(60.0)
    assert [a.message.since for a in bench.of(actions.SendValue)] == [None]
    assert Fate.APPLIED not in [fate for fate, _ in bench.fates()]
