"""A whole run on one machine: a hub whose syncer and learners are its child processes.

Children are started by the documented commands; learners of other hosts may join as well.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from islands.actors.ports import Launcher, ProcessEnd
from islands.files.run_files import TOKEN_FILE
from islands.model.interfaces import Workload
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.addresses import split_address
from islands.protocol.supervisor.state import LEARNERS
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.child_processes import ProcessLauncher
from islands.run.hosting.process_output import LIMIT_BYTES
from islands.run.hosting.process_runtime import make_secret, token_of
from islands.run.run_claim import Claim
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.tasks.factory import task_words


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """The settings with which learners are started on this machine.

    Learners take `devices` in order; without any, each sees all. `threads` is the number of XLA's
    CPU threads per learner; None: one. All learners share `cache`, a folder of compiled functions.
    """

    count: int
    devices: tuple[str, ...] = ()
    model_parallel: int = 1
    threads: int | None = None
    cache: Path | None = None


H = TypeVar("H", bound=Coordinator)


class Elsewhere(Protocol):
    """Starts learners on other machines, beside a hub's child processes."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def beside(
        self, hub: Coordinator, ended: Callable[[str, ProcessEnd], None], children: Launcher
    ) -> Launcher:
        """Return a launcher of these learners and of the hub's child processes."""


CommandOf = Callable[[Coordinator, str, LearnerSettings], list[str]]


def local_hub(
    settings: CoordinatorSettings,
    claim: Claim,
    workload: Workload,
    learners: LearnerSettings,
    kind: Callable[..., H],
    command: CommandOf | None = None,
    elsewhere: Elsewhere | None = None,
) -> H:
    """Make a hub that starts the syncer and the learners as its child processes.

    A token is made if the settings name none. `elsewhere` starts further learners.
    """
    settings = replace(settings, connecting=_with_token(settings))
    names = tuple(f"learner-{index}" for index in range(learners.count))
    here = partial(children, learners=learners, command=command or command_of)
    if elsewhere is None:
        return kind(settings, claim, workload, launched=(SYNCER, *names), backend=here)

    def backend(hub: Coordinator, ended: Callable[[str, ProcessEnd], None]) -> Launcher:
        return elsewhere.beside(hub, ended, here(hub, ended))

    kinds = ((LEARNERS,) if learners.count else ()) + elsewhere.kinds
    launched = (SYNCER, *names, *elsewhere.names)
    return kind(settings, claim, workload, launched=launched, kinds=kinds, backend=backend)


def children(
    hub: Coordinator,
    ended: Callable[[str, ProcessEnd], None],
    *,
    learners: LearnerSettings,
    command: CommandOf,
) -> ProcessLauncher:
    """Make the launcher that starts child processes of this one."""

    def environment(_: str) -> dict[str, str]:
        found = {"PJRT_NPROC": str(learners.threads or 1)}
        if learners.cache is not None:
            found["JAX_COMPILATION_CACHE_DIR"] = str(learners.cache)
        return found

    return ProcessLauncher(
        command=lambda name: command(hub, name, learners),
        environment=environment,
        folder=hub.settings.folder,
        ended=ended,
        log_limit_bytes=min(LIMIT_BYTES, hub.settings.keeping.file_bytes),
    )


def command_of(hub: Coordinator, name: str, learners: LearnerSettings) -> list[str]:
    """Return the argument list that starts a process on the hub's host; it holds no secret."""
    settings = hub.settings
    python = [sys.executable, "-m"]
    supervisor = ["--supervisor", dialled(hub.network.url(SUPERVISOR), settings.listening)]
    known = ("token_file", "tls_ca", "tls_certificate", "tls_key")
    connecting = _arguments(settings.connecting, known)
    common = [*supervisor, *connecting, "--name", name]
    kept = ["--file_mib", f"{settings.keeping.file_mib:g}"]
    folder = ["--folder", str(settings.folder), *kept]
    if name == SYNCER:
        start = ["--start_from", str(settings.start_from)] if settings.start_from else []
        listening = [*listening_words(settings.listening), "--key_file", str(hub.key_file)]
        saving = _arguments(settings.saving, tuple(each.name for each in fields(settings.saving)))
        return [*python, "islands.syncer", *common, *folder, *listening, *saving, *start]
    own = [*task_words(settings.spec.task), "--model_parallel", str(learners.model_parallel)]
    if settings.spec.settings.gossip.on:
        own += listening_words(settings.listening)
    if learners.devices and name in hub.names:
        own += ["--devices", learners.devices[hub.names.index(name)]]
    return [*python, "islands.learner", *common, *folder, *own]


def _with_token(settings: CoordinatorSettings) -> ConnectOptions:
    connecting = settings.connecting
    if connecting.token_file is not None or token_of(connecting) is not None:
        return connecting
    path = settings.folder / TOKEN_FILE
    make_secret(path)
    return replace(connecting, token_file=path)


def dialled(url: str, listening: ListenOptions) -> str:
    """Return the URL that children dial: the bound address, or with TLS the certified name."""
    if listening.tls_certificate is not None:
        return url
    scheme, _, rest = url.partition("://")
    _, _, tail = rest.rpartition(":")
    everywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104
    host = everywhere.get(listening.host, listening.host)
    return f"{scheme}://{_bracketed(host)}:{tail}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listening_words(options: ListenOptions) -> list[str]:
    """Return options to listen on the same host and certificates, with any free port."""
    advertise: list[str] = []
    if options.advertise is not None:
        host, _ = split_address("advertise", options.advertise)
        advertise = ["--advertise", _bracketed(host)]
    names = ("tls_certificate", "tls_key", "tls_client_ca")
    return ["--listen", f"{_bracketed(options.host)}:0", *advertise, *_arguments(options, names)]


def _arguments(options: object, names: tuple[str, ...]) -> list[str]:
    found = [(name, getattr(options, name)) for name in names]
    return [
        word for name, value in found if value is not None for word in (f"--{name}", str(value))
    ]
