"""A world of simulated hosts: the production actors on a virtual clock.

Every host runs one process at a time. Killing a process takes away its tasks, its links and what
its disk had not made durable, and nothing else. All randomness comes from one seed; one seed gives
one history, to the byte.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import KILLED, ProcessEnd
from islands.actors.role_actor import Context, ignored
from islands.files.tape_writing import Tape
from islands.keeping.copies import Copies
from islands.keeping.standby import StandbyActor
from islands.keeping.standby_state import HUB
from islands.lab.checker.evidence import Limits
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.checkpoints import Keeping
from islands.lab.world.disk import SimulatedDisk
from islands.lab.world.inline import InlineCompute, InlineWorker
from islands.lab.world.processes import RoleProcess, SimulatedProcess, SimulatedProcesses
from islands.lab.world.standbys import Standing, Wanted
from islands.learner.actor import LearnerActor
from islands.model.interfaces import Trainer
from islands.protocol.errors import (
    DiskError,
    FencedError,
    OutdatedError,
    RefusedError,
    UnreachableError,
)
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase
from islands.protocol.invitations import signing_secret
from islands.protocol.membership import Credentials
from islands.protocol.messages.control import Command, CommandAnswer, StepFigures, Verb
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.member_entries import ProcessEnded, ProcessStarted
from islands.protocol.tape.simulation_entries import Fault, Final, ProcessKilled
from islands.run.composition import Cluster, ClusterSpec
from islands.run.hosting.hub_requests import command
from islands.run.learner_process import make_learner
from islands.run.roles import make_syncer
from islands.settings.run_spec import RunPlan, RunSpec
from islands.supervisor.actor import Hooks
from islands.syncer.actor import SyncerActor
from islands.syncer.journal import Follower
from islands.syncer.workers import Hooks as SyncerHooks
from islands.syncer.workers import SyncerWorkers
from messaging.codec.tensors import as_buffer, digest
from messaging.simulation.network import Route, SimulatedNetwork

WORLD = "world"
BATCHES_PER_SHARD = 16
MAILBOX_MOST = 256  # messages may wait in a mailbox; far fewer do in practice
INSPECTORS = 2
COMMAND_S = 2.0  # for which an operator waits for an answer
SPARE_SYNCER = "syncer-b"  # on another host, whose disk is a mount of the first one's
RESTART_S = 0.5  # until a process is restarted that ended for its disk


@dataclass(frozen=True, slots=True)
class LearnerHost:
    """One learner's machine: mean step time, its relative noise, set-up time, tokens per step.

    `momentum` is that of its inner optimizer; if it is 0, the learner neither gives nor takes
    moments. `copy_s` is the mean time of copying a snapshot from device to host, with the noise of
    a step. About once in `pause_every_s` a step takes `pause_s` longer.
    """

    step_s: float = 0.1
    noise: float = 0.1
    setup_s: float = 0.2
    batch_tokens: int = 8
    momentum: float = 0.5
    copy_s: float = 0.0
    pause_s: float = 0.0
    pause_every_s: float = 1.0

    def draw_copy_s(self, rng: random.Random) -> float:
        return self.copy_s * max(0.1, rng.gauss(1.0, self.noise)) if self.copy_s else 0.0

    def draw_step_s(self, rng: random.Random) -> float:
        step_s = self.step_s * max(0.1, rng.gauss(1.0, self.noise))
        pauses = self.pause_s and rng.random() < step_s / self.pause_every_s
        return step_s + self.pause_s if pauses else step_s


@dataclass(frozen=True, slots=True)
class Costs:
    """Least and most virtual seconds of pieces of work that are not steps, and the network.

    `work_s` holds for all workers; the syncer's workers may have values of their own.
    """

    work_s: tuple[float, float] = (0.0005, 0.004)
    inspect_s: tuple[float, float] | None = None
    merge_s: tuple[float, float] | None = None
    write_s: tuple[float, float] | None = None
    route: Route = field(default_factory=lambda: Route(latency_s=0.005, jitter_s=0.005))


Trainers = Callable[[str, LearnerHost], Trainer]
"""Makes what a learner of this name computes with on its host."""

StepEnd = Callable[[str, float, float], float]
"""Tells when a step ends, of a learner's name, its beginning, and how long it takes by itself."""


async def at_end(work: Callable[[], object]) -> None:
    """Do what blocks at the end of a process, which takes no virtual time."""
    work()


