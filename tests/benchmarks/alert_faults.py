"""A real run for each alert rule, and the fault on which it fires (`tests.benchmarks.alerts`)."""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path

from islands.lab.faults.proxy import HOST, free_port
from islands.lab.toys.toy import SleepingDevice
from islands.lab.toys.toy_workload import Accelerator, Sleeping
from islands.model.interfaces import LearnerDevices, PendingStep, Trainer
from islands.protocol.settings.run import RunSettings
from tests.integration.programs import Program, Room, logged, merges, pids, write_config
from tests.integration.small_disk import SmallDisk, kept_full, small_disk
from tests.prometheus import Target

BEGIN_S = 180.0
LEARNERS = 3
STEP_S = 0.1
MIB = 2**20
DISK_BYTES, TAKEN_BYTES = 1200 * MIB, 400 * MIB
"""A disk should keep 1 GiB free."""
JOURNAL_BYTES = 16 * MIB
LONG_DAYS = 365


@dataclass(slots=True)
class Run:
    """One run of `islands run`, whose hub can be ended and started again.

    Attributes:
        room: The place of its processes.
        config: What differs from an ordinary run's file.
        command: Python's words before the command's own.
        authority: The certificate that the hub shows, if it has one.
        port: Where the hub listens.
        hub: Its process.
    """

    room: Room
    config: dict[str, object] = field(default_factory=dict)
    command: tuple[str, ...] = ("-m", "islands.cli")
    authority: Path | None = None
    port: int = field(default_factory=free_port)
    hub: Program | None = None

    @property
    def folder(self) -> Path:
        return self.room.folder / "run"

    @property
    def target(self) -> Target:
        return Target(self.port, self.authority)

    async def start(self) -> None:
        """Start the hub, and wait until it merges."""
        seen = merges(self.folder)
        ordinary = {
            "learners": LEARNERS,
            "listen": f"{HOST}:{self.port}",
            "task_settings": {"step_s": STEP_S, "megabytes": 0.0625},
        }
        path = write_config(self.room.folder / "run.yaml", **{**ordinary, **self.config})
        words = [sys.executable, *self.command, "run", str(path), "--folder", str(self.folder)]
        self.hub = self.room.start_words(words)
        await self.room.wait(lambda: merges(self.folder) > seen + 3, BEGIN_S)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.hub is not None, "it was started"
        self.hub.process.send_signal(number)
        await self.room.ended(self.hub, BEGIN_S)

    async def start_again(self) -> None:
        await self.end()
        await self.start()

    async def control(self, *words: str) -> None:
        told = await self.room.run("islands.cli", *words, "--folder", self.folder)
        assert told.process.returncode == 0, told


class Fault:
    """A fault of one run; the name of its class is the rule's, and the docstring the table's."""

    on_disk = False
    """Whether it takes a file system of its own, which only root mounts."""

    def place(self, run: Run, stack: AsyncExitStack) -> None:
        """Prepare the run; what is entered here lasts as long as the run."""

    async def strike(self, run: Run) -> None:
        """Make the fault."""

    async def mend(self, run: Run) -> None:
        """End it."""


class IslandsNothingMerged(Fault):
    """A learner is drained from a run that merges what all three send; one is added."""

    def place(self, run: Run, stack: AsyncExitStack) -> None:
        run.config["run"] = {"quorum": LEARNERS, "interval_steps": 24}

    async def strike(self, run: Run) -> None:
        await run.control("drain", "learner-2")

    async def mend(self, run: Run) -> None:
        await run.control("add", "1")


class IslandsLearnerFlaps(Fault):
    """A learner gets SIGKILL three times, each time once it was admitted; then never again."""

    async def strike(self, run: Run) -> None:
        for number in range(1, 4):
            os.kill(await run.room.wait(partial(self._pid, run)), signal.SIGKILL)
            await run.room.wait(partial(self._admitted, run, number + 1), BEGIN_S)

    def _pid(self, run: Run) -> int:
        return pids(run.folder).get("learner-1", 0)

    def _admitted(self, run: Run, times: int) -> bool:
        return len(logged(run.folder, "admitted", name="learner-1")) >= times


