"""Parsing of a tape's versions, incarnations and tickets into values that can be compared."""

from dataclasses import dataclass
from functools import lru_cache

Pair = tuple[int, int]
"""(epoch, number) of a version, (epoch, counter) of an incarnation."""


@lru_cache(maxsize=4096)
def pair(text: str) -> Pair:
    """Parse a version or an incarnation."""
    epoch, _, number = text.partition(".")
    return int(epoch), int(number)


@dataclass(frozen=True, slots=True)
class TicketFacts:
    """The parts of a ticket."""

    name: str
    incarnation: Pair
    epoch: int
    round: int


@lru_cache(maxsize=4096)
def ticket(text: str) -> TicketFacts:
    """Parse a ticket."""
    who, _, right = text.rpartition("@")
    name, _, incarnation = who.rpartition("/")
    epoch, _, round_ = right.partition(":")
    return TicketFacts(name, pair(incarnation), int(epoch), int(round_))
