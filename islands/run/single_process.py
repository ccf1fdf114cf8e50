"""A run whose actors share one process, over memory links; each learner has a device thread.

    system = LocalSystem(MyTask(), run_settings(budget_tokens=1_000_000), learners=3)
    summary = asyncio.run(system.run(Path("runs/first")))

The same actors run as processes on many hosts; this is the smallest composition of them, and the
one that the examples and many tests use.
"""

import asyncio
import os
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jax import Device
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.actors.ports import ProcessEnd
from islands.actors.role_actor import Context
from islands.files.disk import RealDisk
from islands.learner.actor import LearnerActor
from islands.learner.compute import StepReport
from islands.learner.compute_thread import ComputeThread
from islands.model.evaluation import Judged, attempt
from islands.model.interfaces import Trainer
from islands.model.jax_settings import cpu_environment
from islands.model.jax_trainer import JaxTrainer
from islands.model.placement import shares
from islands.numerics.outer import OuterOptimizer, outer_optimizer
from islands.protocol.credentials import Credentials
from islands.protocol.errors import REPLACED, SettingsError
from islands.protocol.identities import OBSERVER, SUPERVISOR, SYNCER
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.member_entries import ProcessEnded, ProcessStarted
from islands.run.composition import Cluster, ClusterSpec
from islands.run.hosting.task_processes import Process, ProcessTable
from islands.run.learner_process import make_learner
from islands.run.records.model_files import FINAL_FILE, metadata_of, write_model
from islands.run.records.run_folder import RunFolder
from islands.run.records.summary import SUMMARY_FILE, Summary, as_json, share_of, summarise
from islands.run.roles import (
    journal_disk,
    make_observer,
    make_syncer,
)
from islands.run.run_end import GOODBYE_S
from islands.settings.run_spec import RunSpec
from islands.settings.wire_limits import limits_of
from islands.syncer.actor import SyncerActor
from islands.syncer.hooks import Hooks
from islands.tasks.task import Task
from messaging.codec.frames import Codec
from messaging.links.memory_link import BULK_CAPACITY, MemoryNetwork


