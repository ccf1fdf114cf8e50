"""Which versions, increments and members' values are kept, and who is sent which."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.identities import FragmentIndex, LearnerName, Version
from islands.protocol.messages.training import (
    FragmentRequest,
    FragmentSeed,
    FragmentUpdate,
    IncrementsSince,
    Kept,
)
from islands.protocol.settings.choices import UpdatePrecision
from islands.protocol.settings.run import INCREMENTS_KEPT, RunSettings, Timing
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.events import IncrementFacts, InitialRead, SeedArrived
from islands.protocol.syncer.versions import Increments, KeptVersions, newest_of, waits_s
from islands.protocol.tape.round_entries import Merged
from islands.syncer.value_store import IncrementShelf
from tests.syncer.bench import Bench, opened, seeded


@pytest.mark.parametrize("most", [1, 2, 5000])
def test_the_newest_are_kept(most: int) -> None:
    kept = KeptVersions(most)
    for number in range(10_000):
        kept.append(Version(1 + number // 7000, number))
    assert len(kept) == most
    assert list(kept)[-1] == Version(2, 9999)
    assert Version(2, 9999) in kept
    assert Version(1, 9999) not in kept
    assert (Version(2, 9998) in kept) is (most > 1)
    assert Version(1, 9999 - most) not in kept


FACTS = IncrementFacts(size_bytes=10, value_bytes=75, remainder_norm=0.5)
RUN = RunSettings(interval_steps=4, fragments=1, update_precision=UpdatePrecision.INT8)


def kept(count: int, facts: IncrementFacts = FACTS) -> Increments:
    """The increments from version 0 to version `count`, as far as they are kept."""
    made = Increments()
    for number in range(count):
        made.made(Version(1, number), Version(1, number + 1), facts)
    return made


@given(
    count=st.integers(0, 20),
    held=st.integers(0, 20),
    version=st.integers(0, 20),
    size_bytes=st.sampled_from([1, 10, 75]),
)
def test_a_chain_leads_over_few_increments(
    count: int, held: int, version: int, size_bytes: int
) -> None:
    made = kept(count, IncrementFacts(size_bytes, 75, 0.0))
    length = version - held
    oldest = max(0, count - INCREMENTS_KEPT - 1)
    expected = 0 < length <= 8 and oldest <= held and version <= count and length * size_bytes < 75
    assert made.lead(Version(1, held), Version(1, version)) is expected


def test_a_version_without_an_increment_ends_all_chains() -> None:
    made = kept(3)
    made.made(Version(1, 3), Version(1, 4), None)
    assert not made.lead(Version(1, 2), Version(1, 4))
    made.made(Version(1, 4), Version(1, 5), FACTS)
    assert not made.lead(Version(1, 2), Version(1, 5))
    assert made.lead(Version(1, 4), Version(1, 5))


def test_the_shelf_keeps_what_is_being_sent() -> None:
    shelf, value = IncrementShelf(UpdatePrecision.INT8, ()), np.zeros(3, np.float32)
    for number in range(2):
        value, facts = shelf.publish(Version(1, number), Version(1, number + 1), value, value + 1)
        assert facts is not None
    beyond = value + np.float32(np.inf)
    _, facts = shelf.publish(Version(1, 2), Version(1, 3), value, beyond)
    assert facts is None
    assert len(shelf.chain(Version(1, 0), Version(1, 2))) == 2


def test_a_base_of_another_epoch_has_another_number_or_none() -> None:
    made = Increments()
    made.made(Version(1, 7), Version(2, 8), FACTS)
    assert made.lead(Version(1, 7), Version(2, 8))
    assert not made.lead(Version(2, 7), Version(2, 8))


def merged(bench: Bench, increment: IncrementFacts | None = FACTS) -> list[FragmentUpdate]:
    for pull in opened(bench):
        if not bench.of(BeginMerge):
            bench.answer(pull)
    bench.merge(increment=increment)
    told = bench.entries(Merged)[0]
    assert told.increment_bytes == (None if increment is None else increment.size_bytes)
    bench.journal()
    return bench.updates()


def test_who_missed_versions_is_sent_a_chain_from_the_one_it_reported() -> None:
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    for number in range(3):
        since = {update.since for update in merged(bench)}
        assert IncrementsSince(Version(1, 0), "int8") in since
        assert len(since) == min(2, number + 1)
        bench.adopt("ana")


def test_a_joiner_is_sent_the_whole_value_and_so_is_what_is_sent_again() -> None:
    bench = seeded("ana", settings=RUN, fragments=1)
    merged(bench)
    bench.hello("ben")
    assert [update.since for update in bench.updates()] == [None]
    again = next(bench.updates() for _ in range(50) if bench.tick(0.25) and bench.updates())
    assert {update.since for update in again} == {None}


def test_a_new_link_is_sent_increments_to_what_the_hello_told() -> None:
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    bench.drop("ben")
    merged(bench)
    bench.hello("ben")
    assert [update.since for update in bench.updates()] == [IncrementsSince(Version(1, 0), "int8")]


@pytest.mark.parametrize("precision", [UpdatePrecision.INT8, UpdatePrecision.FLOAT32])
def test_a_value_without_an_increment_is_sent_whole(precision: UpdatePrecision) -> None:
    bench = seeded("ana", settings=replace(RUN, update_precision=precision), fragments=1)
    assert [update.since for update in merged(bench, increment=None)] == [None]
    assert len(bench.core.versions.increments) == (precision is UpdatePrecision.INT8)


def test_a_restarted_syncer_has_no_increments() -> None:
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    merged(bench)
    again = Bench(RUN, fragments=1, durable=bench.core.durable, epoch=2)
    again.learners, again.now_s = bench.learners, bench.now_s
    again.hello("ben")
    assert [update.since for update in again.updates()] == [None]


def kept_by_members(*held: str) -> tuple[Kept, ...]:
    """Values such as `3x`: version 1.3 with a digest x."""
    return tuple(Kept(Version(1, int(one[:-1])), one[-1]) for one in held)


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ({"a": ("3x", "4y"), "b": ("3x", "4y")}, "a"),
        ({"a": ("3x", "4y"), "b": ("4z", "4y")}, "b"),
        ({"a": ("3x", "5y"), "b": ("4z", "4z"), "c": ("4z", "5y")}, "c"),
        ({"a": ("4!", "4!"), "b": ("4x", "4y"), "c": ("4x", "4y")}, "b"),
        ({"a": ("4!", "4y"), "b": ("4x", "4y"), "c": ("4x", "3y")}, "b"),
        ({"z": ("0x",)}, "z"),
    ],
)
def test_the_newest_values_are_chosen_and_of_one_version_those_of_most(
    offers: dict[str, tuple[str, ...]], chosen: str
) -> None:
    told = {LearnerName(name): kept_by_members(*held) for name, held in offers.items()}
    assert newest_of(told) == chosen
    assert newest_of(dict(reversed(told.items()))) == chosen


def test_the_wait_is_long_enough_to_redial_supervisor_and_syncer() -> None:
    assert waits_s(Timing()) == 10.0
    assert waits_s(Timing(patience=0.2)) == pytest.approx(2.0)


def returns(bench: Bench, name: str, *held: str) -> None:
    bench.hello(name)
    connection = bench.connections[name] = bench.connections[name] + 1
    bench.open(bench.learners[name], connection, kept=kept_by_members(*held))


def sends(bench: Bench, *digests: str) -> None:
    for index, digest in enumerate(digests):
        seeding = bench.core.versions.seeding
        assert seeding is not None
        who = seeding.name, seeding.incarnation
        bench.do(SeedArrived(FragmentSeed(1, FragmentIndex(index), *who, digest), intact=True))


def asked(bench: Bench) -> str:
    return "" if bench.core.versions.seeding is None else bench.seeding.name


def test_whoever_sends_other_values_than_it_told_is_believed_no_more() -> None:
    bench = Bench(returns_s=10.0)
    bench.hello("ana")
    returns(bench, "ben", "9x", "9y")
    returns(bench, "cleo", "7x", "7y")
    bench.tick(5.0)
    assert asked(bench) == ""
    bench.tick(5.0)
    assert asked(bench) == "ben"
    sends(bench, "x", "z")
    bench.tick(2.5)
    assert asked(bench) == "cleo"
    sends(bench, "x", "y")
    bench.journal()
    assert [one.digest for one in bench.core.versions.published if one is not None] == ["x", "y"]
    assert bench.state.version(0) == Version(1, 0)


def test_who_keeps_silent_does_not_keep_a_run_from_beginning() -> None:
    bench = Bench(returns_s=10.0)
    bench.hello("ana")
    returns(bench, "ben", "9x", "9y")
    seen: dict[str, None] = {}
    for _ in range(400):
        bench.tick(1.0)
        seen[asked(bench)] = None
    assert list(seen) == ["", "ben", "ana"]


def test_a_version_of_its_own_is_given_up_for_nothing() -> None:
    bench = Bench(returns_s=10.0)
    bench.hello("ana")
    bench.tick(10.0)
    sends(bench, "a", "b")
    bench.journal()
    returns(bench, "ben", "999x", "999y")
    for _ in range(100):
        bench.tick(1.0)
        assert bench.sent(FragmentRequest) == []
    assert [one.digest for one in bench.core.versions.published if one is not None] == ["a", "b"]


@pytest.mark.parametrize("held", [(), ("9x", "9y")])
def test_a_file_gives_version_0_unless_members_have_newer_values(held: tuple[str, ...]) -> None:
    bench = Bench(initial=True, returns_s=10.0)
    bench.do(InitialRead(("f", "g")))
    bench.hello("ana")
    if held:
        returns(bench, "ben", *held)
    bench.tick(9.0)
    assert bench.core.versions.seeding is None
    bench.tick(1.0)
    if held:
        sends(bench, "x", "y")
    bench.journal()
    digests = [one.digest for one in bench.core.versions.published if one is not None]
    assert digests == (["x", "y"] if held else ["f", "g"])


def test_values_that_are_not_of_every_fragment_are_not_taken_back() -> None:
    bench = Bench(returns_s=10.0)
    returns(bench, "ana", "9x")
    assert bench.record("ana").kept == ()
