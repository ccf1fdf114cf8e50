"""The sparse codec against an oracle in float64 that was written apart from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.numerics.codecs import decode, encode, size_bytes
from islands.numerics.top_k import BLOCK
from islands.protocol.errors import InvariantError, MalformedError
from islands.protocol.settings.run import TOP_K_SHARE
from tests.numerics.test_block_codecs import drawn, two_bit_by_hand

SHARES = st.sampled_from([1e-9, 1 / 64, TOP_K_SHARE, 0.3, 1.0])
SIZES = st.sampled_from([1, 2, 3, 100, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77])


def coded(values: NDArray[np.float32], share: float) -> NDArray[np.float32]:
    sent = encode(values, "top_k", share=share)
    assert sent.size == size_bytes(values.size, "top_k", share=share)
    return decode(sent, values.size, "top_k", share=share)


def by_hand(values: NDArray[np.float32], share: float) -> NDArray[np.float64]:
    """Sort each block by magnitude; of equal ones the first come first."""
    found = np.zeros(values.size)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK].astype(np.float64)
        kept = max(1, round(share * block.size))
        largest = np.sort(np.argsort(-np.abs(block), kind="stable")[:kept])
        found[start + largest] = two_bit_by_hand(block[largest])
    return found


@given(
    seed=st.integers(0, 2**32),
    size=SIZES,
    share=SHARES,
    scale=st.sampled_from([1.0, 1e-38, 1e-20, 1e38]),
    zeros=st.sampled_from([0.0, 0.9, 0.999]),
)
def test_blocks_are_decoded_to_what_the_formula_says(
    seed: int, size: int, share: float, scale: float, zeros: float
) -> None:
    """The largest of each block, also of short ones and of those that are mostly zero.

    Means are sums in another order, which may round to the next bfloat16.
    """
    values = drawn(seed, size, scale, zeros)
    found, wanted = coded(values, share).astype(np.float64), by_hand(values, share)
    np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=2.0**-126)
    np.testing.assert_array_equal(np.signbit(found[wanted != 0]), np.signbit(wanted[wanted != 0]))


@given(seed=st.integers(0, 2**32), share=SHARES)
def test_of_equal_magnitudes_the_first_are_sent(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, BLOCK).astype(np.float32)
    found = coded(values, share)
    np.testing.assert_allclose(found, by_hand(values, share), rtol=2**-7)


def test_the_bytes_of_a_block() -> None:
    values = np.zeros(BLOCK, np.float32)
    values[[2, 0x123, 0xFFF]] = 1.0, -1.0, 8.0
    sent = encode(values, "top_k", share=3 / BLOCK)
    positions = [0x02, 0x30, 0x12, 0xFF, 0x0F]
    assert sent.tolist() == [*positions, 0 | 2 << 2 | 1 << 4, 0x80, 0x3F, 0x00, 0x41]
    np.testing.assert_array_equal(decode(sent, BLOCK, "top_k", share=3 / BLOCK), values)


@pytest.mark.parametrize(("share", "bits"), [(1 / 64, 0.2265625), (1 / 32, 0.4453125)])
def test_bits_per_value(share: float, bits: float) -> None:
    assert 8 * size_bytes(64 * BLOCK, "top_k", share=share) / (64 * BLOCK) == bits


@given(
    size=SIZES,
    where=st.integers(0, 2 * BLOCK),
    share=SHARES,
    broken=st.sampled_from([np.nan, -np.nan, np.inf, -np.inf]),
)
def test_what_is_not_finite_is_seen_by_the_receiver(
    size: int, where: int, share: float, broken: float
) -> None:
    values, where = drawn(1, size, 1.0, 0.5), where % size
    whole = coded(values, share)
    values[where] = broken
    found = coded(values, share)
    block = slice(where // BLOCK * BLOCK, where // BLOCK * BLOCK + BLOCK)
    assert np.isnan(found[where])
    assert (np.isnan(found[block]) | (found[block] == 0)).all()
    np.testing.assert_array_equal(np.delete(found, block), np.delete(whole, block))


def test_a_bit_pattern_above_all_others_is_no_exception() -> None:
    values = np.ones(BLOCK, np.float32)
    values.view(np.uint32)[7] = 0xFFFFFFFF
    assert np.isnan(coded(values, 1 / BLOCK)[7])


def positions_of(*positions: int) -> list[int]:
    bits = "".join(f"{position:012b}"[::-1] for position in positions)
    return [int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8)]


@pytest.mark.parametrize(
    ("positions", "why"),
    [
        ((5, 5), "must ascend"),
        ((6, 5), "must ascend"),
        ((5, 100), "be below 100"),
        ((5, 0xFFF), "be below 100"),
    ],
    ids=["repeated", "descending", "outside", "far outside"],
)
def test_positions_that_no_encoder_sends_are_refused(positions: tuple[int, int], why: str) -> None:
    """A position written twice would count once, and one outside would be another's memory."""
    good = encode(np.arange(100, dtype=np.float32), "top_k", share=0.02)
    assert good[:3].tolist() == positions_of(98, 99)
    bad = good.copy()
    bad[:3] = positions_of(*positions)
    with pytest.raises(MalformedError, match=why):
        decode(bad, 100, "top_k", share=0.02)


def test_a_block_does_not_write_into_the_next() -> None:
    good = encode(np.arange(2 * BLOCK, dtype=np.float32), "top_k", share=1 / BLOCK)
    assert good[:3].tolist() == positions_of(4095, 4095)
    assert decode(good, 2 * BLOCK, "top_k", share=1 / BLOCK).nonzero()[0].tolist() == [4095, 8191]


def test_a_wrong_count_is_told_by_the_length() -> None:
    sent = encode(np.ones(BLOCK, np.float32), "top_k", share=1 / 32)
    with pytest.raises(InvariantError, match="bytes are not 4096 elements in top_k"):
        decode(sent, BLOCK, "top_k", share=1 / 64)
