"""What a run has cost, by island and region, for each million tokens that were merged; pure.

An hour is paid for as long as an island was placed, whether it stepped or not; traffic by its
bytes, at the price of the region that they leave. Money for tokens that were lost is in proportion
to an island's unmerged tokens, some of which may yet be merged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from islands.costs.prices import GB, OTHER, Machines, Prices, Unpriced

HOUR_S, MILLION = 3600.0, 1e6
HUB = "(hub)"
"""The line of the hub's own host; no learner has such a name."""
SUMMED = (
    *("islands", "hours", "accelerator_hours", "sent_gb", "received_gb"),
    *("hours_cost", "traffic_cost", "tokens", "merged"),
)


@dataclass(frozen=True, slots=True)
class Stay:
    """What one island did, and where.

    `paid_s` is for how long it was placed, and `merged` its merged tokens, mean over fragments.
    """

    name: str
    machines: Machines | None
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
        names = sorted({line.region for line in self.lines})
        return tuple(
            _sum([line for line in self.lines if line.region == name], name) for name in names
        )

    @property
    def whole(self) -> Line:
        return _sum(self.lines, "all")

    @property
    def lost_cost(self) -> float:
        return sum(line.lost_cost for line in self.lines)


def _sum(lines: Sequence[Line], name: str) -> Line:
    sums: dict[str, Any] = {key: sum(getattr(line, key) for line in lines) for key in SUMMED}
    kinds = {line.what for line in lines}
    return Line(name, name, what=kinds.pop() if len(kinds) == 1 else "", **sums)


def bill_of(stays: Iterable[Stay], prices: Prices | None, hub_s: float = 0.0) -> Bill:
    """Return the bill of a run.

    The hub's host was needed for `hub_s`.
    """
    lines, missing = list[Line](), dict[str, None]()
    hub = None if prices is None else prices.hub
    for stay in [*stays, *([] if hub is None else [Stay(HUB, hub, hub_s)])]:
        try:
            lines.append(_line(stay, prices))
        except Unpriced as error:
            missing[str(error)] = None
    return Bill(tuple(lines), "" if prices is None else prices.currency, tuple(missing))


def _line(stay: Stay, prices: Prices | None) -> Line:
    if stay.machines is None and prices is not None:
        raise Unpriced(
            f"nobody tells where {stay.name} ran: no engine placed it, and it matches no pattern "
            "of learners"
        )
    machines = stay.machines or Machines()
    hours = stay.paid_s / HOUR_S
    number = 0 if machines.accelerator is None else machines.accelerator[1] * machines.hosts
    line = Line(
        stay.name,
        machines.region or OTHER,
        str(machines),
        int(stay.name != HUB),
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
        hours_cost=hours * prices.hour_of(machines),
        traffic_cost=line.sent_gb * prices.gb_of(here, there)
        + line.received_gb * prices.gb_of(there, here),
    )
