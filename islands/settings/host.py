"""Settings of a host: what each process is configured with where it runs.

Each command has one dataclass. A group of options that several commands share is a dataclass of its
own (`islands.settings.groups`), and its fields are options of the command itself.
`islands.cli.parsing` makes a command line, a section of a YAML file and environment variables of
each class.

Run-wide settings (`islands.protocol.settings.run`) are sent by the supervisor. Secrets are no
options: every user of a machine can see the arguments of a process, so a token or a key is named by
its file.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from islands.protocol.errors import SettingsError
from islands.protocol.identities import Role
from islands.protocol.messages.control import Verb
from islands.protocol.settings.addresses import DEFAULT_PORT, hub_urls
from islands.protocol.settings.gossip import check_members
from islands.protocol.settings.presets import Preset
from islands.protocol.settings.run import Precision
from islands.settings.groups import (
    FIRST,
    ConnectOptions,
    KeepOptions,
    ListenOptions,
    RunFile,
    above,
    at_least,
    check_name,
    default_name,
    device_indices,
)
from islands.settings.island import check_island

__all__ = [
    "FLAT",
    "CheckOptions",
    "ConnectOptions",
    "ControlOptions",
    "DemoOptions",
    "KeepOptions",
    "LayoutOptions",
    "LearnerOptions",
    "ListenOptions",
    "ObserverOptions",
    "RunFile",
    "RunOptions",
    "SupervisorOptions",
    "SyncerOptions",
    "default_name",
    "device_indices",
]

FLAT = {"flat": True}
"""Metadata of a field whose own fields are options of the command itself."""

POSITIONAL = {"positional": True}
"""Metadata of a field that is given by its place on the command line, without its name."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`islands run`: a whole run on this machine, which others may join.

    Args:
        file: what the run is.
        listening: where others reach the run.
        connecting: how the run's own processes reach it.
        keeping: how much it keeps of files that grow.
        learners: how many learners start on this machine.
        devices: devices of each learner in order, in the form of a learner's own `devices`; by
            default every learner uses all.
        model_parallel: number of a learner's devices over which parameters are sharded.
        threads: number of XLA's CPU threads per learner; by default one.
        folder: folder of the run; by default a new one under runs/.
        evaluate_every_s: least time between two evaluations of the published values.
        extend: continue the run in `folder` that has ended, with the budget given now.
        restart: begin the run anew in a folder whose journal or settings are lost or damaged; the
            remaining files are moved to earlier/ in the folder. For one start only.
    """

    file: RunFile = field(default_factory=RunFile, metadata=FLAT)
    listening: ListenOptions = field(default_factory=ListenOptions, metadata=FLAT)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    learners: int = 3
    devices: tuple[str, ...] = ()
    model_parallel: int = 1
    threads: int | None = None
    folder: Path | None = None
    evaluate_every_s: float = 10.0
    extend: bool = False
    restart: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        at_least("learners", self.learners, 0)
        if self.file.preset is Preset.DATA_PARALLEL and self.learners > 1:
            raise SettingsError(
                f"learners is {self.learners}; the preset data_parallel trains one learner, whose "
                "mesh spans all devices (devices, model_parallel)"
            )
        if self.file.layout is not None and self.learners:
            raise SettingsError(
                f"learners is {self.learners}; with a layout it must be 0, for learners join from "
                "training loops of their own"
            )
        if self.file.layout == Path(FIRST):
            raise SettingsError(
                "layout is first, for which python -m islands.syncer can wait; islands run needs "
                "the file that `islands layout` writes"
            )
        check_members(self.file.run.gossip, [f"learner-{index}" for index in range(self.learners)])
        at_least("model_parallel", self.model_parallel, 1)
        above("evaluate_every_s", self.evaluate_every_s)
        if self.threads is not None:
            at_least("threads", self.threads, 1)
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
class LayoutOptions:
    """`islands layout`: writes which tensors a training loop of one's own trains.

    Args:
        params: the parameters, as package.module:name: a tree of arrays, a PyTorch module, or a
            function that returns one; a function of JAX is only traced.
        file: the file to write, for `--layout` of a hub.
        trainable: regular expression that the path of a trained leaf matches; by default all do.
        stacked: regular expression that the path of a leaf matches which holds all layers, stacked
            along its first axis; by default none does.
        records: number of records of the data, if the syncer is to lease them to the loops; 0: each
            loop reads data of its own.
        shards: number of shards in which records are leased; each must have room for a batch.
    """

    params: str = field(default="", metadata=POSITIONAL)
    file: Path | None = field(default=None, metadata=POSITIONAL)
    trainable: str = ""
    stacked: str | None = None
    records: int = 0
    shards: int = 64

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if not re.fullmatch(r"[^:]+:[^:]+", self.params):
            raise SettingsError(
                f"params is {self.params!r}; it must be of the form package.module:name"
            )
        if self.file is None:
            raise SettingsError("file is not set; it is the file to write, such as model.json")
        at_least("records", self.records, 0)
        at_least("shards", self.shards, 1)
        for name, pattern in (("trainable", self.trainable), ("stacked", self.stacked or "")):
            try:
                re.compile(pattern)
            except re.error as error:
                raise SettingsError(
                    f"{name} is {pattern!r}, which is no regular expression: {error}"
                ) from error


@dataclass(frozen=True, slots=True)
class SyncerOptions:
    """`python -m islands.syncer`: merges and publishes, and hosts the supervisor by default.

    Args:
        file: what the run is; not needed with a supervisor elsewhere, which sends it.
        listening: where others reach the syncer.
        connecting: how the syncer reaches a supervisor that is elsewhere.
        keeping: how much it keeps of files that grow.
        supervisor: addresses of the supervisor, if it is elsewhere, in the form of a learner's.
        name: name of this syncer in the run.
        folder: folder of the run, or of the journal alone if the supervisor is elsewhere; a
            restart in the same folder continues the run.
        key_file: file with the run's key, which proves admissions and commands; by default beside
            the token as `TOKEN.key`, or `key` in the folder if it is there or there is no file of a
            token; made if the supervisor is hosted here and it is missing.
        extend: continue the run in `folder` that has ended, with the budget given now.
        restart: begin the run anew in a folder whose journal or settings are lost or damaged; the
            remaining files are moved to earlier/ in the folder. For one start only.
    """

    file: RunFile = field(default_factory=RunFile, metadata=FLAT)
    listening: ListenOptions = field(default_factory=ListenOptions, metadata=FLAT)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    supervisor: tuple[str, ...] = ()
    name: str = "syncer"
    folder: Path = Path("runs/run")
    key_file: Path | None = None
    extend: bool = False
    restart: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        check_name(self.name, Role.SYNCER)
        hub_urls("supervisor", self.supervisor, "supervisor")

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        """URLs of a supervisor that is elsewhere; empty if it is hosted here."""
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """`python -m islands.supervisor`: admits, watches and evicts; sends all the run's settings.

    Args:
        file: what the run is.
        listening: where others reach the supervisor.
        connecting: the token that others must present.
        keeping: how much it keeps of files that grow.
        syncers: addresses of syncers; by default syncers announce themselves.
        folder: folder of the run; a restart in the same folder continues the run.
        key_file: file with the run's key; by default beside the token as `TOKEN.key`, or `key` in
            the folder if it is there or there is no file of a token; made if it is missing.
        extend: continue the run in `folder` that has ended, with the budget given now.
        restart: begin the run anew in a folder whose journal or settings are lost or damaged; the
            remaining files are moved to earlier/ in the folder. For one start only.
    """

    file: RunFile = field(default_factory=RunFile, metadata=FLAT)
    listening: ListenOptions = field(default_factory=ListenOptions, metadata=FLAT)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    syncers: tuple[str, ...] = ()
    folder: Path = Path("runs/run")
    key_file: Path | None = None
    extend: bool = False
    restart: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        hub_urls("syncers", self.syncers, "syncer")

    @property
    def syncer_urls(self) -> tuple[str, ...]:
        """URLs of the syncers that are known beforehand."""
        return hub_urls("syncers", self.syncers, "syncer", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """`python -m islands.learner`: trains on this host's devices.

    Args:
        supervisor: address of the supervisor, or several to try in turn, separated by commas; each
            is a host, host:port, or ws[s]://host:port/supervisor.
        connecting: how the learner reaches the hub.
        listening: where other learners reach this one, in a run that gossips; by default any free
            port of this host alone.
        keeping: how much it keeps of files that grow.
        name: name of this learner in the run; by default the host's name with a random end, so
            that a restart is another learner. Give a name to a learner that is restarted.
        folder: folder in which the learner's own folder, with its tape, is made under its name.
        devices: JAX devices to use: `all`, or indices such as 0,1 or 0-3.
        model_parallel: number of devices over which parameters are sharded; the data is shared
            out over the rest.
        threads: number of XLA's CPU threads; by default one per core. Give 1 where learners share
            cores.
        precision: element type of this learner's contributions, for a host with another link than
            most; by default the run's.
        task_settings: this host's own arguments of the task's factory, such as rows per batch;
            they override those of the run.
        hosts: number of hosts that are one learner together; each runs this command.
        rank: which of these hosts this one is, from 0.
        island_address: host:port at which rank 0 serves the others, on a network of their own; JAX
            takes the next port too.
    """

    supervisor: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    listening: ListenOptions = field(
        default_factory=lambda: ListenOptions(listen="127.0.0.1:0"), metadata=FLAT
    )
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    name: str | None = None
    folder: Path = Path(".islands")
    devices: str = "all"
    model_parallel: int = 1
    precision: Precision | None = None
    threads: int | None = None
    task_settings: dict[str, object] = field(default_factory=dict)
    hosts: int = 1
    rank: int | None = None
    island_address: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        _some_supervisor(self.supervisor)
        if self.name is not None:
            check_name(self.name, Role.LEARNER)
        check_island(self.hosts, self.rank, self.island_address, self.name, self.devices)
        device_indices(self.devices)
        at_least("model_parallel", self.model_parallel, 1)
        if self.threads is not None:
            at_least("threads", self.threads, 1)

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        """URLs of the supervisor, in the order given."""
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class ObserverOptions:
    """`python -m islands.observer`: evaluates the published values while the run goes on.

    Args:
        supervisor: address of the supervisor, or several, in the form of a learner's.
        connecting: how the observer reaches the hub.
        keeping: how much it keeps of files that grow.
        name: name of this observer in the run; by default the host's name with a random end.
        folder: folder in which the observer's own folder, with its tape, is made under its name.
        evaluate_every_s: least time between two evaluations.
        task_settings: this host's own arguments of the task's factory.
    """

    supervisor: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    keeping: KeepOptions = field(default_factory=KeepOptions, metadata=FLAT)
    name: str | None = None
    folder: Path = Path(".islands")
    evaluate_every_s: float = 10.0
    task_settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        _some_supervisor(self.supervisor)
        if self.name is not None:
            check_name(self.name, Role.OBSERVER)
        above("evaluate_every_s", self.evaluate_every_s)

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        """URLs of the supervisor, in the order given."""
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """`islands check`: checks a task against its contract before a run.

    Args:
        file: what the run is.
        trace_only: only trace the task: compute no values, take no step, evaluate nothing.
    """

    file: RunFile = field(default_factory=RunFile, metadata=FLAT)
    trace_only: bool = False


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`islands demo`: trains a small model on this machine; one learner is killed and returns.

    Args:
        tokens: budget of the run, in bytes of source read by all learners together.
        learners: how many learners share this machine.
        away_s: for how long the killed learner is away; choose more than its eviction takes.
        folder: folder of the run; by default a new one under runs/.
        seed: seed of the weights and of the data order.
        kill: whether a learner is killed; the same run without it shows the effect on the others.
        compare: whether data-parallel training on as many tokens follows, to compare the results;
            it takes about as long as the run.
    """

    tokens: int = 1_000_000
    learners: int = 3
    away_s: float = 8.0
    folder: Path | None = None
    seed: int = 0
    kill: bool = True
    compare: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        at_least("tokens", self.tokens, 1)
        at_least("learners", self.learners, 1)
        at_least("away_s", self.away_s, 0)
        at_least("seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """`islands control`: sends an operator's command to a run that goes on.

    Args:
        verb: the command.
        target: name of the learner to drain or evict, or how many learners to add (1 by default).
        folder: folder of the run on the supervisor's host, which has its address, token and key.
        supervisor: address of the supervisor, if the run's folder is not here, in the form of a
            learner's.
        connecting: how to reach the supervisor.
        key_file: file with the run's key, if the run's folder is not here.
    """

    verb: Verb = field(default=Verb.STATUS, metadata=POSITIONAL)
    target: str | None = field(default=None, metadata=POSITIONAL)
    folder: Path | None = None
    supervisor: tuple[str, ...] = ()
    connecting: ConnectOptions = field(default_factory=ConnectOptions, metadata=FLAT)
    key_file: Path | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        if self.folder is None and not self.supervisor:
            raise SettingsError(
                "neither folder nor supervisor is set; name the run's folder by --folder, or the "
                "address of its hub by --supervisor and the file of the run's key by --key_file"
            )
        if self.folder is None and self.key_file is None:
            raise SettingsError("key_file is not set; without the run's folder it is needed")
        hub_urls("supervisor", self.supervisor, "supervisor")
        if self.names and self.target is None:
            raise SettingsError(f"{self.verb} needs the name of a learner; status lists them")
        if not self.names and self.verb is not Verb.ADD and self.target is not None:
            raise SettingsError(f"{self.verb} takes nothing, but {self.target!r} was given")
        if self.verb is Verb.ADD and not re.fullmatch("[1-9][0-9]{0,3}", self.target or "1"):
            raise SettingsError(f"add is told {self.target!r}; it must be a number, at least 1")

    @property
    def names(self) -> bool:
        """Whether the command is about one learner, whose name is its target."""
        return self.verb in (Verb.DRAIN, Verb.EVICT)

    @property
    def count(self) -> int:
        """How many learners to add."""
        return int(self.target or 1) if self.verb is Verb.ADD else 1

    @property
    def supervisor_urls(self) -> tuple[str, ...]:
        """URLs of the supervisor; empty if the run's folder has its address."""
        return hub_urls("supervisor", self.supervisor, "supervisor", tls=self.connecting.tls)


def _some_supervisor(addresses: tuple[str, ...]) -> None:
    if not addresses:
        raise SettingsError("supervisor is empty; it must be the address of the run's hub")
    hub_urls("supervisor", addresses, "supervisor")
