"""Which process is meant: a pid with its start time; and how one that is meant is signalled.

A pid alone names nobody for long: the kernel gives it to the next process once its bearer is gone.
A pid together with the time at which its process started (field 22 of `/proc/<pid>/stat`, in clock
ticks since boot) is taken once per boot. Signals go through a pidfd where the system has them: the
descriptor is opened first and the start time compared after, so that what is signalled is what was
compared, also if it ends in between.

Reference: proc_pid_stat(5), pidfd_open(2), pidfd_send_signal(2).
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec

from islands.errors import IslandsError
from islands.files.seals import read_sealed, sealed

MARK = "CHILD_OF_ISLANDS"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of this boot; `log_start` is where its output begins in its log file."""

    pid: int
    started_ticks: int
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class Records:
    """The processes that a launcher started and has not seen to end, by name."""

    boot: str
    processes: dict[str, Identity]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the kernel says of a pid at this moment; a zombie has ended and is not yet reaped.

    `leads` says whether it leads a session of its own, as each child does.
    """

    zombie: bool
    parent: int
    started_ticks: int
    leads: bool = False


def facts(pid: int) -> Facts | None:
    """What the kernel says of a pid; None if nobody has it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name may hold spaces and brackets
    return Facts(state in ("Z", "X"), int(fields[0]), int(fields[18]), int(fields[2]) == pid)


def lives(identity: Identity) -> bool:
    """Whether this very process is there and has not ended."""
    found = facts(identity.pid)
    return found is not None and _is_meant(found, identity) and not found.zombie


def _is_meant(found: Facts | None, identity: Identity) -> bool:
    return found is not None and found.started_ticks == identity.started_ticks


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor that becomes readable when the process ends.

    Returns:
        None where the system has no pidfds, or where the pid is nobody's or somebody else's.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except (AttributeError, OSError):
        return None
    if _is_meant(facts(identity.pid), identity):
        return descriptor
    os.close(descriptor)
    return None


def send_signal(identity: Identity, number: signal.Signals) -> bool:
    """Signal a process if it is still the one that is meant.

    Returns:
        Whether it was there to be signalled.
    """
    descriptor = open_pidfd(identity)
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        elif lives(identity):  # no pidfds here: the time between these two lines is unguarded
            os.kill(identity.pid, number)
        else:
            return False
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def boot_id() -> str:
    """What tells this boot from any other; start times mean nothing beyond it."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def mark_of(name: str, folder: Path) -> str:
    """What the environment of a child says, by which it is found whatever became of its record."""
    return f"{name}:{folder.absolute()}"


def marked(folder: Path) -> dict[str, Identity]:
    """The children of a folder's launchers that live, by what their environments say.

    Processes that a child started inherit its environment; they are none of the launcher's.
    """
    found: dict[str, Identity] = {}
    wanted = f"{MARK}=".encode()
    for place in sorted(Path("/proc").glob("[0-9]*")):
        try:
            words = (place / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is somebody else's
            continue
        told = next((word for word in words if word.startswith(wanted)), b"")
        name, _, where = told.removeprefix(wanted).decode(errors="replace").partition(":")
        known = facts(int(place.name)) if told and where == str(folder.absolute()) else None
        if known is None or known.zombie or not known.leads:
            continue
        identity = Identity(int(place.name), known.started_ticks)
        if name not in found or identity.started_ticks < found[name].started_ticks:
            found[name] = identity
    return found


def is_damaged(path: Path) -> bool:
    """Whether there is a file of records that is not what was written."""
    try:
        read_sealed(path)
    except IslandsError:
        return True
    return False


def read_records(path: Path) -> dict[str, Identity]:
    """The processes of this boot that a file tells of; none if it tells of another boot.

    A file that cannot be read counts as none: `marked` finds the processes all the same.
    """
    try:
        records = msgspec.json.decode(read_sealed(path) or b"", type=Records)
    except (IslandsError, msgspec.MsgspecError):
        return {}
    return records.processes if records.boot == boot_id() else {}


def write_records(path: Path, processes: dict[str, Identity]) -> None:
    """Replace the file at once, so that a reader finds the old records or the new ones.

    A full disk leaves the old ones: what they then tell of too much, the start times give away.
    """
    text = msgspec.json.format(msgspec.json.encode(Records(boot_id(), processes)), indent=2)
    fresh = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        fresh.write_bytes(sealed(text))  # not flushed: the loop waits for no disk, see `marked`
        fresh.replace(path)
