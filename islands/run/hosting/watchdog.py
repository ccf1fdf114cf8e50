"""Watchdog heartbeats for systemd, and reports of the event loop's stalls.

A timer of the event loop sends the heartbeats, so a loop that hangs sends none and systemd restarts
the process: a hang is the one fault that a process cannot handle itself. The lateness of the same
timer tells how long the loop stalled; a stall is reported once, when it is over. Without systemd no
heartbeat is sent, and stalls are still reported.

A container has no systemd; there the container's health check sends a request to the server.

Reference: sd_notify(3), sd_watchdog_enabled(3).
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from messaging.clock import Clock

STALL_S = 0.5
STALLS_TOLD_S = 60.0
"""Least time between two messages that tell a person of stalls of the event loop."""
TICK_S = 0.25
_BEATS_PER_LIMIT = 3  # systemd's manual asks for two; the third allows for a stall in between


class Notifier:
    """Sends states to the service manager that started this process, if one did.

    The environment names the manager's socket and the limit of its watchdog.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._limit_s = _limit_s(environment)
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(0.0)

    @property
    def beat_s(self) -> float | None:
        """Interval of heartbeats for the service manager; None if it wants none."""
        return None if self._limit_s is None else self._limit_s / _BEATS_PER_LIMIT

    def send(self, **states: str) -> None:
        """Send states such as READY="1", without waiting for a manager that does not listen."""
        if self._socket is None:
            return
        lines = [f"{name}={' '.join(value.split())}" for name, value in states.items()]
        with contextlib.suppress(OSError):
            self._socket.sendto("\n".join(lines).encode(), self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Watchdog:
    """The heartbeat of an event loop.

    `stalled` is called with how many seconds the loop stalled, once it goes on; not of less than
    `stall_s`.
    """

    def __init__(
        self,
        stalled: Callable[[float], object],
        *,
        notifier: Notifier | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self._stalled = stalled
        self._notifier = notifier or Notifier()
        self._stall_s = stall_s
        self._timer: asyncio.TimerHandle | None = None
        self._due_s: float | None = None
        self._beat_due_s = 0.0

    def begin(self, status: str = "") -> None:
        """Begin the heartbeat of a process that is not ready yet."""
        self._notifier.send(STATUS=status)
        self._start()

    def ready(self, status: str = "") -> None:
        """Report that this process is ready; begin the heartbeat if it has not begun."""
        self._notifier.send(READY="1", STATUS=status)
        if self._timer is None:
            self._start()

    def stopping(self, reason: str = "") -> None:
        """Report that this process is shutting down; the heartbeat goes on meanwhile."""
        self._notifier.send(STOPPING="1", STATUS=reason)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notifier.close()

    def _start(self) -> None:
        self._beat_due_s = asyncio.get_running_loop().time()
        self._tick()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        due_s = now_s if self._due_s is None else self._due_s
        beat_s = self._notifier.beat_s
        if beat_s is not None and now_s >= self._beat_due_s:
            self._notifier.send(WATCHDOG="1")
            self._beat_due_s = now_s + beat_s
        wait_s = TICK_S if beat_s is None else min(TICK_S, beat_s)
        self._due_s = now_s + wait_s  # kept here: uvloop's handle of a timer overdue has no time
        self._timer = loop.call_at(self._due_s, self._tick)
        if now_s - due_s >= self._stall_s:
            self._stalled(now_s - due_s)


class Stalls:
    """Tells a person that the event loop stalled, and what to do; every `STALLS_TOLD_S` at most.

    Nothing is reported while this process, or one beside it, is `starting`: importing and compiling
    take the time then.
    """

    def __init__(self, say: Callable[[str], object], clock: Clock) -> None:
        self.starting: Callable[[], bool] = lambda: False
        self._say = say
        self._clock = clock
        self._told_s = -STALLS_TOLD_S
        self._untold_s: list[float] = []

    def stalled(self, for_s: float) -> None:
        """Report a stall that is over, or save it for the next message."""
        if self.starting():
            return
        self._untold_s.append(for_s)
        now_s = self._clock.now_s()
        if now_s - self._told_s < STALLS_TOLD_S:
            return
        times = f"{len(self._untold_s)} times, " * (len(self._untold_s) > 1)
        self._say(
            f"this process heard and sent nothing for {times}{max(self._untold_s):.1f} s"
            f"{' at most' if times else ''}: the machine is too busy, or was asleep; if it goes on "
            "for seconds, members are evicted: give it a core that learners do not use (fewer "
            "learners on this machine, or --threads 1 for each), or a larger run.timing.patience"
        )
        self._told_s = now_s
        self._untold_s.clear()


def _address(name: str) -> str:
    """Return the socket's address; a leading `@` stands for the abstract namespace's zero byte."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _limit_s(environment: Mapping[str, str]) -> float | None:
    """Return the manager's watchdog timeout; None if there is none, or one for another process."""
    limit, meant = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not limit.isdecimal() or int(limit) == 0 or meant not in ("", str(os.getpid())):
        return None
    return int(limit) / 1e6
