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
from islands.protocol.settings.choices import Precision
from messaging.codec.tensors import digest
from messaging.envelope import NOMINAL_HEADER_BYTES
from tests.numerics.test_block_codecs import by_hand
from tests.oracle.cases import replay
from tests.oracle.rules import as_double
from tests.oracle.test_carrying_on import applied

Adoption = tuple[NDArray[np.float32], int]
"""A value, and the steps that its learner had done when it adopted it."""


def adoptions(name: str) -> Iterator[tuple[tuple[str, int, bytes], Adoption]]:
    """What every learner adopted, by learner, fragment and the bytes of the value."""
    for learner, trainer in replay(name).run.trainers.items():
        for fragment, value, steps in trainer.adopted:
            yield (learner, fragment, value.tobytes()), (value, steps)


@pytest.mark.parametrize(
    ("name", "exact"), [("quorum-1", True), ("slow-copies", True), ("bfloat16", False)]
)
def test_a_contribution_is_base_minus_weights_at_its_boundary(name: str, *, exact: bool) -> None:
    """Its payload, steps, tokens and total are all of the boundary at which it was taken.

    The payload is the difference to the bit in float32, and to half a unit in bfloat16.
    """
    run = replay(name).run
    published = {(update.fragment, update.version): c.payload for update, c in run.tap.updates()}
    adopted = dict(adoptions(name))
    contributions = run.tap.contributions()
    assert len(contributions) >= 40
    for said, crossing in contributions:
        trainer = run.trainers[crossing.source]
        steps = trainer.tokens_after.index(said.processed_tokens)
        payload = published[said.fragment, said.base]
        base, began = adopted[crossing.source, said.fragment, payload]
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
    run = replay(name).run
    published = {(update.fragment, update.version): c.payload for update, c in run.tap.updates()}
    adopted, versions = dict(adoptions(name)), applied(name)
    losses: dict[tuple[str, int], list[tuple[Version, NDArray[np.float64]]]] = defaultdict(list)
    equal, equal_without = [], []
    for said, crossing in run.tap.contributions():
        trainer = run.trainers[crossing.source]
        steps = trainer.tokens_after.index(said.processed_tokens)
        base, _ = adopted[crossing.source, said.fragment, published[said.fragment, said.base]]
        done = (base - trainer.part(said.fragment, steps)).astype(np.float64)
        known = losses[crossing.source, said.fragment]
        residual = [loss for version, loss in known if version <= said.base][-1:]
        wanted = done + (residual[0] if residual else 0.0)
        sent = as_double(crossing.payload, said.precision, done.size)
        equal.append(np.mean(sent == by_hand(wanted.astype(np.float32), Precision(precision))))
        equal_without.append(
            np.mean(sent == by_hand(done.astype(np.float32), Precision(precision)))
        )
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
