"""The runtime of a process on a host: secrets, network, signals and shutdown.

The first SIGTERM, SIGHUP or Ctrl-C begins an orderly shutdown; the second ends the process at once.
"""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import msgspec

from islands.actors.role_actor import Context, RoleActor
from islands.files.folder_lock import make_private
from islands.files.growing_files import Spool
from islands.files.run_files import KEY_FILE, TAPE_FILE
from islands.files.spare_files import read_spare, spare_of, write_spare
from islands.files.tape_writing import FileTape, Tape
from islands.files.whole_files import replace_file
from islands.protocol.errors import FULL_OR_FAILING, IslandsError, UserError, unusable
from islands.protocol.invitations import parted
from islands.protocol.membership import Credentials
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.process_entries import ProcessBegan, Waits
from islands.run.hosting.standard_streams import LossyOutput, fitted
from islands.run.hosting.watchdog import Stalls, Watchdog
from islands.settings.groups import ConnectOptions, KeepOptions, ListenOptions
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.actors.scope import Scope
from messaging.clock import LoopClock, MonotonicClock, WallClock
from messaging.codec.limits import Limits
from messaging.links.link import Network
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Keyring, Secret, client_tls, server_tls
from messaging.websocket.settings import WebsocketSettings

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that ask a process to end in order; SIGHUP ignored at the start, as under `nohup`, stays
so."""
SIGNAL_GRACE_S = 15.0
"""How long actors may take to leave in order after the first signal."""
SIGNALLED = 130
SAME_SIGNAL_S = 0.5
"""Signals within so short a time are one: a process and its group may be signalled beside it."""
FAILURES_SAID = 32
"""At most this many failures are shown: more, as one for each record, would say nothing new."""


STALLS: ContextVar[Stalls] = ContextVar("STALLS")
"""Tells of the stalls of this process's loop, where it runs under a watchdog."""


def say(text: str) -> None:
    """Print a sentence for the person who started this process."""
    print(fitted(text, sys.stderr), file=LossyOutput(sys.stderr), flush=True)


class SaidOnce:
    """Reports each failure of the user's code once, its traceback first."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._told: set[str] = set()

    def __call__(self, error: IslandsError, who: str = "") -> None:
        """Report a failure, unless it was reported before for any process, or too many were."""
        sentence = str(error)
        if sentence not in self._told and len(self._told) < FAILURES_SAID:
            self._told.add(sentence)
            self._say(f"{error.detail}{who}: {sentence}" if who else f"{error.detail}{sentence}")


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a process to its end; return the exit code."""

    async def ready_at_once(watchdog: Watchdog) -> int:
        watchdog.ready()
        return await main()

    return run_service(ready_at_once)


def run_service(main: Callable[[Watchdog], Coroutine[Any, Any, int]]) -> int:
    """Run a process that tells the watchdog itself when it is ready; return the exit code."""
    allow_open_files()
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_watched(main))


def allow_open_files() -> int:
    """Let this process open as many files as the system allows; the session of a peer takes two.

    Return how many files it may open.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed


def tell_stalls_unless(starting: Callable[[], bool]) -> None:
    """Tell of stalls of this process's loop from now on, except while it is `starting`."""
    stalls = STALLS.get(None)
    if stalls is not None:
        stalls.starting = starting


async def _watched(main: Callable[[Watchdog], Coroutine[Any, Any, int]]) -> int:
    stalls = Stalls(say, LoopClock())
    stalls.starting = lambda: True
    STALLS.set(stalls)
    watchdog = Watchdog(stalls.stalled)
    watchdog.begin("starting")
    try:
        return await main(watchdog)
    finally:
        watchdog.stopping()
        watchdog.close()


