"""The hub: the process that hosts the supervisor, keeps the run folder, and may host more roles.

=======================  ==========  =======  ==============  =========================
started as               supervisor  syncer   observer        learners
=======================  ==========  =======  ==============  =========================
`islands run`            here        a child  here            children; others join
`python -m …syncer`      here        here     may join        join
`python -m …supervisor`  here        joins    may join        join
=======================  ==========  =======  ==============  =========================

A hub that is restarted in the same folder goes on where the last one ended, and adopts children.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.actors.epochs import epoch_disk, newest_epoch
from islands.actors.ports import Launcher, ProcessEnd
from islands.actors.role_actor import Context
from islands.files.run_files import FINAL_FILE, KEY_FILE, STANDBY_FILE, SUMMARY_FILE
from islands.files.slots import Slots
from islands.files.whole_files import replace_file
from islands.keeping.copies import copies_of
from islands.keeping.standbys import addresses_in
from islands.keeping.store import absolute
from islands.model.evaluation import Judged, attempt
from islands.model.interfaces import Workload
from islands.model.memory import ADAM_MOMENTS, slow_write_s
from islands.numerics.outer import OuterOptimizer
from islands.observer.actor import ObserverActor
from islands.protocol import errors
from islands.protocol.identities import OBSERVER, SUPERVISOR, SYNCER, Role
from islands.protocol.invitations import Invitations
from islands.protocol.messages.control import Note, StepFigures
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.supervisor.eviction import MemberRecord
from islands.protocol.supervisor.state import LEARNERS
from islands.protocol.tape.member_entries import ProcessEnded
from islands.protocol.tape.process_entries import Damaged, ProcessBegan
from islands.run.composition import Cluster, ClusterSpec
from islands.run.hosting import process_runtime as runtime
from islands.run.hosting.hub_address import HubAddress, read_hub_address, write_hub_address
from islands.run.hosting.revocations import read_revoked, revoke
from islands.run.hosting.successor import refuse_if_succeeded
from islands.run.records.model_files import read_values
from islands.run.records.run_folder import RunFolder
from islands.run.records.summary import Summary, SyncerShare, as_json, summarise
from islands.run.roles import hooks_of, journal_disk, make_observer, make_syncer, read_initial
from islands.run.run_claim import Claim, kept_files, released_on_failure, restore_files
from islands.run.run_end import GOODBYE_S
from islands.settings.groups import (
    CheckpointOptions,
    ConnectOptions,
    KeepOptions,
    ListenOptions,
)
from islands.settings.host import HubOptions, RunOptions, SupervisorOptions, SyncerOptions
from islands.settings.run_spec import RunPlan, RunSpec, not_whole, write
from islands.settings.wire_limits import limits_of
from islands.sinks import SINKS
from islands.supervisor.actor import Hooks
from islands.syncer.actor import SyncerActor
from islands.syncer.journal import DISK_RETRY_S
from islands.tasks.factory import data_folders
from messaging.actors.scope import Scope
from messaging.clock import WallClock
from messaging.codec.frames import Codec
from messaging.errors import LocalFault
from messaging.links.memory_link import BULK_CAPACITY, CompositeNetwork, MemoryNetwork

LOOKS_EVERY_S = 5.0
"""So often a hub looks whether its folder is still there."""

LEAVE_S = 10.0
"""Grace period of a process that is asked to end, beside the time that its disk writes take."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The settings of one hub.

    The key is by default beside the token, and made if missing. `syncers` are addresses of syncers
    in other processes, as far as they are known. A hub without `evaluate_every_s` evaluates
    nothing. `alone` says that all members are in this process: nobody dials it, and signals to it
    are not for the run.
    """

    folder: Path
    spec: RunSpec
    listening: ListenOptions
    connecting: ConnectOptions
    keeping: KeepOptions = field(default_factory=KeepOptions)
    saving: CheckpointOptions = field(default_factory=CheckpointOptions)
    key_file: Path | None = None
    start_from: Path | None = None
    extend: bool = False
    syncer_here: bool = False
    syncers: tuple[str, ...] = ()
    evaluate_every_s: float | None = None
    on_event: str | None = None
    sinks: tuple[str, ...] = ()
    alone: bool = False

    def __post_init__(self) -> None:
        """Refuse a sink that there is not."""
        unknown = [name for name in self.sinks if name not in SINKS]
        if unknown:
            raise errors.SettingsError(f"sinks names {unknown[0]!r}; there are {', '.join(SINKS)}")

    @classmethod
    def of(cls, options: HubOptions, spec: RunSpec, folder: Path) -> "CoordinatorSettings":
        settings = cls(
            folder=folder,
            spec=spec,
            listening=options.listening,
            connecting=options.connecting,
            keeping=options.keeping,
            extend=options.extend,
            on_event=options.on_event,
            sinks=options.sinks,
        )
        start_from = options.file.start_from
        match options:
            case RunOptions(evaluate_every_s=every_s, saving=saving):
                settings = replace(settings, evaluate_every_s=every_s, saving=saving)
                return replace(settings, start_from=start_from)
            case SyncerOptions(key_file=key, saving=saving):
                settings = replace(settings, key_file=key, syncer_here=True, saving=saving)
                return replace(settings, start_from=start_from)
            case SupervisorOptions(key_file=key):
                return replace(settings, key_file=key, syncers=options.syncer_urls)
            case _:
                return settings


Backend = Callable[["Coordinator", Callable[[str, ProcessEnd], None]], Launcher]
"""Makes a hub's launcher, which calls what it is given when a process has ended."""


