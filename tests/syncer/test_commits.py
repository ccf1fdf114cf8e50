"""Version 0, and what is durable when something is sent."""

from dataclasses import replace

from islands.protocol.identities import FragmentIndex, Incarnation, Version
from islands.protocol.messages.training import FragmentRequest, FragmentSeed
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import InstallSeed
from islands.protocol.syncer.events import (
    ContributionArrived,
    InitialRead,
    JournalFinished,
    SeedArrived,
)
from islands.protocol.tape.round_entries import SeedLate
from islands.syncer.journal import decode, encode
from tests.syncer.bench import GOOD, Bench, opened, seeded


def seed_of(bench: Bench, fragment: int) -> FragmentSeed:
    """One fragment of the initial value, from the learner that was asked."""
    seeding = bench.core.versions.seeding
    assert seeding is not None
    return FragmentSeed(1, FragmentIndex(fragment), seeding.name, seeding.incarnation, "")


def test_the_first_learner_by_name_is_asked_for_version_zero() -> None:
    """One learner alone offers its initial value."""
    bench = Bench()
    bench.hello("ben")
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1]
    bench.hello("ana")
    assert bench.sent(FragmentRequest) == []


def test_what_is_missing_is_asked_for_again() -> None:
    """A fragment of the seed that was lost under way is requested once more, if none arrives."""
    bench = Bench()
    bench.hello("ana")
    bench.do(SeedArrived(seed_of(bench, 0), intact=True))
    bench.tick(2.5)
    assert bench.sent(FragmentRequest) == []
    bench.tick(2.5)
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [1]


def test_a_few_fragments_of_version_zero_are_on_their_way_at_once() -> None:
    """Each is one more copy at its sender; with each that arrives, a further one is asked for."""
    bench = Bench(fragments=7)
    bench.hello("ana")
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1, 2, 3]
    for arrived, further in ((1, [4]), (0, [5]), (3, [6]), (2, [])):
        bench.do(SeedArrived(seed_of(bench, arrived), intact=True))
        assert [request.fragment for request in bench.sent(FragmentRequest)] == further
    bench.do(SeedArrived(seed_of(bench, 3), intact=True))
    assert bench.sent(FragmentRequest) == []
    bench.tick(2.5)
    bench.tick(2.5)
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [4, 5, 6]


def test_a_seed_that_takes_long_is_not_asked_for_over_and_over() -> None:
    """Each wish costs a whole transfer, so it is repeated after twice as long each time."""
    bench = Bench()
    bench.hello("ana")
    asked_s: list[float] = []
    for _ in range(1600):
        bench.tick(1.0)
        if bench.sent(FragmentRequest):
            asked_s.append(bench.now_s)
    assert len(asked_s) <= 10
    assert asked_s[0] <= 3.0


def late_seeds(bench: Bench) -> list[SeedLate]:
    """What the last event told of learners that were asked in vain."""
    return bench.entries(SeedLate)


def test_who_never_offers_makes_place_for_another() -> None:
    """In turns, each for longer than before: the next one's link may be as slow."""
    bench = Bench()
    bench.hello("ana")
    bench.hello("ben")
    asked, since_s, spans_s = ["ana"], 0.0, list[float]()
    while len(asked) < 5:
        bench.tick(1.0)
        assert bench.now_s < 3600.0
        assert bench.core.versions.seeding is not None
        if bench.core.versions.seeding.name != asked[-1]:
            assert [entry.name for entry in late_seeds(bench)] == [asked[-1]]
            assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1]
            spans_s.append(bench.now_s - since_s)
            asked.append(bench.core.versions.seeding.name)
            since_s = bench.now_s
    assert asked == ["ana", "ben", "ana", "ben", "ana"]
    assert spans_s[2] > 1.5 * spans_s[0]
    bench.seed()
    assert bench.state.version(0) == Version(1, 0)


def test_the_only_one_is_asked_until_it_offers() -> None:
    """What it sent is kept, and nobody is told of a choice that there is not."""
    bench = Bench()
    bench.hello("ana")
    bench.do(SeedArrived(seed_of(bench, 0), intact=True))
    for _ in range(2000):
        bench.tick(5.0)
        assert late_seeds(bench) == []
    assert bench.core.versions.seeding is not None
    assert list(bench.core.versions.seeding.digests) == [0]


def test_a_seed_that_goes_on_is_waited_for() -> None:
    """Each fragment that arrives gives its sender the whole patience again."""
    bench = Bench(fragments=8)
    bench.hello("ana")
    bench.hello("ben")
    for index in range(7):
        for _ in range(100):
            bench.tick(1.0)
        assert bench.core.versions.seeding is not None
        assert bench.core.versions.seeding.name == "ana"
        bench.do(SeedArrived(seed_of(bench, index), intact=True))


def test_after_a_damaged_seed_another_learner_is_asked() -> None:
    """One whose offer was refused is asked again only after the others."""
    bench = Bench()
    bench.hello("ana")
    bench.hello("ben")
    bench.do(SeedArrived(seed_of(bench, 0), intact=False))
    bench.tick(2.5)
    assert bench.core.versions.seeding is not None
    assert bench.core.versions.seeding.name == "ben"
    assert [request.fragment for request in bench.sent(FragmentRequest)] == [0, 1]


