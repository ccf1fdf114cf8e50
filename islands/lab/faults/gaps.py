"""The gaps between steps, and the machine's own part in them: pure, from what was recorded.

A gap is known to lie between two reports of a learner. A stall of the bare loop (`bare_loop.py`)
that overlaps with the time between them may have caused it, and at most one gap of a learner: the
longest stall is taken off the longest gap, the next one off the next. What is left is the
product's. Reports that are heard much closer together than they are sent count as one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from islands.lab.faults.bare_loop import Stall
from islands.lab.faults.fleet import Stepped
from islands.protocol.running_statistics import PER_DECADE

CLOSE = 0.5  # of the usual time between two reports: below it they count as one

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time for which devices had nothing to do, and the machine's own stall in it.

    `left_s` is the longest that is left of any, once the machine's stalls are taken off.
    """

    longest_s: float
    machine_s: float
    left_s: float


def worst(gaps: Iterable[Gap]) -> Gap | None:
    """Return the longest of these, with the longest that is left of any; None if there is none."""
    known = list(gaps)
    if not known:
        return None
    longest = max(known, key=lambda gap: gap.longest_s)
    return Gap(longest.longest_s, longest.machine_s, max(gap.left_s for gap in known))


def gap_of(
    rows: Sequence[Stepped], name: str, span: Span, stalls: Sequence[Stall] = ()
) -> Gap | None:
    """Return the gaps between two steps of one process, by its reports; None if they show none.

    Gaps are counted in bins when a step ends them, so that one is at most 2.4 % too long. Between
    reports without a step there is a gap that nothing ended: it is as long as they are apart.
    """
    within = reports(rows, name, span)
    if not within:
        return None
    if within[-1].steps == within[0].steps:
        begin_s, end_s = within[0].at_s, within[-1].at_s
        return _gap([end_s - begin_s], stalls, (begin_s, end_s))
    return worst(
        _gap(_grown(before, after), stalls, (before.at_s, after.at_s))
        for before, after in pairwise(_apart(within))
    )


def rate_of(rows: Sequence[Stepped], name: str, span: Span) -> float | None:
    """Return the steps per second of one process, by its reports; None if they show none."""
    within = reports(rows, name, span)
    if not within or within[-1].at_s <= within[0].at_s:
        return None
    return (within[-1].steps - within[0].steps) / (within[-1].at_s - within[0].at_s)


def reports(rows: Sequence[Stepped], name: str, span: Span) -> list[Stepped]:
    """Return the reports from the last before the beginning to the last before the end.

    There are none if these two are one, or those of two processes.
    """
    own = [row for row in rows if row.name == name and row.at_s <= span[1]]
    first = max((index for index, row in enumerate(own) if row.at_s <= span[0]), default=None)
    if first is None or len(own) - first == 1 or own[first].process != own[-1].process:
        return []
    return own[first:]


def _apart(within: Sequence[Stepped]) -> Iterator[Stepped]:
    """Yield the reports between which gaps can be distinguished, with the first and the last.

    Of those that are heard together the last one ends a span, which then has the silence before.
    """
    usual_s = (within[-1].at_s - within[0].at_s) / (len(within) - 1)
    last = within[0]
    yield last
    for report, following in pairwise(within[1:]):
        if report.steps > last.steps and following.at_s - report.at_s >= CLOSE * usual_s:
            last = report
            yield report
    yield within[-1]


def _grown(before: Stepped, after: Stepped) -> list[float]:
    known = dict(before.bins)
    grown = sorted(after.bins, reverse=True)
    lengths = [
        min(after.gap_largest_s, float(10 ** ((index + 1) / PER_DECADE)))
        for index, count in grown
        for _ in range(count - known.get(index, 0))
    ]
    return lengths or [0.0]


def _gap(lengths_s: Sequence[float], stalls: Sequence[Stall], span: Span) -> Gap:
    """Return the gaps of a span, of each its own stall taken off; lengths are longest first.

    A gap began by its length before it ended, and a stall delays the report before it as well.
    """
    from_s, to_s = span[0] - lengths_s[0], span[1]
    overlapping = (one.length_s for one in stalls if one.overlaps((from_s - one.length_s, to_s)))
    machine_s = sorted(overlapping, reverse=True)
    pairs = list(zip_longest(lengths_s, machine_s[: len(lengths_s)], fillvalue=0.0))
    longest_s, own_s = pairs[0]
    return Gap(longest_s, min(longest_s, own_s), max(0.0, *(gap - own for gap, own in pairs)))
