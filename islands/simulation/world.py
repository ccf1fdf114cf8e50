"""A world of simulated hosts: the production actors on a virtual clock, with NumPy arithmetic.

Every host runs one process at a time. Killing a process takes away its tasks, its links and what
its disk had not made durable, and nothing else. All chance comes from one seed; one seed gives one
history, to the byte.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from islands.actors.credentials import Credentials
from islands.actors.ports import KILLED, InlineWorker, ProcessEnd
from islands.actors.role_actor import Context
from islands.cluster.composition import Cluster, ClusterSpec
from islands.cluster.roles import make_learner, make_syncer
from islands.hosting.task_processes import ProcessTable
from islands.identities import OPERATOR, SUPERVISOR, SYNCER, Phase
from islands.learner.actor import LearnerActor
from islands.learner.compute import InlineCompute
from islands.messages.control import Command, CommandAnswer, StepFigures, Verb
from islands.settings.run import RunSettings
from islands.simulation.disk import SimulatedDisk
from islands.supervisor.actor import SupervisorActor
from islands.supervisor.hooks import Hooks
from islands.syncer.actor import SyncerActor
from islands.syncer.state import SyncerState
from islands.syncer.workers import SyncerWorkers
from islands.tape.entry import Entry
from islands.tape.member_entries import ProcessEnded, ProcessStarted
from islands.tape.simulation_entries import Fault, Final, ProcessKilled
from islands.tape.writing import Tape
from islands.training.toy import NumpyTrainer
from messaging.codec.tensors import as_buffer, digest
from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.simulation.network import Route, SimulatedNetwork

WORLD = "world"
BATCHES_PER_SHARD = 16
INSPECTORS = 2
COMMAND_S = 2.0
"""How long an operator waits for an answer."""

RoleProcess = LearnerActor | SyncerActor | SupervisorActor


@dataclass(frozen=True, slots=True)
class LearnerHost:
    """One learner's machine: mean step time, its relative noise, set-up time, tokens per step.

    `momentum` is of its inner optimizer; without, it neither gives nor takes moments. `copy_s` is
    the mean time in which one snapshot is copied from device to host, with the noise of a step.
    """

    step_s: float = 0.1
    noise: float = 0.1
    setup_s: float = 0.2
    batch_tokens: int = 8
    momentum: float = 0.5
    copy_s: float = 0.0

    def draw_copy_s(self, rng: random.Random) -> float:
        """How long the copy of one snapshot takes."""
        return self.copy_s * max(0.1, rng.gauss(1.0, self.noise)) if self.copy_s else 0.0

    def draw_step_s(self, rng: random.Random) -> float:
        """How long one step takes."""
        return self.step_s * max(0.1, rng.gauss(1.0, self.noise))


@dataclass(frozen=True, slots=True)
class Costs:
    """Virtual seconds of things that are not steps; the syncer's own, if they differ, by worker."""

    work_s: tuple[float, float] = (0.0005, 0.004)
    inspect_s: tuple[float, float] | None = None
    merge_s: tuple[float, float] | None = None
    write_s: tuple[float, float] | None = None
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
        moment_piece_bytes: most bytes of a piece of inner moments.
        launching: whether the supervisor starts processes again; else the world does.
        initial: version 0, where no learner is to bring it.
        trainer: what learners compute with; a test may look into its own kind.
        figures: receives what learners tell of their steps, with their names; None: they tell
            nothing.
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
        moment_piece_bytes: int = 1100,
        launching: bool = False,
        initial: Callable[[], list[NDArray[np.float32]]] | None = None,
        trainer: type[NumpyTrainer] = NumpyTrainer,
        figures: Callable[[str, StepFigures], None] | None = None,
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
        self.slow: dict[str, float] = {}
        self.trainers: dict[str, NumpyTrainer] = {}
        self.failures: list[tuple[str, BaseException]] = []
        self._shards = shards
        self._moment_piece_bytes = moment_piece_bytes
        self._initial = initial
        self._trainer_type = trainer
        self._figures_told = figures
        self.layout = self._trainer(LearnerHost()).layout
        self._around = Context(
            settings=settings,
            layout=self.layout,
            network=self.network,
            tape=tape,
            supervisor=SUPERVISOR,
            reports=figures is not None,
        )
        self._credentials = Credentials(settings.run, b"a key of the simulated run")
        launched = (SYNCER, *learners) if launching else ()
        self.cluster = Cluster(ClusterSpec(settings, launched, self._ended), self._table)
        self.processes: ProcessTable

    def _table(self, ended: Callable[[str, ProcessEnd], None]) -> ProcessTable:
        self.processes = ProcessTable(self._make, ended)
        return self.processes

    def _stream(self, name: str) -> random.Random:
        """An independent source of chance for one purpose."""
        return random.Random(f"{self.settings.seed}/{self.rng.getrandbits(32)}/{name}")

    def _trainer(self, host: LearnerHost) -> NumpyTrainer:
        return self._trainer_type(
            self.settings.fragments,
            seed=self.settings.seed,
            batch_tokens=host.batch_tokens,
            shards=self._shards,
            batches_per_shard=BATCHES_PER_SHARD,
            momentum=host.momentum,
            moment_piece_bytes=self._moment_piece_bytes,
        )

    # --- processes ----------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start every process that does not run, in a fixed order."""
        for name in [SUPERVISOR, SYNCER, *self.hosts]:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one process; does nothing if it runs."""
        self.processes.start(name)

    def _make(self, name: str) -> "SimulatedProcess":
        process = SimulatedProcess(self, name, self._make_actor(name, self._stream(name)))
        self.note(ProcessStarted(name))
        return process

    def _make_actor(self, name: str, rng: random.Random) -> RoleProcess:
        if name == SYNCER:
            return self._make_syncer(rng)
        if name != SUPERVISOR:
            return self._make_learner(name, rng)
        return self.cluster.make_supervisor(
            self._around,
            disk=self.disks[name],
            credentials=self._credentials,
            hooks=Hooks(figures=self._figures_told, finished=self.cluster.end.on_finished),
        )

    def _make_learner(self, name: str, rng: random.Random) -> LearnerActor:
        host = self.hosts.setdefault(name, LearnerHost())  # one that is added is an ordinary one
        self.trainers[name] = self._trainer(host)
        compute = InlineCompute(
            self.trainers[name],
            self.settings,
            step_s=lambda: self.slow.get(name, 1.0) * host.draw_step_s(rng),
            setup_s=host.setup_s,
            copy_s=lambda: host.draw_copy_s(rng),
        )
        worker = InlineWorker(self._work_s(rng))
        return make_learner(name, self._around, compute, worker=worker, rng=rng)

    def _make_syncer(self, rng: random.Random) -> SyncerActor:
        disk = self.disks[SYNCER]
        return make_syncer(
            SYNCER,
            self._around,
            disk=disk,
            workers=SyncerWorkers(
                InlineWorker(self._work_s(rng, self.costs.inspect_s), places=INSPECTORS),
                InlineWorker(self._work_s(rng, self.costs.merge_s)),
                InlineWorker(self._work_s(rng, self.costs.write_s), disk.begin_work, disk.settle),
            ),
            credentials=self._credentials,
            shards=self._shards,
            rng=rng,
            initial=self._initial,
        )

    def _work_s(
        self, rng: random.Random, own: tuple[float, float] | None = None
    ) -> Callable[[], float]:
        low, high = self.costs.work_s if own is None else own
        return lambda: rng.uniform(low, high)

    @property
    def finished(self) -> str | None:
        """Why the run has ended; None while it goes on."""
        return self.cluster.end.reason

    def _ended(self, name: str, end: ProcessEnd) -> None:
        process = self.processes.last(name)
        if end is KILLED or not isinstance(process, SimulatedProcess):
            return
        self.lose_unsynced(name)
        self.network.crash(name)
        error = repr(end.error) if end.error else ""
        mailbox, waiting = process.most()
        ended = ProcessEnded(name, error=error, mailbox_most=mailbox, waiting_bytes_most=waiting)
        self.note(ended)
        self._note_final(process.actor)
        if end.error is not None:
            self.failures.append((name, end.error))

    async def kill(self, name: str, *, silent: bool = False) -> bool:
        """Kill a process: nothing of it goes on, nobody is told but by its closed links.

        Args:
            name: of the process.
            silent: its machine vanishes, so that not even closed links tell.

        Returns:
            Whether it ran.
        """
        process = self.processes.get(name)
        if isinstance(process, SimulatedProcess):
            process.silent = silent
        return await self.processes.killed(name)

    def lose_unsynced(self, name: str) -> None:
        """What a host's disk had not made durable is gone."""
        disk = self.disks.get(name)
        if disk is None:
            return
        before = {"lost write": disk.lost, "torn write": disk.torn}
        disk.crash()
        after = {"lost write": disk.lost, "torn write": disk.torn}
        for fault in [kind for kind in after if after[kind] > before[kind]]:
            self.note(Fault(fault, [name]))

    async def kill_all(self) -> None:
        """Kill every process, in a fixed order."""
        for name in sorted(self.processes.names()):
            await self.kill(name)

    def note(self, entry: Entry) -> None:
        """Write an entry to the tape in the world's own name."""
        self.tape.write(asyncio.get_running_loop().time(), WORLD, entry)

    def _note_final(self, actor: RoleProcess) -> None:
        """The published values with which the run ended."""
        if not isinstance(actor, SyncerActor) or not hasattr(actor, "state"):
            return
        if actor.state.durable.finished is None:
            return
        versions = [actor.state.version(index) for index in range(len(self.layout.fragments))]
        values = actor.vault.published([version for version in versions if version is not None])
        finite = all(bool(np.isfinite(value).all()) for value in values)
        digests = [digest(as_buffer(value)) for value in values]
        self.note(Final([str(v) for v in versions], digests, finite))

    def poison(self, name: str) -> bool:
        """Make a learner's weights not a number.

        Returns:
            Whether it was done; not so if nobody were left from whom a run could begin.
        """
        learner = self.learner(name)
        first = len(self.hosts) > 1 and name == min(self.hosts)
        if learner is None or not (first or learner.state.phase is Phase.STEPPING):
            return False
        size = self.layout.fragments[0].size
        self.trainers[name].adopt(0, np.full(size, np.nan, np.float32))
        return True

    async def command(self, verb: Verb, target: str = "", count: int = 1) -> CommandAnswer | None:
        """Ask the supervisor for something, as an operator does; None if it does not answer."""
        proof = self._credentials.prove(OPERATOR)
        wish = Command(verb, proof, target, count)
        try:
            async with asyncio.timeout(COMMAND_S):
                link = await self.network.dial(SUPERVISOR, local=OPERATOR)
                link.send(Envelope(OPERATOR, link.remote, 1, wish))
                answer = (await link.receive()).body
        except (DialFailed, LinkClosed, TimeoutError):
            return None
        link.close("answered")
        return answer if isinstance(answer, CommandAnswer) else None

    # --- what one can see ---------------------------------------------------------------------

    @property
    def syncer(self) -> SyncerActor | None:
        """The running syncer, if any."""
        actor = self._actor(SYNCER)
        return actor if isinstance(actor, SyncerActor) else None

    @property
    def syncer_state(self) -> SyncerState | None:
        """Of the running syncer, once it has begun."""
        syncer = self.syncer
        return syncer.state if syncer is not None and hasattr(syncer, "state") else None

    def learner(self, name: str) -> LearnerActor | None:
        """A running learner, if it runs."""
        actor = self._actor(name)
        return actor if isinstance(actor, LearnerActor) else None

    def _actor(self, name: str) -> RoleProcess | None:
        process = self.processes.get(name)
        return process.actor if isinstance(process, SimulatedProcess) else None


class SimulatedProcess:
    """An actor on a host of its own.

    Args:
        world: of all hosts.
        name: of the process.
        actor: that runs.

    Attributes:
        silent: Whether its machine vanishes with it, so that not even closed links tell.
    """

    def __init__(self, world: World, name: str, actor: RoleProcess) -> None:
        """It does not run yet."""
        self.actor = actor
        self.silent = False
        self._world = world
        self._name = name

    async def run(self) -> None:
        """Live until it ends by itself."""
        await self.actor.run()

    def leave(self, reason: str) -> None:
        """End in order."""
        self.actor.leave(reason)

    async def kill(self) -> None:
        """Take away its links, its tasks and what its disk had not made durable."""
        world, name = self._world, self._name
        world.note(ProcessKilled(name, self.silent, *self.most()))
        world.network.crash(name, silent=self.silent)
        await self.actor.kill()
        world.lose_unsynced(name)

    def most(self) -> tuple[int, int | None]:
        """What it had at most of what is bounded."""
        waiting = self.actor.waiting_bytes_most if isinstance(self.actor, SyncerActor) else None
        return self.actor.mailbox.high_water, waiting
