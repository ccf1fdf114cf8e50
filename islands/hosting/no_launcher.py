"""The launcher of a hub that starts no processes."""


class NoLauncher:
    """A hub that starts no processes: learners are started by hand, or by their hosts."""

    def start(self, name: str) -> None:
        """Nothing is launched here."""

    def kill(self, name: str) -> None:
        """Nothing was launched here."""

    def stop(self, name: str, grace_s: float) -> None:
        """Nothing was launched here."""

    def names(self) -> list[str]:
        """Nobody."""
        return []

    def adopt(self) -> list[str]:
        """Nobody."""
        return []

    def close(self) -> None:
        """Nothing is watched."""
