"""A whole run on one machine: a hub whose syncer and learners are its child processes.

Children are processes of the documented commands, so what runs here is what runs on many hosts;
learners of other hosts may join as well.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from islands.actors.ports import ProcessEnd
from islands.cluster.coordinator import Hub, HubSettings
from islands.cluster.run_claim import Claim
from islands.cluster.run_end import GOODBYE_S, Follow, someone_merges
from islands.errors import FAILED, OF_NO_USE, IslandsError
from islands.hosting.child_processes import ProcessLauncher
from islands.hosting.process_output import LIMIT_BYTES
from islands.hosting.process_runtime import KEY_FILE, TOKEN_FILE, make_secret, say, token_of
from islands.identities import SUPERVISOR, SYNCER
from islands.settings.addresses import split_address
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.tape.member_entries import ProcessEnded
from islands.tape.process_entries import Damaged
from islands.training.process_memory import ADAM_MOMENTS, slow_write_s
from islands.training.workload import Workload

LEAVE_S = 10.0
"""How long a child that is asked to end may take, beside what it writes to its disk."""


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How learners are started here.

    Args:
        count: how many at the beginning.
        devices: of each in order; empty: all see all.
        model_parallel: devices of each over which parameters are sharded.
        threads: XLA's threads on CPU of each; None: one.
        cache: folder of compiled functions, shared by all.
    """

    count: int
    devices: tuple[str, ...] = ()
    model_parallel: int = 1
    threads: int | None = None
    cache: Path | None = None


class LocalHub(Hub):
    """One start of a run on this machine.

    Args:
        settings: of the hub.
        claim: on the run's folder.
        workload: what is trained.
        learners: how they are started.
    """

    def __init__(
        self, settings: HubSettings, claim: Claim, workload: Workload, learners: LearnerSettings
    ) -> None:
        """Prepare; children start with the run."""
        settings = replace(settings, connecting=_with_token(settings))
        self.learners = learners
        self.names = tuple(f"learner-{index}" for index in range(learners.count))
        self._learners_gone = asyncio.Event()
        self._children = ProcessLauncher(
            command=self._command,
            environment=self._environment,
            folder=settings.folder,
            ended=self._ended,
            log_limit_bytes=min(LIMIT_BYTES, settings.keeping.file_bytes),
        )
        super().__init__(settings, claim, workload)

    @property
    def launcher(self) -> ProcessLauncher:
        """Starts and kills child processes."""
        return self._children

    @property
    def launched(self) -> tuple[str, ...]:
        """The syncer and the learners of this machine."""
        return (SYNCER, *self.names)

    def start_actors(self) -> None:
        """Start what lives here, then the children; those that outlived a hub go on."""
        super().start_actors()
        self._children.adopt()
        if self._children.damaged:
            self.folder.write(self.elapsed_s, "hub", Damaged([self._children.damaged]))
        for name in self.launched:
            self._children.start(name, 0.0)

    async def end_outdated(self, why: str) -> None:
        """End children that outlived a hub but have other settings, or look for it elsewhere."""
        why = why or ("have the settings of before" if self.claim.changed else "")
        found = self._children.adopt() if why else []
        if not found:
            return
        say(f"{', '.join(found)} {why}: they end, and are started anew")
        self.end.leaving = True
        await self._end_learners()
        self._children.stop(SYNCER, LEAVE_S)
        await self._children.wait_ended(LEAVE_S + GOODBYE_S)
        self.end.leaving = False

    async def close(self) -> None:
        """Let nobody in any more, and free the folder; say who lives on."""
        left = self._children.names()
        self._children.close()
        await super().close()
        if left:
            say(
                f"still running without a hub: {', '.join(left)}; the same command with "
                f"--folder {self.settings.folder} takes them up again"
            )

    async def end_children(self) -> None:
        """Let children end by themselves if the run has ended, else ask them to leave.

        Learners go first, so that the syncer still hears what they did.
        """
        if self.share is not None:
            await self._children.wait_ended(GOODBYE_S)
        self.end.leaving = True
        await self._end_learners()
        await self._children.terminate_all(LEAVE_S + slow_write_s(self.plan.layout))

    async def _end_learners(self) -> None:
        moments_s = ADAM_MOMENTS * slow_write_s(self.plan.layout)
        for name in self._running_learners():
            self._children.stop(name, LEAVE_S + moments_s)
        if self._running_learners():
            self._learners_gone.clear()  # all may have been gone before, and started again
            await self._learners_gone.wait()

    def kill_children(self) -> None:
        """Leave none behind; what the journal has is safe."""
        for name in self._children.names():
            self._children.kill(name)

    def _running_learners(self) -> list[str]:
        return [name for name in self._children.names() if name != SYNCER]

    # --- children -----------------------------------------------------------------------------

    def _command(self, name: str) -> list[str]:
        settings = self.settings
        python = [sys.executable, "-m"]
        supervisor = ["--supervisor", dialled(self.network.url(SUPERVISOR), settings.listening)]
        common = [*supervisor, *_connecting(settings.connecting), "--name", name]
        kept = ["--file_mib", f"{settings.keeping.file_mib:g}"]
        folder = ["--folder", str(settings.folder), *kept]
        if name == SYNCER:
            key = settings.key_file or settings.folder / KEY_FILE
            start = ["--start_from", str(settings.start_from)] if settings.start_from else []
            listening = [*listening_words(settings.listening), "--key_file", str(key)]
            return [*python, "islands.syncer", *common, *folder, *listening, *start]
        own = ["--model_parallel", str(self.learners.model_parallel)]
        if name in self.names and self.learners.devices:
            own += ["--devices", self.learners.devices[self.names.index(name)]]
        return [*python, "islands.learner", *common, *folder, *own]

    def _environment(self, name: str) -> dict[str, str]:
        environment = {"PJRT_NPROC": str(self.learners.threads or 1)}
        if self.learners.cache is not None:
            environment["JAX_COMPILATION_CACHE_DIR"] = str(self.learners.cache)
        return environment

    def _ended(self, name: str, end: ProcessEnd) -> None:
        self.folder.write(self.elapsed_s, "hub", ProcessEnded(name, error=end.told))
        if not self._running_learners():
            self._learners_gone.set()
        if end.sentence and end.code in (FAILED, OF_NO_USE) and not self.end.leaving:
            told = IslandsError(end.sentence)
            told.detail = end.detail
            self.say_once(told, name)
        match self.end.on_process_ended(name, end, self.core, self._children.awaited()):
            case Follow.RESTART:
                self.supervisor.process_ended(name, end.told)
            case Follow.STEP_ASIDE:
                self._step_aside(name, end)
            case Follow.NOTHING:
                self._end_if_failed()

    def gave_up(self, name: str, reason: str) -> None:
        """Without a syncer, or without any learner, nothing can finish the run."""
        self.end.on_gave_up(name, reason, self.core, self._children.awaited())
        self._end_if_failed()

    def _end_if_failed(self) -> None:
        if self.end.failure is not None:
            self._living.end()

    def _step_aside(self, name: str, end: ProcessEnd) -> None:
        """Leave the place to the newer one, as long as there is one; then ours is started again.

        At the first look the supervisor has evicted the one that ended.
        """
        timing = self.spec.settings.timing
        sentence = f"{name}: {end.sentence or end.told}; the run goes on with the newer one"
        when_vacant(
            timing.scaled(timing.evict_s),
            over=lambda: self.end.leaving or self.end.over,
            taken=lambda: self.core is not None and someone_merges(self.core),
            found_taken=partial(say, sentence),
            found_vacant=partial(self.supervisor.process_ended, name, end.told),
        )


