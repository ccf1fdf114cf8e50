"""A learner whose settings leave the precision open, event by event."""

from dataclasses import replace
from functools import partial

import pytest

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf, Role
from islands.numerics.codecs import largest_bytes
from islands.protocol.identities import FragmentIndex, Ticket, Version
from islands.protocol.learner import events
from islands.protocol.learner.actions import AdoptValue, Contribute
from islands.protocol.learner.adaptation import Adaptation, Choice, GivenPrecision, precision_of
from islands.protocol.messages import training
from islands.protocol.sessions import SyncerLinkChanged, UpdateArrived
from islands.protocol.settings.choices import Adoption, Precision
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry import Record
from islands.protocol.tape.learner_entries import Adapted
from tests.learner.bench import BATCH, Bench, stepping

ZERO = FragmentIndex(0)


def adaptive(adoption: Adoption = Adoption.OVERWRITE) -> Bench:
    """Two fragments of 4096 bytes in float32, steps of 0.1 s, and a budget of 0.1 s."""
    return stepping(adoption, Precision.ADAPTIVE)


def contribute(bench: Bench, round_: int) -> Contribute:
    """Take a step, and answer a pull with its snapshot."""
    bench.now_s += 0.1
    bench.step()
    fragment = round_ % 2
    version = bench.state.accounts[fragment].version
    assert version is not None
    totals = bench.steps, bench.steps * BATCH
    bench.do(events.SnapshotTaken(FragmentIndex(fragment), version, *totals, memoryview(b"taken")))
    bench.pull(fragment, round_)
    (action,) = bench.of(Contribute)
    return action


def sent(bench: Bench, action: Contribute) -> training.LinkProbe:
    """The link takes it; returns the probe that goes with it."""
    message = action.message
    precision = Precision(message.precision)
    payload = memoryview(bytes(256))
    bench.do(events.ContributionEncoded(message.ticket, message.fragment, precision, payload))
    (probe,) = bench.sent(training.LinkProbe)
    return probe


def received(bench: Bench, ticket: Ticket, *, after_s: float) -> list[Adapted]:
    """The whole of it has arrived; returns what the learner has to tell the tape."""
    bench.do(events.FromSyncer(training.ContributionReceived(ticket)), after_s=after_s)
    entries = [action.entry for action in bench.of(Record)]
    return [entry for entry in entries if isinstance(entry, Adapted)]


def choice(bench: Bench) -> Choice:
    adaptation = bench.state.core.precision
    assert isinstance(adaptation, Adaptation)
    return adaptation.choice


def test_a_contribution_names_its_precision_and_asks_for_an_acknowledgement() -> None:
    message = contribute(adaptive(), 1).message
    assert (message.precision, message.acknowledge) == ("two_bit", True)
    message = contribute(stepping(precision=Precision.FP4), 1).message
    assert (message.precision, message.acknowledge) == ("fp4", False)


def test_three_exchanges_with_room_make_it_finer_and_the_tape_says_so() -> None:
    """256 bytes in 10 ms, of which 4 ms are latency: int8 takes 24 ms of 100 ms.

    The bytes of the largest fragment become four times as many, since that is allowed at once.
    """
    bench = adaptive()
    for round_ in range(1, 4):
        action = contribute(bench, round_)
        probe = sent(bench, action)
        bench.do(events.FromSyncer(probe), after_s=0.004)
        told = received(bench, action.message.ticket, after_s=0.006)
    (entry,) = told
    assert (entry.precision, entry.every, entry.bytes) == ("int8", 1, 256)
    assert entry.reason == "3 exchanges in a row had room to spare"
    figures = entry.seconds, entry.bytes_per_s, entry.latency_s, entry.budget_s
    assert figures == pytest.approx((0.01, 256 / 0.006, 0.004, 0.1), rel=1e-6)
    assert contribute(bench, 4).message.precision == "int8"


