"""What a member makes of the updates that it is sent, and how it refuses what does not fit."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.actors.published_values import PublishedValues, Taken
from islands.lab.toys.toy import NumpyTrainer
from islands.numerics.increment import quantised
from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.messages.training import FragmentUpdate, IncrementsSince
from islands.protocol.settings.choices import Precision, UpdatePrecision
from messaging.codec.tensors import as_buffer, digest

LAYOUT = NumpyTrainer(1).layout
SIZE = LAYOUT.fragments[0].size
ZERO = FragmentIndex(0)
FP4 = Precision.FP4

Floats = NDArray[np.float32]


class Source:
    """A syncer's published values, and the increments between them."""

    def __init__(self) -> None:
        """Publish version 0."""
        self.values: list[Floats] = [np.ones(SIZE, np.float32)]
        self.increments: list[memoryview] = []
        left: Floats | None = None
        for number in range(5):
            step = np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)
            made = quantised(self.values[-1], self.values[-1] + step, left, FP4)
            assert made.payload is not None
            self.values.append(made.value)
            self.increments.append(as_buffer(made.payload))
            left = made.remainder

    def whole(self, number: int) -> tuple[FragmentUpdate, tuple[memoryview, ...]]:
        value = as_buffer(self.values[number])
        told = digest(value)
        return FragmentUpdate(1, ZERO, Version(1, number), number, told, 0.0, None), (value,)

    def chain(self, base: int, number: int) -> tuple[FragmentUpdate, tuple[memoryview, ...]]:
        """A version with the increments since another one."""
        update, _ = self.whole(number)
        since = IncrementsSince(Version(1, base), "fp4")
        return replace(update, since=since), tuple(self.increments[base:number])


SOURCE = Source()


def held(number: int, precision: UpdatePrecision = UpdatePrecision.FP4) -> PublishedValues:
    """A member that was sent this version whole."""
    values = PublishedValues(LAYOUT, precision)
    assert values.take(*SOURCE.whole(number)).intact
    return values


def value_of(taken: Taken) -> Floats:
    return np.frombuffer(taken.value, np.float32)


@pytest.mark.parametrize(
    ("has", "base", "to"), [(0, 0, 1), (0, 0, 5), (3, 0, 5), (4, 1, 5), (3, 1, 3)]
)
def test_a_chain_is_taken_up_where_the_own_value_stands(has: int, base: int, to: int) -> None:
    """Also one to the version that is held: who forgot to adopt it may do so now."""
    values = held(has)
    update, payload = SOURCE.chain(base, to)
    assert values.malformed(update, payload) is None
    taken = values.take(update, payload)
    assert taken.intact
    assert value_of(taken).tobytes() == SOURCE.values[to].tobytes()


@pytest.mark.parametrize(
    ("has", "base", "to", "because"),
    [
        (1, 2, 4, "increments since 1.2 came, and 1.1 is held"),
        (5, 2, 4, "increments since 1.2 came, and 1.5 is held"),
    ],
)
def test_a_base_that_is_not_held_is_refused(has: int, base: int, to: int, because: str) -> None:
    values = held(has)
    taken = values.take(*SOURCE.chain(base, to))
    assert (taken.intact, taken.refused, taken.value.nbytes) == (False, because, 0)
    assert values.take(*SOURCE.chain(0, has)).intact


def test_a_base_of_another_epoch_is_refused() -> None:
    update, payload = SOURCE.chain(2, 3)
    other = replace(update, since=IncrementsSince(Version(2, 2), "fp4"))
    refused = held(2).take(other, payload).refused
    assert refused == "increments since 2.2 came, and 1.2 is held"


@pytest.mark.parametrize("precision", [UpdatePrecision.FP4, UpdatePrecision.FLOAT32])
def test_without_a_value_no_increment_is_taken(precision: UpdatePrecision) -> None:
    values = PublishedValues(LAYOUT, precision)
    if precision is UpdatePrecision.FLOAT32:
        assert values.take(*SOURCE.whole(2)).intact
    refused = values.take(*SOURCE.chain(2, 3)).refused
    assert refused == "increments since 1.2 came, and no value is held"


def test_damage_is_seen_by_the_digest_of_the_sum() -> None:
    values = held(2)
    update, payload = SOURCE.chain(2, 3)
    damaged = np.frombuffer(payload[0], np.uint8).copy()
    damaged[5] ^= 1
    refused = values.take(update, (as_buffer(damaged),)).refused
    assert refused == "the digest is not that of 1.2 and the increments"
    assert values.take(*SOURCE.whole(3)).intact
    assert values.take(*SOURCE.chain(3, 4)).intact


def test_a_scale_that_is_not_finite_is_refused() -> None:
    update, payload = SOURCE.chain(2, 3)
    damaged = np.frombuffer(payload[0], np.uint8).copy()
    damaged[-2:] = 0xFF
    refused = held(2).take(update, (as_buffer(damaged),)).refused
    assert refused == "an increment is not finite, by its scales or its sum"


def test_a_damaged_whole_value_is_not_kept() -> None:
    """The increments after it would lead nowhere."""
    values = held(2)
    update, _ = SOURCE.whole(3)
    taken = values.take(update, (as_buffer(SOURCE.values[4]),))
    assert taken.refused == "the digest is not that of the value"
    assert values.take(*SOURCE.chain(2, 3)).intact


def test_an_older_whole_value_does_not_replace_a_newer_one() -> None:
    values = held(3)
    assert values.take(*SOURCE.whole(1)).intact
    assert values.take(*SOURCE.chain(3, 4)).intact


def malformed(update: FragmentUpdate, payload: tuple[memoryview, ...]) -> str | None:
    return held(0).malformed(update, payload)


def test_an_update_that_does_not_fit_the_layout_is_refused_in_a_sentence() -> None:
    whole, value = SOURCE.whole(1)
    chain, increments = SOURCE.chain(0, 2)
    nothing = replace(whole, fragment=FragmentIndex(7))
    other = replace(chain, since=IncrementsSince(Version(1, 0), "float32"))
    backwards = replace(chain, since=IncrementsSince(Version(1, 2), "fp4"))
    each = increments[0].nbytes
    assert malformed(nothing, value) == "there is no fragment 7"
    assert malformed(other, increments) == "nobody knows the precision 'float32' of increments"
    assert malformed(whole, ()) == "0 buffers came, and it takes 1 (a value)"
    assert malformed(chain, increments[:1]) == (
        "1 buffers came, and it takes 2 (increments since 1.0)"
    )
    assert malformed(backwards, ()) == "0 buffers came, and it takes 0 (increments since 1.2)"
    assert malformed(chain, (increments[0], increments[1][:-1])) == (
        f"buffers of [{each - 1}, {each}] bytes came, and each must have {each}"
    )
    assert malformed(whole, (value[0][:-4],)) == (
        f"buffers of [{4 * SIZE - 4}] bytes came, and each must have {4 * SIZE}"
    )
