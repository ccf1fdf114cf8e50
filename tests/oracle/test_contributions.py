"""The learner's half of the oracle: what a contribution says of itself is what it is.

Each learner's weights were kept after every step (`run.py`), and so were its adoptions. From these
follows what each contribution on the network has to be: base minus weights at one boundary, with
the steps and tokens from the adoption of that base to that boundary, and no other.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.protocol.identities import Version
from islands.protocol.messages.training import Contribution
from islands.protocol.settings.choices import Precision
from messaging.codec.tensors import digest
from messaging.envelope import NOMINAL_HEADER_BYTES
from tests.numerics.test_block_codecs import by_hand
from tests.oracle.cases import replay
from tests.oracle.rules import as_double
from tests.oracle.run import RecordingTrainer
from tests.oracle.wire import Crossing

Taken = tuple[Contribution, Crossing, RecordingTrainer, int, int, NDArray[np.float32]]
"""A contribution, its learner, the latter's steps by then and at its base, and the base."""


def contributions(name: str) -> Iterator[Taken]:
    run = replay(name).run
    published = {(update.fragment, update.version): c.payload for update, c in run.tap.updates()}
    adopted = {
        (learner, fragment, value.tobytes()): (value, steps)
        for learner, trainer in run.trainers.items()
        for fragment, value, steps in trainer.adopted
    }
    for said, crossing in run.tap.contributions():
        trainer = run.trainers[crossing.source]
        steps = trainer.tokens_after.index(said.processed_tokens)
        payload = published[said.fragment, said.base]
        base, began = adopted[crossing.source, said.fragment, payload]
        yield said, crossing, trainer, steps, began, base


def applied(name: str) -> dict[str, Version]:
    fates = replay(name).run.lines("fate")
    done = [fate for fate in fates if fate["fate"] == "applied"]
    return {str(f["ticket"]): Version(*map(int, str(f["version"]).split("."))) for f in done}


@pytest.mark.parametrize(
    ("name", "exact"), [("quorum-1", True), ("slow-copies", True), ("bfloat16", False)]
)
def test_a_contribution_is_base_minus_weights_at_its_boundary(name: str, *, exact: bool) -> None:
    """Its payload, steps, tokens and total are all of the boundary at which it was taken.

    The payload is the difference to the bit in float32, and to half a unit in bfloat16.
    """
    taken = list(contributions(name))
    assert len(taken) >= 40
    for said, crossing, trainer, steps, began, base in taken:
        assert said.steps == steps - began >= 1
        assert said.tokens == trainer.tokens_after[steps] - trainer.tokens_after[began]
        difference = base - trainer.part(said.fragment, steps)
        sent = as_double(crossing.payload, said.precision, difference.size)
        missed = np.abs(sent - difference)
        assert np.all(missed <= (0.0 if exact else 2.0**-8) * np.abs(difference))
        assert said.digest == digest(memoryview(crossing.payload))


@pytest.mark.parametrize(("name", "precision"), [("int8", "int8"), ("fp4", "fp4")])
def test_a_contribution_contains_what_an_applied_one_lost(name: str, precision: str) -> None:
    """It is base − weights, and what the codec lost of the newest applied one before it.

    Recomputed in float64 over a run with late and lost contributions and a restart, and encoded by
    hand. Sums of float32 round, so a few elements fall on the other side of a midpoint.
    """
    versions = applied(name)
    losses: dict[tuple[str, int], list[tuple[Version, NDArray[np.float64]]]] = defaultdict(list)
    equal, equal_without = list[np.floating](), list[np.floating]()
    for said, crossing, trainer, steps, _, base in contributions(name):
        done = (base - trainer.part(said.fragment, steps)).astype(np.float64)
        known = losses[crossing.source, said.fragment]
        residual = [loss for version, loss in known if version <= said.base][-1:]
        wanted = done + (residual[0] if residual else 0.0)
        sent = as_double(crossing.payload, said.precision, done.size)
        for found, exact in ((equal, wanted), (equal_without, done)):
            found.append(np.mean(sent == by_hand(exact.astype(np.float32), Precision(precision))))
        if str(said.ticket) in versions:
            known.append((versions[str(said.ticket)], wanted - sent))
    assert min(equal) > 0.98
    assert np.mean(equal_without) < 0.9
    assert len(versions) < len(equal)


def test_slow_copies_make_older_snapshots() -> None:
    run = replay("slow-copies").run
    behind = []
    for said, crossing in run.tap.contributions():
        trainer = run.trainers[crossing.source]
        held = trainer.tokens_after.index(said.processed_tokens)
        behind.append(trainer.done_by(crossing.sent_s) - held)
    assert min(behind) >= 1
    assert max(behind) >= 2


def test_bytes_up_are_those_of_payloads_and_envelopes() -> None:
    run = replay("quorum-1").run
    assert len(run.bytes_up) == 3
    for name, counted in run.bytes_up.items():
        payload, envelopes = run.tap.payload_bytes[name], run.tap.envelopes[name]
        assert payload > 10_000
        sent = payload + NOMINAL_HEADER_BYTES * envelopes
        assert counted == pytest.approx(sent, rel=0.02)


CARRIED_ON = ["carried-on", "carried-on-in-bfloat16", "carried-on-in-fp4"]
"""Where adoption carries on what a value does not contain: local becomes value + (local − sent) if
the learner's contribution is in the value, else value + (local − base).

Reference: protocol §14, delay-corrected adoption (LOSCAR, arXiv 2605.20866).
"""


@pytest.mark.parametrize("name", CARRIED_ON)
def test_a_contribution_begins_where_the_newest_merged_one_ended(name: str) -> None:
    run, versions = replay(name).run, applied(name)
    merged: list[Contribution] = []
    longer = 0
    for said, crossing in run.tap.contributions():
        trainer = run.trainers[crossing.source]
        earlier = [
            one.processed_tokens
            for one in merged
            if one.ticket.name == said.ticket.name and one.fragment == said.fragment
            if versions[str(one.ticket)] <= said.base
        ]
        began = max(earlier, default=0)
        assert said.tokens == said.processed_tokens - began
        index = trainer.tokens_after.index
        assert said.steps == index(said.processed_tokens) - index(began)
        longer += said.steps > 1
        if str(said.ticket) in versions:
            merged.append(said)
    assert longer >= 20


@pytest.mark.parametrize("name", CARRIED_ON)
def test_what_a_value_does_not_contain_is_carried_on(name: str) -> None:
    run = replay(name).run
    sent = [
        (
            said.ticket.name,
            said.fragment,
            as_double(crossing.payload, said.precision, run.layout.fragments[said.fragment].size),
        )
        for said, crossing in run.tap.contributions()
    ]
    corrected = 0
    for learner, trainer in run.trainers.items():
        for index, (before, after, base, merged) in trainer.carried.items():
            fragment, value, _ = trainer.adopted[index]
            assert before is not None
            assert after is not None
            assert base is not None
            known = base.astype(np.float64)
            if merged is not None:
                known -= merged
                mine = [payload for who, f, payload in sent if (who, f) == (learner, fragment)]
                assert any(np.array_equal(payload, merged) for payload in mine)
                corrected += 1
            wanted = value + (before - known)
            np.testing.assert_allclose(after, wanted, rtol=0, atol=1e-5 * np.abs(value).max())
            missed = np.abs(value + (before - base) - wanted).max()
            assert bool(missed > 1e-3) is (merged is not None)
    assert corrected >= 10
