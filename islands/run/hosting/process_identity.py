"""The identity of a process: its pid with its start time; and signals to that process only.

The kernel reuses a pid once its process is gone; with the time at which the process started (field
22 of `/proc/<pid>/stat`, in clock ticks since boot) it is unique within one boot. Signals go by a
pidfd where the system has them, which is opened before the start time is compared: so what is
signalled is what was compared.

Reference: proc_pid_stat(5), pidfd_open(2), pidfd_send_signal(2).
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

MARK = "CHILD_OF_ISLANDS"


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of this boot; `log_start` is the offset of its output in its log file."""

    pid: int
    started_ticks: int
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What the kernel says of a pid at this moment; a zombie has ended and is not yet reaped.

    `leads` tells whether the process leads a session of its own, as each child does.
    """

    zombie: bool
    parent: int
    started_ticks: int
    leads: bool = False


def facts(pid: int) -> Facts | None:
    """Return what the kernel says of a pid; None if no process has it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name may hold spaces and brackets
    return Facts(state in ("Z", "X"), int(fields[0]), int(fields[18]), int(fields[2]) == pid)


def lives(identity: Identity) -> bool:
    """Return whether exactly this process exists and has not ended."""
    found = facts(identity.pid)
    return found is not None and _is_meant(found, identity) and not found.zombie


def _is_meant(found: Facts | None, identity: Identity) -> bool:
    return found is not None and found.started_ticks == identity.started_ticks


def open_pidfd(identity: Identity) -> int | None:
    """Open a descriptor that becomes readable when the process ends.

    Return None where no process, or another one, has the pid.
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
    """Signal a process, if the pid still belongs to it.

    Return whether the process was signalled.
    """
    descriptor = open_pidfd(identity)
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        elif lives(identity):  # without pidfds the pid may be reused between these two lines
            os.kill(identity.pid, number)
        else:
            return False
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def mark_of(name: str, folder: Path) -> str:
    """Return the mark in a child's environment, by which the next launcher finds it."""
    return f"{name}:{folder.resolve()}"


def marked(folder: Path) -> dict[str, Identity]:
    """Find the living children of a folder's launchers by the mark in their environments.

    Processes that a child started inherit the mark; they are left out, because they lead no session
    or started later.
    """
    found: dict[str, Identity] = {}
    wanted, here = f"{MARK}=".encode(), str(folder.resolve())
    for path in sorted(Path("/proc").glob("[0-9]*")):
        try:
            words = (path / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        mark = next((word for word in words if word.startswith(wanted)), b"")
        name, _, home = mark.removeprefix(wanted).decode(errors="replace").partition(":")
        known = facts(int(path.name)) if mark and home == here else None
        if known is None or known.zombie or not known.leads:
            continue
        identity = Identity(int(path.name), known.started_ticks)
        if name not in found or identity.started_ticks < found[name].started_ticks:
            found[name] = identity
    return found
