"""A world of simulated hosts: the production actors on a virtual clock, with NumPy arithmetic.

Every host runs one process at a time. Killing a process takes away its tasks, its links and what
its disk had not made durable, and nothing else. All chance comes from one seed; one seed gives one
history, to the byte.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from islands.config import RunSettings
from islands.credentials import Credentials
from islands.learner.actor import LearnerActor
from islands.learner.compute import InlineCompute
from islands.numerics.outer import Sgd
from islands.ports import InlineWorker
from islands.role import Surroundings
from islands.simulation.disk import SimulatedDisk
from islands.supervisor.actor import SupervisorActor
from islands.syncer.actor import SyncerActor
from islands.tape import Tape
from islands.toy import NumpyTrainer
from messaging.simulated_network import Route, SimulatedNetwork

SUPERVISOR = "supervisor"
SYNCER = "syncer"

RoleProcess = LearnerActor | SyncerActor | SupervisorActor


@dataclass(frozen=True, slots=True)
class LearnerHost:
    """One learner's machine: mean step time, its relative noise, set-up time, tokens per step."""

    step_s: float = 0.1
    noise: float = 0.1
    setup_s: float = 0.2
    batch_tokens: int = 8


@dataclass(slots=True)
class _Process:
    actor: RoleProcess
    task: asyncio.Task[None]
    clean_up: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Costs:
    """Virtual seconds of things that are not steps."""

    work_s: tuple[float, float] = (0.0005, 0.004)
    route: Route = field(default_factory=lambda: Route(latency_s=0.005, jitter_s=0.005))


