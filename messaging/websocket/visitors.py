"""Connections, their trust levels, and which one is evicted when there are too many; pure.

=========  ===============================================  =====================================
trust      what the connection has shown                    bound
=========  ===============================================  =====================================
stranger   nothing: it may not even have begun to speak     `strangers_max`
guest      the secret                                       `guests_max`
member     who it is: its listener has admitted it          all connections together
=========  ===============================================  =====================================

When a trust level has too many connections, the oldest one of the most crowded place is evicted. So
a crowd from one place cannot lock out other places, and silent connections cannot lock anyone out
for long. No connection is evicted for one of a lower trust level, and a member is never evicted.

A place is an IPv4 address, or an IPv6 network of 64 bits, of which a host may use any address.
"""

import ipaddress
from dataclasses import dataclass, field
from enum import IntEnum

NETWORK_BITS = 64


class TrustLevel(IntEnum):
    """How much a connection has proven."""

    STRANGER = 0
    GUEST = 1
    MEMBER = 2


def place_of(address: str) -> str:
    """Return the part of an address that a single host cannot change at will."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))


@dataclass(slots=True)
class Visitor:
    """One connection."""

    place: str
    since_s: float
    trust: TrustLevel = TrustLevel.STRANGER


@dataclass(slots=True)
class Crowd:
    """Connections of one trust level by place, in the order in which they reached the level."""

    places: dict[str, dict[int, None]] = field(default_factory=dict)
    size: int = 0

    def add(self, place: str, number: int) -> None:
        self.places.setdefault(place, {})[number] = None
        self.size += 1

    def remove(self, place: str, number: int) -> None:
        here = self.places[place]
        del here[number]
        self.size -= 1
        if not here:
            del self.places[place]

    def oldest(self) -> int:
        """Return the oldest connection of the most crowded place."""
        crowded = max(self.places, key=lambda place: len(self.places[place]))
        return next(iter(self.places[crowded]))


class Visitors:
    """All connections of one process that listens.

    Args:
        connections_max: most connections of all trust levels together.
        strangers_max: most connections that have shown nothing.
        guests_max: most connections that have shown the secret, and were not admitted.
    """

    def __init__(self, connections_max: int, strangers_max: int, guests_max: int) -> None:
        self._connections_max = connections_max
        self._most = {TrustLevel.STRANGER: strangers_max, TrustLevel.GUEST: guests_max}
        self._crowds = {trust: Crowd() for trust in TrustLevel}
        self._here: dict[int, Visitor] = {}
        self._waiting: dict[int, None] = {}  # those without a session, in the order of arrival

    def __len__(self) -> int:
        return len(self._here)

    def count(self, trust: TrustLevel) -> int:
        return self._crowds[trust].size

    def trust(self, number: int) -> TrustLevel:
        return self._here[number].trust

    def come(self, number: int, place: str, now_s: float) -> int | None:
        """Add a new connection; return the one to evict, which may be itself, or None."""
        self._here[number] = Visitor(place, now_s)
        self._waiting[number] = None
        strangers = self._crowds[TrustLevel.STRANGER]
        strangers.add(place, number)
        crowded = len(self._here) > self._connections_max
        if crowded or strangers.size > self._most[TrustLevel.STRANGER]:
            return strangers.oldest()
        return None

    def rise(self, number: int, trust: TrustLevel) -> int | None:
        """Raise a connection's trust level; return the one to evict for it, if any."""
        visitor = self._here.get(number)
        if visitor is None or trust <= visitor.trust:
            return None
        self._crowds[visitor.trust].remove(visitor.place, number)
        visitor.trust = trust
        crowd = self._crowds[trust]
        crowd.add(visitor.place, number)
        return crowd.oldest() if crowd.size > self._most.get(trust, crowd.size) else None

    def settle(self, number: int) -> None:
        """Note that a connection belongs to a session from now on."""
        self._waiting.pop(number, None)

    def leave(self, number: int) -> None:
        """Remove a connection; do nothing if it was removed already."""
        visitor = self._here.pop(number, None)
        self._waiting.pop(number, None)
        if visitor is not None:
            self._crowds[visitor.trust].remove(visitor.place, number)

    def late(self, before_s: float) -> list[int]:
        """Return the connections that came before a time and belong to no session."""
        found: list[int] = []
        for number in self._waiting:
            if self._here[number].since_s >= before_s:
                break  # all that follow came later still
            found.append(number)
        return found
