"""Groups of options that several commands share, and checks of their values."""

import re
import secrets
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated

from islands.files.growing_files import LIMIT_BYTES
from islands.protocol.errors import SettingsError
from islands.protocol.identities import Role, wrong_name
from islands.protocol.settings.addresses import DEFAULT_PORT, split_address
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import ADVANCED, Setting, ranged

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
