"""Settings of a host: what each process is configured with where it runs.

A group of options that several commands share is a dataclass of its own (`groups.py`), and its
fields are options of the command itself. `islands.cli.parsing` makes a command line, a section of a
YAML file and environment variables of each class.

Run-wide settings (`islands.protocol.settings.run`) are sent by the supervisor. Secrets are no
options: every user of a machine can see the arguments of a process, so a token or a key is named by
its file.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from islands.protocol.errors import SettingsError
from islands.protocol.identities import Role
from islands.protocol.settings.addresses import DEFAULT_PORT, PORT_MAX, hub_urls, split_address
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.gossip import check_members
from islands.protocol.settings.presets import Preset
from islands.protocol.settings.setting import ADVANCED, Setting, ranged
from islands.settings.groups import (
    FLAT,
    BudgetOptions,
    CheckpointOptions,
    ConnectOptions,
    KeepOptions,
    ListenOptions,
    RunFile,
    check_name,
    default_name,
    device_indices,
    seconds_of,
)

SEVERAL = Setting(least=1, advanced=True)


@dataclass(frozen=True, slots=True)
class HubOptions:
    """A hub, with or without learners.

    Args:
        file: what the run is; not needed with a supervisor elsewhere, which sends it.
        listening: where others reach the hub.
        connecting: the token that others must present, and how its own processes dial.
        keeping: how much it keeps of files that grow.
        budget: what the run may cost.
        extend: continue the run in `folder` that has ended, with the budget given now.
        on_event: command, or http(s) URL, that is told of what a person may have to act on, by one
            JSON object on its standard input, or by POST.
        sinks: where else the run's figures go, separated by commas, such as wandb,mlflow.
    """

    file: RunFile = field(default_factory=RunFile, metadata=FLAT)
    listening: ListenOptions = field(default_factory=ListenOptions, metadata=FLAT)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    budget: Annotated[BudgetOptions, ADVANCED] = field(default_factory=BudgetOptions, metadata=FLAT)
    extend: bool = False
    on_event: str | None = None
    sinks: Annotated[tuple[str, ...], ADVANCED] = ()


@dataclass(frozen=True, slots=True)
@ranged
class RunOptions(HubOptions):
    """`islands run`: a whole run on this machine, which others may join.

    Args:
        learners: how many learners start on this machine.
        devices: devices of each learner in order, in the form of a learner's own `devices`; by
            default every learner uses all.
        model_parallel: number of a learner's devices over which parameters are sharded.
        threads: number of XLA's CPU threads per learner; by default one.
        folder: folder of the run; by default a new one under runs/.
        saving: its checkpoints.
        resume: go back to a checkpoint first: its number of merges, its name, path or URL, another
            run's folder, or auto for the newest one if the journal is lost.
        evaluate_every_s: least time between two evaluations of the published values.
        islands: what engines place for the run, by name: a table of engine, count, hosts,
            accelerators and the rest, as docs/engines.md lists them; then no learner starts on this
            machine unless `learners` says so.
    """

    learners: Annotated[int, Setting(least=0)] = 3
    devices: Annotated[tuple[str, ...], ADVANCED] = ()
    model_parallel: Annotated[int, SEVERAL] = 1
    threads: Annotated[int | None, SEVERAL] = None
    folder: Path | None = None
    saving: CheckpointOptions = field(default_factory=CheckpointOptions, metadata=FLAT)
    resume: str | None = None
    evaluate_every_s: Annotated[float, Setting(above=0, advanced=True)] = 10.0
    islands: Annotated[dict[str, object], ADVANCED] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.preset is Preset.DATA_PARALLEL and self.learners > 1:
            raise SettingsError(
                f"learners is {self.learners}; the preset data_parallel trains one learner, whose "
                "mesh spans all devices (devices, model_parallel)"
            )
        check_members(self.file.run.gossip, [f"learner-{index}" for index in range(self.learners)])
        if self.devices and len(self.devices) != self.learners:
            raise SettingsError(
                f"devices names {len(self.devices)} learners; it must name all {self.learners}, "
                "or none"
            )
        for devices in self.devices:
            device_indices(devices)
        if self.extend and self.folder is None:
            raise SettingsError("extend is set; it needs the folder of the run that is to go on")


@dataclass(frozen=True, slots=True)
class SyncerOptions(HubOptions):
    """`python -m islands.syncer`: merges and publishes, and hosts the supervisor by default.

    Args:
        supervisor: addresses of the supervisor, if it is elsewhere, in the form of a learner's.
        name: name of this syncer in the run.
        folder: folder of the run, or of the journal alone if the supervisor is elsewhere; a
            restart in the same folder continues the run.
        key_file: file with the run's key, which proves admissions and commands; by default beside
            the token as `TOKEN.key`, or `key` in the folder if it is there or there is no file of a
            token; made if the supervisor is hosted here and it is missing.
        saving: the run's checkpoints.
        resume: go back to a checkpoint first, as `islands run` does.
    """

    supervisor: tuple[str, ...] = ()
    name: Annotated[str, ADVANCED] = "syncer"
    folder: Path = Path("runs/run")
    key_file: Annotated[Path | None, ADVANCED] = None
    saving: CheckpointOptions = field(default_factory=CheckpointOptions, metadata=FLAT)
    resume: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, Role.SYNCER)
        hub_urls("supervisor", self.supervisor, "supervisor")

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        """URLs of a supervisor that is elsewhere; empty if it is hosted here."""
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class StandbyOptions(SyncerOptions):
    """`python -m islands.standby`: copies a run's journal, and goes on with it as the syncer.

    What the syncer is given is for that time. The key must be that of the run.

    Args:
        promote_after: time after which it goes on by itself, if its link to the syncer is gone and
            the supervisor, which must run apart, agrees: 10s; by default only islands promote has
            it go on.
    """

    name: Annotated[str, ADVANCED] = field(default_factory=default_name)
    promote_after: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, Role.STANDBY)
        if not self.supervisor:
            raise SettingsError("supervisor is not set; it must be the address of the run's hub")
        hub_urls("supervisor", self.supervisor, "supervisor")
        _ = self.promote_after_s

    @property
    def promote_after_s(self) -> float | None:
        after = self.promote_after
        return None if after is None else seconds_of("promote_after", after)


@dataclass(frozen=True, slots=True)
class SupervisorOptions(HubOptions):
    """`python -m islands.supervisor`: admits, watches and evicts; sends all the run's settings.

    Args:
        syncers: addresses of syncers; by default syncers announce themselves.
        folder: folder of the run; a restart in the same folder continues the run.
        key_file: file with the run's key; by default beside the token as `TOKEN.key`, or `key` in
            the folder if it is there or there is no file of a token; made if it is missing.
    """

    syncers: tuple[str, ...] = ()
    folder: Path = Path("runs/run")
    key_file: Annotated[Path | None, ADVANCED] = None

    def __post_init__(self) -> None:
        hub_urls("syncers", self.syncers, "syncer")

    @property
    def syncer_urls(self) -> tuple[str, ...]:
        return hub_urls("syncers", self.syncers, "syncer", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """A process that joins a run.

    Args:
        supervisor: address of the supervisor, or several to try in turn, separated by commas; each
            is a host, host:port, or ws[s]://host:port/supervisor.
        connecting: how the process reaches the hub.
        keeping: how much it keeps of files that grow.
        name: name of this process in the run; by default the host's name with a random end, so
            that a restart is another member. Give a name to a learner that is restarted.
        folder: folder in which the process's own folder, with its tape, is made under its name.
        tasks: modules and packages from which the run may name its task, separated by commas; by
            default only those that come with islands, as this host runs the code that is named.
        task_settings: this host's own arguments of the task, such as rows per batch; they override
            those of the run.
    """

    supervisor: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    name: str | None = None
    folder: Path = Path(".islands")
    tasks: tuple[str, ...] = ()
    task_settings: dict[str, object] = field(default_factory=dict)

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
@ranged
class LearnerOptions(MemberOptions):
    """`python -m islands.learner`: trains on this host's devices.

    Args:
        listening: where other learners reach this one, in a run that gossips; by default any free
            port of this host alone.
        devices: JAX devices to use: `all`, or indices such as 0,1 or 0-3.
        model_parallel: number of devices over which parameters are sharded; the data is shared
            out over the rest.
        threads: number of XLA's CPU threads; by default one per core. Give 1 where learners share
            cores.
        precision: element type of this learner's contributions, for a host with another link than
            most; by default the run's.
        hosts: number of hosts that are one learner together; each runs this command.
        rank: which of these hosts this one is, from 0.
        island_address: host:port at which rank 0 serves the others, on a network of their own; JAX
            takes the next port too.
    """

    listening: Annotated[ListenOptions, ADVANCED] = field(
        default_factory=lambda: ListenOptions(listen="127.0.0.1:0"), metadata=FLAT
    )
    devices: str = "all"
    model_parallel: Annotated[int, SEVERAL] = 1
    precision: Precision | None = None
    threads: Annotated[int | None, Setting(least=1)] = None
    hosts: Annotated[int, SEVERAL] = 1
    rank: Annotated[int | None, ADVANCED] = None
    island_address: Annotated[str | None, ADVANCED] = None

    def __post_init__(self) -> None:
        _check_member(self, Role.LEARNER)
        _check_island(self)
        device_indices(self.devices)


@dataclass(frozen=True, slots=True)
@ranged
class ObserverOptions(MemberOptions):
    """`python -m islands.observer`: evaluates the published values while the run goes on.

    Args:
        evaluate_every_s: least time between two evaluations.
    """

    evaluate_every_s: Annotated[float, Setting(above=0)] = 10.0

    def __post_init__(self) -> None:
        _check_member(self, Role.OBSERVER)


def _check_member(options: MemberOptions, role: Role) -> None:
    if not options.supervisor:
        raise SettingsError("supervisor is empty; it must be the address of the run's hub")
    hub_urls("supervisor", options.supervisor, "supervisor")
    if options.name is not None:
        check_name(options.name, role)


def _check_island(options: LearnerOptions) -> None:
    hosts, rank, address = options.hosts, options.rank, options.island_address
    if hosts == 1:
        if rank or address is not None:
            given = "rank" if rank else "island_address"
            raise SettingsError(f"{given} is set; it needs hosts, the number of the island's hosts")
        return
    if rank is None or not 0 <= rank < hosts:
        raise SettingsError(
            f"rank is {'not set' if rank is None else rank}; it must be this host's own number "
            f"among the {hosts} hosts, from 0 to {hosts - 1}"
        )
    if address is None:
        raise SettingsError(
            "island_address is not set; it must be the host:port at which rank 0 serves the others"
        )
    _, port = split_address("island_address", address)
    if not 0 < port < PORT_MAX:
        raise SettingsError(
            f"island_address is {address!r}; its port must be from 1 to {PORT_MAX - 1}, as JAX "
            "takes the next one"
        )
    if options.name is None:
        raise SettingsError(
            "name is not set; the hosts of an island must be told one name, as they are one learner"
        )
    if options.devices.strip() != "all":
        raise SettingsError(
            f"devices is {options.devices!r}; an island of several hosts uses all of their devices"
        )
