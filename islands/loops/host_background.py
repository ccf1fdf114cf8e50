"""The background of a loop that runs as several processes of one program of JAX.

    process 0   user's thread ─▶ boundary …   background: the learner's actor, IslandLeader
    others      user's thread ─▶ boundary …   background: IslandFollower

Each process fetches the run's spec by itself, then all meet at `island_address` before any of them
dispatches a step. They end in order, after their last boundaries, or together, for the first cause.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import InvalidStateError
from contextlib import suppress
from importlib.metadata import version

from islands.island.follower import IslandFollower
from islands.island.forming import CONSEQUENCE_S, Ended, consequence_s
from islands.island.host import HostPlace, IslandHost
from islands.island.leader import IslandLeader
from islands.learner.stepped_compute import SteppedCompute
from islands.loops.background import Background, Begun
from islands.protocol import errors
from islands.protocol.settings.addresses import split_address
from islands.run.learner_process import FetchedRun, Membership
from messaging.actors.scope import Scope

MEETING_S = 120.0
"""Longest wait of a process for the others, which have been started already."""

LIMIT_S = 10.0
"""Longest time until the user's thread hears of the failure, and then until the process ends."""


def host_of(
    rank: int, hosts: int, *, island_address: str | None, name: str | None
) -> HostPlace | None:
    """Check how a process meets the others of its loop; returns None if there are none."""
    if hosts == 1:
        if island_address is not None:
            raise errors.SettingsError(
                f"island_address is {island_address!r}, but this loop is one process: leave it "
                "out, or call jax.distributed.initialize before islands.join"
            )
        return None
    if island_address is None:
        raise errors.SettingsError(
            f"island_address is not set, but this loop runs as {hosts} processes: give all of "
            "them one host:port that is free on the host of process 0"
        )
    if name is None:
        raise errors.SettingsError(
            f"name is not set, but this loop runs as {hosts} processes: give all of them one "
            "name, as they are one learner"
        )
    if split_address("island_address", island_address)[1] == 0:
        raise errors.SettingsError(f"island_address is {island_address!r}; its port must not be 0")
    return HostPlace(rank, hosts, island_address)


