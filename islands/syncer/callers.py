"""Who is at the other end of which link, so that neither is looked for among all."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Callers:
    """Names of peers that said hello, by connection, and each one's newest connection by name."""

    names: dict[int, str] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)

    def greet(self, connection: int, name: str) -> int | None:
        """A peer said hello; returns its earlier connection, which this one replaces."""
        self.forget(connection)
        earlier = self.newest.get(name)
        self.names[connection], self.newest[name] = name, connection
        return earlier

    def forget(self, connection: int) -> str | None:
        """A link is gone; returns who was at its other end."""
        name = self.names.pop(connection, None)
        if name is not None and self.newest.get(name) == connection:
            del self.newest[name]
        return name
