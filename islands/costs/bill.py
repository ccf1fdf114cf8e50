"""What a run has cost, by island and region, for each million tokens that were merged; pure.

An hour is paid for as long as an island was placed, whether it stepped or not; traffic by its
bytes, at the price of the region that they leave.
Money for tokens that were lost is the share of an island's money that its unmerged tokens have in
those it processed; while a run goes on, some of these may yet be merged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from islands.costs.places import Place
from islands.costs.prices import GB, OTHER, Prices, Unpriced

HOUR_S, MILLION = 3600.0, 1e6
HUB = "(hub)"
"""The line of the hub's own host; no learner has such a name."""


@dataclass(frozen=True, slots=True)
class Stay:
    """What one island did, and where.

    `paid_s` is for how long it was placed, and `merged` its merged tokens, mean over fragments.
    """

    name: str
    place: Place | None
    paid_s: float
    sent_bytes: int = 0
    received_bytes: int = 0
    tokens: int = 0
    merged: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill: of an island, of a region, or of all.

    `what` is what it ran on, in a few letters. Hours are of islands, traffic is in 10⁹ bytes that
    left the island or reached it, and `merged` are tokens, mean over fragments.
    """

    name: str
    region: str
    what: str = ""
    islands: int = 1
    hours: float = 0.0
    accelerator_hours: float = 0.0
    sent_gb: float = 0.0
    received_gb: float = 0.0
    hours_cost: float = 0.0
    traffic_cost: float = 0.0
    tokens: int = 0
    merged: float = 0.0

    @property
    def cost(self) -> float:
        return self.hours_cost + self.traffic_cost

    @property
    def cost_per_million(self) -> float | None:
        """Money for a million merged tokens; None if none was merged."""
        return MILLION * self.cost / self.merged if self.merged else None

    @property
    def lost_cost(self) -> float:
        """Money for tokens that were processed and not merged."""
        return self.cost * max(0.0, 1 - self.merged / self.tokens) if self.tokens else 0.0

    def __add__(self, other: "Line") -> "Line":
        """Return the sum of two lines, with the names of this one."""
        return replace(
            self,
            what=self.what if self.what == other.what else "",
            islands=self.islands + other.islands,
            hours=self.hours + other.hours,
            accelerator_hours=self.accelerator_hours + other.accelerator_hours,
            sent_gb=self.sent_gb + other.sent_gb,
            received_gb=self.received_gb + other.received_gb,
            hours_cost=self.hours_cost + other.hours_cost,
            traffic_cost=self.traffic_cost + other.traffic_cost,
            tokens=self.tokens + other.tokens,
            merged=self.merged + other.merged,
        )


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of a run.

    There is a line for each island, and for the hub's host where it is priced. Without a currency
    there are no prices, and all money is 0. `missing` has a sentence for each island that is not
    counted, as a price of it is missing.
    """

    lines: tuple[Line, ...]
    currency: str = ""
    missing: tuple[str, ...] = ()

    @property
    def regions(self) -> tuple[Line, ...]:
        """The sum of each region, in the order of their names."""
        names = sorted({line.region for line in self.lines})
        return tuple(
            _sum([line for line in self.lines if line.region == name], name) for name in names
        )

    @property
    def whole(self) -> Line:
        return _sum(self.lines, "all")

    @property
    def lost_cost(self) -> float:
        """Money of all islands for tokens that were processed and not merged."""
        return sum(line.lost_cost for line in self.lines)


def _sum(lines: Sequence[Line], name: str) -> Line:
    whole = reduce(Line.__add__, lines) if lines else Line("", "", islands=0)
    return replace(whole, name=name, region=name)


def bill_of(stays: Iterable[Stay], prices: Prices | None, hub_s: float = 0.0) -> Bill:
    """Return the bill of a run.

    The hub's host was needed for `hub_s`.
    """
    lines, missing = list[Line](), dict[str, None]()
    for stay in stays:
        try:
            lines.append(_line(stay, prices))
        except Unpriced as error:
            missing[str(error)] = None
    if prices is not None and prices.hub is not None:
        try:
            lines.append(_line(Stay(HUB, prices.hub, hub_s), prices, islands=0))
        except Unpriced as error:
            missing[str(error)] = None
    return Bill(tuple(lines), "" if prices is None else prices.currency, tuple(missing))


def _line(stay: Stay, prices: Prices | None, islands: int = 1) -> Line:
    place = stay.place
    if place is None and prices is not None:
        raise Unpriced(
            f"nobody tells where {stay.name} ran: no engine placed it, and it matches no pattern "
            "of learners"
        )
    place = place or Place()
    hours = stay.paid_s / HOUR_S
    number = 0 if place.accelerator is None else place.accelerator[1] * place.hosts
    line = Line(
        stay.name,
        place.region or OTHER,
        place.told,
        islands,
        hours,
        hours * number,
        stay.sent_bytes / GB,
        stay.received_bytes / GB,
        tokens=stay.tokens,
        merged=stay.merged,
    )
    if prices is None:
        return line
    here, there = line.region, prices.hub_region
    return replace(
        line,
        hours_cost=hours * prices.hour_of(place),
        traffic_cost=line.sent_gb * prices.gb_of(here, there)
        + line.received_gb * prices.gb_of(there, here),
    )
