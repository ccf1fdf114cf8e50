"""The cost of a run, by island and region, as JSON and as a table; for a million merged tokens.

An hour is paid for as long as an island was placed, whether it stepped or not; traffic by its
bytes, at the price of the region that they leave. Money for tokens that were lost is in proportion
to an island's unmerged tokens, some of which may yet be merged.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from islands.costs.prices import GB, OTHER, Machines, Prices, Unpriced
from islands.run.records.figures import in_order
from islands.settings.quantities import count

HOUR_S, MILLION = 3600.0, 1e6
HUB = "(hub)"
"""The line of the hub's own host; no learner has such a name."""
SUMMED = (
    *("islands", "hours", "accelerator_hours", "sent_gb", "received_gb"),
    *("hours_cost", "traffic_cost", "tokens", "merged"),
)
DERIVED = ("cost", "cost_per_million", "lost_cost")

ISLANDS_SHOWN = 32
"""Most islands with a row of their own, those that cost most; JSON has all."""
COLUMNS = 80
WHOLE = 1000.0


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


def table_of(bill: Bill, columns: int = COLUMNS) -> list[str]:
    """Return the lines of a bill: islands, regions, the whole, and what a table cannot say."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("island", "region"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for name in ("hours", "GB", bill.currency or "money", "M merged", "per M", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    first, left = shown_lines(bill)
    for line in first:
        table.add_row(line.name, line.region, *_cells(bill, line, line.lost_cost))
    if left:
        table.add_row(f"({left} more)")
    regions = [line for line in bill.regions if line.islands]
    for line in regions if len(regions) > 1 else ():
        lost = sum(each.lost_cost for each in bill.lines if each.region == line.region)
        table.add_row(f"all {line.islands}", line.region, *_cells(bill, line, lost))
    table.add_row(f"all {bill.whole.islands}", "", *_cells(bill, bill.whole, bill.lost_cost))
    console = Console(width=columns, file=StringIO(), color_system=None, markup=False)
    console.print(table)
    written = console.file.getvalue() if isinstance(console.file, StringIO) else ""
    return [*(line.rstrip() for line in written.splitlines()), *sentences_of(bill)]


def shown_lines(bill: Bill) -> tuple[Sequence[Line], int]:
    """Return the islands to show, in the order of their names, and how many more there are."""
    dearest = sorted(bill.lines, key=lambda line: (-line.cost, -line.hours))[:ISLANDS_SHOWN]
    ordered = sorted(dearest, key=lambda line: in_order(line.name))
    return ordered, len(bill.lines) - len(ordered)


def _cells(bill: Bill, line: Line, lost: float) -> tuple[str, ...]:
    each = line.cost_per_million
    priced = bool(bill.currency)
    return (
        amount(line.hours),
        amount(line.sent_gb + line.received_gb),
        amount(line.cost) if priced else "",
        amount(line.merged / MILLION),
        amount(each) if priced and each is not None else "",
        amount(lost) if priced else "",
    )


def sentences_of(bill: Bill) -> Iterator[str]:
    """Yield what a table cannot say."""
    whole = bill.whole
    if not bill.currency:
        yield "Without prices there is no money: name a file of them by --prices."
    if bill.currency and whole.tokens:
        share = whole.merged / whole.tokens
        yield (
            f"{amount(bill.lost_cost)} {bill.currency} were paid for tokens that were not merged: "
            f"{share:.1%} of {count(whole.tokens)} were."
        )


def as_json(bill: Bill) -> bytes:
    fields = {
        "currency": bill.currency or None,
        "islands": [_fields(line) for line in bill.lines],
        "regions": [_fields(line) for line in bill.regions],
        "whole": {**_fields(bill.whole), "lost_cost": bill.lost_cost},
    }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2)


def _fields(line: Line) -> dict[str, object]:
    return asdict(line) | {name: getattr(line, name) for name in DERIVED}


def amount(number: float) -> str:
    """Format an amount in few letters: 0.03, 12.50, 1,250, 125.0 k."""
    return f"{number:.2f}" if abs(number) < WHOLE else count(number)
