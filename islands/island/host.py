"""One process of an island among the others: rank 0 leads them, and the others follow.

`host_process.py` is such a process for a task, and `islands.loops.host_background` for a loop of
the user's own; here is what both of them put together.
"""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from islands.actors.ports import ThreadWorker
from islands.island.follower import IslandFollower
from islands.island.leader import LEADER, IslandLeader
from islands.island.shares import HostShares
from islands.learner.compute_thread import ComputeThread
from islands.learner.stepped_compute import SteppedCompute
from islands.protocol.messages.multihost import HostHello
from islands.protocol.messages.registry import MULTIHOST_TYPES, PROTOCOL
from islands.protocol.settings.addresses import hub_urls, split_address
from islands.run.hosting.process_runtime import network_of, token_of
from islands.run.learner_process import FetchedRun, LearnerProcess
from islands.settings.wire_limits import STATE_PIECE_BYTES, limits_of
from messaging.actors.scope import Scope
from messaging.codec.limits import Limits
from messaging.websocket.network import WebsocketNetwork


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Which process of an island this one is, and host:port at which rank 0 serves the others."""

    rank: int
    hosts: int
    address: str


class IslandHost:
    """One process of an island, from its links to the others to its learner.

    Facts must be equal on all of them, beside the name and the run. When another process was asked
    to end, it calls `leave` with the reason. The owner opens the network on rank 0, and closes it.
    """

    def __init__(
        self,
        run: FetchedRun,
        place: HostPlace,
        facts: Mapping[str, str],
        *,
        scope: Scope,
        say: Callable[[str], object],
        fail: Callable[[BaseException], object],
        leave: Callable[[str], object],
        replaceable: bool = True,
    ) -> None:
        self.network = network_among_hosts(run)
        self._run, self._place = run, place
        self._timing = run.spec.settings.timing
        name = f"{socket.gethostname()}, process {os.getpid()}"
        worker = ThreadWorker(f"island-{run.who.name}", fail, finish=False)
        facts = {
            "name": run.who.name,
            "the run": f"{run.spec.settings.run} {run.plan.begun}",
            **facts,
        }
        self.side: IslandLeader | IslandFollower
        if place.rank == 0:
            self.side = IslandLeader(
                place.hosts,
                host=name,
                facts=facts,
                scope=scope,
                worker=worker,
                say=say,
                leave=leave,
                replaceable=replaceable,
            )
        else:
            self.side = IslandFollower(
                HostHello(PROTOCOL, place.rank, place.hosts, name, facts),
                self.network,
                hub_urls("island_address", (place.address,), LEADER)[0],
                scope,
            )

    async def open(self) -> None:
        """Let the other processes dial this one, if it leads."""
        if isinstance(self.side, IslandLeader):
            await self.network.open(*split_address("island_address", self._place.address))

    async def meet(self, coordinator: str = "") -> str:
        """Wait until all processes are here; from then on they end together.

        Return the address of the coordinator of JAX, which rank 0 gives.
        """
        if isinstance(self.side, IslandFollower):
            return await self.side.form()
        await self.side.form(self.network.listen(LEADER, guests=True))
        self.side.begin(coordinator, self._timing)
        return coordinator

    def train(self, compute: ComputeThread | SteppedCompute) -> LearnerProcess | None:
        """Have this process step; return the island's learner if it leads."""
        if isinstance(self.side, IslandFollower):
            self.side.train(compute)
            return None
        self.side.trains(compute, HostShares(lambda: compute.model, self._place.hosts))
        return LearnerProcess(self._run, self.side)


def network_among_hosts(run: FetchedRun) -> WebsocketNetwork:
    """Make the network that connects the processes, which all hold the run's token."""
    limits, connecting = limits_of(run.plan.layout), run.who.connecting
    limits = Limits(
        frame_bytes=limits.frame_bytes,
        header_bytes=limits.header_bytes,
        items=limits.items,
        payload_bytes=max(limits.payload_bytes, STATE_PIECE_BYTES),
    )
    return network_of(connecting, token=token_of(connecting), limits=limits, types=MULTIHOST_TYPES)