class LocalSystem:
    """One run in this process.

    Args:
        learners: the number of learners, or their names.
        evaluate_every_s: least time between two evaluations of the published values.
        devices_per_learner: how many of this process's devices each learner has to itself; if
            None, all learners compute on its first device.
        model_parallel: number of its devices over which a learner's parameters are sharded.
    """

    def __init__(
        self,
        task: Task[PyTree],
        settings: RunSettings,
        *,
        learners: int | Sequence[str] = 3,
        outer: OuterOptimizer | None = None,
        evaluate_every_s: float = 10.0,
        devices_per_learner: int | None = None,
        model_parallel: int = 1,
    ) -> None:
        """Plan the fragments; start nothing yet."""
        self.task = task
        self.settings = settings
        self.names = (
            [f"learner-{index}" for index in range(learners)]
            if isinstance(learners, int)
            else list(learners)
        )
        if not self.names or len(set(self.names)) < len(self.names):
            raise SettingsError(f"learners is {learners!r}; it must be at least 1, or unlike names")
        # XLA needs a thread per learner, or it starves some; JAX reads this when it is first used.
        threads = cpu_environment(len(self.names), observers=1, devices=devices_per_learner or 1)
        os.environ.update({**threads, **os.environ})
        self._devices = shares(len(self.names), devices_per_learner)
        self._model_parallel = model_parallel
        self.model = self._trainer(0, None)
        self.folder: RunFolder
        self.values: list[NDArray[np.float32]] = []
        self._outer = outer or outer_optimizer(settings.outer)
        self._evaluate_every_s = evaluate_every_s
        self._credentials = Credentials(settings.run, secrets.token_bytes(32))
        self._rng = random.Random(settings.seed)
        self._network = MemoryNetwork(
            bulk_capacity=BULK_CAPACITY + len(self.model.layout.fragments),
            measure=Codec(MESSAGE_TYPES, limits_of(self.model.layout)).size_bytes,
        )
        self._finished = asyncio.Event()
        self._processes: ProcessTable
        launched = (SYNCER, *self.names, OBSERVER)
        spec = ClusterSpec(settings, launched, self._ended, self._finished.set)
        self.cluster = Cluster(spec, self._table)
        self._syncer: SyncerActor | None = None
        self._context: Context
        self._wall_s = 0.0

    def _table(self, ended: Callable[[str, ProcessEnd], None]) -> ProcessTable:
        self._processes = ProcessTable(self._make, ended)
        return self._processes

    def _trainer(self, index: int, devices: Sequence[Device] | None) -> JaxTrainer:
        return JaxTrainer(
            self.task,
            self.settings.fragments,
            pattern=self.settings.pattern,
            min_piece_bytes=self.settings.piece_bytes_min,
            seed=self.settings.seed,
            learner_seed=index,
            devices=devices,
            model_parallel=1 if devices is None else self._model_parallel,
            precision=self.settings.precision.of_snapshots,
            adoption=self.settings.adoption,
            merges_moments=self.settings.merge_moments,
            interval_steps=self.settings.interval_steps,
        )

    # --- the run ------------------------------------------------------------------------------

    async def run(self, folder: Path) -> Summary:
        """Run to the end of the budget, write all files to the folder, and return the summary."""
        self.begin(folder)
        try:
            await self._finished.wait()
            if self.cluster.end.failure is not None:
                raise self.cluster.end.failure
            await self.cluster.wait_ended(GOODBYE_S)
            return self._conclude()
        except asyncio.CancelledError:  # Ctrl-C: export the values that are published by now
            if self._keep_values():
                self._export("stopped")
            raise
        finally:
            self.cluster.close()
            await self._processes.wait_freed()
            self.folder.draw(self.elapsed_s)
            self.folder.close()

    def begin(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.folder = RunFolder(folder, self.settings, fragments=len(self.model.layout.fragments))
        self._context = Context(
            settings=self.settings,
            layout=self.model.layout,
            network=self._network,
            tape=self.folder,
            supervisor=SUPERVISOR,
            origin_s=loop.time(),
        )
        self._processes.start(SUPERVISOR)
        self.cluster.start_all()

    @property
    def elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._context.origin_s

    @property
    def tokens(self) -> int:
        """Tokens processed, as far as the syncer knows."""
        syncer = self._syncer
        if syncer is None or not syncer.begun:
            return 0
        return syncer.state.durable.ledger.processed

    @property
    def finished(self) -> bool:
        return self._finished.is_set()

    def finish(self, reason: str) -> None:
        """Ask the syncer to end the run in order before the budget is spent."""
        if self._syncer is not None:
            self._syncer.finish(reason)

    def drop(self, name: str, away_s: float) -> None:
        """Kill a learner as SIGKILL would; it is restarted after `away_s` at the earliest."""
        self.cluster.hold(name, away_s)
        self._processes.kill(name)

    # --- processes ----------------------------------------------------------------------------

    def _make(self, name: str) -> Process:
        self.folder.write(self.elapsed_s, "system", ProcessStarted(name))
        rng = random.Random(self._rng.getrandbits(64))
        if name == SUPERVISOR:
            disk = RealDisk(self.folder.path / SUPERVISOR)
            return self.cluster.make_supervisor(
                self._context, disk=disk, credentials=self._credentials
            )
        if name == SYNCER:
            self._syncer = self._make_syncer(rng)
            return self._syncer
        if name == OBSERVER:
            return make_observer(
                OBSERVER,
                self._context,
                evaluate=self.model.evaluate,
                report=self._evaluated,
                failed=lambda _: None,  # it is on the tape and in the log
                interval_s=self._evaluate_every_s,
                rng=rng,
            )
        return self._make_learner(name, rng)

    def _make_syncer(self, rng: random.Random) -> SyncerActor:
        return make_syncer(
            SYNCER,
            self._context,
            disk=journal_disk(self.folder.path),
            optimizer=self._outer,
            credentials=self._credentials,
            shards=self.task.shards,
            rng=rng,
            hooks=Hooks(finished=self._cut),
        )

    def _make_learner(self, name: str, rng: random.Random) -> LearnerActor:
        index = self.names.index(name)

        def make_trainer() -> Trainer:
            return self._trainer(index, self._devices[index])

        def observe(report: StepReport) -> None:
            self.folder.step(name, self.elapsed_s, report)

        self.folder.process_started(name)
        compute = ComputeThread(make_trainer, self.settings, name)
        return make_learner(name, self._context, compute, rng=rng, observe=observe)

    def _evaluated(self, judged: Judged, found: dict[str, float]) -> None:
        if not self.finished:
            self.folder.evaluation(self.elapsed_s, judged, found)

    def _ended(self, name: str, end: ProcessEnd) -> None:
        self.folder.write(self.elapsed_s, "system", ProcessEnded(name, error=end.told))
        learner = self._processes.last(name)
        if isinstance(learner, LearnerActor):
            self.folder.traffic(name, bytes_up=learner.bytes_up, bytes_down=learner.bytes_down)
        if end.error is not None and (name == SUPERVISOR or end.code == REPLACED):
            self.cluster.fail(name, end.error)  # no other process here could replace it

    # --- the end ------------------------------------------------------------------------------

    def _cut(self, reason: str) -> None:
        """Keep the values of the final cut, which is durable now, before the syncer ends."""
        kept = self._keep_values()
        assert kept, "a syncer made the cut"
        self.cluster.end.on_finished(reason)
        self._wall_s = self.elapsed_s
        self._finished.set()

    def _export(self, reason: str) -> None:
        """Write the kept values to the final file, with metadata on their run and versions."""
        syncer, layout = self._syncer, self.model.layout
        assert syncer is not None, "values are a syncer's"
        kind = type(self.task)
        spec = RunSpec(self.settings, f"{kind.__module__}:{kind.__qualname__}")
        cut = syncer.state.cut(reason)
        assert cut is not None, "values are of versions"
        path = self.folder.path / FINAL_FILE
        write_model(path, layout, self.values, metadata_of(spec, layout.fingerprint, cut))

    def _keep_values(self) -> bool:
        """Copy the published values from the syncer; return False if a fragment has none yet."""
        syncer = self._syncer
        cut = syncer.state.cut("") if syncer is not None and syncer.begun else None
        if syncer is None or cut is None:
            return False
        self.values = syncer.store.published(list(cut.versions))
        return True

    def _conclude(self) -> Summary:
        """Evaluate and export the final published values, and write the summary."""
        assert self._syncer is not None, "a syncer made the cut"
        share = share_of(self._syncer.state)
        self.folder.settle(share)
        last = attempt(self.model.evaluate, self.values)
        found = self.folder.last_evaluation(self.elapsed_s, "system", last)
        self._export(self.cluster.end.reason or "")
        summary = summarise(
            self.folder.figures,
            share,
            settings=self.settings,
            wall_s=self._wall_s,
            figures=found,
        )
        (self.folder.path / SUMMARY_FILE).write_bytes(as_json(summary))
        return summary
