"""The bytes of contributions and values: which are sent, kept and handed on, and how encoded."""

import pytest

from islands.protocol.identities import FragmentIndex, Incarnation, Ticket, Version
from islands.protocol.learner import actions, events
from islands.protocol.messages import training
from islands.protocol.sessions import UpdateArrived
from islands.protocol.settings.choices import Adoption, Precision
from tests.learner.bench import ANA, BATCH, Bench, stepping

ZERO = FragmentIndex(0)
HERE = Incarnation(1, 1)
OLD, NEW = memoryview(b"old"), memoryview(b"new")
CARRY = Adoption.DELAY_CORRECTED
MERGED = training.Merged(1, 1, 1, BATCH)
"""The contribution of `contribute`."""


def contribute(
    bench: Bench, payload: memoryview = OLD, named: Precision = Precision.FLOAT32
) -> actions.Contribute:
    """A step, its snapshot with these bytes, and a pull in round 1 that they answer."""
    bench.step()
    version = bench.state.accounts[0].version
    assert version is not None
    bench.do(events.SnapshotTaken(ZERO, version, bench.steps, bench.steps * BATCH, payload))
    bench.pull(0, 1, precision=named)
    (action,) = bench.of(actions.Contribute)
    return action


def encoded(bench: Bench, message: training.Contribution, payload: memoryview) -> None:
    precision = Precision(message.precision)
    bench.do(events.ContributionEncoded(message.ticket, ZERO, precision, payload))


def publish(
    bench: Bench, number: int, merged: training.Merged | None = None
) -> list[actions.AdoptValue]:
    """A value of fragment 0 is published."""
    message = training.FragmentUpdate(1, ZERO, Version(1, number), number, "", 4.0, merged)
    bench.do(UpdateArrived(message, intact=True, payload=NEW))
    return bench.of(actions.AdoptValue)


@pytest.mark.parametrize("adoption", list(Adoption))
def test_what_was_sent_is_kept_where_it_is_taken_from_the_local_value(adoption: Adoption) -> None:
    bench, sent = stepping(adoption), memoryview(b"sent")
    contribute(bench, sent)
    (adopt,) = publish(bench, 2, MERGED)
    carries = adoption is CARRY
    assert (adopt.carry, adopt.sent is sent) == (carries, carries)
    kept = [group.payload for group in bench.state.accounts[0].sent]
    assert kept == [sent if carries else None]
    totals = bench.steps, bench.steps * BATCH
    bench.do(events.ValueAdopted(ZERO, Version(1, 2), *totals, HERE, carried=carries))
    assert bench.state.accounts[0].sent == []


def test_bytes_of_an_ended_incarnation_are_kept_no_longer() -> None:
    bench = stepping(CARRY)
    contribute(bench)
    bench.evict()
    assert bench.state.accounts[0].sent == []
    assert bench.state.pulls.snapshots == {}


@pytest.mark.parametrize("named", [Precision.TWO_BIT, Precision.INT8])
def test_where_it_is_adaptive_the_pull_names_it_and_the_learner_says_when_it_leaves(
    named: Precision,
) -> None:
    bench = stepping(precision=Precision.ADAPTIVE)
    message = contribute(bench, named=named).message
    assert message.precision == named.value
    encoded(bench, message, memoryview(bytes(256)))
    (offered,) = bench.sent(training.ContributionOffered)
    assert (offered.ticket, offered.size_bytes) == (message.ticket, 256)


def test_a_learner_with_a_precision_of_its_own_says_nothing() -> None:
    bench = stepping(precision=Precision.FP4)
    message = contribute(bench, named=Precision.TWO_BIT).message
    assert message.precision == "fp4"
    encoded(bench, message, memoryview(bytes(256)))
    assert bench.sent(training.ContributionOffered) == []


def test_an_overwriting_learner_tells_its_feedback_what_was_applied() -> None:
    bench = stepping(Adoption.OVERWRITE, Precision.FP4)
    contribute(bench)
    publish(bench, 1, MERGED)
    assert bench.of(actions.SettleFeedback) == [actions.SettleFeedback(ZERO, 1, 1, MERGED)]
    publish(bench, 1, MERGED)
    assert bench.of(actions.SettleFeedback) == []
    bench.evict()
    assert bench.of(actions.ResetFeedback) == [actions.ResetFeedback()]


@pytest.mark.parametrize("own", [Precision.FP4, Precision.ADAPTIVE])
def test_a_carrying_learner_keeps_what_was_sent_not_what_was_taken(own: Precision) -> None:
    """In the precision of its own, or that of the pull."""
    bench, sent = stepping(CARRY, own), memoryview(b"4")
    message = contribute(bench, named=Precision.TWO_BIT).message
    assert [one.payload for one in bench.state.accounts[0].sent] == [None]
    precision = Precision(message.precision)
    encoded(bench, message, sent)
    foreign = Ticket(message.ticket.epoch, message.ticket.round, ANA, Incarnation(9, 9))
    bench.do(events.ContributionEncoded(foreign, ZERO, precision, memoryview(b"no")))
    (adopt,) = publish(bench, 1, MERGED)
    assert adopt.sent is sent
    assert adopt.sent_precision is (Precision.TWO_BIT if own is Precision.ADAPTIVE else own)
    assert bench.of(actions.SettleFeedback) == []