class HostBackground(Background):
    """The thread of one process of several, for which these `facts` must be equal by name."""

    together = True

    def __init__(self, membership: Membership, place: HostPlace, facts: Mapping[str, str]) -> None:
        super().__init__(membership)
        self._place = place
        self._facts = {"the version of JAX": version("jax"), **facts}
        self._end = EndOfProcess()
        self._failed = False
        self._left = False  # the user's thread is no more concerned
        self._cause: BaseException | None = None  # this process's own error
        self._scope = Scope("island", lambda _, error: self._fail(error))
        self._side: IslandLeader | IslandFollower | None = None

    # --- on the user's thread -----------------------------------------------------------------

    @property
    def failed(self) -> bool:
        return self._failed

    def enter(self, compute: SteppedCompute) -> None:
        with suppress(InvalidStateError):  # a process has failed meanwhile
            super().enter(compute)

    def ask(self, reason: str) -> None:
        self._soon(self._ask, reason)

    def leave(self, reason: str) -> None:
        """Leave in order, as all processes do at this place; rank 0 tells the run."""
        if self._place.rank == 0:
            self.ask(reason)

    def not_begun(self, error: BaseException) -> None:
        self.broken(error)
        self.join(2 * CONSEQUENCE_S)  # the others are told by a thread that ends with the process

    def broken(self, error: BaseException) -> None:
        """Let all processes end, as this one's loop has ended by an error."""
        self.came()
        self._soon(self._broken, error)

    def came(self) -> None:
        self._end.thread_came()

    def gone(self) -> None:
        self._left = True

    def _soon(self, act: object, *arguments: object) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, as the learner has ended
                loop.call_soon_threadsafe(act, *arguments)  # type: ignore[arg-type]

    # --- on the thread ------------------------------------------------------------------------

    async def _take_part(self, run: FetchedRun) -> None:
        if run.spec.settings.gossip.on:
            raise errors.SettingsError(
                "the learners of this run gossip, and each must be one process: start a run "
                "without gossip for a loop of several"
            )
        host = IslandHost(
            run,
            self._place,
            self._facts,
            scope=self._scope,
            say=self._say,
            fail=self._fail,
            leave=self._ask,
            replaceable=False,
        )
        await host.open()
        self._side = host.side
        self._scope.spawn(self._work(host, run), "work")
        try:
            self._conclude(await host.side.ended)
        finally:
            await host.network.close()  # the last words to the others go out first
            await self._scope.close()

    async def _work(self, host: IslandHost, run: FetchedRun) -> None:
        """Step with the other processes; rank 0 does to the learner's end, and then ends all."""
        try:
            async with asyncio.timeout(MEETING_S):
                await host.meet()
        except TimeoutError as error:
            raise errors.UnreachableError(self._why_not_met(host.side)) from error
        compute = await self._entered(Begun(run, host.side.commands))
        process = host.train(compute)
        if process is not None and isinstance(host.side, IslandLeader):
            await self._train(process)
            await host.side.finish(self.ended)

    def _why_not_met(self, side: IslandLeader | IslandFollower) -> str:
        place = self._place
        if isinstance(side, IslandLeader):
            missing = " and ".join(map(str, side.missing))
            return (
                f"process {missing} of {place.hosts} has not come to {place.address} within "
                f"{MEETING_S:g} s: all processes must call islands.join with the same "
                "island_address"
            )
        why = f": {side.obstacle}" if side.obstacle else ""
        return (
            f"the processes of this loop did not meet at island_address {place.address} within "
            f"{MEETING_S:g} s{why}: all of them must call islands.join with one host:port of the "
            "host of process 0"
        )

    def _say(self, sentence: str) -> None:
        self._membership.say(f"{self._membership.name}, process {self._place.rank}: {sentence}")

    def _conclude(self, ended: Ended) -> None:
        """Note how the processes end, and see to it that this one does not hang if they failed."""
        self.ended = self.ended or ended.reason
        if ended.code == errors.DONE:
            return
        self.ended = f"it failed: {ended.reason}"
        kind = errors.RefusedError if ended.code == errors.OF_NO_USE else errors.HostLostError
        self.error = self._cause or kind(ended.reason)
        self._failed = True
        if not self._fetched.done():
            self._fetched.set_exception(self.error)
        if self._left:
            return
        self._say(f"it ends: {ended.reason}")
        self._end.begin()

    def _ask(self, reason: str) -> None:
        if isinstance(self._side, IslandFollower):
            self._side.leave(reason)
        elif self._process is not None:
            self._process.learner.leave(reason)
        else:
            self._reason = reason

    def _broken(self, error: BaseException) -> None:
        """End the island by an error of the user's loop, unless a lost process was its cause."""
        if self._side is None:
            if self._task is not None:
                self._task.cancel()
            return
        asyncio.get_running_loop().call_later(consequence_s(error), self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if self._side is not None and not self._side.ended.done():
            self._cause = error
            self._side.fail(error)


# --- the end of a process whose siblings are gone ----------------------------------------------


def end_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class EndOfProcess:
    """Ends this process if it hangs in a collective after its siblings are gone.

    A thread that waits for a device that waits for a lost process cannot be ended, nor does a
    process end before its threads. So it has `limit_s` to end by itself, twice, and is then ended.
    """

    def __init__(
        self,
        limit_s: float = LIMIT_S,
        end: Callable[[], object] = end_at_once,
        main: threading.Thread | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._end = end
        self._main = main or threading.main_thread()
        self._came = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="end-of-process", daemon=True)

    def begin(self) -> None:
        self.thread.start()

    def thread_came(self) -> None:
        """Note that the user's thread knows of the failure, so it does not hang."""
        self._came.set()

    def _watch(self) -> None:
        if self._came.wait(self._limit_s):
            self._main.join()  # as long as its user goes on, that is the user's affair
            threading.Event().wait(self._limit_s)  # the interpreter ends meanwhile, if it can
        self._end()