def when_vacant(
    every_s: float,
    *,
    over: Callable[[], bool],
    taken: Callable[[], bool],
    found_taken: Callable[[], object],
    found_vacant: Callable[[], object],
) -> None:
    """Look after a place that somebody else has taken, until it is vacant.

    Args:
        every_s: time before each look.
        over: whether nobody needs the place any more: then nothing more is done.
        taken: whether somebody is there.
        found_taken: called at the first look, if somebody is.
        found_vacant: called once, when nobody is.
    """
    loop = asyncio.get_running_loop()

    def look(found: Callable[[], object] | None) -> None:
        if over():
            return
        if not taken():
            found_vacant()
            return
        if found is not None:
            found()
        loop.call_later(every_s, look, None)

    loop.call_later(every_s, look, found_taken)


def _with_token(settings: HubSettings) -> ConnectOptions:
    """Children need a token in a file, also on loopback; a new run makes its own."""
    connecting = settings.connecting
    if connecting.token_file is not None or token_of(connecting) is not None:
        return connecting
    path = settings.folder / TOKEN_FILE
    make_secret(path)
    return replace(connecting, token_file=path)


def dialled(url: str, listening: ListenOptions) -> str:
    """What children dial: what is bound; with TLS the advertised name, which is certified."""
    if listening.tls_certificate is not None:
        return url
    scheme, _, rest = url.partition("://")
    _, _, tail = rest.rpartition(":")
    everywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104
    host = everywhere.get(listening.host, listening.host)
    return f"{scheme}://{_bracketed(host)}:{tail}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _connecting(options: ConnectOptions) -> list[str]:
    return _arguments(options, ("token_file", "tls_ca", "tls_certificate", "tls_key"))


def listening_words(options: ListenOptions) -> list[str]:
    """The same place with any free port."""
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