class IslandsYieldLow(Fault):
    """H is 2, about what an exchange takes; the run goes on with an H of 64."""

    def place(self, run: Run, stack: AsyncExitStack) -> None:
        run.config["task_settings"] = {"step_s": 0.01, "megabytes": 0.0625}
        self._interval(run, 2)

    async def mend(self, run: Run) -> None:
        self._interval(run, 64)
        await run.start_again()

    def _interval(self, run: Run, steps: int) -> None:
        run.config["run"] = {"interval_steps": steps, "fragments": 2, "adoption": "overwrite"}


class IslandsDisk(Fault):
    """A file of 400 MiB on the run's disk of 1,200; it is removed."""

    on_disk = True

    def place(self, run: Run, stack: AsyncExitStack) -> None:
        stack.enter_context(small_disk(run.folder, DISK_BYTES))

    async def strike(self, run: Run) -> None:
        with (run.folder / "taken").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, TAKEN_BYTES)

    async def mend(self, run: Run) -> None:
        (run.folder / "taken").unlink()


class IslandsJournalLags(Fault):
    """The journal's own disk is full; there is room again."""

    on_disk = True

    def __init__(self) -> None:
        self._disk: SmallDisk | None = None
        self._full = AsyncExitStack()

    def place(self, run: Run, stack: AsyncExitStack) -> None:
        self._disk = stack.enter_context(small_disk(run.folder / "journal", JOURNAL_BYTES))

    async def strike(self, run: Run) -> None:
        assert self._disk is not None, "mounted before"
        await self._full.enter_async_context(kept_full([self._disk]))

    async def mend(self, run: Run) -> None:
        await self._full.aclose()


class IslandsLossNotFinite(Fault):
    """The loss of one learner is NaN; it is a number again."""

    def place(self, run: Run, stack: AsyncExitStack) -> None:
        run.config |= {
            "task": f"{__spec__.name}:Poisoned",
            "task_settings": {"step_s": STEP_S, "file": str(self._file(run))},
        }

    async def strike(self, run: Run) -> None:
        self._file(run).touch()

    async def mend(self, run: Run) -> None:
        self._file(run).unlink()

    def _file(self, run: Run) -> Path:
        return run.room.folder / "poison"


class IslandsDown(Fault):
    """The hub gets SIGKILL; it is started again."""

    async def strike(self, run: Run) -> None:
        await run.end(signal.SIGKILL)

    async def mend(self, run: Run) -> None:
        await run.start()


FAULTS = (
    *(IslandsNothingMerged, IslandsLearnerFlaps, IslandsYieldLow, IslandsDisk, IslandsJournalLags),
    *(IslandsLossNotFinite, IslandsDown),
)


def certify(run: Run, days: int) -> None:
    """Let the hub show a certificate, made as docs/runs.md makes it, from its next start on."""
    certificate, key = run.room.folder / "hub.pem", run.room.folder / "hub.key"
    words = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days {days} -keyout {key} -out {certificate} "
        '-subj "/CN=islands hub" -addext "subjectAltName=DNS:localhost,IP:127.0.0.1"'
    )
    subprocess.run(shlex.split(words), check=True, capture_output=True)
    run.authority = certificate
    certificates = {"tls_certificate": certificate, "tls_key": key, "tls_ca": certificate}
    run.config |= {name: str(path) for name, path in certificates.items()}


@dataclass(frozen=True)
class Poisoned(Sleeping):
    """Devices that sleep; the losses of one are no numbers while there is a file.

    Attributes:
        file: The file.
        victim: Name of the learner.
    """

    file: str = ""
    victim: str = "learner-1"

    def trainer(self, settings: RunSettings, learner: LearnerDevices) -> Trainer:
        trainer = super().trainer(settings, learner)
        assert isinstance(trainer, Accelerator), "those of its parent are"
        if learner.name == self.victim:
            trainer.device = PoisonedDevice(self.step_s, Path(self.file))
        return trainer


class PoisonedDevice(SleepingDevice):
    """The victim's device."""

    def __init__(self, step_s: float, file: Path) -> None:
        super().__init__(step_s)
        self._file = file

    def occupy(self, loss: float, longer_s: float = 0.0) -> PendingStep:
        return super().occupy(nan if self._file.exists() else loss, longer_s)
