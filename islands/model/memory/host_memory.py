"""Measure the memory that this host has for processes, and the peak that a block of code takes."""

from pathlib import Path

MACHINE = Path("/proc/meminfo")
GROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def host_memory_bytes(machine: Path = MACHINE, groups: tuple[Path, ...] = GROUPS) -> int | None:
    """Return the bytes that this host's processes may take together; None if that is not known.

    Args:
        machine: file in which Linux reports the memory of the machine.
        groups: files in which it reports the limit of a container (control group).
    """
    told = [_of_status(machine, "MemTotal"), *(_limit(group) for group in groups)]
    return min((each for each in told if each is not None), default=None)


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


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
        self._before = _of_status(self._status, "VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        """Read the peak since the block began."""
        peak = _of_status(self._status, "VmHWM")
        if self._before is not None and peak is not None:
            self.grown_bytes = max(0, peak - self._before)


def _of_status(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(sizes[0]) * 1024 if sizes else None
