"""An index of peers by link and of links by peer, so that neither is searched for among all."""

from dataclasses import dataclass, field

from islands.protocol.identities import LearnerName


@dataclass(slots=True)
class ConnectionIndex:
    """The names of peers that said hello, by connection, and their newest connections, by name."""

    names: dict[int, str] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)

    def name(self, connection: int) -> LearnerName | None:
        """Return the name of a peer; None if none said hello over that link."""
        found = self.names.get(connection)
        return None if found is None else LearnerName(found)

    def greet(self, connection: int, name: str) -> int | None:
        """Note that a peer said hello; return its earlier connection, which this one replaces."""
        self.forget(connection)
        earlier = self.newest.get(name)
        self.names[connection], self.newest[name] = name, connection
        return earlier

    def forget(self, connection: int) -> str | None:
        """Note that a link is gone; return the name of its peer."""
        name = self.names.pop(connection, None)
        if name is not None and self.newest.get(name) == connection:
            del self.newest[name]
        return name
