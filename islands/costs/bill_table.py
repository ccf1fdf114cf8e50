"""A bill as a table that fits 80 columns, and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import msgspec

from islands.costs.bill import MILLION, Bill, Line
from islands.run.records.figures import in_order
from islands.settings.quantities import count

ISLANDS_SHOWN = 32
"""Most islands with a row of their own, those that cost most; JSON has all."""

COLUMNS = 80
NAMES_LEAST = (8, 6)
WHOLE = 1000.0
DERIVED = ("cost", "cost_per_million", "kwh_per_million", "lost_cost")

Row = tuple[str, ...]


def table_of(bill: Bill, columns: int = COLUMNS) -> list[str]:
    """Return the lines of a bill: islands, regions, the whole, and what a table cannot say."""
    rows = [_head(bill), *_rows(bill)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    names, numbers = widths[:2], widths[2:]
    room = columns - sum(numbers) - 2 * len(numbers)
    names[1] = max(NAMES_LEAST[1], min(names[1], room - 2 - min(names[0], room // 2)))
    names[0] = max(NAMES_LEAST[0], min(names[0], room - 2 - names[1]))
    lines = []
    for row in rows:
        words = [_fitted(cell, width) for cell, width in zip(row[:2], names, strict=True)]
        cells = [cell.rjust(width) for cell, width in zip(row[2:], numbers, strict=True)]
        lines.append("  ".join([*words, *cells]).rstrip())
    return [*lines, *sentences_of(bill)]


def _fitted(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else f"{name[: width - 1]}…"


def _head(bill: Bill) -> Row:
    return (
        *("island", "region", "hours", "GB", "kWh"),
        *(bill.currency or "money", "M merged", "per M", "lost"),
    )


def _rows(bill: Bill) -> Iterator[Row]:
    first, left = shown_lines(bill)
    for line in first:
        yield (line.name, line.region, *_cells(bill, line, line.lost_cost))
    if left:
        yield (f"({left} more)", *[""] * 8)
    regions = [line for line in bill.regions if line.islands]
    for line in regions if len(regions) > 1 else ():
        lost = sum(each.lost_cost for each in bill.lines if each.region == line.region)
        yield (f"all {line.islands}", line.region, *_cells(bill, line, lost))
    yield (f"all {bill.whole.islands}", "", *_cells(bill, bill.whole, bill.lost_cost))


def shown_lines(bill: Bill) -> tuple[Sequence[Line], int]:
    """Return the islands to show, in the order of their names, and how many more there are."""
    dearest = sorted(bill.lines, key=lambda line: (-line.cost, -line.hours))[:ISLANDS_SHOWN]
    ordered = sorted(dearest, key=lambda line: in_order(line.name))
    return ordered, len(bill.lines) - len(ordered)


def _cells(bill: Bill, line: Line, lost: float) -> Row:
    each = line.cost_per_million
    priced = bool(bill.currency)
    return (
        amount(line.hours),
        amount(line.sent_gb + line.received_gb),
        "" if line.kwh is None else amount(line.kwh),
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
    if whole.kwh_per_million is not None:
        yield f"A million merged tokens took {amount(whole.kwh_per_million)} kWh."
    untold = [line.what for line in bill.lines if line.kwh is None and line.accelerator_hours]
    if bill.currency and untold:
        kinds = ", ".join(dict.fromkeys(untold))
        yield f"The energy of {len(untold)} islands is not told by watts: {kinds}."


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