def test_another_learner_is_asked_when_the_first_is_gone() -> None:
    """Half a seed is worth nothing."""
    bench = Bench()
    bench.hello("ana")
    bench.hello("ben")
    bench.do(SeedArrived(seed_of(bench, 0), intact=True))
    bench.drop("ana")
    assert bench.core.versions.seeding is not None
    assert bench.core.versions.seeding.name == "ben"
    assert bench.core.versions.seeding.digests == {}


def test_a_seed_of_somebody_else_is_ignored() -> None:
    """Wrong sender, incarnation, epoch or fragment: not part of version 0."""
    bench = Bench()
    bench.hello("ana")
    good = seed_of(bench, 0)
    for bad in (
        replace(good, incarnation=Incarnation(1, 9)),
        replace(good, epoch=0),
        replace(good, fragment=FragmentIndex(7)),
    ):
        bench.do(SeedArrived(bad, intact=True))
    assert bench.core.versions.seeding is not None
    assert bench.core.versions.seeding.digests == {}


def test_version_zero_is_sent_when_all_of_it_is_durable() -> None:
    """Each record names no version whose value is not written; then all are committed at once."""
    bench = Bench(fragments=3)
    bench.hello("ana")
    for index in range(3):
        bench.do(SeedArrived(seed_of(bench, index), intact=True))
    assert len(bench.of(InstallSeed)) == 1
    for index in range(3):
        assert [record.fragment for record in bench.written()] == [index]
        named = [held is not None for held in bench.core.durable.published]
        assert named == [True] * (index + 1) + [False] * (2 - index)
        assert bench.updates() == []
        bench.do(JournalFinished(bench.core.durable.sequence))
    assert sorted(update.fragment for update in bench.updates()) == [0, 1, 2]


def test_the_seed_survives_its_sender() -> None:
    """Once all of it is here, the learner that brought it is not needed any more."""
    bench = Bench()
    bench.hello("ana")
    for index in range(2):
        bench.do(SeedArrived(seed_of(bench, index), intact=True))
    bench.drop("ana")
    bench.journal()
    assert [bench.state.version(index) for index in range(2)] == [Version(1, 0)] * 2


def test_versions_grow_by_one_and_carry_the_epoch() -> None:
    """A restarted syncer goes on from the committed number, in its own epoch."""
    bench = seeded("ana")
    for pull in opened(bench):
        bench.answer(pull)
    bench.merge()
    bench.journal()
    assert bench.state.version(0) == Version(1, 1)
    again = Bench(durable=bench.core.durable, epoch=2)
    again.learners, again.connections = bench.learners, {}
    again.hello("ana")
    again.adopt("ana")
    again.journal()
    round_of = opened(again)
    while round_of[0].fragment != 0:
        again.answer(round_of[0])
        again.merge()
        again.journal()
        again.adopt("ana")
        round_of = opened(again)
    again.answer(round_of[0])
    assert again.merge().target == Version(2, 2)


def test_the_clock_counts_the_rounds_of_the_fleet() -> None:
    """H/P steps per opened round, sent with every update."""
    bench = seeded("ana")
    for pull in opened(bench):
        bench.answer(pull)
    bench.merge()
    bench.journal()
    assert {update.clock for update in bench.updates()} == {bench.core.clock}
    assert bench.core.clock == bench.core.durable.round * 2.0


# ---------------------------------------------------------------------------- a value from a file


def test_with_an_initial_value_no_learner_is_asked() -> None:
    """Not even the first who could offer one; once read, it is journalled before it is sent."""
    bench = Bench(initial=True)
    bench.hello("ana")
    bench.tick(10.0)
    assert not bench.sent(FragmentRequest)
    bench.do(InitialRead(("zero", "one")))
    (install,) = bench.of(InstallSeed)
    assert install == InstallSeed(Version(1, 0), ("zero", "one"))
    assert not bench.updates()
    bench.journal()
    assert [(update.version, update.digest) for update in bench.updates()] == [
        (Version(1, 0), "zero"),
        (Version(1, 0), "one"),
    ]
    assert bench.state.version(1) == Version(1, 0)


def test_an_initial_value_may_come_before_anybody_else() -> None:
    """Who comes later adopts it like any other version."""
    bench = Bench(initial=True)
    bench.do(InitialRead(("zero", "one")))
    bench.journal()
    bench.hello("ana")
    assert bench.receivers(0) == ["ana"]


def test_an_initial_value_is_taken_once() -> None:
    """A run that has a version keeps it."""
    bench = seeded("ana")
    bench.do(InitialRead(("zero", "one")))
    assert not bench.of(InstallSeed)


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
        bench.do(ContributionArrived(contribution, GOOD, connection))
    bench.merge()
    bench.journal()
    assert {update.tokens for update in bench.updates()} == {merged}
    bench.step("ben", 2)
    again = Bench(settings, fragments=1, durable=decode(encode(bench.core.durable)), epoch=2)
    again.hello("watcher")
    assert bench.core.durable.ledger.processed > merged == again.state.published_tokens
