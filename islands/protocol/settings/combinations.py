"""How contributions are merged and values adopted, and which of these choices go together.

`SUPPORTED` is the table: for each kind of outer optimizer the merges, adoptions and anchors that a
run may have with it. Settings outside it are refused with the sentence of their row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from islands.protocol.settings.outer import DELAYED_NESTEROV, OPTAX, SGD, OuterSettings


class MergeRule(StrEnum):
    """How contributions become one direction; `islands.numerics.rules` has the arithmetic."""

    RADIAL_DIRECTIONAL = "rda"
    AVERAGE = "average"
    MEDIAN = "median"
    TRIMMED_MEAN = "trimmed_mean"

    @property
    def robust(self) -> bool:
        """Whether a minority of contributions cannot decide the direction."""
        return self in (MergeRule.MEDIAN, MergeRule.TRIMMED_MEAN)

    @property
    def keeps_length(self) -> bool:
        """Whether M orthogonal contributions merge into more than their average: up to √M times."""
        return self is not MergeRule.AVERAGE


class Adoption(StrEnum):
    """What happens to the local value when a published one is adopted."""

    OVERWRITE = "overwrite"
    MIX = "mix"
    DELAY_CORRECTED = "delay_corrected"


class Anchor(StrEnum):
    """The published value against which a contribution is measured."""

    CURRENT = "current"
    BASE = "base"


@dataclass(frozen=True, slots=True)
class Row:
    """What one kind of outer optimizer goes together with, and why with nothing else."""

    merges: tuple[MergeRule, ...] = tuple(MergeRule)
    adoptions: tuple[Adoption, ...] = tuple(Adoption)
    anchors: tuple[Anchor, ...] = tuple(Anchor)
    because: str = ""


SUPPORTED: Mapping[str, Row] = MappingProxyType(
    {
        SGD: Row(),
        OPTAX: Row(),
        DELAYED_NESTEROV: Row(
            merges=tuple(rule for rule in MergeRule if not rule.robust),
            because="it is for contributions that are merged one by one, among which a robust "
            "merge has nothing to drop",
        ),
    }
)


def why_unsupported(
    merge: MergeRule, outer: OuterSettings, adoption: Adoption, anchor: Anchor
) -> str | None:
    """Say which choice does not go with the outer optimizer, and what does; None if all do."""
    row = SUPPORTED[outer.kind]
    for name, value, allowed in (
        ("merge", merge, row.merges),
        ("adoption", adoption, row.adoptions),
        ("anchor", anchor, row.anchors),
    ):
        if value not in allowed:
            return (
                f"{name} is {value}, which does not go with outer.optimizer {outer.optimizer}: "
                f"{row.because}; use {' or '.join(allowed)}"
            )
    return None


def why_lossy(adoption: Adoption, *, error_feedback: bool) -> str | None:
    """Say why what a sparse contribution leaves out would never be sent; None if it will be."""
    if not error_feedback:
        return (
            "error_feedback is false, so what is not among the largest values would never be sent; "
            "set it, or use another precision"
        )
    if adoption is Adoption.MIX:
        return (
            "adoption is mix, which keeps but a share of what was not sent; use "
            f"{Adoption.OVERWRITE} or {Adoption.DELAY_CORRECTED}"
        )
    return None
