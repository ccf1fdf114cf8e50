"""The process that hosts the supervisor: run folder, membership, and what else is to live there.

=======================  ==========  =======  ==============  =========================
started as               supervisor  syncer   observer        learners
=======================  ==========  =======  ==============  =========================
`islands run`            here        a child  here            children, and who joins
`python -m …syncer`      here        here     who joins       who joins
`python -m …supervisor`  here        joins    who joins       who joins
=======================  ==========  =======  ==============  =========================

A hub that is started again in the same folder goes on where the last one ended: the syncer's
journal and the supervisor's epoch lie there, and children that outlived it are taken up again.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.credentials import Credentials
from islands.errors import IslandsError, JournalError, RefusedError, UserError
from islands.hosting import KEY_FILE, Living, credentials_of, make_secret, network_of, say, token_of
from islands.hub_file import HubPlace, read_place, write_place
from islands.messages import SyncerAddress
from islands.observer.actor import ObserverActor
from islands.operation import Note, StepFigures
from islands.option_groups import ConnectOptions, ListenOptions
from islands.ports import Launcher, RealDisk, ThreadWorker
from islands.role import Surroundings
from islands.run_spec import RunPlan, RunSpec, read, write
from islands.summary import Share, Summary, summarise
from islands.supervisor.actor import SupervisorActor
from islands.syncer.actor import SyncerActor
from islands.syncer_host import FINAL_FILE, make_syncer
from islands.telemetry import RunFolder
from islands.workload import Workload
from messaging.joint_network import JointNetwork
from messaging.scope import Scope
from messaging.websocket_network import WebsocketNetwork

SUPERVISOR = "supervisor"
SYNCER = "syncer"
OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class HubSettings:
    """What a hub is told.

    Args:
        folder: of the run.
        spec: of the run.
        listening: where others dial.
        connecting: the token that others must have.
        key_file: with the run's key; by default in the folder, made if missing.
        start_from: file with the initial values of a run that has no journal.
        extend: go on with a run that has ended.
        syncer_here: whether the syncer lives in this process.
        syncers: addresses of syncers that are elsewhere, if they are known.
        evaluate_every_s: least time between two evaluations; None: nobody evaluates here.
    """

    folder: Path
    spec: RunSpec
    listening: ListenOptions
    connecting: ConnectOptions
    key_file: Path | None = None
    start_from: Path | None = None
    extend: bool = False
    syncer_here: bool = False
    syncers: tuple[str, ...] = ()
    evaluate_every_s: float | None = None


class NoLauncher:
    """A hub that starts no processes: learners are started by hand, or by their hosts."""

    def start(self, name: str, delay_s: float) -> None:
        """Nothing is launched here."""

    def kill(self, name: str) -> None:
        """Nothing was launched here."""

    def gave_up(self, name: str, reason: str) -> None:
        """Nothing was launched here."""


class Hub:
    """One start of a hub.

    Args:
        settings: what it is told.
        workload: what is trained, to evaluate it; None where nobody evaluates.
        plan: of the run.
    """

    def __init__(self, settings: HubSettings, plan: RunPlan, workload: Workload | None) -> None:
        """Open the run's folder; nothing runs yet.

        Raises:
            UserError: the folder cannot be used, or holds another run.
        """
        self.settings = settings
        self.spec = settings.spec
        self.plan = plan
        self.network: WebsocketNetwork
        self.supervisor: SupervisorActor
        self.syncer: SyncerActor | None = None
        self.share: Share | None = None
        self.failure: IslandsError | None = None
        self.folder = RunFolder(settings.folder, settings.spec.settings, extend=settings.extend)
        self.workload = workload
        self._token = token_of(settings.connecting)
        self._credentials = self._key()
        self._living = Living("hub", self._signalled, self.kill_children)
        self._scope = Scope("hub-network", lambda _, error: self.give_up("the network", error))
        self._began_s = 0.0
        self._goodbye: asyncio.Task[None] | None = None

    def _key(self) -> Credentials:
        path = self.settings.key_file or self.settings.folder / KEY_FILE
        if self.settings.key_file is None:
            make_secret(path)
        return credentials_of(self.spec.settings.run, path)

    # --- the run ------------------------------------------------------------------------------

    async def run(self) -> Summary | None:
        """After `open`: run until the run ends, or this process is told to; None for the latter.

        Raises:
            IslandsError: the run cannot go on; what the user must know about.
        """
        try:
            self.start_actors()
            await self._living.wait()
            await self.end_children()
            if self.failure is not None:
                raise self.failure
            return None if self.share is None else self._conclude(self.share)
        finally:
            await self.close()

    async def open(self) -> None:
        """Let others reach this process, and write down where that is.

        Raises:
            LocalFault: the address cannot be bound.
        """
        listening = self.settings.listening
        self.network = network_of(self.settings.connecting, listening, token=self._token)
        port = listening.port or self._earlier_port()
        await self.network.open(listening.host, port, advertise=listening.advertise)
        self._began_s = asyncio.get_running_loop().time()
        token_file, key_file = self.settings.connecting.token_file, self.settings.key_file
        place = HubPlace(
            self.network.url(SUPERVISOR),
            self.spec.settings.run,
            token_file="" if token_file is None else str(token_file.absolute()),
            key_file="" if key_file is None else str(key_file.absolute()),
        )
        write_place(self.settings.folder, place)

    def _earlier_port(self) -> int:
        """Where an earlier start listened, for there its members still look; 0: nowhere."""
        try:
            place = read_place(self.settings.folder)
        except UserError:
            return 0
        return urlsplit(place.supervisor).port or 0

    def start_actors(self) -> None:
        """Start what lives here, the supervisor first."""
        around = Surroundings(
            settings=self.spec.settings,
            layout=self.plan.layout,
            network=JointNetwork(self.network, self._scope),
            tape=self.folder,
            supervisor=SUPERVISOR,
            origin_s=self._began_s,
        )
        self.supervisor = self._make_supervisor(around)
        self._living.start(self.supervisor)
        if self.settings.syncer_here:
            self.syncer = make_syncer(
                SYNCER,
                around,
                folder=self.settings.folder,
                shards=self.plan.shards,
                credentials=self._credentials,
                start_from=self.settings.start_from,
            )
            self._living.start(self.syncer)
        if self.settings.evaluate_every_s is not None:
            self._living.start(self._make_observer(around, self.settings.evaluate_every_s))

    async def close(self) -> None:
        """Let nobody in any more, and write what is buffered."""
        await self._scope.close()
        await self.network.close()
        self.folder.close()
        self._living.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds since this hub began."""
        return asyncio.get_running_loop().time() - self._began_s

    @property
    def launcher(self) -> Launcher:
        """Starts and kills processes for the supervisor."""
        return NoLauncher()

    @property
    def launched(self) -> tuple[str, ...]:
        """Names of the processes that the launcher starts."""
        return ()

    async def end_children(self) -> None:
        """The run is over: see the processes that were launched to their end."""

    def kill_children(self) -> None:
        """This process ends at once: nobody would see launched processes to their end."""

    def _make_supervisor(self, around: Surroundings) -> SupervisorActor:
        return SupervisorActor(
            SUPERVISOR,
            around,
            disk=RealDisk(self.settings.folder / "supervisor"),
            credentials=self._credentials,
            launcher=self.launcher,
            launched=self.launched,
            syncers=tuple(SyncerAddress(address) for address in self.settings.syncers),
            told=(self.spec.encode(), memoryview(self.plan.encode())),
            noted=self._noted,
            figures=self._figures,
            run_ended=self._run_ended,
        )

    def _make_observer(self, around: Surroundings, interval_s: float) -> ObserverActor:
        def report(clock: float, found: dict[str, float]) -> None:
            if self.share is None:  # else the last one has been taken, or is about to be
                self.folder.evaluation(self.elapsed_s, clock, found)

        return ObserverActor(
            OBSERVER,
            around,
            worker=ThreadWorker(
                OBSERVER, lambda error: self.give_up(OBSERVER, error), finish=False
            ),
            evaluate=self._evaluate,
            report=report,
            interval_s=interval_s,
            rng=random.Random(os.urandom(8)),
        )

    def _evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        if self.workload is None:
            return {}
        return self.workload.evaluate(self.spec.settings, values)

    # --- what others tell ---------------------------------------------------------------------

    def _noted(self, name: str, note: Note) -> None:
        self.folder.noted(name, self.elapsed_s, note)

    def _figures(self, name: str, told: StepFigures) -> None:
        self.folder.figures_told(name, self.elapsed_s, told)

    def _run_ended(self, reason: str, payload: bytes) -> None:
        try:
            self.share = msgspec.json.decode(payload, type=dict[str, object])
        except msgspec.MsgspecError:
            self.share = {"reason": reason, "ledger": {"imbalance": None, "fragments": []}}

    # --- the end ------------------------------------------------------------------------------

    def give_up(self, part: str, error: BaseException | str) -> None:
        """Something without which the run cannot go on has ended."""
        if self.failure is None:
            known = isinstance(error, UserError | RefusedError | JournalError)
            self.failure = error if known else IslandsError(f"{part}: {error}")  # type: ignore[assignment]
            if isinstance(error, BaseException) and not known:
                self.failure.__cause__ = error  # type: ignore[union-attr]
        self._living.end()

    def _signalled(self, name: str) -> None:
        self._goodbye = asyncio.get_running_loop().create_task(self.leave(name))

    async def leave(self, reason: str) -> None:
        """End in order, children first, so that learners can still say what they did."""
        await self.end_children()
        if self.syncer is not None:
            self.syncer.ref.stop(reason)
        self._living.end()

    def _conclude(self, share: Share) -> Summary:
        """Evaluate what was published last, if it lies here, and sum up."""
        found = self._evaluate(self.final_values()) if self._final.exists() else {}
        if found:
            self.folder.evaluation(self.elapsed_s, 0.0, found)
        wall_s = self.elapsed_s
        here = self.supervisor.state.evictions  # a syncer does not see those that end at once
        share = {**share, "evictions": max(here, share.get("evictions", 0))}
        summary = summarise(self.folder.figures, share, wall_s=wall_s, figures=found)
        text = msgspec.json.format(msgspec.json.encode(summary), indent=2)
        (self.settings.folder / "summary.json").write_bytes(text + b"\n")
        return summary

    @property
    def _final(self) -> Path:
        return self.settings.folder / FINAL_FILE

    def final_values(self) -> list[NDArray[np.float32]]:
        """What was published last: one flat value per fragment."""
        from safetensors.numpy import load_file

        return self.plan.layout.disassemble(load_file(self._final))


