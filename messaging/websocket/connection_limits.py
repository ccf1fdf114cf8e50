"""Connections, their trust levels, and which one is evicted when there are too many; pure.

=========  ===============================================  =====================================
trust      what the connection has shown                    bound
=========  ===============================================  =====================================
stranger   nothing: it may not even have begun to speak     `strangers_max`
guest      the secret                                       `guests_max`
member     who it is: its listener has admitted it          all connections together
=========  ===============================================  =====================================

When a trust level has too many connections, the oldest one of the most crowded network is evicted.
So a crowd from one network cannot lock out others, and silent connections cannot lock anyone out
for long. No connection is evicted for one of a lower trust level, and a member is never evicted.

A network is an IPv4 address, or an IPv6 network of 64 bits, of which a host may use any address.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import takewhile

NETWORK_BITS = 64


class TrustLevel(IntEnum):
    """How much a connection has proven."""

    STRANGER = 0
    GUEST = 1
    MEMBER = 2


def network_of(address: str) -> str:
    """Return the part of an address that a single host cannot change at will."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))


@dataclass(slots=True, eq=False)
class Connection:
    """One connection; `cut` ends it at once."""

    address: str
    since_s: float
    cut: Callable[[], None]
    trust: TrustLevel = TrustLevel.STRANGER
    network: str = field(init=False)

    def __post_init__(self) -> None:
        self.network = network_of(self.address)


@dataclass(slots=True)
class _Level:
    """Connections of one trust level by network, in the order in which they reached the level."""

    networks: dict[str, dict[Connection, None]] = field(default_factory=dict)
    size: int = 0

    def add(self, connection: Connection) -> None:
        self.networks.setdefault(connection.network, {})[connection] = None
        self.size += 1

    def remove(self, connection: Connection) -> None:
        here = self.networks[connection.network]
        del here[connection]
        self.size -= 1
        if not here:
            del self.networks[connection.network]

    def oldest(self) -> Connection:
        """Return the oldest connection of the most crowded network."""
        crowded = max(self.networks, key=lambda network: len(self.networks[network]))
        return next(iter(self.networks[crowded]))


class ConnectionLimits:
    """All connections of one process that listens, within the bounds of the module's table."""

    def __init__(self, connections_max: int, strangers_max: int, guests_max: int) -> None:
        self._connections_max = connections_max
        self._most = {TrustLevel.STRANGER: strangers_max, TrustLevel.GUEST: guests_max}
        self._levels = {trust: _Level() for trust in TrustLevel}
        self._waiting: dict[Connection, None] = {}  # without a session, in the order of arrival

    def __len__(self) -> int:
        return sum(level.size for level in self._levels.values())

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._levels[connection.trust].networks.get(connection.network, ())

    def count(self, trust: TrustLevel) -> int:
        return self._levels[trust].size

    def add(self, connection: Connection) -> Connection | None:
        """Add a new connection; return the one to evict, which may be itself, or None."""
        self._waiting[connection] = None
        strangers = self._levels[TrustLevel.STRANGER]
        strangers.add(connection)
        crowded = len(self) > self._connections_max
        if crowded or strangers.size > self._most[TrustLevel.STRANGER]:
            return strangers.oldest()
        return None

    def promote(self, connection: Connection, trust: TrustLevel) -> Connection | None:
        """Raise a connection's trust level; return the one to evict for it, if any."""
        if connection not in self or trust <= connection.trust:
            return None
        self._levels[connection.trust].remove(connection)
        connection.trust = trust
        level = self._levels[trust]
        level.add(connection)
        return level.oldest() if level.size > self._most.get(trust, level.size) else None

    def join_session(self, connection: Connection) -> None:
        """Note that a connection belongs to a session from now on."""
        self._waiting.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        """Remove a connection, unless it was removed already."""
        self._waiting.pop(connection, None)
        if connection in self:
            self._levels[connection.trust].remove(connection)

    def late(self, before_s: float) -> list[Connection]:
        """Return the connections that came before a time and belong to no session."""
        return list(takewhile(lambda one: one.since_s < before_s, self._waiting))
