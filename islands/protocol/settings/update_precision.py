"""How updates travel from the syncer to learners: as whole values, or as quantised increments."""

from enum import StrEnum

INCREMENTS_KEPT = 8
"""Newest increments of a fragment that the syncer keeps."""


class UpdatePrecision(StrEnum):
    """Element type of an update on the wire.

    There is none of 16 bits: what an increment in `int8` leaves is sent with the next one, so the
    further bits would buy nothing.
    """

    FLOAT32 = "float32"
    INT8 = "int8"
    FP4 = "fp4"

    @property
    def of_increments(self) -> bool:
        """Whether increments are sent, to whoever holds a value that they can be added to."""
        return self is not UpdatePrecision.FLOAT32
