"""A bill as a table that fits 80 columns, and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import StringIO

import msgspec
from rich.console import Console
from rich.table import Table

from islands.costs.bill import MILLION, Bill, Line
from islands.run.records.figures import in_order
from islands.settings.quantities import count

ISLANDS_SHOWN = 32
"""Most islands with a row of their own, those that cost most; JSON has all."""

COLUMNS = 80
WHOLE = 1000.0
DERIVED = ("cost", "cost_per_million", "lost_cost")


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
    """Return a bill as JSON: its islands, its regions and the whole."""
    told = {
        "currency": bill.currency or None,
        "islands": [_fields(line) for line in bill.lines],
        "regions": [_fields(line) for line in bill.regions],
        "whole": {**_fields(bill.whole), "lost_cost": bill.lost_cost},
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


def _fields(line: Line) -> dict[str, object]:
    return asdict(line) | {name: getattr(line, name) for name in DERIVED}


def amount(number: float) -> str:
    """Format an amount in few letters: 0.03, 12.50, 1,250, 125.0 k."""
    return f"{number:.2f}" if abs(number) < WHOLE else count(number)
