"""A learner's process, put together in one place for every way in which a learner may run.

    Membership ──fetch_run──▶ FetchedRun ──LearnerProcess──▶ actor with its tape ──▶ its end
                                              └── a compute, which takes the steps

===================================  ============  ========================  ================
a learner is                         settings are  its compute is            its end comes by
===================================  ============  ========================  ================
`python -m islands.learner`          fetched       a thread of this process  signals
one of several hosts (`island/`)     fetched       rank 0's, for all hosts   signals, its island
a loop of the user's own (`loops/`)  fetched       what the loop steps       its loop
in one process (`single_process`)    handed in     a thread of this process  its launcher
simulated (`lab/world`)              handed in     on virtual time           its launcher
===================================  ============  ========================  ================
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from islands.actors.ports import ThreadWorker, Worker
from islands.actors.role_actor import Context
from islands.files.tape_writing import FileTape, MemoryTape, Tape
from islands.layout.loop_layout import LoopLayout
from islands.learner.actor import LearnerActor
from islands.learner.compute import Commands, Compute
from islands.learner.compute_thread import ComputeThread
from islands.learner.moments import CheckpointFile
from islands.model.interfaces import LearnerDevices, Workload
from islands.model.workload import load_workload
from islands.numerics.codecs import warm_up as load_loops
from islands.numerics.increment import warm_up as load_increments
from islands.protocol.identities import Role
from islands.protocol.settings.choices import Precision
from islands.run.hosting import process_runtime as runtime
from islands.run.hosting.hub_requests import Requester, check_same, fetch_run_spec
from islands.run.records.tape_sentences import why_ended
from islands.run.roles import chance
from islands.settings.groups import ConnectOptions, KeepOptions
from islands.settings.host import LearnerOptions
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.clock import MonotonicClock
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Keyring

ENTRIES_KEPT = 1000
"""Newest entries of the tape that are kept where no folder is named."""

# --- the run that is joined -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Membership:
    """Where a process joins, and as whom.

    The addresses of the hub are tried in turn. Without a folder for its tape, the newest entries
    are kept in memory. A `precision` goes before the run's.
    """

    addresses: tuple[str, ...]
    name: str
    connecting: ConnectOptions
    folder: Path | None
    say: Callable[[str], object]
    keeping: KeepOptions = field(default_factory=KeepOptions)
    precision: Precision | None = None

    @classmethod
    def of(cls, options: LearnerOptions, name: str, say: Callable[[str], object]) -> "Membership":
        connecting, keeping, precision = options.connecting, options.keeping, options.precision
        return cls(
            options.supervisor_urls, name, connecting, options.folder, say, keeping, precision
        )

    def report(self, sentence: str) -> None:
        self.say(f"{self.name}: {sentence}")


@dataclass(frozen=True, slots=True)
class FetchedRun:
    """A run as its hub describes it, and the network over which the hub is reached."""

    who: Membership
    network: WebsocketNetwork
    spec: RunSpec
    plan: RunPlan

    def context(self, tape: Tape, began_s: float | None = None) -> Context:
        """Return the context of an actor whose tape counts from `began_s`; by default from now."""
        return runtime.context_in(
            self.network, self.who.addresses, self.spec, self.plan, tape, began_s=began_s
        )


@asynccontextmanager
async def network_to_hub(who: Membership) -> AsyncIterator[WebsocketNetwork]:
    network = runtime.network_of(who.connecting, token=runtime.token_of(who.connecting))
    try:
        yield network
    finally:
        await network.close()


async def fetch_run(
    who: Membership,
    network: WebsocketNetwork,
    *,
    role: Role = Role.LEARNER,
    layout: Callable[[], LoopLayout] | None = None,
) -> FetchedRun:
    """Ask the hub what its run is.

    The first loop of a run tells what is trained by `layout`.
    """
    requester = Requester(role, who.name)
    spec, plan = await fetch_run_spec(
        network,
        who.addresses,
        requester,
        wait_s=who.connecting.wait_s,
        say=who.say,
        layout=layout,
    )
    return FetchedRun(who, network, spec.with_precision(who.precision), plan)


# --- a task as what trains --------------------------------------------------------------------


def load_task(run: FetchedRun, options: LearnerOptions) -> Workload:
    """Read the corpus and plan the model; it takes long, so it is called off the loop."""
    workload = load_workload(run.spec, options.task_settings, allowed=options.tasks)
    check_same(workload.plan(run.spec.settings).layout, run.plan.layout)
    workload.keep_compiled(runtime.compiled_folder())
    return workload


def device_thread(
    workload: Workload,
    run: FetchedRun,
    options: LearnerOptions,
    *,
    kept: CheckpointFile | None = None,
    commands: Commands | None = None,
) -> ComputeThread:
    """Return the thread that trains a task on this host's devices."""
    settings, name = run.spec.settings, run.who.name
    devices = LearnerDevices(name, options.devices, options.model_parallel)
    return ComputeThread(
        lambda: workload.trainer(settings, devices), settings, name, kept=kept, commands=commands
    )


