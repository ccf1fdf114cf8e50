"""The file of prices, in YAML (docs/cost.md); nothing in it has a default but the currency."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert, field

from islands.engines.needs import Needs
from islands.protocol.errors import SettingsError, UserError

OTHER = "other"
"""The region that stands for all that are not named."""

GB = 1e9
Price = Annotated[float, Meta(ge=0, le=1e9)]


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of an hour; None where there is none."""

    on_demand: Price | None = None
    preemptible: Price | None = None

    def of(self, *, preemptible: bool) -> float | None:
        return self.preemptible if preemptible else self.on_demand


ByRegion = dict[str, Price | Rate]


class Machines(Struct, frozen=True, forbid_unknown_fields=True):
    """The hosts of an island: how many, of which kind, and where.

    The region is as the file of prices names it; empty: it is not known. Accelerators are kind and
    number of each host's, as H100:8. Preemptible hosts may be taken away.
    """

    region: str = ""
    accelerators: str | None = None
    preemptible: bool = False
    hosts: int = 1

    def __post_init__(self) -> None:
        Needs("", hosts=self.hosts, accelerators=self.accelerators)  # which checks them

    @staticmethod
    def of(needs: Needs) -> "Machines":
        return Machines(needs.region or "", needs.accelerators, needs.preemptible, needs.hosts)

    @property
    def accelerator(self) -> tuple[str, int] | None:
        """Kind and number of the accelerators of each host; None without."""
        return Needs("", accelerators=self.accelerators).accelerator

    def __str__(self) -> str:
        """Return it in a few letters, as 2×H100:8 spot."""
        what = self.accelerators or "host"
        many = f"{self.hosts}×{what}" if self.hosts > 1 else what
        return f"{many} spot" if self.preemptible else many


class Unpriced(UserError):  # noqa: N818  (it is shown as a sentence)
    """A price is missing: add it to the file, in the place that the sentence names."""


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """All prices.

    Hours are by region, and those of one accelerator by kind before. Traffic is that of 10⁹ bytes,
    by the region that they leave, then by that which they reach. Without `hub` its host costs
    nothing. Learners that no engine placed run where the first pattern says that their name
    matches.
    """

    currency: str = "USD"
    accelerator_hour: dict[str, ByRegion] = field(default_factory=dict)
    host_hour: ByRegion = field(default_factory=dict)
    traffic_gb: dict[str, dict[str, Price]] = field(default_factory=dict)
    hub: Machines | None = None
    learners: dict[str, Machines] = field(default_factory=dict)

    @property
    def hub_region(self) -> str:
        """Where the hub runs; `other` if that is not known."""
        return (self.hub.region if self.hub is not None else "") or OTHER

    def machines_of(self, name: str) -> Machines | None:
        """Return those of the first pattern that a learner's name matches; None if none does."""
        found = (one for pattern, one in self.learners.items() if fnmatchcase(name, pattern))
        return next(found, None)

    def hour_of(self, machines: Machines) -> float:
        kind, number = machines.accelerator or ("", 1)
        table = self.accelerator_hour.get(kind, {}) if kind else self.host_hour
        found = table.get(machines.region, table.get(OTHER))
        price = found.of(preemptible=machines.preemptible) if isinstance(found, Rate) else found
        if price is None:
            what = f"accelerator_hour.{kind}" if kind else "host_hour"
            sort = "preemptible" if machines.preemptible else "on_demand"
            raise Unpriced(
                f"there is no price of an hour of {kind or 'a host'} in {machines.region or OTHER} "
                f"({sort}); it is told by {what}.{machines.region or OTHER}"
            )
        return price * number * machines.hosts

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


def read_prices(content: Mapping[str, object], file: str) -> Prices:
    try:
        return convert(content, Prices)
    except (ValidationError, SettingsError) as error:
        raise SettingsError(f"{file}: {error}") from error
