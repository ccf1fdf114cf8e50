"""The launcher of a hub that starts no processes."""


class NoLauncher:
    """A launcher that starts no processes: learners are started by hand, or by their hosts."""

    def start(self, name: str) -> None:
        """Do nothing: this hub launches no process."""

    def kill(self, name: str) -> None:
        """Do nothing: no process was launched."""

    def stop(self, name: str, grace_s: float) -> None:
        """Do nothing: no process was launched."""

    def names(self) -> list[str]:
        """Return no names."""
        return []

    def adopt(self) -> list[str]:
        """Return no names."""
        return []

    def close(self) -> None:
        """Do nothing: no process is watched."""
