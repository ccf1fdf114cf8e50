"""The wanted number of islands of each entry of a run, from a target: pure.

==================  ================================================================================
target              the number of islands
==================  ================================================================================
a deadline          as few as train what is left by then, those of the cheapest tokens first; data
                    that may not leave its region by that region's islands alone
money per hour      as many as it pays for, those of the cheapest tokens first
gain of one more    as many as still add that share to what the fleet merges in a second
==================  ================================================================================

Between entries whose tokens cost the same, those that have islands go first, so that none moves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, inf

from islands.protocol.errors import SettingsError
from islands.settings.quantities import count, duration

HOUR_S = 3600.0
ROUNDING = 1e-9
"""Share by which a sum may be above a budget that it meets."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The islands of one entry of a run, which are alike.

    Args:
        name: of the entry, as site of site-0.
        region: where they run; empty: nobody told.
        present: how many there are, those that are placed and have not joined yet among them.
        tokens_per_s: tokens of one island in a second; None: not known.
        hour_cost: money for an hour of one island, traffic apart; None: not known.
        most: how many there may be.
    """

    name: str
    region: str = ""
    present: int = 0
    tokens_per_s: float | None = None
    hour_cost: float | None = None
    most: int = 64

    @property
    def token_cost(self) -> float:
        """Money for one token; that for an hour alone if the speed is not known."""
        if self.hour_cost is None:
            return inf
        return self.hour_cost / (HOUR_S * (self.tokens_per_s or 1 / HOUR_S))


@dataclass(frozen=True, slots=True)
class Deadline:
    """Tokens that must be trained in a time.

    Args:
        left_s: seconds until then.
        tokens: that any island may train.
        data: further tokens that only the islands of a region may train, by region.
    """

    left_s: float
    tokens: float = 0.0
    data: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PerHour:
    """Money that an hour may cost."""

    cost: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The least gain of one more island.

    Args:
        least: by what share it must raise what the fleet merges in a second.
        merged: returns what a fleet of so many islands merges in a second, in any unit.
    """

    least: float
    merged: Callable[[int], float]


