"""Bulk bytes go through a learner's state with their events; it hands them on as they are."""

import pytest

from islands.protocol.identities import FragmentIndex, Incarnation, Version
from islands.protocol.learner.actions import AdoptValue, Contribute, OfferSeed
from islands.protocol.learner.events import FromSyncer, SnapshotTaken, ValueAdopted, ValueRead
from islands.protocol.messages import training
from islands.protocol.messages.membership import Evicted
from islands.protocol.sessions import UpdateArrived
from islands.protocol.settings.choices import Adoption
from tests.learner.bench import ANA, BATCH, Bench, stepping

ZERO, ONE = FragmentIndex(0), FragmentIndex(1)


def update(number: int, *, merged: training.Merged | None = None) -> training.FragmentUpdate:
    """A published value of fragment 0, with a contribution of ours in it."""
    return training.FragmentUpdate(1, ZERO, Version(1, number), number - 1, "", 4.0, merged)


def contribute(bench: Bench, round_: int, payload: memoryview) -> Contribute:
    """A step, its snapshot with these bytes, and a pull that they answer."""
    bench.step()
    totals = bench.steps, bench.steps * BATCH
    version = bench.state.accounts[0].version
    assert version is not None
    bench.do(SnapshotTaken(ZERO, version, *totals, payload))
    bench.pull(0, round_)
    (action,) = bench.of(Contribute)
    return action


def arrive(bench: Bench, message: training.FragmentUpdate, payload: memoryview) -> AdoptValue:
    bench.do(UpdateArrived(message, intact=True, payload=payload))
    (action,) = bench.of(AdoptValue)
    return action


def test_a_published_value_is_adopted_as_it_came() -> None:
    bench, values = stepping(), [memoryview(bytes([number])) for number in (1, 2)]
    for number, value in enumerate(values, start=1):
        assert arrive(bench, update(number), value).payload is value


def test_the_snapshot_that_answers_a_pull_is_what_is_sent() -> None:
    """Not a newer one that came since, of another fragment."""
    bench, newest = stepping(), memoryview(b"the newest")
    bench.do(SnapshotTaken(ONE, Version(1, 0), 0, 0, memoryview(b"another's")))
    assert contribute(bench, 1, newest).payload is newest


@pytest.mark.parametrize("adoption", list(Adoption))
def test_what_was_sent_is_kept_where_it_is_taken_from_the_local_value(adoption: Adoption) -> None:
    bench, sent = stepping(adoption), memoryview(b"sent")
    contribute(bench, 1, sent)
    value, merged = memoryview(b"value"), training.Merged(1, 1, 1, BATCH)
    adopt = arrive(bench, update(2, merged=merged), value)
    carries = adoption is Adoption.DELAY_CORRECTED
    assert (adopt.carry, adopt.sent is sent) == (carries, carries)
    kept = [group.payload for group in bench.state.accounts[0].sent]
    assert kept == [sent if carries else None]
    here = Incarnation(1, 1)
    totals = bench.steps, bench.steps * BATCH
    bench.do(ValueAdopted(ZERO, Version(1, 2), *totals, here, carried=carries))
    assert bench.state.accounts[0].sent == []


def test_a_value_that_was_read_is_offered_as_version_zero() -> None:
    bench, value = stepping(), memoryview(b"version 0")
    bench.do(ValueRead(training.FragmentRequest(3, ONE, 2), Incarnation(1, 1), value))
    (offer,) = bench.of(OfferSeed)
    assert offer.message == training.FragmentSeed(3, ONE, ANA, Incarnation(1, 1), "")
    assert offer.payload is value


def test_bytes_of_an_ended_incarnation_are_kept_no_longer() -> None:
    bench = stepping(Adoption.DELAY_CORRECTED)
    contribute(bench, 1, memoryview(b"sent"))
    bench.do(FromSyncer(Evicted(ANA, Incarnation(1, 1), "silent")))
    assert bench.state.accounts[0].sent == []
    assert bench.state.pulls.snapshots == {}
