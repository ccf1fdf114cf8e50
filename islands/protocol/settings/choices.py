"""The choices that a run has by name: one class for each setting whose value is a word."""

from enum import StrEnum
from typing import Literal

SnapshotPrecision = Literal["float32", "bfloat16"]
"""Element type in which a contribution leaves its device."""


class Automatic(StrEnum):
    """The value of a setting that is derived from measured times during the run."""

    AUTO = "auto"


class Pattern(StrEnum):
    """Which tensors share a fragment.

    `balanced` makes fragments of about equal size. `layers` gives each fragment consecutive layers
    and `strided` every P-th layer (Streaming DiLoCo); both need layers that are numbered in the
    paths, or stacked.
    """

    BALANCED = "balanced"
    LAYERS = "layers"
    STRIDED = "strided"


class PaceBy(StrEnum):
    """Which learner's step time sets the interval between rounds."""

    MEDIAN = "median"
    FASTEST = "fastest"
    SLOWEST = "slowest"


class Weighting(StrEnum):
    """The weight of a contribution in a merge."""

    TOKENS_SQUARED_PER_STEP = "tokens_squared_per_step"
    TOKENS = "tokens"
    UNIFORM = "uniform"


class MergeRule(StrEnum):
    """The rule that makes contributions one direction; see `islands.numerics.merge_kernel`."""

    RADIAL_DIRECTIONAL = "rda"
    AVERAGE = "average"

    @property
    def keeps_length(self) -> bool:
        """Whether M orthogonal contributions merge into more than their average: up to √M times."""
        return self is not MergeRule.AVERAGE


class Adoption(StrEnum):
    """The treatment of the local value when a published one is adopted."""

    OVERWRITE = "overwrite"
    MIX = "mix"
    DELAY_CORRECTED = "delay_corrected"


class LearnerWaits(StrEnum):
    """Whether a learner stands still until the merge of its contribution has arrived."""

    NEVER = "never"
    AT_TAU = "at_tau"


class Trigger(StrEnum):
    """The cause that opens a round; with `learner`, each has **turns** of H steps on its own base.

    Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
    """

    PACE = "pace"
    LEARNER = "learner"


class Neighbours(StrEnum):
    """With whom a learner exchanges values."""

    NOBODY = "nobody"
    RANDOM_PAIRS = "random_pairs"
    RING = "ring"
    GRAPH = "graph"


class GossipRule(StrEnum):
    """The rule by which a learner takes in its neighbours' values."""

    NOLOCO = "noloco"
    AVERAGE = "average"


class Precision(StrEnum):
    """Element type of a contribution on the wire; a setting may leave the choice to each pull.

    A codec is a member here and an entry of `islands.numerics.codecs.QUANTIZERS`. Members stand in
    the order in which `adaptive` tries them, the finest first; a new one is encoded on the host.
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    FP4 = "fp4"
    TWO_BIT = "two_bit"
    TOP_K = "top_k"
    ADAPTIVE = "adaptive"

    @property
    def finest(self) -> "Precision":
        return Precision.FLOAT32 if self is Precision.ADAPTIVE else self

    @property
    def of_snapshots(self) -> SnapshotPrecision:
        return "bfloat16" if self is Precision.BFLOAT16 else "float32"

    @property
    def on_host(self) -> bool:
        """Whether contributions are encoded on the host, before they are sent."""
        return self not in (Precision.FLOAT32, Precision.BFLOAT16)

    @property
    def adaptive_level(self) -> bool:
        """Whether a pull may name it, where precision is adaptive; the finest come first."""
        return self not in (Precision.TOP_K, Precision.ADAPTIVE)


class UpdatePrecision(StrEnum):
    """Element type of an update on the wire: a whole value, or a quantised increment.

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
