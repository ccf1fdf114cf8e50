"""The composition of one run: its supervisor, the processes started for it, and its end.

A backend starts the processes: as tasks of this process, as its children, on simulated hosts, or on
a user's own cluster. The supervisor and `run_end` decide what is started and what its end means for
the run; this module carries that out.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from islands.actors.ports import Launcher, ProcessEnd
from islands.actors.role_actor import Context, ignored
from islands.files.disk import Disk
from islands.protocol.identities import OBSERVER, SUPERVISOR, SYNCER
from islands.protocol.membership import Credentials
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor.memory import SupervisorMemory
from islands.protocol.supervisor.state import LEARNERS
from islands.run.run_end import ExitResponse, RunEnd, has_live_syncer, still_compiles
from islands.supervisor.actor import Hooks, SupervisorActor

KILL_S = 10.0
"""How long to wait for a killed process to end; one that hangs in the kernel may never end."""

Backend = Callable[[Callable[[str, ProcessEnd], None]], Launcher]
"""Makes a launcher, which calls what it is given when a process has ended."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The run that a cluster is for, and the callbacks into its host.

    The backend starts the `launched` processes. `ended` is called when a process ended, before the
    cluster acts on it; `failed` is called when nothing can finish the run any more. `kinds` are the
    learners of which an operator can add more, by the beginning of their names.
    """

    settings: RunSettings
    launched: tuple[str, ...] = ()
    ended: Callable[[str, ProcessEnd], object] = ignored
    failed: Callable[[], object] = ignored
    say: Callable[[str], object] = ignored
    kinds: tuple[str, ...] = (LEARNERS,)


class Cluster:
    """The supervisor and the launched processes of one run, until it ends."""

    def __init__(self, spec: ClusterSpec, backend: Backend) -> None:
        self.spec = spec
        self.end = RunEnd()
        self.supervisor: SupervisorActor | None = None
        self._starts = DelayedStarts(self._start_now)
        self._ours = dict.fromkeys(spec.launched)
        self._news = asyncio.Event()
        self.launcher = backend(self._on_ended)

    def make_supervisor(
        self,
        context: Context,
        *,
        disk: Disk,
        credentials: Credentials,
        told: tuple[str, memoryview] | None = None,
        syncers: tuple[str, ...] = (),
        revoked: Mapping[str, int] = MappingProxyType({}),
        own_syncer: bool = False,
        hooks: Hooks | None = None,
    ) -> SupervisorActor:
        """Make the supervisor, which decides which processes run; call again for each restart.

        Its epoch is on `disk`; `told` is the run's spec and plan, encoded, for processes of other
        hosts. The cluster sets `start`, `kill` and `gave_up` of the hooks.
        """
        self.supervisor = SupervisorActor(
            SUPERVISOR,
            context,
            disk=disk,
            credentials=credentials,
            launched=self.spec.launched,
            kinds=self.spec.kinds,
            syncers=syncers,
            spec=told,
            revoked=revoked,
            own_syncer=own_syncer,
            hooks=replace(
                hooks or Hooks(),
                start=self.start,
                kill=self.kill,
                gave_up=self._on_gave_up,
            ),
        )
        return self.supervisor

    @property
    def core(self) -> SupervisorMemory | None:
        return None if self.supervisor is None else self.supervisor.memory

    # --- processes ----------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start the processes that run from the beginning; adopted ones run already."""
        for name in self.spec.launched:
            self.start(name)

    def start(self, name: str, delay_s: float = 0.0) -> None:
        """Start a process after a delay, unless it runs, or the run is over or shutting down."""
        if not (self.end.over or self.end.leaving or name in self.launcher.names()):
            self._ours[name] = None
            self._starts.start(name, delay_s)

    def kill(self, name: str) -> None:
        self._starts.cancel(name)
        self.launcher.kill(name)

    def hold(self, name: str, away_s: float) -> None:
        """Delay any start of a process until `away_s` from now, whoever asks for it."""
        self._starts.hold(name, away_s)

    def starts_in_s(self) -> dict[str, float]:
        """Return the seconds until each process that is about to be started is due."""
        return self._starts.due_in_s()

    def adopt(self) -> list[str]:
        found = self.launcher.adopt()
        self._ours.update(dict.fromkeys(found))
        return found

    def awaited(self) -> list[str]:
        """Return the processes that run, or are about to be started."""
        return [*self.launcher.names(), *self._starts.names()]

    def learners(self) -> list[str]:
        return [name for name in self.launcher.names() if name not in (SYNCER, OBSERVER)]

    @property
    def compiling(self) -> bool:
        """Whether a learner that runs here still imports or compiles: the host is busy with it."""
        return still_compiles(self.core, self.learners())

    def fail(self, part: str, error: BaseException) -> None:
        self.end.on_failed(part, error)
        self._tell_failure()

    async def wait_ended(self, timeout_s: float) -> bool:
        return await self._wait(lambda: not self.launcher.names(), timeout_s)

    async def leave(self, learners_s: float, others_s: float) -> bool:
        """Shut all processes down: learners first, so that a syncer still hears what they did.

        Whoever outlives its grace period is killed. Return whether all have ended.
        """
        self.end.leaving = True
        for name in self._starts.names():
            self._starts.cancel(name)
        for name in self.learners():
            self.launcher.stop(name, learners_s)
        await self._wait(lambda: not self.learners(), learners_s + KILL_S)
        for name in self.launcher.names():
            self.launcher.stop(name, others_s)
        return await self.wait_ended(others_s + KILL_S)

    def close(self) -> list[str]:
        """Stop starting and watching processes."""
        left = self.launcher.names()
        self._starts.close()
        self.launcher.close()
        return left

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return condition()
        return True

    def _start_now(self, name: str) -> None:
        if not self.end.over and name not in self.launcher.names():
            self.launcher.start(name)

    # --- events -------------------------------------------------------------------------------

    def _on_ended(self, name: str, end: ProcessEnd) -> None:
        self.spec.ended(name, end)
        self._news.set()
        if self.supervisor is None or name not in self._ours:
            return
        match self.end.on_process_ended(name, end, self.core, self.awaited()):
            case ExitResponse.RESTART:
                self.supervisor.process_ended(name, end.told)
            case ExitResponse.STEP_ASIDE:
                self._step_aside(name, end)
            case ExitResponse.NOTHING:
                self._tell_failure()

    def _on_gave_up(self, name: str, reason: str) -> None:
        self.end.on_gave_up(name, reason, self.core, self.awaited())
        if self.end.failure is None:
            self.spec.say(f"{name} {reason}; the run goes on without it")
        self._tell_failure()

    def _tell_failure(self) -> None:
        if self.end.failure is not None:
            self.spec.failed()

    def _step_aside(self, name: str, end: ProcessEnd) -> None:
        """Leave the role to the newer process while it lives, then restart ours.

        The first check comes after `evict_s`, when the supervisor has evicted the one that ended.
        """
        timing, loop = self.spec.settings.timing, asyncio.get_running_loop()
        every_s = timing.scaled(timing.evict_s)

        def look(sentence: str) -> None:
            if self.end.leaving or self.end.over or self.supervisor is None:
                return
            if self.core is None or not has_live_syncer(self.core):
                self.supervisor.process_ended(name, end.told)
                return
            if sentence:
                self.spec.say(sentence)
            loop.call_later(every_s, look, "")

        sentence = f"{name}: {end.sentence or end.told}; the run goes on with the newer one"
        loop.call_later(every_s, look, sentence)


