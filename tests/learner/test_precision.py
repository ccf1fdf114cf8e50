"""Contributions have the learner's own precision, or the one that their pull names."""

import pytest

from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.learner import events
from islands.protocol.learner.actions import AdoptValue, Contribute
from islands.protocol.messages import training
from islands.protocol.sessions import UpdateArrived
from islands.protocol.settings.choices import Adoption, Precision
from tests.learner.bench import BATCH, Bench, stepping

ZERO = FragmentIndex(0)


def contribute(bench: Bench, named: Precision) -> training.Contribution:
    """Take a step, and answer a pull with its snapshot."""
    bench.step()
    bench.snapshot(0)
    bench.pull(0, 2, precision=named)
    (action,) = bench.of(Contribute)
    return action.message


def encoded(bench: Bench, message: training.Contribution, payload: memoryview) -> None:
    precision = Precision(message.precision)
    bench.do(events.ContributionEncoded(message.ticket, ZERO, precision, payload))


@pytest.mark.parametrize("named", [Precision.TWO_BIT, Precision.INT8])
def test_where_it_is_adaptive_the_pull_names_it_and_the_learner_says_when_it_leaves(
    named: Precision,
) -> None:
    bench = stepping(precision=Precision.ADAPTIVE)
    message = contribute(bench, named)
    assert message.precision == named.value
    encoded(bench, message, memoryview(bytes(256)))
    (offered,) = bench.sent(training.ContributionOffered)
    assert (offered.ticket, offered.size_bytes) == (message.ticket, 256)


def test_a_learner_with_a_precision_of_its_own_says_nothing() -> None:
    bench = stepping(precision=Precision.FP4)
    message = contribute(bench, Precision.TWO_BIT)
    assert message.precision == "fp4"
    encoded(bench, message, memoryview(bytes(256)))
    assert bench.sent(training.ContributionOffered) == []


def test_carried_work_is_told_from_what_was_sent_in_its_own_precision() -> None:
    bench, held = stepping(Adoption.DELAY_CORRECTED, Precision.ADAPTIVE), memoryview(b"held")
    encoded(bench, contribute(bench, Precision.TWO_BIT), held)
    update = training.FragmentUpdate(
        1, ZERO, Version(1, 1), 2, "", 4.0, training.Merged(1, 2, 1, BATCH)
    )
    bench.do(UpdateArrived(update, intact=True, payload=memoryview(b"new")))
    (adopt,) = bench.of(AdoptValue)
    assert (adopt.sent, adopt.sent_precision) == (held, Precision.TWO_BIT)
