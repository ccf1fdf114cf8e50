"""Groups of options that several commands share, and checks of their values."""

import re
import secrets
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated

from islands.files.growing_files import LIMIT_BYTES
from islands.protocol.errors import SettingsError
from islands.protocol.identities import Role, wrong_name
from islands.protocol.settings.addresses import DEFAULT_PORT, split_address
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import ADVANCED, Setting, make_choices, ranged

DEFAULT_TASK = "islands.tasks.stdlib_bytes:StdlibBytes"
FLAT = {"flat": True}
"""Metadata of a field whose own fields are options of the command itself."""

POSITIONAL = {"positional": True}
"""Metadata of a field that is given by its place on the command line, without its name."""

ISLANDS_MOST = 4096
"""Most islands of one entry of a table `islands`: as many learners as a run is tested with."""

OWN_LOOP = "islands.model.workload:OwnLoop"


@dataclass(frozen=True, slots=True)
class RunFile:
    """The run and its task.

    Args:
        task: the task to train, as package.module:Class; it must be importable on every host
            that computes, where the current folder of the command is searched too. A hub without
            one waits for the first training loop of a user's own that joins (`islands.join`), and
            trains what that trains; nothing of the loops must be importable at the hub.
        task_settings: arguments of the task.
        run: settings that all members of the run agree on.
        start_from: a .safetensors file with the parameters to start from, such as the
            final.safetensors of another run; by default the task's own initial parameters.
        preset: algorithm whose settings are the defaults under `run`, where each can be overridden:
            decoupled, decoupled_diloco, diloco, streaming_diloco, async_diloco, muloco, gossip or
            data_parallel.
    """

    task: str = ""
    task_settings: dict[str, object] = field(default_factory=dict)
    run: RunSettings = field(default_factory=lambda: PRESETS[Preset.DECOUPLED])
    start_from: Annotated[Path | None, ADVANCED] = None
    preset: Preset = Preset.DECOUPLED

    def __post_init__(self) -> None:
        module, _, factory = self.task.partition(":")
        if self.task and not (module and factory):
            raise SettingsError(
                f"task is {self.task!r}; it must be of the form package.module:Class"
            )
        if self.start_from is not None and self.start_from.suffix != ".safetensors":
            raise SettingsError(f"start_from is {self.start_from}; it must be a .safetensors file")


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where others reach this process.

    Args:
        listen: host:port to bind; port 0 takes any free one, and a host beyond loopback needs a
            token.
        advertise: host or host:port that others dial, where it differs from the one that is
            bound (behind NAT, in a container); detected by default.
        tls_certificate: PEM file of this process's certificate; with it, others dial wss://.
        tls_key: PEM file of the certificate's private key.
        tls_client_ca: PEM file of the authority that must have signed the certificates of
            clients; by default clients need no certificate.
    """

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    advertise: Annotated[str | None, ADVANCED] = None
    tls_certificate: Annotated[Path | None, ADVANCED] = None
    tls_key: Annotated[Path | None, ADVANCED] = None
    tls_client_ca: Annotated[Path | None, ADVANCED] = None

    def __post_init__(self) -> None:
        split_address("listen", self.listen)
        if self.advertise is not None:
            split_address("advertise", self.advertise)
        _certificate(self.tls_certificate, self.tls_key)
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise SettingsError("tls_client_ca is set; it needs tls_certificate and tls_key too")

    @property
    def host(self) -> str:
        return split_address("listen", self.listen)[0]

    @property
    def port(self) -> int:
        return split_address("listen", self.listen)[1]


@dataclass(frozen=True, slots=True)
@ranged
class ConnectOptions:
    """The links that this process dials.

    Args:
        token_file: file with the run's token; by default ISLANDS_TOKEN, else the file that
            ISLANDS_TOKEN_FILE names, else none, which a hub on loopback accepts.
        tls_ca: PEM file of the authority to trust for wss://; by default the system's.
        tls_certificate: PEM file of this process's certificate, if the hub asks for one.
        tls_key: PEM file of the certificate's private key.
        wait_s: for how long to retry to reach the hub at the start.
    """

    token_file: Path | None = None
    tls_ca: Annotated[Path | None, ADVANCED] = None
    tls_certificate: Annotated[Path | None, ADVANCED] = None
    tls_key: Annotated[Path | None, ADVANCED] = None
    wait_s: Annotated[float, Setting(least=0, advanced=True)] = 60.0

    def __post_init__(self) -> None:
        _certificate(self.tls_certificate, self.tls_key)

    @property
    def tls(self) -> bool:
        """Whether addresses without a scheme are dialled by wss://."""
        return self.tls_ca is not None or self.tls_certificate is not None


@dataclass(frozen=True, slots=True)
@ranged
class KeepOptions:
    """The size of files that grow as long as the run does.

    Args:
        file_mib: size in MiB at which such a file is rotated (tape, metrics, log, TensorBoard's
            events); one older file of the same size is kept beside it.
    """

    file_mib: Annotated[float, Setting(least=1 / 16, advanced=True)] = LIMIT_BYTES / 2**20

    @property
    def file_bytes(self) -> int:
        return int(self.file_mib * 2**20)


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NEVER = "never"