@contextmanager
def on_ending_signals(handler: Callable[[str], object]) -> Iterator[None]:
    """Call a handler with the name of each of the `ENDING` signals, between two callbacks."""
    loop = asyncio.get_running_loop()
    handled = [
        number
        for number in ENDING
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in handled:
        loop.add_signal_handler(number, handler, number.name)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


# --- secrets ----------------------------------------------------------------------------------


def token_of(connecting: ConnectOptions) -> Secret | None:
    """Return the run's token, or what is shown of an invitation; None if there is none."""
    text = token_text(connecting)
    return Secret(parted(text)[0]) if text else None


def token_text(connecting: ConnectOptions) -> str:
    """Return what is in the token's file or variable, secret part included; empty if neither is."""
    secret = _token(connecting)
    return "" if secret is None else secret.header().removeprefix("Bearer ")


def _token(connecting: ConnectOptions) -> Secret | None:
    given = Secret.from_env("ISLANDS_TOKEN", os.environ)
    named = connecting.token_file or os.environ.get("ISLANDS_TOKEN_FILE")
    if connecting.token_file is None and given is not None:
        return given
    if named is None:
        return None
    secret = Secret.read(Path(named))
    if secret.warning is not None:
        say(secret.warning)
    return secret


def key_file_of(folder: Path, connecting: ConnectOptions, named: Path | None = None) -> Path:
    """Return where a run's key is, or is to be made: beside the token, else in the run's folder.

    A folder that is lost then does not take the key with it.
    """
    inside, token = folder / KEY_FILE, connecting.token_file
    if named is not None:
        return named
    if token is None or inside.exists() or spare_of(inside).exists():
        return inside
    path = token.absolute().with_name(f"{token.name}.{KEY_FILE}")
    apart = path.parent != folder.absolute() and os.access(path.parent, os.W_OK)
    return path if path.exists() or apart else inside


def make_secret(path: Path) -> None:
    """Write a new secret, readable by its owner only, unless the file exists."""
    if not path.exists():
        make_private(path.parent)
        Secret.generate().write(path)


class _Key(msgspec.Struct):
    key: bytes


def keep_key(path: Path) -> list[str]:
    """Make a run's key unless there is one; return its name if it was written again.

    Its copy tells what it was: to replace a key, remove both.
    """
    kept = _spare_key(path)
    try:
        if kept is None:
            make_secret(path)
            write_spare(path, msgspec.json.encode(_Key(path.read_bytes().strip())))
        elif not path.exists() or path.read_bytes().strip() != kept:
            replace_file(path, kept + b"\n", private=True)
            return [path.name]
    except OSError as error:
        raise unusable(f"the run's key {path} cannot be kept", error) from error
    return []


def _spare_key(path: Path) -> bytes | None:
    content = read_spare(path)
    return None if content is None else msgspec.json.decode(content, type=_Key).key


def key_in(path: Path) -> bytes:
    """Read a key, from its copy if there is a whole one: a bit of the file may have flipped."""
    return _spare_key(path) or path.read_bytes().strip()


def credentials_of(run_name: str, path: Path, begun: str = "") -> Credentials:
    """Read the key in a file, and return the credentials that sign and check with it.

    `begun` is the beginning of the run (`RunPlan.begun`); an operator needs none.
    """
    try:
        key = key_in(path)
        if path.stat().st_mode & 0o077:
            say(f"others can read or write the run's key {path}: run chmod 600 {path}")
        return Credentials(run_name, key, begun)
    except OSError as error:
        raise UserError(
            f"the run's key {path} cannot be read: {error.strerror}; copy it from the folder of "
            "the run on the supervisor's host"
        ) from error
    except ValueError as error:
        raise UserError(f"the run's key {path} cannot be used: {error}") from error


def compiled_folder() -> Path | None:
    """Return the cache of compiled functions of all this user's runs; JAX's own setting wins."""
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(chosen) if chosen else Path(cache).expanduser() / "islands" / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


# --- the network ------------------------------------------------------------------------------


def network_of(
    connecting: ConnectOptions,
    listening: ListenOptions | None = None,
    *,
    token: Secret | Keyring | None,
    limits: Limits | None = None,
    types: Sequence[type] = MESSAGE_TYPES,
) -> WebsocketNetwork:
    """Make this process's network.

    A keyring is for links on which the run's token is not shown. Limits are None where the layout
    is not known yet: it is fetched, and `WebsocketNetwork.allow` sets them later.
    """
    server = None
    if listening is not None and listening.tls_certificate is not None:
        assert listening.tls_key is not None, "checked with the options"
        server = server_tls(
            listening.tls_certificate, listening.tls_key, client_ca=listening.tls_client_ca
        )
    client = client_tls(
        ca=connecting.tls_ca, certificate=connecting.tls_certificate, key=connecting.tls_key
    )
    return WebsocketNetwork(
        types,
        settings=WebsocketSettings().within(allow_open_files()),
        secret=token,
        server_tls=server,
        client_tls=client,
        limits=limits,
        report=say,
    )


def tape_in(folder: Path, name: str, keeping: KeepOptions, *, began_s: float) -> FileTape:
    """Open the tape of one process, in a folder of its name, and record the clocks' times on it.

    The times of its entries must count from `began_s` on the monotonic clock. The caller closes the
    tape, so that its last entries are written.
    """
    own = folder / "processes" / name
    path = own / TAPE_FILE
    try:
        make_private(folder)
        make_private(own)
        path.open("ab").close()
    except OSError as error:
        if error.errno not in FULL_OR_FAILING:
            raise unusable(f"the folder {own} cannot be written", error) from error
    tape = FileTape(path, Spool(own, say), limit_bytes=keeping.file_bytes)
    began = ProcessBegan(os.getpid(), wall_s=WallClock().now_s(), loop_s=began_s)
    tape.write(0.0, name, began)
    return tape


class ConsoleTape:
    """A tape that also says at the terminal what a process waits for."""

    def __init__(self, tape: Tape, say: Callable[[str], object]) -> None:
        self._tape = tape
        self._say = say
        self._reason = ""

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        self._tape.write(at_s, actor, entry)
        if isinstance(entry, Waits) and entry.reason != self._reason:
            self._reason = entry.reason
            self._say(f"{actor} waits: {self._reason}")


def context_in(
    network: Network,
    addresses: tuple[str, ...],
    spec: RunSpec,
    plan: RunPlan,
    tape: Tape,
    *,
    began_s: float | None = None,
) -> Context:
    """Return the context of an actor whose supervisor is in another process.

    Times on its tape count from `began_s` on the monotonic clock; by default from now.
    """
    clock = MonotonicClock()
    return Context(
        settings=spec.settings,
        layout=plan.layout,
        network=network,
        tape=tape,
        supervisor=addresses,
        origin_s=clock.now_s() if began_s is None else began_s,
        clock=clock,
        reports=True,
    )


# --- actors -----------------------------------------------------------------------------------


class ActorGroup:
    """Actors that share a process: if one of them fails, all end.

    `leave` is called at the first signal, and must make the actors shut down by themselves;
    `at_once` is called at the second signal, just before the process ends.
    """

    def __init__(
        self,
        name: str,
        leave: Callable[[str], object],
        at_once: Callable[[], object] | None = None,
        *,
        signals: bool = True,
    ) -> None:
        self.scope = Scope(name, self._on_failed)
        self._leave = leave
        self._at_once = at_once
        self._handles = signals
        self._asked = False
        self._asked_s = 0.0
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._running = 0
        self._signals = contextlib.ExitStack()

    def start(self, actor: RoleActor[Any]) -> asyncio.Task[object]:
        self._running += 1
        return self.scope.spawn(self._run(actor), actor.name)

    async def wait(self) -> None:
        """Wait until all actors have ended, or one has failed; then kill those that still run.

        Signals are handled until `close`.
        """
        if self._handles:
            self._signals.enter_context(on_ending_signals(self._on_signal))
        try:
            await self._ended.wait()
        finally:
            await self.scope.close()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        self._ended.set()

    def close(self) -> None:
        self._signals.close()

    async def _run(self, actor: RoleActor[Any]) -> None:
        try:
            await actor.run()
        except asyncio.CancelledError:
            await actor.kill()
            raise
        self._running -= 1
        if self._running == 0:
            self._ended.set()

    def _on_failed(self, _: str, error: BaseException) -> None:
        self._failure = self._failure or error
        self._ended.set()

    def _on_signal(self, name: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._asked and now_s - self._asked_s < SAME_SIGNAL_S:
            return
        if self._asked:
            if self._at_once is not None:
                self._at_once()
            os._exit(SIGNALLED)
        self._asked, self._asked_s = True, now_s
        say(f"{name}: leaving in order; once more ends at once")
        asyncio.get_running_loop().call_later(SIGNAL_GRACE_S, self._ended.set)
        self._leave(name)


async def live(
    actors: Sequence[RoleActor[Any]],
    leave: Callable[[str], object],
    tape: FileTape | None = None,
    starting: Callable[[], bool] = lambda: False,
) -> None:
    """Run the actors of a process until all have ended, then close their tape.

    `leave` asks them to end in order. No stalls are reported while they are `starting`: they import
    or compile.
    """
    tell_stalls_unless(starting)
    living = ActorGroup(actors[0].name, leave)
    for actor in actors:
        living.start(actor)
    try:
        await living.wait()
    finally:
        living.close()
        if tape is not None:
            await asyncio.to_thread(tape.close)
