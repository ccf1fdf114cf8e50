"""Top-k: the largest elements of every 4,096, with 12 bits for each position and 2 for each value.

With x the n ≤ 4096 elements of a block, in row-major order, and a share s of them kept::

    k = max(1, round(s·n))        S = positions of the k largest |x|, of equal ones the first
    t = √(mean of x² over S)      x̂ = ± mean over S of |x| ≤ t, or of |x| > t, in bf16; else 0

The values are those of `two_bit` (`block_codecs`), whose block is S here: so for a share of 1/32 an
element takes 14/32 bits, and 1/128 for the scales. Positions have a fixed width, so the length
of an encoding follows from its size and from the share alone, and is checked before it is decoded.

What is not among the k is lost, so this needs error feedback: `error_feedback`, or work that is
carried on (`adoption: delay_corrected`). As with the other codecs ‖x − x̂‖ < ‖x‖ for every block but
zero. If an element is not finite, it is among the largest, and all that its block sends is nan.

Bytes: positions, in pairs of three bytes (the first one's 12 bits are the lowest); codes, four in a
byte, the first in the lowest bits; then the two scales of each block. Positions of a block
ascend, which also tells a repeated one.

Reference:
    SparseLoCo (arXiv 2508.15706): top-k in chunks of 4,096, values in two bits, error feedback and
    no outer momentum; there k is 64 in most runs, a share of 1/64. protocol §14.

Deviation (ours):
    The residual follows the fate of a contribution, and does not decay; the two bits are those of
    `block_codecs`.
"""

import numpy as np
from numpy.typing import NDArray

from islands.numerics.types import Bytes, Flat
from islands.protocol.errors import MalformedError

# Shapes are checked under test (jaxtyping).

BLOCK = 4096
"""Elements among which the largest are chosen."""

SCALES_BYTES = 4

Positions = NDArray[np.uint16]


def encode_top_k(values: Flat, share: float) -> Bytes:
    """Encode a share of the elements, above 0 and at most 1."""
    from islands.numerics import codec_kernel

    counts = _counts(values.size, share)
    chosen = int(counts.sum())
    positions = np.zeros(chosen + chosen % 2, np.uint16)
    codes = np.zeros(4 * -(-chosen // 4), np.uint8)
    scales = np.empty(2 * counts.size, np.uint16)
    codec_kernel.choose(
        np.require(values, np.float32, ["C", "A"]),
        int(counts[0]) if counts.size else 0,
        positions[:chosen],
        codes[:chosen],
        scales,
    )
    packed = codes[0::4] | codes[1::4] << 2 | codes[2::4] << 4 | codes[3::4] << 6
    return np.concatenate(
        [_packed(positions)[: _position_bytes(chosen)], packed, scales.view(np.uint8)]
    )


def decode_top_k(encoded: Bytes, size: int, share: float) -> Flat:
    """Decode so many elements, of which this share was sent; the others are zero.

    Raises:
        MalformedError: A position is outside of its block, or positions do not ascend. The peer
            that sent this does not encode as it must: refuse it.
    """
    counts = _counts(size, share)
    chosen = int(counts.sum())
    ends = _position_bytes(chosen), encoded.size - SCALES_BYTES * counts.size
    positions = _unpacked(encoded[: ends[0]], chosen)
    block = np.repeat(np.arange(counts.size), counts)
    where = block * BLOCK + positions
    if chosen and (where[-1] >= size or bool((np.diff(where) <= 0).any())):
        raise MalformedError(
            f"positions of a sparse contribution must ascend in each block of {BLOCK:,}, and be "
            f"below {size:,} in all: some are not"
        )
    packed = encoded[ends[0] : ends[1]]
    codes = np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).reshape(-1)[:chosen]
    scales = np.frombuffer(encoded[ends[1] :].tobytes(), np.uint16).astype(np.uint32)
    means = (scales << np.uint32(16)).view(np.float32)
    sent = means[2 * block + (codes & 1)]
    values = np.zeros(size, np.float32)
    values[where] = np.where(codes & 2, -sent, sent)
    return values


def top_k_bytes(size: int, share: float) -> int:
    counts = _counts(size, share)
    chosen = int(counts.sum())
    return _position_bytes(chosen) + -(-chosen // 4) + SCALES_BYTES * counts.size


def _counts(size: int, share: float) -> NDArray[np.int64]:
    """Return how many elements of each block are sent."""
    sizes = np.full(-(-size // BLOCK), BLOCK)
    if size % BLOCK:
        sizes[-1] = size % BLOCK
    return np.maximum(1, np.rint(share * sizes)).astype(np.int64)


def _position_bytes(chosen: int) -> int:
    return -(-3 * chosen // 2)


def _packed(positions: Positions) -> Bytes:
    first, second = positions[0::2], positions[1::2]
    triples = np.empty((first.size, 3), np.uint8)
    triples[:, 0] = first & 255
    triples[:, 1] = first >> 8 | (second & 15) << 4
    triples[:, 2] = second >> 4
    return triples.reshape(-1)


def _unpacked(packed: Bytes, chosen: int) -> NDArray[np.int64]:
    triples = np.zeros((-(-chosen // 2), 3), np.int64)
    triples.reshape(-1)[: packed.size] = packed
    positions = np.empty((triples.shape[0], 2), np.int64)
    positions[:, 0] = triples[:, 0] | (triples[:, 1] & 15) << 8
    positions[:, 1] = triples[:, 1] >> 4 | triples[:, 2] << 4
    return positions.reshape(-1)[:chosen]