def seconds_of(name: str, text: str) -> float:
    """Parse a time such as 90s, 10m, 1.5h or 2d."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text)
    if found is None or not float(found[1]):
        raise SettingsError(f"{name} is {text!r}; a time is a number above 0 and s, m, h or d: 10m")
    return float(found[1]) * SECONDS[found[2]]


class OnDivergence(StrEnum):
    """What a hub does about a run that has diverged."""

    PAUSE = "pause"
    RESUME = "resume"
    IGNORE = "ignore"


class Durability(StrEnum):
    """When a record of the journal counts as durable: on its disk, or on the mirror's, too."""

    LOCAL = "local"
    MIRRORED = "mirrored"


@dataclass(frozen=True, slots=True)
@ranged
class CheckpointOptions:
    """Copies of the run: checkpoints, to which it can go back, and a mirror.

    Args:
        checkpoint_every: how often one is taken: a time such as 10m or 2h, a number of merges, or
            never; one more is taken at the end, and whenever islands save asks for it.
        checkpoints: where they are stored: a folder, best on another disk, or a URL that fsspec
            knows, such as s3://bucket/run; by default checkpoints/ in the run's folder.
        keep: how many of the newest stay.
        keep_every: of older ones, the first of each such time stays, too: 1h; by default none.
        mirror: folder, on another disk, that gets each record of the journal as it is written, and
            in which the run can go on by --folder.
        durability: whether learners hear of a merge once it is on the journal's disk (local), or
            once the mirror has it, too, or a standby if there is no mirror (mirrored).
        on_divergence: whether a run whose loss is no number, or three times its usual one, is
            paused (pause), goes back to the newest checkpoint from before by itself, once (resume),
            or goes on (ignore).
        divergence_s: how long the loss must be so high.
    """

    checkpoint_every: str = "10m"
    checkpoints: str | None = None
    keep: Annotated[int, Setting(least=2, advanced=True)] = 3
    keep_every: Annotated[str | None, ADVANCED] = None
    mirror: Path | None = None
    durability: Annotated[Durability, ADVANCED] = Durability.LOCAL
    on_divergence: OnDivergence = OnDivergence.PAUSE
    divergence_s: Annotated[float, Setting(above=0, below=inf, advanced=True)] = 60.0

    def __post_init__(self) -> None:
        make_choices(self)
        _ = self.every_s, self.keep_every_s
        if self.every_merges == 0:
            raise SettingsError("checkpoint_every is 0; it must be at least 1 merge, or never")

    @property
    def every_merges(self) -> int | None:
        return int(self.checkpoint_every) if self.checkpoint_every.isdecimal() else None

    @property
    def every_s(self) -> float | None:
        if self.checkpoint_every == NEVER or self.checkpoint_every.isdecimal():
            return None
        return seconds_of("checkpoint_every", self.checkpoint_every)

    @property
    def keep_every_s(self) -> float | None:
        return None if self.keep_every is None else seconds_of("keep_every", self.keep_every)


@dataclass(frozen=True, slots=True)
@ranged
class BudgetOptions:
    """What the run may cost.

    Args:
        prices: YAML file of prices, by which `budget_cost` and the plan of a dry run are counted.
        budget_cost: money, in the currency of `prices`, at which the hub ends the run in order.
    """

    prices: Path | None = None
    budget_cost: Annotated[float | None, Setting(above=0, below=inf)] = None

    def __post_init__(self) -> None:
        if self.budget_cost is not None and self.prices is None:
            raise SettingsError("budget_cost is set; it needs prices, the file that money is of")


def default_name() -> str:
    """The host's name with four random hexadecimal digits: another name on every call."""
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0]).strip("-")
    return f"{host[:40] or 'host'}-{secrets.token_hex(2)}"


def device_indices(devices: str) -> tuple[int, ...] | None:
    """Parse indices of devices, in the order given; None for all devices."""
    if devices == "all":
        return None
    indices: dict[int, None] = {}
    for part in devices.split(","):
        bounds = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (1, 0) if bounds is None else (int(bounds[1]), int(bounds[2] or bounds[1]))
        if first > last:
            raise SettingsError(f"devices is {devices!r}; it must be all, or such as 0,1 or 0-3")
        indices.update(dict.fromkeys(range(first, last + 1)))
    return tuple(indices)


def _certificate(certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        given, missing = ("tls_key", "tls_certificate")[:: 1 if certificate is None else -1]
        raise SettingsError(f"{given} is set and {missing} is not; they are needed together")


def check_name(name: str, role: Role) -> None:
    wrong = wrong_name(name, role)
    if wrong is not None:
        raise SettingsError(wrong)


def at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise SettingsError(f"{name} is {value}; it must be at least {least}")


def put(
    values: Mapping[str, object], key: str, value: object, known: Collection[str] = ()
) -> dict[str, object]:
    """Return settings with one replaced or added by its key; an unknown one is dotted."""
    name, _, rest = (key, "", "") if key in known else key.partition(".")
    if rest:
        inner = values.get(name)
        value = put(inner if isinstance(inner, dict) else {}, rest, value)
    return {**values, name: value}
