"""The background of a loop that runs as several processes of one program of JAX.

    process 0   user's thread ─▶ boundary …   background: the learner's actor, IslandLeader
    others      user's thread ─▶ boundary …   background: IslandFollower

Each process fetches the run's spec by itself, then all meet at `island_address`; only after that
does any of them dispatch something, since what they dispatch are steps of one program. They end in
order, once each has come to its last boundary, or together, for the first cause that is told.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

from islands.actors.ports import ThreadWorker
from islands.actors.role_actor import dialling
from islands.island.among_hosts import network_among_hosts, own_name
from islands.island.follower import IslandFollower
from islands.island.forming import CONSEQUENCE_S, Ended, consequence_s
from islands.island.leader import LEADER, IslandLeader
from islands.island.shares import HostShares
from islands.learner.stepped_compute import SteppedCompute
from islands.loops.background import Background, Begun, Membership
from islands.loops.end_of_process import EndOfProcess
from islands.protocol.errors import (
    DONE,
    OF_NO_USE,
    HostLostError,
    RefusedError,
    SettingsError,
    UnreachableError,
)
from islands.protocol.identities import Role
from islands.protocol.messages.multihost import HostHello
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.addresses import hub_urls, split_address
from islands.run.hosting.hub_requests import Requester, fetch_run_spec
from islands.run.hosting.process_runtime import network_of, token_of
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.actors.scope import Scope
from messaging.websocket.network import WebsocketNetwork

MEETING_S = 120.0
"""How long a process waits for the others, which have been started already."""


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Which of a loop's processes this one is.

    Attributes:
        rank: Its index in the program of JAX.
        hosts: Number of processes.
        address: The host:port at which rank 0 serves the others.
    """

    rank: int
    hosts: int
    address: str


def place_of(
    rank: int, hosts: int, *, island_address: str | None, name: str | None
) -> HostPlace | None:
    """Check how a process meets the others of its loop; returns None if there are none.

    Raises:
        SettingsError: an argument is missing, or superfluous.
    """
    if hosts == 1:
        if island_address is not None:
            raise SettingsError(
                f"island_address is {island_address!r}, but this loop is one process: leave it "
                "out, or call jax.distributed.initialize before islands.join"
            )
        return None
    if island_address is None:
        raise SettingsError(
            f"island_address is not set, but this loop runs as {hosts} processes: give all of "
            "them one host:port that is free on the host of process 0"
        )
    if name is None:
        raise SettingsError(
            f"name is not set, but this loop runs as {hosts} processes: give all of them one "
            "name, as they are one learner"
        )
    if split_address("island_address", island_address)[1] == 0:
        raise SettingsError(f"island_address is {island_address!r}; its port must not be 0")
    return HostPlace(rank, hosts, island_address)


