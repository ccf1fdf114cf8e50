"""The processes of a chaos run: started, found, signalled, told to fail, and ended with it.

    async with Fleet(folder, settings) as fleet:
        await fleet.wait(lambda: fleet.merged_since(0.0, names), 60.0)
        fleet.signal("learner-1", signal.SIGKILL)

The hub runs in a process of its own, as `islands run` has it, and starts the others as its
children. What other processes do makes no event here, so their files are read a few times a second.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from islands.files.folder_lock import make_private
from islands.lab.faults.paths import HOST, Ports
from islands.lab.faults.watched import WATCHED_FILE, Reader
from islands.protocol.errors import IslandsError, UnreachableError, UserError, unusable
from islands.protocol.identities import SUPERVISOR
from islands.run.hosting.process_identity import (
    Identity,
    facts,
    lives,
    marked,
    read_records,
    send_signal,
)
from islands.run.hosting.process_output import last_line
from islands.settings.run_spec import RunSpec

HUB_FILE = "chaos.json"
HUB_LOG = "hub.log"
ORDERS = "orders"
STOP = "stop"
"""The order to a hub to end its run."""
START = "start"
"""The order to a hub to start a process that has left, with the name of that process."""
LOOK_S = 0.05
END_S = 30.0
"""How long a run that was stopped may take to end, beside its closing rounds."""


@dataclass(frozen=True, slots=True)
class HubSettings:
    """What the hub's process is told.

    Args:
        spec: settings and task of the run.
        learners: how many are started.
        ports: where hub and syncer listen behind proxies that learners dial; None: without any.
        host: the address that hub and syncer listen at.
        remote: learners that are started on another host.
        remote_words: words before the command of each of them, which bring it there.
        hub_words: words before the command of the hub.
    """

    spec: RunSpec
    learners: int
    ports: Ports | None = None
    host: str = HOST
    remote: tuple[str, ...] = ()
    remote_words: tuple[str, ...] = ()
    hub_words: tuple[str, ...] = ()


class Fleet:
    """The processes of one run.

    Args:
        folder: of the run; it must not hold another.
        settings: of the hub.
    """

    def __init__(self, folder: Path, settings: HubSettings) -> None:
        """Start nothing yet."""
        self.folder = folder
        self.watched = Reader(folder / WATCHED_FILE)
        self._settings = settings
        self._hub: subprocess.Popen[bytes] | None = None
        self._striking = False
        self.timing = settings.spec.settings.timing

    @property
    def end_s(self) -> float:
        """How long the run may take to end once it is stopped."""
        return END_S + self.timing.scaled(self.timing.final_s)

    async def __aenter__(self) -> Self:
        """Start the hub, and with it all processes.

        Raises:
            UserError: the folder holds another run, or cannot be written to.
        """
        if (self.folder / HUB_FILE).exists():
            raise UserError(f"{self.folder} holds another chaos run; choose another folder")
        try:
            make_private(self.folder)
            (self.folder / HUB_FILE).write_bytes(msgspec.json.encode(self._settings))
        except OSError as error:
            raise unusable(f"the folder {self.folder} cannot be written", error) from error
        self.start_hub()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End whatever still runs."""
        if self._hub is not None and self._hub.poll() is None:
            self._hub.kill()
            self._hub.wait()
        self._let_go()
        records = {**marked(self.folder), **read_records(self.folder / "processes.json")}
        for identity in records.values():
            if lives(identity):
                send_signal(identity, signal.SIGKILL)

    # --- the hub ------------------------------------------------------------------------------

    @property
    def hub_command(self) -> list[str]:
        """The argument list that starts the hub's process."""
        module = (sys.executable, "-m", "islands.lab.faults")
        return [*self._settings.hub_words, *module, str(self.folder)]

    def start_hub(self) -> None:
        """Start the hub's process, for the first time or again."""
        self._let_go()
        with (self.folder / HUB_LOG).open("ab") as log:
            self._hub = subprocess.Popen(
                self.hub_command,
                stdin=subprocess.PIPE,  # it stops when this ends, as it does with this process
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _let_go(self) -> None:
        """Close the pipe to a hub that has ended."""
        if self._hub is not None and self._hub.stdin is not None:
            self._hub.stdin.close()

    async def stop(self) -> int:
        """Let the run come to its end, as an operator does; returns the exit code of the hub.

        Raises:
            IslandsError: it did not end in time.
        """
        self.order(SUPERVISOR, STOP)
        hub = self._hub
        assert hub is not None, "it was started"
        await self._ended(hub)
        return hub.returncode

    async def _ended(self, hub: subprocess.Popen[bytes]) -> None:
        """Wait until a hub's process has ended.

        Raises:
            IslandsError: it did not end in time.
        """
        try:
            await self.wait(lambda: hub.poll() is not None, self.end_s, until_end=True)
        except TimeoutError as error:
            told = f"the run did not end within {self.end_s:g} s after it was told to"
            raise IslandsError(f"{told}; {self.folder} has what its processes said") from error

    # --- processes ----------------------------------------------------------------------------

    def identity(self, name: str) -> Identity | None:
        """Return which process has a name now; None if none lives."""
        if name == SUPERVISOR:
            found = None if self._hub is None else facts(self._hub.pid)
            if self._hub is None or found is None or found.zombie:
                return None
            return Identity(self._hub.pid, found.started_ticks)
        return identity_in(self.folder, name)

    @property
    def hub_status(self) -> Path:
        """Where the kernel tells of the hub's memory; no such file exists while there is no hub."""
        hub = self.identity(SUPERVISOR)
        return Path(f"/proc/{0 if hub is None else hub.pid}/status")

    def command(self, name: str) -> list[str] | None:
        """Return the command that started the process of a name; None if none lives."""
        identity = self.identity(name)
        if identity is None:
            return None
        try:
            line = Path(f"/proc/{identity.pid}/cmdline").read_bytes()
        except OSError:
            return None
        return [word.decode() for word in line.split(b"\0")[:-1]]

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Signal the process of a name; returns whether there was one."""
        identity = self.identity(name)
        return identity is not None and send_signal(identity, number)

    def order(self, name: str, line: str) -> bool:
        """Tell a process what to do to itself; returns whether one reads orders under the name."""
        try:
            pipe = os.open(self.folder / ORDERS / name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        with contextlib.closing(os.fdopen(pipe, "wb", buffering=0)) as orders:
            orders.write(f"{line}\n".encode())
        return True

    async def restart_hub(self, away_s: float) -> None:
        """Wait for the end of a hub that was struck, and start it again after a while.

        Raises:
            IslandsError: it did not end in time.
        """
        self._striking = True
        if self._hub is not None:
            await self._ended(self._hub)
        await asyncio.sleep(away_s)
        self.start_hub()
        self._striking = False

    # --- what they do -------------------------------------------------------------------------

    def merged_since(self, at_s: float, names: Iterable[str]) -> bool:
        """Return whether, since a time of the loop, each of these took part in a merge."""
        return all(self.watched.merged_s.get(name, -inf) > at_s for name in names)

    def told_since(self, at_s: float, names: Iterable[str]) -> bool:
        """Return whether, since a time of the loop, each of these told of its steps."""
        return all(self.watched.told_s.get(name, -inf) > at_s for name in names)

    async def wait(
        self, condition: Callable[[], bool], timeout_s: float, *, until_end: bool = False
    ) -> None:
        """Wait until something holds; what the hub wrote down is read before each look.

        Args:
            condition: what is to hold.
            timeout_s: how long it may take.
            until_end: whether the hub is expected to end.

        Raises:
            UnreachableError: the hub's process has ended, so it never will.
            TimeoutError: it did not come to hold in time.
        """
        async with asyncio.timeout(timeout_s):
            while True:  # until it holds
                self.watched.read()
                if condition():
                    return
                ended = self._hub is not None and self._hub.poll() is not None
                if ended and not (until_end or self._striking):
                    told = last_line(self.folder / HUB_LOG)
                    raise UnreachableError(f"the hub has ended: {told}")
                await asyncio.sleep(LOOK_S)


def identity_in(folder: Path, name: str) -> Identity | None:
    """Return which child of a run's hub has a name now; None if none lives."""
    identity = read_records(folder / "processes.json").get(name)
    return identity if identity is not None and lives(identity) else None
