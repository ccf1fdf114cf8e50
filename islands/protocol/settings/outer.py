"""Settings of the outer optimizer: what the syncer does with a merged direction."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import inf
from types import MappingProxyType

from islands.protocol.errors import SettingsError

SGD, DELAYED_NESTEROV, OPTAX = "sgd", "delayed_nesterov", "optax"
"""Kinds of outer optimizers: both built-in ones by their names, and all those of optax."""

TAKEN_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "momentum": (SGD, DELAYED_NESTEROV),
        "nesterov": (SGD,),
        "delay_merges": (DELAYED_NESTEROV,),
        "correction": (SGD, DELAYED_NESTEROV),
        "arguments": (OPTAX,),
    }
)
"""Settings that not every kind takes, and the kinds that do."""


class Correction(StrEnum):
    """What is done with a contribution that points against the momentum."""

    NONE = "none"
    COSINE = "cosine"


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
        correction: what is done before a merge with a contribution that points against the
            momentum: nothing (`none`), or the opposing part of each tensor is damped (`cosine`),
            the more the more it opposes, for unlike data and old bases.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    nesterov: bool = True
    optimizer: str = SGD
    arguments: dict[str, object] = field(default_factory=dict, hash=False)
    delay_merges: int | None = None
    correction: Correction = Correction.NONE

    @property
    def kind(self) -> str:
        """One of the kinds above."""
        return self.optimizer if self.optimizer in (SGD, DELAYED_NESTEROV) else OPTAX


def check_outer(outer: OuterSettings) -> None:
    """Refuse what cannot work, as far as that is known without optax.

    Raises:
        SettingsError: name, value and what is allowed of the first wrong setting.
    """
    if not 0 < outer.learning_rate < inf:
        raise SettingsError(
            f"outer.learning_rate is {outer.learning_rate}; it must be above 0, and finite"
        )
    if not 0 <= outer.momentum < 1:
        raise SettingsError(f"outer.momentum is {outer.momentum}; it must be in [0, 1)")
    if outer.delay_merges is not None and not outer.delay_merges >= 1:
        raise SettingsError(f"outer.delay_merges is {outer.delay_merges}; it must be at least 1")
    if outer.kind == DELAYED_NESTEROV and outer.delay_merges is None:
        raise SettingsError(
            f"outer.optimizer is {outer.optimizer}; it needs outer.delay_merges, the merges of a "
            "fragment that enter the momentum together, such as the number of learners"
        )
    _check_taken(outer)
    if outer.correction is not Correction.NONE and outer.momentum == 0:
        raise SettingsError(
            f"outer.correction is {outer.correction}; it needs an outer.momentum above 0, with "
            "which contributions are compared"
        )


def _check_taken(outer: OuterSettings) -> None:
    default = OuterSettings()
    told = [one.name for one in fields(outer) if one.name in TAKEN_BY]
    for name in told:
        value = getattr(outer, name)
        if value != getattr(default, name) and outer.kind not in TAKEN_BY[name]:
            other = "; its own arguments are set in outer.arguments" * (outer.kind == OPTAX)
            raise SettingsError(
                f"outer.{name} is {value}, which optimizer {outer.optimizer} does not take{other}"
            )
