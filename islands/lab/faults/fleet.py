"""The processes of a chaos run: a `Fleet` starts, finds, signals and ends them.

    async with Fleet(folder, settings) as fleet:
        await fleet.wait(lambda: fleet.merged_since(0.0, names), 60.0)
        fleet.signal("learner-1", signal.SIGKILL)

The hub runs in a process of its own, as `islands run` has it, and starts the others as its
children. It writes down each report as it hears it (`Stepped`, `MergedBy`). Since other processes
make no event here, that file is read a few times a second.
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
from typing import Self

import msgspec

from islands.files.folder_lock import make_private
from islands.lab.faults.paths import Ports
from islands.protocol.errors import IslandsError, UnreachableError, UserError, unusable
from islands.protocol.identities import SUPERVISOR
from islands.protocol.messages.control import StepFigures
from islands.run.hosting.process_identity import (
    Identity,
    facts,
    marked,
    send_signal,
)
from islands.run.hosting.process_output import last_line
from islands.settings.run_spec import RunSpec

HUB_FILE = "chaos.json"
WATCHED_FILE = "watched.jsonl"
HUB_LOG = "hub.log"
ORDERS = "orders"
STOP = "stop"
"""The order to a hub to end its run."""
START = "start"
"""The order to a hub to start a process that has left, with the name of that process."""
LOOK_S = 0.05
END_S = 30.0
"""How long a run that was stopped may take to end, beside its closing rounds."""


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """A learner's process reported its steps so far; `bins` count the gaps between them.

    `gap_largest_s` is the longest of these gaps. Times are the loop's, which on one Linux host all
    processes share (CLOCK_MONOTONIC).
    """

    at_s: float
    name: str
    process: str
    steps: int
    bins: tuple[tuple[int, int], ...]
    gap_largest_s: float

    @classmethod
    def of(cls, at_s: float, name: str, figures: StepFigures) -> "Stepped":
        """Keep of a report what is measured here."""
        return cls(
            at_s, name, figures.process, figures.steps, figures.gap_bins, figures.gap_largest_s
        )


class MergedBy(msgspec.Struct, frozen=True, tag="merged"):
    """A merge, and the learners whose contributions are in it."""

    at_s: float
    participants: tuple[str, ...]


Watched = Stepped | MergedBy

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Watched] = msgspec.json.Decoder(Watched)


def encode(row: Watched) -> bytes:
    return _ENCODER.encode(row) + b"\n"


class Reader:
    """Reads the rows of a file as they are appended.

    Args:
        path: of the file, which need not exist yet.

    Attributes:
        rows: Reports of learners on their steps.
        reported_s: When each learner reported last.
        merged_s: The last merge in which each took part.
    """

    def __init__(self, path: Path) -> None:
        self.rows: list[Stepped] = []
        self.reported_s: dict[str, float] = {}
        self.merged_s: dict[str, float] = {}
        self._path = path
        self._read_bytes = 0

    def read(self) -> list[Watched]:
        """Return the rows that were added since the last call; a half line is left for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, _, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        if not whole:
            return []
        self._read_bytes += len(whole) + 1
        added = [_DECODER.decode(line) for line in whole.split(b"\n")]
        for row in added:
            if isinstance(row, Stepped):
                self.rows.append(row)
                self.reported_s[row.name] = row.at_s
            else:
                self.merged_s.update(dict.fromkeys(row.participants, row.at_s))
        return added


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Settings of the hub's process.

    Args:
        spec: settings and task of the run.
        learners: how many are started.
        ports: where hub and syncer listen behind proxies that learners dial; None: without any.
    """

    spec: RunSpec
    learners: int
    ports: Ports | None = None


class Fleet:
    """The processes of one run.

    Args:
        folder: of the run; it must not hold another.
        settings: of the hub.
    """

    def __init__(self, folder: Path, settings: HubSettings) -> None:
        self.folder = folder
        self.watched = Reader(folder / WATCHED_FILE)
        self._settings = settings
        self._hub: subprocess.Popen[bytes] | None = None
        self._striking = False
        self.timing = settings.spec.settings.timing

    @property
    def end_s(self) -> float:
        """Seconds within which the run must end once it is stopped."""
        return END_S + self.timing.scaled(self.timing.final_s)

    async def __aenter__(self) -> Self:
        """Start the hub, and with it all processes."""
        if (self.folder / HUB_FILE).exists():
            raise UserError(f"{self.folder} holds another chaos run; choose another folder")
        try:
            make_private(self.folder)
            (self.folder / HUB_FILE).write_bytes(msgspec.json.encode(self._settings))
        except OSError as error:
            raise unusable(f"the folder {self.folder} cannot be written", error) from error
        self.start_hub()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._hub is not None and self._hub.poll() is None:
            self._hub.kill()
            self._hub.wait()
        self._let_go()
        for identity in marked(self.folder).values():
            send_signal(identity, signal.SIGKILL)

    # --- the hub ------------------------------------------------------------------------------

    @property
    def hub_command(self) -> list[str]:
        """The argument list that starts the hub's process."""
        return [sys.executable, "-m", "islands.lab.faults", str(self.folder)]

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
        if self._hub is not None and self._hub.stdin is not None:
            self._hub.stdin.close()

    async def stop(self) -> int:
        """Let the run come to its end, as an operator does; returns the exit code of the hub."""
        self.order(SUPERVISOR, STOP)
        hub = self._hub
        assert hub is not None, "it was started"
        await self._ended(hub)
        return hub.returncode

    async def _ended(self, hub: subprocess.Popen[bytes]) -> None:
        """Wait until a hub's process has ended."""
        try:
            await self.wait(lambda: hub.poll() is not None, self.end_s, until_end=True)
        except TimeoutError as error:
            raise IslandsError(
                f"the run did not end within {self.end_s:g} s after it was told to; {self.folder} "
                "has what its processes said"
            ) from error

    # --- processes ----------------------------------------------------------------------------

    def identity(self, name: str) -> Identity | None:
        """Return which process has a name now; None if none lives."""
        if name == SUPERVISOR:
            known = None if self._hub is None else facts(self._hub.pid)
            if self._hub is None or known is None or known.zombie:
                return None
            return Identity(self._hub.pid, known.started_ticks)
        return identity_in(self.folder, name)

    @property
    def hub_status(self) -> Path:
        """The kernel's file on the hub's memory; none exists while there is no hub."""
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
        """Wait for the end of a hub that was struck, and start it again after a while."""
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

    def reported_since(self, at_s: float, names: Iterable[str]) -> bool:
        """Return whether, since a time of the loop, each of these reported its steps."""
        return all(self.watched.reported_s.get(name, -inf) > at_s for name in names)

    async def wait(
        self, condition: Callable[[], bool], timeout_s: float, *, until_end: bool = False
    ) -> None:
        """Wait until something holds; what the hub wrote down is read before each look."""
        async with asyncio.timeout(timeout_s):
            while True:  # until it holds
                self.watched.read()
                if condition():
                    return
                ended = self._hub is not None and self._hub.poll() is not None
                if ended and not (until_end or self._striking):
                    sentence = last_line(self.folder / HUB_LOG)
                    raise UnreachableError(f"the hub has ended: {sentence}")
                await asyncio.sleep(LOOK_S)


def identity_in(folder: Path, name: str) -> Identity | None:
    """Return which child of a run's hub has a name now; None if none lives."""
    return marked(folder).get(name)
