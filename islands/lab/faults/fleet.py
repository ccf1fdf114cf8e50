"""The processes of a chaos run: a `Fleet` starts, finds, signals and ends them.

The hub runs in a process of its own, as `islands run` has it, and starts the others as its
children. It writes down each report as it hears it (`Stepped`, `MergedBy`). Since other processes
make no event here, that file is read a few times a second.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
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
from islands.run.hosting import process_identity
from islands.run.hosting.process_output import last_line
from islands.settings.run_spec import RunSpec

HUB_FILE = "chaos.json"
WATCHED_FILE = "watched.jsonl"
HUB_LOG = "hub.log"
LOOK_S = 0.05
END_S = 30.0
"""How long a run that was stopped may take to end, beside its closing rounds."""


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """A learner's process reported its steps so far; `bins` count the gaps between them."""

    at_s: float
    name: str
    process: str
    steps: int
    bins: tuple[tuple[int, int], ...]
    gap_largest_s: float

    @classmethod
    def of(cls, at_s: float, name: str, figures: StepFigures) -> "Stepped":
        return cls(
            at_s, name, figures.process, figures.steps, figures.gap_bins, figures.gap_largest_s
        )


class MergedBy(msgspec.Struct, frozen=True, tag="merged"):
    """A merge, and the learners whose contributions are in it."""

    at_s: float
    participants: tuple[str, ...]


Watched = Stepped | MergedBy

_DECODER: msgspec.json.Decoder[Watched] = msgspec.json.Decoder(Watched)


class Reader:
    """Reads the rows of a file as they are appended; the file need not exist yet.

    It knows when each learner reported last, and the last merge in which each took part.
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
    """Settings of the hub's process; without `ports`, learners dial no proxies."""

    spec: RunSpec
    learners: int
    ports: Ports | None = None


class Fleet:
    """The processes of one run, in a folder that holds no other."""

    def __init__(self, folder: Path, settings: HubSettings) -> None:
        self.folder = folder
        self.watched = Reader(folder / WATCHED_FILE)
        self._settings = settings
        self._hub: subprocess.Popen[bytes] | None = None
        self._restarting = False
        self.timing = settings.spec.settings.timing

    @property
    def end_s(self) -> float:
        """Seconds within which the run must end once it is stopped."""
        return END_S + self.timing.scaled(self.timing.final_s)

    async def __aenter__(self) -> Self:
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
        for identity in process_identity.marked(self.folder).values():
            process_identity.send_signal(identity, signal.SIGKILL)

    # --- the hub ------------------------------------------------------------------------------

    @property
    def hub_command(self) -> list[str]:
        return [sys.executable, "-m", "islands.lab.faults", str(self.folder)]

    def start_hub(self) -> None:
        self._let_go()
        with (self.folder / HUB_LOG).open("ab") as log:
            self._hub = subprocess.Popen(
                self.hub_command,
                bufsize=0,
                stdin=subprocess.PIPE,  # it stops when this ends, as it does with this process
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _let_go(self) -> None:
        if self._hub is not None and self._hub.stdin is not None:
            self._hub.stdin.close()

    def order_start(self, name: str) -> None:
        if self._hub is not None and self._hub.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended just now
                self._hub.stdin.write(f"{name}\n".encode())

    async def stop(self) -> int:
        """Let the run come to its end, as an operator does; returns the exit code of the hub."""
        self._let_go()
        hub = self._hub
        assert hub is not None, "it was started"
        await self._ended(hub)
        return hub.returncode

    async def _ended(self, hub: subprocess.Popen[bytes]) -> None:
        try:
            await self.wait(lambda: hub.poll() is not None, self.end_s, until_end=True)
        except TimeoutError as error:
            raise IslandsError(
                f"the run did not end within {self.end_s:g} s after it was told to; {self.folder} "
                "has what its processes said"
            ) from error

    # --- processes ----------------------------------------------------------------------------

    def identity(self, name: str) -> process_identity.Identity | None:
        """Return which process has a name now; None if none lives."""
        if name == SUPERVISOR:
            known = None if self._hub is None else process_identity.facts(self._hub.pid)
            if self._hub is None or known is None or known.zombie:
                return None
            return process_identity.Identity(self._hub.pid, known.started_ticks)
        return process_identity.marked(self.folder).get(name)

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Signal the process of a name; returns whether there was one."""
        identity = self.identity(name)
        return identity is not None and process_identity.send_signal(identity, number)

    async def restart_hub(self, away_s: float) -> None:
        """Wait for the end of a hub that was struck, and start it again after a while."""
        self._restarting = True
        if self._hub is not None:
            await self._ended(self._hub)
        await asyncio.sleep(away_s)
        self.start_hub()
        self._restarting = False

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
                if ended and not (until_end or self._restarting):
                    sentence = last_line(self.folder / HUB_LOG)
                    raise UnreachableError(f"the hub has ended: {sentence}")
                await asyncio.sleep(LOOK_S)
