"""The watchdog of one host's process of an island, which starts it again.

    island of 2 hosts        host A                     host B
                             watchdog                   watchdog
                                └─ process of rank 0       └─ process of rank 1

The processes of an island end together: by themselves where they can (a host is lost or stuck), and
by SIGKILL from here where one does not beat any more, as a process does that was suspended or whose
event loop hangs. The watchdog then starts its host's process again, which waits for the others. It
ends when the run is over, when the user must mend something, and when it is asked to end.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from islands.protocol.errors import DONE, FAILED, OF_NO_USE, UnreachableError
from islands.protocol.settings.run import Timing
from islands.protocol.supervisor.eviction import Restarts
from islands.run.hosting.process_runtime import (
    SAME_SIGNAL_S,
    SIGNALLED,
    on_ending_signals,
    say,
)

BEAT_S = 1.0
BEAT_VARIABLE = "ISLANDS_BEAT"
"""Names the descriptor on which a host's process beats."""

SILENT_BEATS = 15
"""Missed beats after which a host's process is killed: rank 0 finds and names it before that."""

FIRST_BEATS = int(Timing().compile_s / BEAT_S)
"""The same before its first beat, as it may import from a slow disk: nobody else finds it then."""

LEAVING_S = 30.0
"""Longest time in which the process leaves in order after the first signal."""

NO_HUB = 69
"""Exit code of a host's process that was answered by no hub in the time that it was given."""

BY_ANOTHER = 75
"""Exit code of a host's process that ended since another host's did, or was asked to end."""

AFTER_ANOTHER_S = 1.0
"""This host waits for so long then before it starts its process again, as often as it takes."""

ASKED_TO_END = 128 + signal.SIGTERM
"""Exit code of the command where the run goes on, so that whoever started it starts it again."""


async def beat() -> None:
    """Beat for the watchdog that started this process, if one did, for as long as it lives."""
    number = os.environ.pop(BEAT_VARIABLE, "")
    if not number:
        return
    descriptor = int(number)
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, b".")
        except BlockingIOError:
            pass
        except BrokenPipeError as error:
            raise UnreachableError("the process that watches this one is gone") from error
        await asyncio.sleep(BEAT_S)


@dataclass(slots=True)
class Pulse:
    """The beats of a process, by counted seconds of its watchdog since the process was started.

    `missed` counts those since its last beat, or since its start.
    """

    missed: int = 0
    begun: bool = False

    def second(self, *, beaten: bool) -> bool:
        """Count a second in which it has beaten or not; return whether it is to be killed."""
        self.missed = 0 if beaten else self.missed + 1
        self.begun |= beaten
        return self.missed >= (SILENT_BEATS if self.begun else FIRST_BEATS)


def delay_before_restart_s(restarts: Restarts, code: int, now_s: float) -> float | None:
    """Return when to start a process again that ended with this exit code; None: not any more.

    An end that another host caused counts on that host alone.
    """
    return AFTER_ANOTHER_S if code == BY_ANOTHER else restarts.next_delay_s(now_s, 1.0)


class HostWatchdog:
    """The watchdog of one host's process."""

    def __init__(self, command: Sequence[str], who: str) -> None:
        self._command = command
        self._who = who
        self._restarts = Restarts()
        self._asked = asyncio.Event()
        self._asked_s = 0.0
        self._process: asyncio.subprocess.Process | None = None

    async def watch(self) -> int:
        """Watch one process after another; returns the exit code for this host."""
        with on_ending_signals(self._signalled):
            return await self._watch()

    async def _watch(self) -> int:
        loop = asyncio.get_running_loop()
        while True:  # one turn for each process
            code = await self._one()
            if code == DONE:
                return DONE
            if self._asked.is_set():
                return ASKED_TO_END
            if code in (OF_NO_USE, NO_HUB):
                return FAILED if code == NO_HUB else code
            delay_s = delay_before_restart_s(self._restarts, code, loop.time())
            if delay_s is None:
                say(f"{self._who}: it {self._restarts.gave_up_because}, so it is not started again")
                return FAILED
            say(f"{self._who}: {_ended(code)}; the island starts again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), delay_s)
                return ASKED_TO_END

    async def _one(self) -> int:
        """Run one process to its end; returns its exit code, or the negative signal."""
        reads, writes = os.pipe()
        environment = {**os.environ, BEAT_VARIABLE: str(writes)}
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, env=environment, pass_fds=(writes,), start_new_session=True
        )
        os.close(writes)
        if self._asked.is_set():  # while it was being started
            self._ask(process, signal.SIGTERM)
        guard = asyncio.create_task(self._guard(process, reads))
        try:
            return await process.wait()
        finally:
            guard.cancel()
            self._process = None
            os.close(reads)
            with contextlib.suppress(ProcessLookupError):  # it may leave a reader's processes,
                os.killpg(process.pid, signal.SIGKILL)  # which would keep its links open

    async def _guard(self, process: asyncio.subprocess.Process, beats: int) -> None:
        """Kill a process whose beats have stopped, by counted seconds of this one."""
        os.set_blocking(beats, False)
        pulse = Pulse()
        while True:
            await asyncio.sleep(BEAT_S)
            beaten = False
            with contextlib.suppress(BlockingIOError):
                beaten = bool(os.read(beats, 4096))
            if pulse.second(beaten=beaten):
                say(f"{self._who}: its process has not moved for {pulse.missed} s, so it is killed")
                process.kill()
                return

    def _signalled(self, name: str) -> None:
        again, now_s = self._asked.is_set(), asyncio.get_running_loop().time()
        if again and now_s - self._asked_s < SAME_SIGNAL_S:
            return
        self._asked.set()
        self._asked_s = now_s
        if self._process is None:
            return
        if again:
            self._kill(self._process)
            os._exit(SIGNALLED)
        self._ask(self._process, signal.Signals[name])

    def _ask(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Have a process leave in order, and end it if it does not."""
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a stopped process would not handle it
        asyncio.get_running_loop().call_later(LEAVING_S, self._kill, process)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _ended(code: int) -> str:
    if code == BY_ANOTHER:
        return "its process ended with that of another host"
    if code >= 0:
        return f"its process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process was ended by signal {-code}"


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return the command of a host's process, from the arguments of `islands.learner`."""
    return [sys.executable, "-m", "islands.island", *arguments]
