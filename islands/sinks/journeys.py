"""The journey of a fragment, from the tapes of the processes that it passed, as spans.

    pull ─▶ send ─▶ collect ─▶ merge ─▶ publish ─▶ apply

A round's pull reaches a learner, which packs its contribution and sends it; it arrives; the round
closes; what came is merged, made durable, and published; each learner applies it. Entries may come
in any order of their processes. A journey is given out once two later versions of its fragment are
published, or at the end: who has not applied it until then applies a newer one.

Times are those of each process's wall clock. A process of another host has its tape there, so only
what the others saw of it is told.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from islands.sinks.sink import Row

LATER_VERSIONS = 2
OPEN_MOST = 4096
"""Beyond this many journeys under way, the oldest is forgotten."""


class Span(NamedTuple):
    """A stretch of a journey; `whose` is the learner that it is of, empty for the syncer's."""

    name: str
    start_s: float
    end_s: float
    whose: str = ""
    tokens: int | None = None


@dataclass(slots=True)
class Journey:
    """What is known of one round of a fragment, in seconds of wall time."""

    round: int
    fragment: int
    version: str = ""
    opened_s: float | None = None
    closed_s: float | None = None
    merged_s: float | None = None
    published_s: float | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    sent_s: dict[str, float] = field(default_factory=dict)
    arrived_s: dict[str, float] = field(default_factory=dict)
    applied_s: dict[str, float] = field(default_factory=dict)

    def spans(self) -> Iterator[Span]:
        """Yield the stretches that are known, in their order."""
        for name, sent_s in sorted(self.sent_s.items()):
            yield from _span("pull", self.opened_s, sent_s, name)
            arrived_s = self.arrived_s.get(name)
            yield from _span("send", sent_s, arrived_s, name, self.tokens.get(name))
        yield from _span("collect", self.opened_s, self.closed_s)
        yield from _span("merge", self.closed_s, self.merged_s)
        yield from _span("publish", self.merged_s, self.published_s)
        for name, applied_s in sorted(self.applied_s.items()):
            yield from _span("apply", self.published_s, applied_s, name)


def _span(
    name: str,
    start_s: float | None,
    end_s: float | None,
    whose: str = "",
    tokens: int | None = None,
) -> Iterator[Span]:
    if start_s is not None and end_s is not None:
        yield Span(name, start_s, max(start_s, end_s), whose, tokens)


@dataclass(slots=True)
class Journeys:
    """Journeys that are under way, and adoptions of versions whose merge was not read yet."""

    rounds: dict[int, Journey] = field(default_factory=dict)
    adopted: dict[tuple[int, str], dict[str, float]] = field(default_factory=dict)
    published: dict[int, list[int]] = field(default_factory=dict)

    def add(self, row: Row) -> list[Journey]:
        """Take an entry into account; return the journeys that are over by it."""
        at_s, actor = float(str(row["t"])), str(row.get("actor"))
        match row:
            case {"kind": "contribute", "ticket": str(ticket), "fragment": int(fragment)}:
                journey = self._at(_round_of(ticket), fragment)
                journey.sent_s[actor] = at_s
                journey.tokens[actor] = int(str(row.get("tokens", 0)))
            case {"kind": "arrived", "ticket": str(ticket)}:
                known = self.rounds.get(_round_of(ticket))
                if known is not None:
                    known.arrived_s[ticket.partition("/")[0]] = at_s
            case {"kind": "opened", "round": int(number), "fragment": int(fragment)}:
                self._at(number, fragment).opened_s = at_s
            case {"kind": "closed", "round": int(number), "fragment": int(fragment)}:
                self._at(number, fragment).closed_s = at_s
            case {"kind": "abandoned", "round": int(number)}:
                self.rounds.pop(number, None)
            case {"kind": "merged", "round": int(number), "fragment": int(fragment)}:
                journey = self._at(number, fragment)
                journey.version = str(row.get("version"))
                journey.merged_s = journey.merged_s or at_s
            case {"kind": "adopted", "fragment": int(fragment), "version": str(version)}:
                self.adopted.setdefault((fragment, version), {})[actor] = at_s
                _bound(self.adopted)
            case {"kind": "committed", "fragment": int(fragment), "version": str(version)}:
                return self._publish(fragment, version, at_s)
            case _:
                pass
        return []

    def rest(self) -> list[Journey]:
        """Return the journeys that were published and not given out yet."""
        numbers = [number for waiting in self.published.values() for number in waiting]
        self.published.clear()
        return [self._over(number) for number in numbers if number in self.rounds]

    def _at(self, number: int, fragment: int) -> Journey:
        known = self.rounds.get(number)
        if known is None or known.fragment != fragment:
            known = self.rounds[number] = Journey(number, fragment)
            _bound(self.rounds)
        return known

    def _publish(self, fragment: int, version: str, at_s: float) -> list[Journey]:
        waiting = self.published.setdefault(fragment, [])
        for number, journey in self.rounds.items():
            if (journey.fragment, journey.version) == (fragment, version):
                journey.published_s = at_s
                waiting.append(number)
                break
        over = waiting[:-LATER_VERSIONS]
        del waiting[: len(over)]
        return [self._over(number) for number in over if number in self.rounds]

    def _over(self, number: int) -> Journey:
        journey = self.rounds.pop(number)
        journey.applied_s = self.adopted.pop((journey.fragment, journey.version), {})
        return journey


def _round_of(ticket: str) -> int:
    """Return the round of a ticket, `name/incarnation@epoch:round`."""
    return int(ticket.rpartition(":")[2])


def _bound(kept: dict[int, Journey] | dict[tuple[int, str], dict[str, float]]) -> None:
    if len(kept) > OPEN_MOST:
        del kept[next(iter(kept))]  # type: ignore[arg-type]