# --- the process ------------------------------------------------------------------------------


class LearnerProcess:
    """The learner of a process whose hub is another one, with its tape.

    `peers` opens links to learners that gossip, on which `keyring` is shown in place of the run's
    token; None in a run with a syncer.
    """

    def __init__(
        self,
        run: FetchedRun,
        compute: Compute,
        *,
        kept: CheckpointFile | None = None,
        peers: WebsocketNetwork | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self._run, who = run, run.who
        began_s = MonotonicClock().now_s()
        self._tape: Tape = (
            MemoryTape(ENTRIES_KEPT)
            if who.folder is None
            else runtime.tape_in(who.folder, who.name, who.keeping, began_s=began_s)
        )
        context = run.context(runtime.ConsoleTape(self._tape, who.say), began_s)
        self.learner = make_learner(
            who.name,
            replace(context, peers=peers, keyring=keyring),
            compute,
            say=who.report,
            kept=kept,
        )

    @property
    def ended(self) -> str:
        """Why the learner has ended, as a sentence; empty if it did not end by itself."""
        end = self.learner.exit
        return "" if end is None else why_ended(end.reason)

    async def live(self, leave: Callable[[str], object] | None = None) -> None:
        """Run the learner to its end in a process of its own, whose signals ask it to leave.

        `leave` is called with the signal's name; by default the learner leaves.
        """
        who = self._run.who
        who.report(f"joining run {self._run.spec.settings.run!r} at {who.addresses[0]}")
        learner = self.learner
        await runtime.live(
            [learner], leave or learner.leave, starting=lambda: learner.state.starting
        )

    async def run(self) -> None:
        """Run the learner to its end in a process of the user's, to whom signals belong."""
        try:
            await self.learner.run()
        except asyncio.CancelledError:
            await self.learner.kill()
            raise

    async def close(self) -> None:
        if isinstance(self._tape, FileTape):
            await asyncio.to_thread(self._tape.close)


def make_learner(
    name: str,
    context: Context,
    compute: Compute,
    *,
    worker: Worker | None = None,
    rng: random.Random | None = None,
    say: Callable[[str], object] | None = None,
    kept: CheckpointFile | None = None,
) -> LearnerActor:
    """Make the actor of a learner.

    The worker computes digests off the event loop, and `rng` draws the jitter of its dialling. An
    earlier process of this name left its moments in `kept`.
    """
    worker = worker or ThreadWorker(name, lambda e: learner.fail("worker", e), finish=False)
    precision, updates = context.settings.precision, context.settings.update_precision
    if precision.on_host:
        worker.submit(lambda: load_loops(precision), lambda _: None)
    if updates.of_increments:
        worker.submit(lambda: load_increments(updates), lambda _: None)
    learner: LearnerActor = LearnerActor(
        name, context, compute, worker, rng or chance(), say=say, kept=kept
    )
    return learner