Target = Deadline | PerHour | Gain


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a target asks for.

    Args:
        islands: the wanted number of each entry, by its name.
        why: one sentence for each entry, by its name.
        unmet: why the target cannot be met; empty if it can.
    """

    islands: Mapping[str, int]
    why: Mapping[str, str]
    unmet: str = ""


def wanted_islands(entries: Sequence[Entry], target: Target, least: int = 1) -> Wanted:
    """Return the wanted number of islands of each entry.

    Args:
        entries: of the run.
        target: what is asked for.
        least: how many islands there must be of all entries together, whatever the target says.

    Raises:
        SettingsError: the target needs a price that is missing.
    """
    if not entries:
        return Wanted({}, {}, "there is no entry of which islands could be added")
    match target:
        case Deadline():
            wanted = _by_deadline(entries, target)
        case PerHour():
            wanted = _by_money(entries, target)
        case Gain():
            wanted = _by_gain(entries, target)
    return _at_least(entries, wanted, least)


def _cheapest(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda each: (each.token_cost, -each.present, each.name))


# --- a deadline -------------------------------------------------------------------------------


def _by_deadline(entries: Sequence[Entry], target: Deadline) -> Wanted:
    strange = [region for region in target.data if all(region != one.region for one in entries)]
    if strange:
        raise SettingsError(f"data names {strange[0]}; no entry of the run is in that region")
    known = [each.tokens_per_s for each in entries if each.tokens_per_s]
    if not known:
        return _unchanged(entries, "no island has stepped yet, so nobody knows how fast one is")
    if target.left_s <= 0:
        return _unchanged(entries, "the deadline is over")
    mean = sum(known) / len(known)
    alike = [replace(each, tokens_per_s=each.tokens_per_s or mean) for each in entries]
    islands, why, short = dict.fromkeys([each.name for each in alike], 0), dict[str, str](), 0.0
    works = [*((region, tokens) for region, tokens in target.data.items()), ("", target.tokens)]
    for region, tokens in works:
        left = max(0.0, tokens)
        for each in _cheapest([one for one in alike if region in ("", one.region)]):
            speed = each.tokens_per_s or mean
            room = each.most - islands[each.name]
            done = speed * target.left_s
            number = room if left >= room * done else ceil(left / done * (1 - ROUNDING))
            if number:
                islands[each.name] += number
                what = f"{count(left)} tokens" + (f" of {region}'s own data" if region else "")
                sentence = (
                    f"{number} for {what} within {duration(target.left_s)}, "
                    f"at {count(speed)} tokens/s each"
                )
                why[each.name] = "; ".join(filter(None, (why.get(each.name, ""), sentence)))
            left = max(0.0, left - number * done)
        short += left
    why = {each.name: why.get(each.name, "nothing is left for it") for each in alike}
    return Wanted(islands, why, _too_few(islands, target, short))


def _too_few(islands: Mapping[str, int], target: Deadline, short: float) -> str:
    if not short:
        return ""
    whole = target.tokens + sum(target.data.values())
    return (
        f"the deadline cannot be met: {sum(islands.values())} islands, as many as there may be, "
        f"leave {count(short)} of {count(whole)} tokens undone by then"
    )


def _unchanged(entries: Sequence[Entry], why: str) -> Wanted:
    return Wanted(
        {each.name: each.present for each in entries}, {each.name: why for each in entries}, why
    )


# --- money ------------------------------------------------------------------------------------


def _by_money(entries: Sequence[Entry], target: PerHour) -> Wanted:
    unpriced = [each.name for each in entries if each.hour_cost is None]
    if unpriced:
        raise SettingsError(f"per_hour needs the price of an hour of {unpriced[0]}: see prices")
    islands, why, left = dict[str, int](), dict[str, str](), target.cost
    for each in _cheapest(entries):
        cost = each.hour_cost or 0.0
        enough = left >= cost * each.most
        islands[each.name] = each.most if enough else int(left / cost * (1 + ROUNDING))
        why[each.name] = (
            f"{islands[each.name]} at {cost:.2f} an hour each, of the {left:.2f} that are left"
        )
        left = max(0.0, left - islands[each.name] * cost)
    dearest = min(each.hour_cost or 0.0 for each in entries)
    unmet = (
        ""
        if any(islands.values())
        else (
            f"the money pays for no island: one costs {dearest:.2f} an hour at the least, and "
            f"{target.cost:.2f} may be spent"
        )
    )
    return Wanted(islands, why, unmet)


# --- the gain of one more ---------------------------------------------------------------------


def _by_gain(entries: Sequence[Entry], target: Gain) -> Wanted:
    most = sum(each.most for each in entries)
    if not most:
        return Wanted({each.name: 0 for each in entries}, {}, "no island may be added")
    merged = cache(target.merged)

    def worth(number: int) -> bool:
        """Whether one island more than `number` adds enough."""
        before = merged(number)
        return before <= 0 or merged(number + 1) - before >= target.least * before

    low, high = 1, min(most, ceil(1 / target.least))  # of alike ones no n-th adds more than 1/(n-1)
    low = high if high > 1 and worth(high - 1) else low
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if worth(middle) else (low, middle)
    islands, left = dict[str, int](), high
    for each in _cheapest(entries):
        islands[each.name] = min(each.most, left)
        left -= islands[each.name]
    last = f"one more would add less than {target.least:.1%}"
    last = "as many as there may be" if high == most else last
    why = {name: f"{number} of {high} in all: {last}" for name, number in islands.items()}
    return Wanted(islands, why)


def _at_least(entries: Sequence[Entry], wanted: Wanted, least: int) -> Wanted:
    """Return what is wanted, with as many islands as must be, of the cheapest entries."""
    islands, why = dict(wanted.islands), dict(wanted.why)
    missing = least - sum(islands.values())
    for each in _cheapest(entries):
        more = max(0, min(missing, each.most - islands[each.name]))
        if more:
            islands[each.name] += more
            missing -= more
            why[each.name] = f"{islands[each.name]}, as there must be {least} at the least"
    return replace(wanted, islands=islands, why=why)
