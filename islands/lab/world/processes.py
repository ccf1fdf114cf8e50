"""Processes of simulated hosts: each runs one actor, and can be killed and frozen."""

import asyncio
from collections.abc import Callable

from islands.actors.ports import ProcessEnd
from islands.keeping.standby import StandbyActor
from islands.learner.actor import LearnerActor
from islands.run.hosting.task_processes import Process, ProcessTable
from islands.supervisor.actor import SupervisorActor
from islands.syncer.actor import SyncerActor
from messaging.simulation.network import SimulatedNetwork
from messaging.simulation.virtual_time import PROCESS, VirtualTimeLoop

RoleProcess = LearnerActor | SyncerActor | SupervisorActor | StandbyActor


class SimulatedProcess:
    """A process that runs an actor on a host of its own.

    `crash` is called when it is killed, to take its links away, unless its machine vanishes with it
    (`silent`); then `lost`, to take the writes that were not durable.
    """

    def __init__(
        self,
        actor: RoleProcess,
        crash: Callable[["SimulatedProcess"], object],
        lost: Callable[[], object],
    ) -> None:
        self.actor = actor
        self.silent = False
        self._crash = crash
        self._lost = lost

    async def run(self) -> None:
        await self.actor.run()

    def leave(self, reason: str) -> None:
        self.actor.leave(reason)

    async def kill(self) -> None:
        """Take away its links, its tasks and the writes that its disk had not made durable."""
        self._crash(self)
        await self.actor.kill()
        self._lost()

    def most(self) -> tuple[int, int | None]:
        """The most events in its mailbox, and, for a syncer, the most bytes that waited."""
        waiting = self.actor.waiting_bytes_most if isinstance(self.actor, SyncerActor) else None
        return self.actor.mailbox.high_water, waiting


class SimulatedProcesses(ProcessTable):
    """The processes that run, each with callbacks of its own, so that it can be frozen."""

    def __init__(
        self,
        network: SimulatedNetwork,
        make: Callable[[str], Process],
        ended: Callable[[str, ProcessEnd], None],
    ) -> None:
        super().__init__(make, ended)
        self._network = network

    def start(self, name: str) -> None:
        token = PROCESS.set(name)
        try:
            super().start(name)
        finally:
            PROCESS.reset(token)

    def freeze(self, name: str) -> bool:
        """Stop a process as SIGSTOP does; return whether it ran until now."""
        if name not in self or name in self._network.frozen:
            return False
        self._network.freeze(name)
        self._loop().freeze(name)
        return True

    def thaw(self, name: str) -> bool:
        """Let a process go on, as SIGCONT does; return whether it was stopped."""
        if name not in self._network.frozen:
            return False
        self._network.thaw(name)
        self._loop().thaw(name)
        return True

    @property
    def frozen(self) -> tuple[str, ...]:
        return self._network.frozen

    def _loop(self) -> VirtualTimeLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop), "processes can be frozen on a virtual clock only"
        return loop
