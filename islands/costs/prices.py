"""The file of prices, in YAML; nothing in it has a default, for a guess would be no price.

currency: EUR
accelerator_hour:                     # of one accelerator, by kind and region
  H100: {eu-west: {on_demand: 3.9, preemptible: 1.6}, other: 4.5}
host_hour: {other: 0.4}               # of one host without accelerators, the hub's own among them
traffic_gb:                           # of 10⁹ bytes, from a region to another
  eu-west: {us-east: 0.02, other: 0.09}
hub: {region: us-east}
learners:                             # of those that no engine placed, by pattern of their name
  site-*: {region: eu-west, accelerators: H100:8, preemptible: true, hosts: 2}

`other` stands for every region that is not named. One number in place of on_demand and preemptible
is the price of both. Traffic within a region costs nothing unless the region names itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any

from msgspec import ValidationError, convert

from islands.costs.places import Place
from islands.protocol.errors import SettingsError, UserError

OTHER = "other"
"""The region that stands for all that are not named."""

PRICE_MOST = 1e9
GB = 1e9


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of an hour; None where there is none."""

    on_demand: float | None = None
    preemptible: float | None = None

    def of(self, *, preemptible: bool) -> float | None:
        return self.preemptible if preemptible else self.on_demand


ByRegion = dict[str, float | Rate]


class Unpriced(UserError):  # noqa: N818  (it is told as a sentence)
    """A price is missing: add it to the file, in the place that the sentence names."""


@dataclass(frozen=True)
class Prices:
    """All prices.

    Hours are by region, and those of one accelerator by kind before. Traffic is that of 10⁹ bytes,
    by the region that they leave, then by that which they reach. Without `hub` its host costs
    nothing. Learners that no engine placed run where the first pattern says that their name
    matches.
    """

    currency: str = "USD"
    accelerator_hour: dict[str, ByRegion] = field(default_factory=dict)
    host_hour: ByRegion = field(default_factory=dict)
    traffic_gb: dict[str, dict[str, float]] = field(default_factory=dict)
    hub: Place | None = None
    learners: dict[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("accelerator_hour", "host_hour", "traffic_gb"):
            for key, price in _numbers(getattr(self, name), name):
                if not (isfinite(price) and 0 <= price <= PRICE_MOST):
                    raise SettingsError(f"{key} is {price}; it must be in [0, {PRICE_MOST:g}]")

    @cached_property
    def hub_region(self) -> str:
        """Where the hub runs; `other` if that is not told."""
        return (self.hub.region if self.hub is not None else "") or OTHER

    def hour_of(self, place: Place) -> float:
        """Return the price of an hour of an island."""
        kind, number = place.accelerator or ("", 1)
        table = self.accelerator_hour.get(kind, {}) if kind else self.host_hour
        found = table.get(place.region, table.get(OTHER))
        price = found.of(preemptible=place.preemptible) if isinstance(found, Rate) else found
        if price is None:
            what = f"accelerator_hour.{kind}" if kind else "host_hour"
            sort = "preemptible" if place.preemptible else "on_demand"
            raise Unpriced(
                f"there is no price of an hour of {kind or 'a host'} in {place.region or OTHER} "
                f"({sort}); it is told by {what}.{place.region or OTHER}"
            )
        return price * number * place.hosts

    def gb_of(self, sender: str, receiver: str) -> float:
        """Return the price of 10⁹ bytes from a region to another."""
        table = self.traffic_gb.get(sender, self.traffic_gb.get(OTHER))
        if sender == receiver:
            return 0.0 if table is None else table.get(receiver, 0.0)
        found = None if table is None else table.get(receiver, table.get(OTHER))
        if found is None and self.traffic_gb:
            raise Unpriced(
                f"there is no price of traffic from {sender} to {receiver}; it is told by "
                f"traffic_gb.{sender}.{receiver}"
            )
        return found or 0.0


def read_prices(told: Mapping[str, Any], where: str) -> Prices:
    """Return the prices of a file."""
    known = list(Prices.__dataclass_fields__)
    strange = [key for key in told if key not in known]
    if strange:
        raise SettingsError(f"{where}: {strange[0]} is not known; it may have {', '.join(known)}")
    try:
        places = {
            key: Place.read(each, f"learners.{key}")
            for key, each in _table(told.get("learners"), "learners").items()
        }
        hub = told.get("hub")
        own = None if hub is None else Place.read(hub, "hub")
        rest = {key: told[key] for key in told if key not in ("hub", "learners")}
        prices = convert(rest, Prices)
        return Prices(**{**_fields(prices), "hub": own, "learners": places})
    except ValidationError as error:
        raise SettingsError(f"{where}: {error}") from error
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error


def _fields(prices: Prices) -> dict[str, Any]:
    return {name: getattr(prices, name) for name in Prices.__dataclass_fields__}


def _table(told: object, name: str) -> Mapping[str, Any]:
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise SettingsError(f"{name} is {told!r}; it must be a table")
    return told


def _numbers(told: object, name: str) -> list[tuple[str, float]]:
    """Return all prices of a table with their keys."""
    if isinstance(told, Rate):
        pairs = [("on_demand", told.on_demand), ("preemptible", told.preemptible)]
        return [(f"{name}.{key}", price) for key, price in pairs if price is not None]
    if isinstance(told, Mapping):
        return [pair for key, each in told.items() for pair in _numbers(each, f"{name}.{key}")]
    assert isinstance(told, float | int), "checked when it was read"
    return [(name, float(told))]
