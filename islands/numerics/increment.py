"""Updates as quantised increments: what a merge changed, and what is left for the next one.

The syncer's outer step makes Θ_exact of the published Θ. It encodes the change and what was left of
the changes before, and publishes the value that everybody else computes from the same codes::

    c = Θ_exact − Θ + r       q = decode(encode(c))
    Θ_next = Θ ⊕ q            r_next = Θ_exact − Θ_next + r

⊕ adds in float32; of its terms and its sums, what is below 2⁻¹²⁶ in magnitude is zero by
definition, and −0 is 0. So what is published plus what is left is what all outer steps together
have made, but for the rounding of r, and the error of Θ never grows beyond that of one increment.

All copies of Θ are the same bits, whatever computes them: a decoded element has at most 15
significant bits and is exact (`block_codecs`), so a multiplication that is fused with the addition
gives the same sum, as long as products below 2⁻¹²⁶ are not fused but zero; and a processor that
takes numbers below 2⁻¹²⁶ for zero does what is defined anyway. With scales in float32, NumPy and
XLA would differ in every ninth element.

Reference:
    Error feedback on the way down: the server's compressor of DoubleSqueeze (arXiv 1905.05957);
    protocol §5.

Deviation (ours):
    What the rounding of ⊕ loses is left for the next increment too. Running averages travel as
    values and not as increments, bit for bit (`exact` ranges): no sum may make a variance negative.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.numerics.codecs import Ranges, decode, encode
from islands.numerics.types import Bytes, Flat
from islands.protocol.settings.choices import Precision, UpdatePrecision

# Shapes are checked under test (jaxtyping).


@dataclass(frozen=True, slots=True)
class Quantised:
    """Θ_next, which an encoded increment has reached, and r_next (None for zero).

    If the increment was not finite, there is no payload, and the value is the exact one.
    """

    payload: Bytes | None
    value: Flat
    remainder: NDArray[np.float32] | None


def quantised(
    published: Flat,
    exact: Flat,
    remainder: NDArray[np.float32] | None,
    precision: Precision,
    ranges: Ranges = (),
) -> Quantised:
    """Publish the value that is reached from Θ by an encoded increment, all in float32.

    `exact` is Θ_exact, and `remainder` r (None for zero). The format is encoded on the host; the
    elements of the ranges, from and to, are published exactly.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # then the exact value is published
        change = exact - published
        if remainder is not None:
            change += remainder
    for start, stop in ranges:
        change[start:stop] = exact[start:stop]
    payload = encode(change, precision, ranges)
    value = applied(published, payload, precision, ranges)
    if value is None:
        return Quantised(None, exact, None)
    left = np.subtract(exact, value, out=change)
    if remainder is not None:
        left += remainder
    return Quantised(payload, value, left)


def applied(
    published: Flat,
    payload: bytes | bytearray | memoryview | Bytes,
    precision: Precision,
    ranges: Ranges = (),
) -> NDArray[np.float32] | None:
    """Return Θ ⊕ q in a new buffer; None if an element of it is not finite.

    The encoded increment has `size_bytes(n, precision, ranges)`; the ranges are as in `quantised`.
    """
    from islands.numerics import codec_kernel

    value, largest = decode(payload, published.size, precision, ranges), np.zeros(1, np.uint32)
    kept = [value[start:stop].copy() for start, stop in ranges]
    base = np.require(published, np.float32, ["C", "A"])
    codec_kernel.add_flushed(base, value, largest)
    for (start, stop), exact in zip(ranges, kept, strict=True):
        value[start:stop] = exact
    return value if largest[0] < codec_kernel.INFINITE else None


def warm_up(precision: UpdatePrecision) -> None:
    """Load or compile the loops that a run's updates need; call it from a worker thread."""
    if precision.of_increments:
        one = np.zeros(1, np.float32)
        quantised(one, one, None, Precision(precision))