def test_an_exchange_that_takes_too_long_leaves_pulls_out() -> None:
    """256 bytes take 0.25 s of the 0.1 s that are hidden: every third pull is answered from now on.

    A pull that comes again is answered, and while the run closes every pull is.
    """
    bench = adaptive()
    action = contribute(bench, 1)
    bench.do(events.FromSyncer(sent(bench, action)))
    (entry,) = received(bench, action.message.ticket, after_s=0.25)
    assert (entry.precision, entry.every, choice(bench)) == ("two_bit", 3, Choice(4, 3))
    answers = []
    for round_ in range(2, 9):
        bench.step()
        version = Version(1, 0)
        index, totals = FragmentIndex(round_ % 2), (bench.steps, bench.steps * BATCH)
        bench.do(events.SnapshotTaken(index, version, *totals, memoryview(b"taken")))
        bench.pull(round_ % 2, round_)
        answers += [round_ for _ in bench.of(Contribute)]
        for declined in bench.sent(training.ContributionDeclined):
            assert declined.reason == "one of 3 pulls is answered, to spare the link"
    assert answers == [4, 7]
    bench.pull(0, 8)
    assert len(bench.of(Contribute)) == 1
    bench.do(events.FromSyncer(training.FinalRound(1, "tokens")))
    bench.pull(1, 9)
    assert bench.sent(training.ContributionDeclined) == []


def test_pulls_are_left_out_while_an_exchange_is_under_way_for_too_long() -> None:
    bench = adaptive()
    sent(bench, contribute(bench, 1))
    bench.now_s += 0.4
    bench.step()
    bench.pull(0, 2)
    (declined,) = bench.sent(training.ContributionDeclined)
    assert declined.reason == "one of 4 pulls is answered, to spare the link"
    assert choice(bench) == Choice(4, 4)
    (entry,) = [action.entry for action in bench.of(Record)]
    assert isinstance(entry, Adapted)
    assert entry.reason == "an exchange is under way for too long"
    bench.do(SyncerLinkChanged(up=False))
    bench.do(SyncerLinkChanged(up=True))
    bench.pull(0, 2)
    assert bench.of(Record) == []


def test_what_the_link_did_not_take_is_not_measured() -> None:
    bench = adaptive()
    action = contribute(bench, 1)
    sent(bench, action)
    bench.do(events.ContributionSkipped(action.message.ticket, action.message.fragment))
    assert received(bench, action.message.ticket, after_s=5.0) == []
    assert choice(bench) == Choice(4)


def test_carried_work_is_told_from_what_was_sent_in_its_own_precision() -> None:
    bench, held = adaptive(Adoption.DELAY_CORRECTED), memoryview(b"held")
    action = contribute(bench, 2)
    message = action.message
    bench.do(events.ContributionEncoded(message.ticket, ZERO, Precision.TWO_BIT, held))
    received(bench, message.ticket, after_s=5.0)
    update = training.FragmentUpdate(
        1, ZERO, Version(1, 1), 2, "", 4.0, training.Merged(1, 2, 1, BATCH)
    )
    bench.do(UpdateArrived(update, intact=True, payload=memoryview(b"new")))
    (adopt,) = bench.of(AdoptValue)
    assert (adopt.sent, adopt.sent_precision) == (held, Precision.TWO_BIT)


@pytest.mark.parametrize(
    ("changes", "finest", "coarsest", "count"),
    [
        ({}, "float32", "two_bit", 5),
        ({"error_feedback": False}, "float32", "fp4", 4),
        ({"merge_moments": True}, "float32", "bfloat16", 2),
    ],
)
def test_the_precisions_that_may_be_chosen(
    changes: dict[str, object], finest: str, coarsest: str, count: int
) -> None:
    """Two bits only with error feedback; none with more bytes than a finer one.

    Moments are averaged, and sent exactly: with two thirds of the values, fp4 saves less than half.
    """
    leaves = [Leaf(f"layer/{index}", (64, 1024), "float32") for index in range(3)]
    if changes.get("merge_moments"):
        leaves[1:] = [replace(leaf, role=Role.STATE) for leaf in leaves[1:]]
    settings = RunSettings(precision=Precision.ADAPTIVE, **changes)  # type: ignore[arg-type]
    layout = plan(leaves, count=1)
    adaptation = precision_of(settings, 1, partial(largest_bytes, layout))
    assert isinstance(adaptation, Adaptation)
    offered = [level.precision for level in adaptation.levels]
    assert (offered[0], offered[-1], len(offered)) == (finest, coarsest, count)
    given = precision_of(RunSettings(), 1, partial(largest_bytes, layout))
    assert type(given) is GivenPrecision
