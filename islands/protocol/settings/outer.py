"""Settings of the outer optimizer: what the syncer does with a merged direction."""

from dataclasses import dataclass, field
from math import inf
from typing import Annotated

from islands.protocol.errors import SettingsError
from islands.protocol.settings.setting import ADVANCED, Setting, facts_of

SGD, DELAYED_NESTEROV, OPTAX = "sgd", "delayed_nesterov", "optax"
"""Kinds of outer optimizers: both built-in ones by their names, and all those of optax."""


@dataclass(frozen=True, slots=True)
class OuterSettings:
    """The outer optimizer: SGD with (Nesterov) momentum on the merged direction, or another one.

    By default the merged direction is applied as it is. The DiLoCo papers use 0.7 and 0.9 with
    plain averages; under RDA these swing from four learners on
    (`islands.protocol.syncer.stability`).

    Args:
        learning_rate: η, outer learning rate, dimensionless.
        momentum: μ, share of the momentum that is kept at each merge.
        nesterov: look ahead along the momentum.
        optimizer: `sgd`, `delayed_nesterov` (for contributions that are merged one by one), or the
            name of an optimizer of optax, such as `adam` or `lion`.
        arguments: further arguments of an optimizer of optax by name.
        delay_merges: N of `delayed_nesterov`: merges of a fragment whose directions enter the
            momentum together, such as the number of learners.
    """

    learning_rate: Annotated[float, Setting(above=0, below=inf)] = 1.0
    momentum: Annotated[float, Setting(least=0, below=1, taken_by=(SGD, DELAYED_NESTEROV))] = 0.0
    nesterov: Annotated[bool, Setting(taken_by=(SGD,), advanced=True)] = True
    optimizer: Annotated[str, ADVANCED] = SGD
    arguments: Annotated[dict[str, object], Setting(taken_by=(OPTAX,), advanced=True)] = field(
        default_factory=dict, hash=False
    )
    delay_merges: Annotated[
        int | None, Setting(least=1, taken_by=(DELAYED_NESTEROV,), advanced=True)
    ] = None

    @property
    def kind(self) -> str:
        return self.optimizer if self.optimizer in (SGD, DELAYED_NESTEROV) else OPTAX


def check_taken(outer: OuterSettings) -> None:
    default = OuterSettings()
    for name, fact in facts_of(OuterSettings).items():
        value = getattr(outer, name)
        if fact.taken_by and outer.kind not in fact.taken_by and value != getattr(default, name):
            other = "; its own arguments are set in outer.arguments" * (outer.kind == OPTAX)
            raise SettingsError(
                f"outer.{name} is {value}, which optimizer {outer.optimizer} does not take{other}"
            )