class HostBackground(Background):
    """The thread of one process of several.

    Args:
        membership: where the learner joins, and as whom.
        place: which process this is.
        facts: what must be equal on all of them beside the name and the run, by what it is.
    """

    together = True

    def __init__(self, membership: Membership, place: HostPlace, facts: Mapping[str, str]) -> None:
        super().__init__(membership)
        self._place = place
        self._facts = {"name": membership.name, **facts}
        self._who = f"{membership.name}, process {place.rank}"
        self._end = EndOfProcess()
        self._failed = False
        self._left = False  # the user's thread is no more concerned
        self._cause: BaseException | None = None  # this process's own error
        self._scope = Scope("island", lambda _, error: self._fail(error))
        self._side: IslandLeader | IslandFollower | None = None

    # --- on the user's thread -----------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the processes cannot go on together."""
        return self._failed

    def enter(self, compute: SteppedCompute) -> None:
        """Let the learner begin, unless a process has failed meanwhile."""
        with suppress(InvalidStateError):
            super().enter(compute)

    def ask(self, reason: str) -> None:
        """Ask that all processes leave the run in order."""
        self._soon(self._ask, reason)

    def leave(self, reason: str) -> None:
        """Leave in order, as all processes do at this place; rank 0 tells the run."""
        if self._place.rank == 0:
            self.ask(reason)

    def not_begun(self, error: BaseException) -> None:
        """Let all processes end, as this one's thread has failed before it held the run."""
        self.broken(error)
        self.join(2 * CONSEQUENCE_S)  # the others are told by a thread that ends with the process

    def broken(self, error: BaseException) -> None:
        """Let all processes end, as this one's loop has ended by an error."""
        self.came()
        self._soon(self._broken, error)

    def came(self) -> None:
        """Note that the user's thread does not hang."""
        self._end.thread_came()

    def gone(self) -> None:
        """Note that what happens to other processes does not concern the user any more."""
        self._left = True

    def _soon(self, act: object, *arguments: object) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, as the learner has ended
                loop.call_soon_threadsafe(act, *arguments)  # type: ignore[arg-type]

    # --- on the thread ------------------------------------------------------------------------

    async def _live(self) -> None:
        who = self._membership
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        network = network_of(who.connecting, token=token_of(who.connecting))
        try:
            spec, plan = await fetch_run_spec(
                network,
                who.addresses,
                Requester(Role.LEARNER, who.name),
                wait_s=who.connecting.wait_s,
                say=who.say,
                leaves=self._leaves,
            )
            if spec.settings.gossip.on:
                raise SettingsError(
                    "the learners of this run gossip, and each must be one process: start a run "
                    "without gossip for a loop of several"
                )
            self._facts["the run"] = f"{spec.settings.run} {plan.begun}"
            among = network_among_hosts(who.connecting, plan)
            await self._take_part(network, among, spec, plan)
        finally:
            await network.close()

    async def _take_part(
        self, network: WebsocketNetwork, among: WebsocketNetwork, spec: RunSpec, plan: RunPlan
    ) -> None:
        """Take part until the processes end, in order or not."""
        if self._place.rank == 0:
            host, port = split_address("island_address", self._place.address)
            await among.open(host, port)
            leader = self._side = self._leader()
            work = self._lead(leader, network, among, spec, plan)
        else:
            follower = self._side = self._follower(among, network, spec)
            work = self._follow(follower, spec, plan)
        self._scope.spawn(work, "work")
        try:
            self._conclude(await self._side.ended)
        finally:
            await among.close()  # the last words to the others go out first
            await self._scope.close()

    def _conclude(self, ended: Ended) -> None:
        """Note how the processes end, and see to it that this one does not hang if they failed."""
        self.ended = self.ended or ended.reason
        if ended.code == DONE:
            return
        self.ended = f"it failed: {ended.reason}"
        kind = RefusedError if ended.code == OF_NO_USE else HostLostError
        self.error = self._cause or kind(ended.reason)
        self._failed = True
        if not self._fetched.done():
            self._fetched.set_exception(self.error)
        if self._left:
            return
        self._membership.say(f"{self._who}: it ends: {ended.reason}")
        self._end.begin()

    # --- rank 0 -------------------------------------------------------------------------------

    def _leader(self) -> IslandLeader:
        who = self._membership
        return IslandLeader(
            self._place.hosts,
            host=own_name(),
            facts=self._facts,
            scope=self._scope,
            worker=self._worker(),
            say=lambda text: who.say(f"{self._who}: {text}"),
            leave=self._ask,
            replaceable=False,
        )

    async def _lead(
        self,
        leader: IslandLeader,
        network: WebsocketNetwork,
        among: WebsocketNetwork,
        spec: RunSpec,
        plan: RunPlan,
    ) -> None:
        """Lead the processes as the learner that the run knows, to the learner's end."""
        try:
            async with asyncio.timeout(MEETING_S):
                await leader.form(among.listen(LEADER, guests=True))
        except TimeoutError as error:
            missing = " and ".join(map(str, leader.missing))
            raise UnreachableError(
                f"process {missing} of {self._place.hosts} has not come to {self._place.address} "
                f"within {MEETING_S:g} s: all processes must call islands.join with the same "
                "island_address"
            ) from error
        leader.begin("", spec.settings.timing)
        self._fetched.set_result(Begun(spec, plan, leader.commands))
        compute = self._compute = await asyncio.wrap_future(self._entering)
        leader.trains(compute, HostShares(lambda: compute.model, self._place.hosts))
        await self._train(network, spec, plan, leader, leader.shares)
        await leader.finish(self.ended)

    # --- other ranks --------------------------------------------------------------------------

    def _follower(
        self, among: WebsocketNetwork, network: WebsocketNetwork, spec: RunSpec
    ) -> IslandFollower:
        place = self._place
        hello = HostHello(PROTOCOL, place.rank, place.hosts, own_name(), self._facts)
        urls = hub_urls("island_address", (place.address,), LEADER)
        return IslandFollower(
            *(hello, among, urls[0], self._scope),
            upward=network,
            dialling=dialling(spec.settings.timing),
            worker=self._worker(),
        )

    async def _follow(self, follower: IslandFollower, spec: RunSpec, plan: RunPlan) -> None:
        """Follow rank 0, which tells when the processes end."""
        try:
            async with asyncio.timeout(MEETING_S):
                await follower.form()
        except TimeoutError as error:
            why = f": {follower.obstacle}" if follower.obstacle else ""
            raise UnreachableError(
                f"the processes of this loop did not meet at island_address {self._place.address} "
                f"within {MEETING_S:g} s{why}: all of them must call islands.join with one "
                "host:port of the host of process 0"
            ) from error
        self._fetched.set_result(Begun(spec, plan, follower.commands))
        compute = self._compute = await asyncio.wrap_future(self._entering)
        follower.train(compute)

    # --- both ---------------------------------------------------------------------------------

    def _worker(self) -> ThreadWorker:
        return ThreadWorker(f"island-{self._membership.name}", self._fail, finish=False)

    def _ask(self, reason: str) -> None:
        """Have the learner leave, which all processes carry out at one boundary."""
        if isinstance(self._side, IslandFollower):
            self._side.leave(reason)
        elif self._learner is not None:
            self._learner.leave(reason)
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
        """End the island, as this process cannot go on."""
        if self._side is not None and not self._side.ended.done():
            self._cause = error
            self._side.fail(error)