class Coordinator:
    """One start of a hub.

    The backend starts the `launched` processes: a syncer, learners. An operator can add more of
    those whose names begin with one of `kinds`. A hub without a workload evaluates nothing. Who
    offers its metrics sets `status`, and who places islands sets `placed`, the rows that an
    operator sees of them.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        claim: Claim,
        workload: Workload | None,
        *,
        launched: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (LEARNERS,),
        backend: Backend = lambda *_: NoLauncher(),
        outer: OuterOptimizer | None = None,
    ) -> None:
        """Open the run's folder; start nothing yet."""
        self.settings = settings
        self.spec = settings.spec
        self.claim = claim
        self.plan = claim.plan
        self.syncer: SyncerActor | None = None
        self.of_syncer: SyncerShare | None = None
        self.status: Callable[[], bytes] = bytes
        self.placed: Callable[[], list[dict[str, object]]] = list
        self.workload = workload
        self.context: Context
        self.observer: ObserverActor | None = None
        self._outer = outer
        self.say_once = runtime.SaidOnce(runtime.say)
        self.network = runtime.network_of(
            settings.connecting,
            settings.listening,
            token=runtime.token_of(settings.connecting),
            limits=limits_of(claim.plan.layout),
        )
        self.network.judge = lambda token: self._invitations.judge(token, WallClock().now_s())
        connecting = settings.connecting
        self.key_file = runtime.key_file_of(settings.folder, connecting, settings.key_file)
        self._mended = runtime.keep_key(self.key_file) if settings.key_file is None else []
        begun = claim.plan.begun
        self._credentials = runtime.credentials_of(self.spec.settings.run, self.key_file, begun)
        self._invitations = Invitations(
            self.spec.settings.run, self._credentials, read_revoked(settings.folder)
        )
        self._living = runtime.ActorGroup(
            "hub", self._on_signal, self._kill_processes, signals=not settings.alone
        )
        cluster = ClusterSpec(
            self.spec.settings,
            launched,
            ended=self._on_process_ended,
            failed=self._living.end,
            say=runtime.say,
            kinds=kinds,
        )
        self.cluster = Cluster(cluster, partial(backend, self))
        self.folder = RunFolder(
            settings.folder,
            settings.spec.settings,
            fragments=len(claim.plan.layout.fragments),
            extend=settings.extend,
            limit_bytes=settings.keeping.file_bytes,
            say=runtime.say,
        )
        self.folder.compiling = lambda: self.cluster.compiling
        self._scope = Scope("hub-network", lambda _, error: self.cluster.fail("the network", error))
        self._began_s = 0.0
        self._goodbye: asyncio.Task[None] | None = None
        self._merged = asyncio.Event()
        self._evaluating = RLock()
        self._ready: Callable[[], object] | None = None
        self._disk = journal_disk(settings.folder) if settings.syncer_here else None

    # --- the run ------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], object] | None = None) -> Summary | None:
        """After `open`, run to the end; return the summary, or None if this process was stopped.

        `ready` is called when all roles hosted here can be dialled.
        """
        self._ready = ready
        runtime.tell_stalls_unless(lambda: self.folder.starting)
        try:
            self.start_actors()
            await self._living.wait()
            await self._end_processes()
            if self.cluster.end.failure is not None:
                raise self.cluster.end.failure
            return None if self.of_syncer is None else await self._conclude(self.of_syncer)
        finally:
            await self.close()

    async def open(self) -> None:
        """Listen, and write this hub's address and the run's spec to the folder.

        Processes of an earlier start that have an outdated address, secret or setting end before
        that: if this process dies in between, the next start finds the same difference.
        """
        with released_on_failure(self.claim):
            try:
                await self._open()
            except BaseException:
                await self.network.close()
                self.folder.close()
                if self._disk is not None:
                    self._disk.close()
                raise

    async def _open(self) -> None:
        self._began_s = asyncio.get_running_loop().time()
        lost = [*not_whole(self.settings.folder), *self._mended]
        await self._refuse_if_succeeded()
        if self.claim.changed:
            runtime.say(f"the run goes on with other settings: {'; '.join(self.claim.changed)}")
        address = None if self.settings.alone else await self._listen()
        write(self.settings.folder, self.spec, self.plan)
        if address is not None:
            write_hub_address(self.settings.folder, address)
        self._kept = kept_files(self.settings.folder)
        wall_s = WallClock().now_s() - self.elapsed_s
        self.folder.write(0.0, "hub", ProcessBegan(os.getpid(), wall_s, loop_s=self._began_s))
        if lost:
            self.folder.write(0.0, "hub", Damaged([f"{name} (written again)" for name in lost]))

    async def _listen(self) -> HubAddress:
        """Return where this hub listens, once no process is left that knows it otherwise."""
        try:
            earlier: HubAddress | None = read_hub_address(self.settings.folder)
        except errors.UserError as error:
            earlier = None
            folder = self.settings.folder  # a new folder, or a standby's, had no hub before
            had_hub = (folder / "processes").exists() and not (folder / STANDBY_FILE).exists()
            if self.claim.resumed and had_hub:
                runtime.say(
                    f"{error.args[0].partition(';')[0]}, so nobody knows where the last start was"
                )
        await self._bind(earlier)
        token_file = self.settings.connecting.token_file
        token = runtime.token_of(self.settings.connecting)
        inside = self.key_file == self.settings.folder / KEY_FILE
        address = HubAddress(
            self.network.url(SUPERVISOR),
            self.spec.settings.run,
            token_file="" if token_file is None else str(token_file.absolute()),
            key_file="" if inside else str(self.key_file.absolute()),
            key_mark=self._credentials.mark(),
            token_mark="" if token is None else self._credentials.mark(token.header()),
            task_folders=tuple(str(each.absolute()) for each in data_folders()),
            checkpoints=absolute(self.settings.saving.checkpoints or ""),
        )
        if self.claim.changed or earlier is None or address.needed != earlier.needed:
            await self._end_outdated()
        return address

    async def _bind(self, earlier: HubAddress | None) -> None:
        """Listen; if any port will do, use the last start's again, which its members still dial."""
        listening = self.settings.listening
        port = listening.port
        if port == 0 and earlier is not None:
            port = urlsplit(earlier.supervisor).port or 0
        try:
            await self.network.open(listening.host, port, advertise=listening.advertise)
        except LocalFault:
            if port == listening.port:
                raise
            await self.network.open(listening.host, 0, advertise=listening.advertise)
            runtime.say(
                f"port {port}, where the last start listened, cannot be had now: this one listens "
                f"at {self.network.port}, and members on other hosts must be started anew"
            )

    def start_actors(self) -> None:
        alone = self.settings.alone
        context = self.context = Context(
            settings=self.spec.settings,
            layout=self.plan.layout,
            network=self._memory() if alone else CompositeNetwork(self.network, self._scope),
            tape=self.folder,
            supervisor=SUPERVISOR,
            origin_s=self._began_s,
        )
        self._living.start(
            self.cluster.make_supervisor(
                context,
                disk=epoch_disk(self.settings.folder, SUPERVISOR),
                credentials=self._credentials,
                told=(self.spec.encode(), memoryview(self.plan.encode())),
                syncers=self.settings.syncers,
                revoked=self._invitations.revoked,
                own_syncer=self.settings.syncer_here or SYNCER in self.cluster.spec.launched,
                hooks=Hooks(
                    noted=None if alone else self._on_note,  # they write to this tape
                    figures=self._on_figures,
                    run_ended=self._on_run_ended,
                    status=self.status,
                    revoke=partial(revoke, self._invitations, self.settings.folder),
                    end_refused=self.network.end_refused,
                ),
            )
        )
        if self._disk is not None:
            self.syncer = make_syncer(
                SYNCER,
                context,
                disk=self._disk,
                optimizer=self._outer,
                shards=self.plan.shards,
                credentials=self._credentials,
                initial=read_initial(self.settings.start_from, context.layout),
                may_return=self.plan.may_return,
                hooks=hooks_of(self.settings.folder, self.spec, context, self._ready),
                follower=copies_of(
                    self.settings.folder, self.settings.saving, self.spec, self.plan
                ),
            )
            self._living.start(self.syncer).add_done_callback(lambda _: self._merged.set())
        elif self._ready is not None:
            self._ready()
        if self.settings.evaluate_every_s is not None:
            self.observer = self._make_observer(context, self.settings.evaluate_every_s)
            self._living.start(self.observer)
        self.cluster.adopt()
        self.cluster.start_all()
        self._scope.spawn(self._watch_folder(), "folder")
        self._scope.spawn(self._watch_standbys(), "standbys")

    def _memory(self) -> MemoryNetwork:
        layout = self.plan.layout
        measure = Codec(MESSAGE_TYPES, limits_of(layout)).size_bytes
        room = BULK_CAPACITY + len(layout.fragments)
        return MemoryNetwork(bulk_capacity=room, measure=measure)

    async def _refuse_if_succeeded(self) -> None:
        folder = self.settings.folder
        standbys = await asyncio.to_thread(addresses_in, folder)
        if standbys:
            own = Slots(epoch_disk(folder, SUPERVISOR))
            epoch = await asyncio.to_thread(newest_epoch, own)
            await refuse_if_succeeded(self.network, standbys, self._credentials, epoch)

    async def _watch_standbys(self) -> None:
        """End if a standby has become the hub of the run, behind a network that was broken."""
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            try:
                await self._refuse_if_succeeded()
            except errors.RefusedError as error:
                self.cluster.fail("this hub", error)
            except errors.DiskError:  # others tell of it
                continue

    async def _watch_folder(self) -> None:
        """Write the files of the run's beginning anew if somebody deletes its folder."""
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            try:
                lost = await asyncio.to_thread(restore_files, self._kept)
            except OSError:  # the disk; others tell of it
                continue
            if lost:
                again = [f"{name} (written again)" for name in lost]
                self.folder.write(self.elapsed_s, "hub", Damaged(again))

    async def close(self) -> None:
        """Close the network, flush buffers, free the folder; name processes that still run."""
        left = self.cluster.close()
        await self._scope.close()
        await self.network.close()
        self.folder.keep(self.elapsed_s)
        try:
            await asyncio.to_thread(self.folder.draw, self.elapsed_s)
        finally:
            await asyncio.to_thread(self.folder.close)
        self._living.close()
        if self._disk is not None:
            self._disk.close()
        self.claim.lock.close()
        if left:
            runtime.say(
                f"still running without a hub: {', '.join(left)}; the same command with "
                f"--folder {self.settings.folder} takes them up again"
            )

    @property
    def signalled(self) -> bool:
        """Whether a signal has asked this process to end."""
        return self._goodbye is not None

    async def keep_plan(self, plan: RunPlan) -> None:
        """Write another plan to the folder, for the next start."""
        await asyncio.to_thread(write, self.settings.folder, self.spec, plan)
        self.plan, self._kept = plan, kept_files(self.settings.folder)

    async def _end_outdated(self) -> None:
        """End processes of the last start, whose settings, secrets or hub address are outdated."""
        found = self.cluster.adopt()
        if found:
            runtime.say(f"{', '.join(found)} are of another start: they end, and are started anew")
            await self._ask_to_leave()
            self.cluster.end.leaving = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.cluster.spec.launched if name != SYNCER)

    @property
    def now_s(self) -> float:
        """The loop's time, which is the supervisor's clock."""
        return asyncio.get_running_loop().time()

    @property
    def wall_s(self) -> float:
        """Seconds that hubs have hosted this run, over all their starts."""
        return self.folder.earlier_s + self.elapsed_s

    @property
    def elapsed_s(self) -> float:
        return self.now_s - self._began_s

    @property
    def members(self) -> Mapping[str, MemberRecord]:
        core = self.cluster.core
        return {} if core is None else core.members

    async def _end_processes(self) -> None:
        if self.of_syncer is not None:
            await self.cluster.wait_ended(GOODBYE_S)
        await self._ask_to_leave()

    async def _ask_to_leave(self) -> None:
        write_s = slow_write_s(self.plan.layout)
        await self.cluster.leave(LEAVE_S + ADAM_MOMENTS * write_s, LEAVE_S + write_s)

    def _kill_processes(self) -> None:
        for name in self.cluster.launcher.names():
            self.cluster.launcher.kill(name)

    def _make_observer(self, context: Context, interval_s: float) -> ObserverActor:
        def report(judged: Judged, found: dict[str, float]) -> None:
            if self.of_syncer is None:  # else the final evaluation was made, or is about to be
                self.folder.evaluation(self.elapsed_s, judged, found)

        return make_observer(
            OBSERVER,
            context,
            evaluate=self._evaluate,
            report=report,
            failed=self.say_once,
            interval_s=interval_s,
        )

    def _evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        if self.workload is None:
            return {}
        with self._evaluating:
            return self.workload.evaluate(self.spec.settings, values)

    # --- reports of the supervisor ------------------------------------------------------------

    def _on_note(self, name: str, role: Role, note: Note) -> None:
        self.folder.on_note(name, role, self.elapsed_s, note)

    def _on_figures(self, name: str, figures: StepFigures) -> None:
        self.folder.on_figures(name, self.elapsed_s, figures)

    def _on_run_ended(self, reason: str, payload: bytes) -> None:
        try:
            self.of_syncer = msgspec.json.decode(payload, type=dict[str, object])
        except msgspec.MsgspecError:
            self.of_syncer = {"reason": reason, "ledger": {"imbalance": None, "fragments": []}}
        self.cluster.end.on_finished(str(self.of_syncer.get("reason", reason)))

    # --- the end ------------------------------------------------------------------------------

    def _on_process_ended(self, name: str, end: ProcessEnd) -> None:
        self.folder.write(self.elapsed_s, "hub", ProcessEnded(name, error=end.told))
        if (
            end.sentence
            and end.code in (errors.FAILED, errors.OF_NO_USE)
            and not self.cluster.end.leaving
        ):
            error = errors.IslandsError(end.sentence)
            error.detail = end.detail
            self.say_once(error, name)

    def _on_signal(self, name: str) -> None:
        self._goodbye = asyncio.get_running_loop().create_task(self.leave(name))

    async def leave(self, reason: str) -> None:
        """Shut down in order, children first, so that learners can still report what they did."""
        await self._end_processes()
        if self.syncer is not None:
            self.syncer.ref.stop(reason)
            await self._merged.wait()  # until the syncer has exported the published values
        self._living.end()

    async def _conclude(self, of_syncer: SyncerShare) -> Summary:
        found: dict[str, float] = {}
        self.folder.settle(of_syncer)
        if self.has_final_values:
            last = await asyncio.to_thread(self._evaluate_final)
            if isinstance(last, errors.IslandsError):
                self.say_once(last)
            found = self.folder.last_evaluation(self.elapsed_s, "hub", last)
        settings = self.spec.settings
        summary = summarise(
            self.folder.figures, of_syncer, settings=settings, wall_s=self.wall_s, figures=found
        )
        await self._keep_summary(as_json(summary))
        return summary

    def _evaluate_final(self) -> dict[str, float] | errors.IslandsError:
        with self._evaluating:  # the observer's may not have ended: two would need twice the memory
            return attempt(self._evaluate, self.final_values())

    async def _keep_summary(self, text: bytes) -> None:
        """Write the summary, retrying while the disk fails; a signal to this process ends that."""
        path = self.settings.folder / SUMMARY_FILE
        while True:  # until it is written, or a signal has come
            try:
                await asyncio.to_thread(replace_file, path, text)
            except OSError as error:
                failure = errors.unusable(f"{path} cannot be written", error)
                if self._goodbye is not None:
                    raise failure from error
                self.say_once(failure)
                await asyncio.sleep(DISK_RETRY_S)
            else:
                return

    @property
    def has_final_values(self) -> bool:
        """Whether the run came to an end, and had values."""
        return (self.settings.folder / FINAL_FILE).exists()

    def final_values(self) -> list[NDArray[np.float32]]:
        """Read the final published values: one flat array per fragment."""
        return read_values(self.settings.folder / FINAL_FILE, self.plan.layout)


class NoLauncher:
    """A launcher that starts no processes: learners are started by hand, or by their hosts."""

    def start(self, name: str) -> None: ...

    def kill(self, name: str) -> None: ...

    def stop(self, name: str, grace_s: float) -> None: ...

    def names(self) -> list[str]:
        return []

    adopt = names

    def close(self) -> None: ...