def settle(folder: Path, spec: RunSpec, workload: Workload | None) -> tuple[RunSpec, RunPlan]:
    """The spec and plan of a run in this folder: those it was begun with, or new ones.

    Args:
        folder: of the run.
        spec: as it is wanted now.
        workload: to plan a new run; may be None where the folder holds one.

    Raises:
        UserError: the folder holds a run that differs in what cannot change.
    """
    earlier = read(folder)
    if earlier is not None:
        changed = spec.changed_from(earlier[0])
        if changed is not None:
            raise UserError(
                f"{folder} holds another run, with {changed}: choose another folder, or go on "
                "with the settings that it was begun with"
            )
        plan = earlier[1]
    else:
        assert workload is not None, "a new run is planned from its workload"
        plan = workload.plan(spec.settings)
    write(folder, spec, plan)
    return spec, plan


def banner(hub: Hub) -> None:
    """Tell whoever started a hub how others join."""
    layout = hub.plan.layout
    address = hub.network.url(SUPERVISOR)
    token = " --token_file TOKEN" if hub.settings.connecting.token_file is not None else ""
    authority = " --tls_ca CA.pem" if address.startswith("wss:") else ""
    say(
        f"run {hub.spec.settings.run!r}: {layout.size:,} parameters in {len(layout.fragments)} "
        f"fragments, folder {hub.settings.folder}\n"
        "on every host that is to train, where the task can be imported:\n\n"
        f"    python -m islands.learner --supervisor {address}{token}{authority}\n"
    )
    if token:
        say(f"TOKEN is a copy of {hub.settings.connecting.token_file}")
