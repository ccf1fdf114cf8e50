"""The increments of one fragment as bytes, and what they leave for the next one.

Nothing is decided here: `increments.py` decides whom which of them are sent to.
"""

import numpy as np
from numpy.typing import NDArray

from islands.numerics.increment import quantised
from islands.numerics.quantize import Ranges
from islands.protocol.identities import Version
from islands.protocol.settings.run import INCREMENTS_KEPT, Precision, UpdatePrecision
from islands.protocol.syncer.events import IncrementFacts
from messaging.codec.tensors import as_buffer

REMAINDER = "remainder"
"""Name of what is left in a fragment's journal record."""

Floats = NDArray[np.float32]


class IncrementShelf:
    """The newest increments of a fragment, and the remainder.

    Args:
        precision: the run's precision of updates; with float32 nothing is kept.
        ranges: elements, from and to, that are published exactly.

    Attributes:
        remainder: what the published value lacks of what the outer steps made; None for zero.
    """

    def __init__(self, precision: UpdatePrecision, ranges: Ranges) -> None:
        """Start without increments and without a remainder."""
        self.remainder: Floats | None = None
        self._codec = Precision(precision) if precision.of_increments else None
        self._ranges = ranges
        self._kept: dict[Version, tuple[Version, memoryview]] = {}

    def publish(
        self, before: Version, version: Version, published: Floats, exact: Floats
    ) -> tuple[Floats, IncrementFacts | None]:
        """Return the value to publish after an outer step, and the facts of its increment.

        Args:
            before: the version that the step was taken from.
            version: the version to be made.
            published: value of the former.
            exact: what the step made of it.
        """
        if self._codec is None:
            left, self.remainder = self.remainder, None
            return exact if left is None else exact + left, None
        made = quantised(published, exact, self.remainder, self._codec, self._ranges)
        self.remainder = made.remainder
        if made.payload is None or made.remainder is None:
            return made.value, None  # the older ones stay: the loop may be sending them now
        self._kept[version] = before, as_buffer(made.payload)
        for old in sorted(self._kept)[: -(INCREMENTS_KEPT + 1)]:
            del self._kept[old]
        length = float(np.linalg.norm(made.remainder))
        return made.value, IncrementFacts(made.payload.nbytes, made.value.nbytes, length)

    def chain(self, held: Version, version: Version) -> tuple[memoryview, ...]:
        """Return the increments from one version to another, in order; they must be kept."""
        found: list[memoryview] = []
        while version != held:
            version, payload = self._kept[version]
            found.append(payload)
        return tuple(reversed(found))

    def release(self) -> None:
        """Free all increments; what they left stays."""
        self._kept.clear()

    def begin(self, remainder: NDArray[np.generic] | None = None) -> None:
        """Begin with a value that no increment leads to, and with what its journal record holds."""
        self._kept.clear()
        self.remainder = None if remainder is None else np.asarray(remainder, np.float32)