class DelayedStarts:
    """The scheduled starts of processes, one timer per name."""

    def __init__(self, start: Callable[[str], object]) -> None:
        self._start = start
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._due_s: dict[str, float] = {}
        self._held_s: dict[str, float] = {}
        self._closed = False

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def names(self) -> list[str]:
        return list(self._timers)

    def start(self, name: str, delay_s: float) -> None:
        """Start a process after a delay, or later if it is held, unless a start is scheduled."""
        if not self._closed and name not in self._timers:
            self._due_s[name] = asyncio.get_running_loop().time() + delay_s
            self._schedule(name)

    def hold(self, name: str, away_s: float) -> None:
        """Delay any start of a process until `away_s` from now; the last hold of a name counts."""
        self._held_s[name] = asyncio.get_running_loop().time() + away_s
        if name in self._timers:
            self._timers[name].cancel()
            self._schedule(name)

    def due_in_s(self) -> dict[str, float]:
        now_s = asyncio.get_running_loop().time()
        return {name: max(0.0, due.when() - now_s) for name, due in self._timers.items()}

    def cancel(self, name: str) -> None:
        due = self._timers.pop(name, None)
        if due is not None:
            due.cancel()

    def close(self) -> None:
        self._closed = True
        for name in self.names():
            self.cancel(name)

    def _schedule(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        at_s = max(self._due_s[name], self._held_s.get(name, 0.0))
        if at_s <= loop.time():
            self._start_now(name)
        else:
            self._timers[name] = loop.call_at(at_s, self._start_now, name)

    def _start_now(self, name: str) -> None:
        self._timers.pop(name, None)
        self._held_s.pop(name, None)
        self._due_s.pop(name, None)
        self._start(name)
