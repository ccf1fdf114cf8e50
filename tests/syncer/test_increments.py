"""Whom the syncer sends increments, and whom the whole value."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.identities import Version
from islands.protocol.messages.training import FragmentUpdate, IncrementsSince
from islands.protocol.settings.run import INCREMENTS_KEPT, RunSettings, UpdatePrecision
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.events import IncrementFacts
from islands.protocol.syncer.versions import Increments
from islands.protocol.tape.round_entries import Merged
from islands.syncer.vault import IncrementShelf
from tests.syncer.bench import Bench, opened, seeded

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
    """Over at most eight, all of which are kept, and which are shorter than the value together."""
    made = kept(count, IncrementFacts(size_bytes, 75, 0.0))
    length = version - held
    oldest = max(0, count - INCREMENTS_KEPT - 1)
    expected = 0 < length <= 8 and oldest <= held and version <= count and length * size_bytes < 75
    assert made.lead(Version(1, held), Version(1, version)) is expected


def test_a_version_without_an_increment_ends_all_chains() -> None:
    """As one that was not finite; chains begin anew at it."""
    made = kept(3)
    made.made(Version(1, 3), Version(1, 4), None)
    assert not made.lead(Version(1, 2), Version(1, 4))
    made.made(Version(1, 4), Version(1, 5), FACTS)
    assert not made.lead(Version(1, 2), Version(1, 5))
    assert made.lead(Version(1, 4), Version(1, 5))


def test_the_shelf_keeps_what_is_being_sent() -> None:
    """A worker publishes a version without an increment while a chain of older ones is sent."""
    shelf, value = IncrementShelf(UpdatePrecision.INT8, ()), np.zeros(3, np.float32)
    for number in range(2):
        value, facts = shelf.publish(Version(1, number), Version(1, number + 1), value, value + 1)
        assert facts is not None
    beyond = value + np.float32(np.inf)
    _, facts = shelf.publish(Version(1, 2), Version(1, 3), value, beyond)
    assert facts is None
    assert len(shelf.chain(Version(1, 0), Version(1, 2))) == 2


def test_a_base_of_another_epoch_has_another_number_or_none() -> None:
    """The first increment after a restart counts from the version of the start before."""
    made = Increments()
    made.made(Version(1, 7), Version(2, 8), FACTS)
    assert made.lead(Version(1, 7), Version(2, 8))
    assert not made.lead(Version(2, 7), Version(2, 8))


def merged(bench: Bench, increment: IncrementFacts | None = FACTS) -> list[FragmentUpdate]:
    """One more version is committed; returns what is sent."""
    for pull in opened(bench):
        if not bench.of(BeginMerge):
            bench.answer(pull)
    bench.merge(increment=increment)
    told = bench.entries(Merged)[0]
    assert told.increment_bytes == (None if increment is None else increment.size_bytes)
    bench.journal()
    return bench.updates()


def test_who_holds_the_version_before_is_sent_one_increment() -> None:
    """And the digest is that of the whole value, which it makes of it."""
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    updates = merged(bench)
    assert [update.since for update in updates] == [IncrementsSince(Version(1, 0), "int8")] * 2
    assert {update.digest for update in updates} == {"1.1"}


def test_who_missed_versions_is_sent_a_chain_from_the_one_it_reported() -> None:
    """Also if those between were sent: they may be lost, or have been replaced in a queue."""
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    for number in range(3):
        since = {update.since for update in merged(bench)}
        assert IncrementsSince(Version(1, 0), "int8") in since
        assert len(since) == min(2, number + 1)
        bench.adopt("ana")


def test_a_joiner_is_sent_the_whole_value() -> None:
    """It holds nothing that an increment could be added to."""
    bench = seeded("ana", settings=RUN, fragments=1)
    merged(bench)
    bench.hello("ben")
    assert [update.since for update in bench.updates()] == [None]


def test_what_is_sent_again_is_the_whole_value() -> None:
    """The receiver's own copy may be what is wrong."""
    bench = seeded("ana", settings=RUN, fragments=1)
    merged(bench)
    again = next(bench.updates() for _ in range(50) if bench.tick(0.25) and bench.updates())
    assert [update.since for update in again] == [None]


def test_a_new_link_is_sent_increments_to_what_the_hello_told() -> None:
    """Its process is the same, and so is its copy."""
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    bench.drop("ben")
    merged(bench)
    bench.hello("ben")
    assert [update.since for update in bench.updates()] == [IncrementsSince(Version(1, 0), "int8")]


def test_a_value_without_an_increment_is_sent_whole() -> None:
    """As one whose change is not finite."""
    bench = seeded("ana", settings=RUN, fragments=1)
    assert [update.since for update in merged(bench, increment=None)] == [None]


def test_a_restarted_syncer_has_no_increments() -> None:
    """Who missed a version is sent the whole value."""
    bench = seeded("ana", "ben", settings=RUN, fragments=1)
    merged(bench)
    again = Bench(RUN, fragments=1, durable=bench.core.durable, epoch=2)
    again.learners, again.now_s = bench.learners, bench.now_s
    again.hello("ben")
    assert [update.since for update in again.updates()] == [None]


def test_whole_values_are_sent_unless_the_run_asks_for_increments() -> None:
    """And nothing is kept for them."""
    bench = seeded("ana", settings=RunSettings(interval_steps=4, fragments=1), fragments=1)
    assert [update.since for update in merged(bench, increment=None)] == [None]
    assert bench.core.versions.increments == []