class World:
    """All hosts of one run.

    Args:
        settings: of the run.
        learners: one entry per learner, by name.
        seed: of everything that is left to chance.
        tape: where all actors record.
        costs: times of what is not a step.
        shards: virtual shards per pass.
    """

    def __init__(
        self,
        settings: RunSettings,
        learners: dict[str, LearnerHost],
        *,
        seed: int,
        tape: Tape,
        costs: Costs | None = None,
        shards: int = 16,
    ) -> None:
        """Machines that are switched off."""
        self.settings = settings
        self.hosts = learners
        self.tape = tape
        self.rng = random.Random(seed)
        self.costs = costs or Costs()
        self.network = SimulatedNetwork(self._stream("network"), self.costs.route)
        self.disks = {
            name: SimulatedDisk(self._stream(f"disk-{name}")) for name in (SUPERVISOR, SYNCER)
        }
        self.processes: dict[str, _Process] = {}
        self.failures: list[tuple[str, BaseException]] = []
        self.finished: str | None = None
        self._shards = shards
        self._starts = 0
        self._around = Surroundings(
            settings=settings,
            layout=self._trainer(8).layout,
            network=self.network,
            tape=tape,
            supervisor=SUPERVISOR,
        )
        self._credentials = Credentials(settings.run, b"a key of the simulated run")

    def _stream(self, name: str) -> random.Random:
        """An independent source of chance for one purpose."""
        return random.Random(f"{self.settings.seed}/{self.rng.getrandbits(32)}/{name}")

    def _trainer(self, batch_tokens: int) -> NumpyTrainer:
        return NumpyTrainer(
            self.settings.fragments,
            seed=self.settings.seed,
            batch_tokens=batch_tokens,
            shards=getattr(self, "_shards", 16),
            batches_per_shard=16,
        )

    # --- processes ----------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start every process that does not run, in a fixed order."""
        for name in [SUPERVISOR, SYNCER, *self.hosts]:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one process; does nothing if it runs."""
        if name in self.processes:
            return
        self._starts += 1
        actor, clean_up = self._make(name)
        self._note("process_started", name=name)
        task = asyncio.get_running_loop().create_task(actor.run(), name=f"{name}-{self._starts}")
        self.processes[name] = _Process(actor, task, clean_up)
        task.add_done_callback(lambda done: self._ended(name, done))

    def _make(self, name: str) -> tuple[RoleProcess, Callable[[], None]]:
        rng = self._stream(name)
        if name == SUPERVISOR:
            disk = self.disks[name]
            supervisor = SupervisorActor(
                name,
                self._around,
                disk=_Settling(disk),
                credentials=self._credentials,
                launcher=NoLauncher(),
                finished=self._finish,
            )
            return supervisor, disk.crash
        if name == SYNCER:
            return self._make_syncer(rng)
        host = self.hosts[name]
        worker = InlineWorker(self._work_s(rng), _nothing)
        compute = InlineCompute(
            self._trainer(host.batch_tokens),
            self.settings,
            step_s=lambda: host.step_s * max(0.1, rng.gauss(1.0, host.noise)),
            setup_s=host.setup_s,
        )
        return LearnerActor(name, self._around, compute, worker, rng), _nothing

    def _make_syncer(self, rng: random.Random) -> tuple[SyncerActor, Callable[[], None]]:
        disk = self.disks[SYNCER]
        syncer = SyncerActor(
            SYNCER,
            self._around,
            disk=_Starting(disk),
            worker=InlineWorker(self._work_s(rng), disk.settle),
            optimizer=Sgd.of(self.settings.outer),
            credentials=self._credentials,
            shards=self._shards,
            address=SYNCER,
            rng=rng,
        )
        return syncer, disk.crash

    def _work_s(self, rng: random.Random) -> Callable[[], float]:
        low, high = self.costs.work_s
        return lambda: rng.uniform(low, high)

    def _finish(self, reason: str) -> None:
        self.finished = reason

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        process = self.processes.get(name)
        if process is None or process.task is not task:
            return
        del self.processes[name]
        error = None if task.cancelled() else task.exception()
        process.clean_up()
        self.network.crash(name)
        self._note("process_ended", name=name, error=repr(error) if error else "")
        if error is not None:
            self.failures.append((name, error))

    async def kill(self, name: str, *, silent: bool = False) -> None:
        """Kill a process: nothing of it goes on, nobody is told but by its closed links."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        self._note("process_killed", name=name, silent=silent)
        process.task.cancel()
        self.network.crash(name, silent=silent)
        await process.actor.kill()
        process.clean_up()

    async def kill_all(self) -> None:
        """Kill every process, in a fixed order."""
        for name in sorted(self.processes):
            await self.kill(name)

    def _note(self, kind: str, **fields: object) -> None:
        self.tape.write(asyncio.get_running_loop().time(), "world", kind, dict(fields))

    # --- what one can see ---------------------------------------------------------------------

    @property
    def syncer(self) -> SyncerActor | None:
        """The running syncer, if any."""
        process = self.processes.get(SYNCER)
        return process.actor if process and isinstance(process.actor, SyncerActor) else None

    def learner(self, name: str) -> LearnerActor | None:
        """A running learner, if it runs."""
        process = self.processes.get(name)
        return process.actor if process and isinstance(process.actor, LearnerActor) else None


class _Settling(SimulatedDisk):
    """A disk whose writes are durable at once: epochs are taken before the loop turns."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def write(self, name: str, parts: list[bytes | memoryview]) -> None:  # type: ignore[override]
        self._disk.write(name, parts)

    def sync(self, name: str) -> None:
        self._disk.sync(name)
        self._disk.settle()

    def read(self, name: str) -> bytes | None:
        return self._disk.read(name)


class _Starting(_Settling):
    """The syncer's disk: its epoch is durable at once, its records when the worker says so."""

    def sync(self, name: str) -> None:
        if name.startswith("epoch"):
            super().sync(name)
        else:
            self._disk.sync(name)


class NoLauncher:
    """Processes are started by the world, not by the supervisor."""

    def start(self, name: str, delay_s: float) -> None:
        """Nothing was launched."""

    def kill(self, name: str) -> None:
        """Nothing was launched."""


def _nothing() -> None:
    """Nothing to do."""