@dataclass(frozen=True, slots=True)
class NumpyTrainers:
    """Makes the trainers of simulated learners: NumPy on a toy; a test may have its own kind."""

    settings: RunSettings
    shards: int = 16
    moment_piece_bytes: int = 1100
    kind: type[NumpyTrainer] = NumpyTrainer

    def __call__(self, _: str, host: LearnerHost) -> NumpyTrainer:
        return self.kind(
            self.settings.fragments,
            seed=self.settings.seed,
            batch_tokens=host.batch_tokens,
            shards=self.shards,
            batches_per_shard=BATCHES_PER_SHARD,
            momentum=host.momentum,
            moment_piece_bytes=self.moment_piece_bytes,
        )


class World:
    """All hosts of one run.

    With `launching` the supervisor restarts processes, otherwise the caller does. `initial` makes
    version 0; by default a learner offers it. `figures` gets the name and the step figures of each
    learner; if it is None, learners send none. By default nothing lengthens a step, and nobody
    takes checkpoints (`keeping`).
    """

    def __init__(
        self,
        settings: RunSettings,
        learners: dict[str, LearnerHost],
        *,
        seed: int,
        tape: Tape,
        costs: Costs | None = None,
        launching: bool = False,
        initial: Callable[[], list[NDArray[np.float32]]] | None = None,
        trainers: Trainers | None = None,
        hooks: SyncerHooks | None = None,
        figures: Callable[[str, StepFigures], None] | None = None,
        step_end_s: StepEnd | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self.settings = settings
        self.hosts = learners
        self.tape = tape
        self.rng = random.Random(seed)
        self.seed = seed
        self.costs = costs or Costs()
        self.network = SimulatedNetwork(self._stream("network"), self.costs.route)
        self.disks = {
            name: SimulatedDisk(self._stream(f"disk-{name}")) for name in (SUPERVISOR, SYNCER)
        }
        self.standing = Standing(None)
        self.slow: dict[str, float] = {}
        self.trainers: dict[str, Trainer] = {}
        self.failures: list[tuple[str, BaseException]] = []
        self._initial = initial
        self._make_trainer = trainers or NumpyTrainers(settings)
        self.keeping = keeping
        export = None if keeping is None else lambda *_: None
        self._syncer_hooks = hooks or SyncerHooks(export=export)
        self._figures_told = figures or ignored
        self._step_end_s = step_end_s or (lambda _, begin_s, work_s: begin_s + work_s)
        plan = self._make_trainer("", LearnerHost())
        self.layout, self._shards = plan.layout, plan.shards
        self._context = Context(
            settings=settings,
            layout=self.layout,
            network=self.network,
            tape=tape,
            supervisor=SUPERVISOR,
            reports=figures is not None,
        )
        self._credentials = Credentials(settings.run, b"a key of the simulated run")
        self.may_return = False
        launched = (SYNCER, *learners) if launching else ()
        self.cluster = Cluster(ClusterSpec(settings, launched, self._ended), self._table)
        self.processes: SimulatedProcesses

    def _table(self, ended: Callable[[str, ProcessEnd], None]) -> SimulatedProcesses:
        self.processes = SimulatedProcesses(self.network, self._make, ended)
        return self.processes

    def _stream(self, name: str) -> random.Random:
        return random.Random(f"{self.settings.seed}/{self.rng.getrandbits(32)}/{name}")

    # --- processes ----------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start every process that does not run, in a fixed order; of two syncers one suffices."""
        syncers = [] if SPARE_SYNCER in self.processes else [self.standing.owner]
        for name in [SUPERVISOR, *syncers, *self.standing.names, *self.hosts]:
            self.start(name)

    def stand_by(self, wanted: Wanted) -> None:
        """Have standbys, before anything is started."""
        self.standing = Standing(wanted)
        for name in self.standing.names:
            self.disks[name] = SimulatedDisk(random.Random(f"{self.seed} disk {name}"))

    def lose_hub(self, key: bytes = b"a key of the simulated run") -> None:
        """Lose the folder of the hub, which does not run; the next start makes one, with a key."""
        for name in (SUPERVISOR, SYNCER):
            self.disks[name].restore({})
        if self.keeping is not None:
            self.keeping.place.clear()
        begun = f"{self._credentials.begun}+"
        self._credentials, self.may_return = Credentials(self.settings.run, key, begun), True

    def start_second_syncer(self) -> None:
        """Start a second syncer on a host of its own, which mounts the first one's disk."""
        chance = random.Random(f"{self.seed} {SPARE_SYNCER}")
        if SPARE_SYNCER not in self.disks:
            self.disks[SPARE_SYNCER] = self.disks[SYNCER].mounted(chance)
        self.start(SPARE_SYNCER)

    def start(self, name: str) -> None:
        self.processes.start(name)

    def _make(self, name: str) -> SimulatedProcess:
        actor = self._make_actor(name, self._stream(name))
        self.note(ProcessStarted(name))
        return SimulatedProcess(
            actor, partial(self._on_kill, name), partial(self.lose_unsynced, name)
        )

    def _on_kill(self, name: str, process: SimulatedProcess) -> None:
        """Take the links of a process away; what it would have done next, it does in vain."""
        self.note(ProcessKilled(name, process.silent, *process.most()))
        self.network.crash(name, silent=process.silent)
        self.processes.thaw(name)

    def _make_actor(self, name: str, rng: random.Random) -> RoleProcess:
        if self.standing.waits_at(name):
            return self.standing.actor(
                name,
                self._context,
                disk=self.disks[name],
                worker=self._writing(name, rng),
                credentials=self._credentials,
                rng=rng,
            )
        if name in (SYNCER, SPARE_SYNCER, *self.standing.names):
            return self._make_syncer(name, rng)
        if name != SUPERVISOR:
            return self._make_learner(name, rng)
        return self.cluster.make_supervisor(
            self._context,
            disk=self.disks[name],
            credentials=self._credentials,
            told=("{}", memoryview(b"{}")),
            hooks=Hooks(figures=self._figures_told, finished=self.cluster.end.on_finished),
        )

    def _make_learner(self, name: str, rng: random.Random) -> LearnerActor:
        host = self.hosts.setdefault(name, LearnerHost())  # an added learner has the defaults
        self.trainers[name] = self._make_trainer(name, host)
        compute = InlineCompute(
            self.trainers[name],
            self.settings,
            step_s=lambda: self._step_s(name, host, rng),
            setup_s=host.setup_s,
            copy_s=lambda: host.draw_copy_s(rng),
        )
        worker = InlineWorker(self._work_s(rng))
        return make_learner(name, self._context, compute, worker=worker, rng=rng)

    def _step_s(self, name: str, host: LearnerHost, rng: random.Random) -> float:
        work_s = self.slow.get(name, 1.0) * host.draw_step_s(rng)
        begin_s = asyncio.get_running_loop().time()
        return self._step_end_s(name, begin_s, work_s) - begin_s

    def _make_syncer(self, name: str, rng: random.Random) -> SyncerActor:
        return make_syncer(
            name,
            self._context,
            disk=self.disks[name],
            workers=SyncerWorkers(
                InlineWorker(self._work_s(rng, self.costs.inspect_s), places=INSPECTORS),
                InlineWorker(self._work_s(rng, self.costs.merge_s)),
                self._writing(name, rng),
                at_end,
            ),
            credentials=self._credentials,
            shards=self._shards,
            rng=rng,
            initial=self._initial,
            may_return=self.may_return,
            hooks=self._syncer_hooks,
            follower=self._follower(name),
        )

    def _writing(self, name: str, rng: random.Random) -> InlineWorker:
        disk, write_s = self.disks[name], self._work_s(rng, self.costs.write_s)
        return InlineWorker(lambda: disk.slowness * write_s(), disk.begin_work, disk.settle)

    def _follower(self, name: str) -> Follower | None:
        standbys = self.standing.follower(name)
        followers = [] if standbys is None else [standbys]
        if self.keeping is not None:
            spec = RunSpec(self.settings)
            plan = RunPlan(self.layout, self._shards, begun=self._credentials.begun)
            followers.append(self.keeping.follower(name, self.disks[name], spec, plan))
        return Copies(followers) if followers else None

    def _work_s(
        self, rng: random.Random, own: tuple[float, float] | None = None
    ) -> Callable[[], float]:
        low, high = self.costs.work_s if own is None else own
        return lambda: rng.uniform(low, high)

    @property
    def finished(self) -> str | None:
        """Why the run has ended."""
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
        if not isinstance(end.error, FencedError):
            self._note_final(process.actor)
        if end.error is not None and not self._survives(name, end.error):
            self.failures.append((name, end.error))
        if isinstance(process.actor, StandbyActor) and process.actor.promoted is not None:
            self._go_on(name, promoted=process.actor.promoted != HUB)

    def _go_on(self, name: str, *, promoted: bool) -> None:
        """Start the syncer in a standby's place once that was promoted."""
        if promoted:
            self.standing.promoted.append(name)
        asyncio.get_running_loop().call_later(RESTART_S, self.restart, name)

    def _survives(self, name: str, error: BaseException) -> bool:
        """Whether a process had to end so, for what was done to its host.

        Without its disk it ends and is restarted, as is one from whose copy another has gone on,
        until it is refused; and it is one of two syncers no longer. A standby that died as it was
        promoted is refused, too, and an operator starts the syncer in its place.
        """
        if isinstance(error, RefusedError) and self.standing.names:
            supervisor = self.cluster.supervisor
            memory = None if supervisor is None else supervisor.memory
            promoted = None if memory is None else memory.promoted
            if promoted == name:
                self._go_on(name, promoted=True)
            return promoted is not None
        fenced = isinstance(error, OutdatedError) and bool(self.standing.names)
        if fenced or (isinstance(error, DiskError) and self.disks[name].was_bad):
            asyncio.get_running_loop().call_later(RESTART_S, self.restart, name)
            return True
        return isinstance(error, FencedError) and SPARE_SYNCER in self.disks

    def restart(self, name: str) -> None:
        if self.finished is None:
            self.start(name)

    async def kill(self, name: str, *, silent: bool = False) -> bool:
        """Kill a process; return whether it was running.

        Others notice only its closed links; where its machine vanishes (`silent`), not even these.
        """
        process = self.processes.get(name)
        if isinstance(process, SimulatedProcess):
            process.silent = silent
        return await self.processes.killed(name)

    def lose_unsynced(self, name: str) -> None:
        """Crash a host's disk, which may lose what is being written; record that fault."""
        if name in self.disks and self.disks[name].crash():
            self.note(Fault("lost write", [name]))
        if self.keeping is not None and self.keeping.crash(name):
            self.note(Fault("half a checkpoint", [name]))
            self.note_kept()

    def note_kept(self) -> None:
        """Record what each checkpoint holds."""
        for kept in () if self.keeping is None else self.keeping.kept():
            self.note(kept)

    async def kill_all(self) -> None:
        for name in sorted(self.processes.names()):
            await self.kill(name)

    def note(self, entry: Entry) -> None:
        self.tape.write(asyncio.get_running_loop().time(), WORLD, entry)

    def _note_final(self, actor: RoleProcess) -> None:
        if not isinstance(actor, SyncerActor) or not hasattr(actor, "state"):
            return
        cut = actor.state.cut("")
        if actor.state.durable.finished is None or cut is None:
            return
        values = actor.store.published(list(cut.versions))
        finite = all(bool(np.isfinite(value).all()) for value in values)
        digests = [digest(as_buffer(value)) for value in values]
        self.note(Final([str(version) for version in cut.versions], digests, finite))

    def poison(self, name: str) -> bool:
        """Set a learner's weights to NaN; return whether it was done.

        It is not if no healthy learner might be left to offer version 0.
        """
        learner = self.learner(name)
        first = len(self.hosts) > 1 and name == min(self.hosts)
        if learner is None or not (first or learner.state.phase is Phase.STEPPING):
            return False
        size = self.layout.fragments[0].size
        self.trainers[name].adopt(0, np.full(size, np.nan, np.float32))
        return True

    def inflate(self, name: str, factor: float) -> bool:
        """Multiply the weights of a learner that steps; return whether it was done."""
        learner, trainer = self.learner(name), self.trainers.get(name)
        stepping = learner is not None and learner.state.phase is Phase.STEPPING
        if not stepping or not isinstance(trainer, NumpyTrainer):
            return False
        trainer.inflate(factor)
        return True

    async def command(self, verb: Verb, target: str = "", count: int = 1) -> CommandAnswer | None:
        """Send an operator's command to the supervisor; None if it does not answer."""
        wish, secret = Command(verb, target, count), signing_secret(self._credentials)
        try:
            async with asyncio.timeout(COMMAND_S):
                return (await command(self.network, (SUPERVISOR,), wish, secret))[0]
        except (UnreachableError, TimeoutError):
            return None

    def limits(
        self, *, records_per_shard: int = BATCHES_PER_SHARD, mailbox_most: int = MAILBOX_MOST
    ) -> Limits:
        return Limits.of(
            self.settings,
            self.layout,
            batch_tokens={name: host.batch_tokens for name, host in self.hosts.items()},
            records_per_shard=records_per_shard,
            mailbox_most=mailbox_most,
        )

    # --- the running actors -------------------------------------------------------------------

    @property
    def syncer(self) -> SyncerActor | None:
        """The running syncer, of two the second; None if none runs."""
        actors = [self._actor(name) for name in (self.standing.owner, SPARE_SYNCER, SYNCER)]
        return next((actor for actor in actors if isinstance(actor, SyncerActor)), None)

    @property
    def syncer_state(self) -> SyncerState | None:
        syncer = self.syncer
        return syncer.state if syncer is not None and hasattr(syncer, "state") else None

    def learner(self, name: str) -> LearnerActor | None:
        actor = self._actor(name)
        return actor if isinstance(actor, LearnerActor) else None

    def _actor(self, name: str) -> RoleProcess | None:
        process = self.processes.get(name)
        return process.actor if isinstance(process, SimulatedProcess) else None
