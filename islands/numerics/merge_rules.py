"""The merge rules: one object each, by which the syncer merges the contributions of a round.

To add one, give it a name and its facts in `islands.protocol.settings.choices.MergeRule`, and
its object here. Checks of settings, the limit of the outer step, the planner, simulations and the
tests of every rule ask these two places, and no other names a rule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from islands.layout.leaves import Unit
from islands.numerics.merge import averaged
from islands.numerics.norms import Measured
from islands.numerics.trimmed import MEDIAN, combine_trimmed
from islands.numerics.types import Flat
from islands.protocol.settings.choices import MergeRule
from islands.protocol.settings.run import RunSettings

Combine = Callable[[Sequence[Measured], Sequence[Unit]], Flat]
"""Merges two or more contributions, whatever their weights, into one direction."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A merge rule, as the store uses it.

    Attributes:
        averages_all: whether all units are merged by the weighted mean, whatever their own rule is;
            else each unit is merged by its own (`islands.numerics.merge`).
        combine_for: makes, of the run's settings, the function that merges contributions before
            the outer step; None if they are merged in one pass with that step.
    """

    averages_all: bool = False
    combine_for: Callable[[RunSettings], Combine] | None = None

    def units(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """Return the units of a fragment with the rule by which each is merged."""
        if self.averages_all:
            return averaged(units)
        return tuple(units)

    def combine(self, settings: RunSettings) -> Combine | None:
        """Return the function that merges before the outer step, if this rule has one."""
        return None if self.combine_for is None else self.combine_for(settings)


RULES: Mapping[MergeRule, Rule] = MappingProxyType(
    {
        MergeRule.RADIAL_DIRECTIONAL: Rule(),
        MergeRule.AVERAGE: Rule(averages_all=True),
        MergeRule.MEDIAN: Rule(combine_for=lambda _: partial(combine_trimmed, trim=MEDIAN)),
        MergeRule.TRIMMED_MEAN: Rule(
            combine_for=lambda settings: partial(combine_trimmed, trim=settings.trim)
        ),
    }
)
