"""The peak of a process's memory, as Linux counts it."""

from pathlib import Path

from islands.model.memory_faults import of_status


class PeakMemory:
    """Measures the peak growth of this process's memory while a block runs.

    Attributes:
        grown_bytes: The growth, set when the block has ended; None if the system does not say.
    """

    def __init__(self, status: Path = Path("/proc/self/status")) -> None:
        self.grown_bytes: int | None = None
        self._status = status
        self._before: int | None = None

    def __enter__(self) -> "PeakMemory":  # noqa: PYI034  Self would hide the class from readers
        """Reset the peak that the system keeps for this process."""
        try:
            self._status.with_name("clear_refs").write_text("5")
        except OSError:
            return self
        self._before = of_status(self._status, "VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        """Read the peak since the block began."""
        peak = of_status(self._status, "VmHWM")
        if self._before is not None and peak is not None:
            self.grown_bytes = max(0, peak - self._before)
