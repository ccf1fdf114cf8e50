"""Who is connected, how far each of them has come, and who gives way when there are too many; pure.

=========  ===============================================  =====================================
trust      what it has shown                                bound
=========  ===============================================  =====================================
stranger   nothing: it may not even have begun to speak     `strangers_max`
guest      the secret                                       `guests_max`
member     who it is: whoever accepts sessions admitted it  all connections together
=========  ===============================================  =====================================

Where there are too many of one trust level, the oldest of the most crowded place gives way. So a
crowd from one place keeps nobody from another one out, and one that says nothing keeps nobody out
for long. Nobody gives way to somebody of a lower trust level, and a member gives way to nobody.

A place is an address of IPv4, or a network of 64 bits of IPv6, of which a host may use any address.
"""

import ipaddress
from dataclasses import dataclass, field
from enum import IntEnum

NETWORK_BITS = 64


class TrustLevel(IntEnum):
    """How far a connection has come."""

    STRANGER = 0
    GUEST = 1
    MEMBER = 2


def place_of(address: str) -> str:
    """Return what one host can choose no other of."""
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
    """Connections of one trust level, by place, each in the order of their coming."""

    places: dict[str, dict[int, None]] = field(default_factory=dict)
    size: int = 0

    def add(self, place: str, number: int) -> None:
        """One more."""
        self.places.setdefault(place, {})[number] = None
        self.size += 1

    def remove(self, place: str, number: int) -> None:
        """One fewer."""
        here = self.places[place]
        del here[number]
        self.size -= 1
        if not here:
            del self.places[place]

    def oldest(self) -> int:
        """The oldest connection of the most crowded place."""
        crowded = max(self.places, key=lambda place: len(self.places[place]))
        return next(iter(self.places[crowded]))


class Visitors:
    """All connections of one process that listens.

    Args:
        connections_max: of all standings together.
        strangers_max: that have shown nothing.
        guests_max: that have shown the secret, and were not admitted.
    """

    def __init__(self, connections_max: int, strangers_max: int, guests_max: int) -> None:
        """Nobody is here."""
        self._connections_max = connections_max
        self._most = {TrustLevel.STRANGER: strangers_max, TrustLevel.GUEST: guests_max}
        self._crowds = {trust: Crowd() for trust in TrustLevel}
        self._here: dict[int, Visitor] = {}
        self._waiting: dict[int, None] = {}  # those without a session, in the order of their coming

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._here)

    def count(self, trust: TrustLevel) -> int:
        """Return how many connections have this trust level."""
        return self._crowds[trust].size

    def trust(self, number: int) -> TrustLevel:
        """Return how far a connection has come."""
        return self._here[number].trust

    def come(self, number: int, place: str, now_s: float) -> int | None:
        """Take in a new connection; return the one that gives way, which may be itself."""
        self._here[number] = Visitor(place, now_s)
        self._waiting[number] = None
        strangers = self._crowds[TrustLevel.STRANGER]
        strangers.add(place, number)
        crowded = len(self._here) > self._connections_max
        if crowded or strangers.size > self._most[TrustLevel.STRANGER]:
            return strangers.oldest()
        return None

    def rise(self, number: int, trust: TrustLevel) -> int | None:
        """Note what a connection has shown; return the one that gives way to it, if any."""
        visitor = self._here.get(number)
        if visitor is None or trust <= visitor.trust:
            return None
        self._crowds[visitor.trust].remove(visitor.place, number)
        visitor.trust = trust
        crowd = self._crowds[trust]
        crowd.add(visitor.place, number)
        return crowd.oldest() if crowd.size > self._most.get(trust, crowd.size) else None

    def settle(self, number: int) -> None:
        """A connection belongs to a session from now on."""
        self._waiting.pop(number, None)

    def leave(self, number: int) -> None:
        """Forget a connection; does nothing if it is forgotten already."""
        visitor = self._here.pop(number, None)
        self._waiting.pop(number, None)
        if visitor is not None:
            self._crowds[visitor.trust].remove(visitor.place, number)

    def late(self, before_s: float) -> list[int]:
        """Return those that came before a time and belong to no session."""
        found: list[int] = []
        for number in self._waiting:
            if self._here[number].since_s >= before_s:
                break  # so did all that follow
            found.append(number)
        return found
