"""How much memory this host has for a process: the machine's, or less where a group limits it."""

from pathlib import Path

MACHINE = Path("/proc/meminfo")
GROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def host_memory_bytes(machine: Path = MACHINE, groups: tuple[Path, ...] = GROUPS) -> int | None:
    """Bytes that processes of this host may take together; None where the system does not say.

    Args:
        machine: file in which Linux tells what the machine has.
        groups: files in which it tells what a container may take.
    """
    told = [_machine(machine), *(_limit(group) for group in groups)]
    return min((each for each in told if each is not None), default=None)


def _machine(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemTotal:")]
    return int(sizes[0]) * 1024 if sizes else None


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
