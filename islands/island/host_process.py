"""One host's process of an island, from its start to its end.

    what the hub tells of the run ─▶ all hosts are there ─▶ one program of JAX ─▶ steps ─▶ the end

The process of rank 0 has the learner's actor; the others follow it. Whatever ends one of them ends
all, since their devices' steps are one: `host_watchdog.py` starts them again.
"""

import asyncio
import contextlib
import errno
import json
import os
import socket
import sys
from importlib.metadata import version
from typing import Never

from islands.actors.ports import ThreadWorker
from islands.actors.role_actor import dialling
from islands.files.tape_writing import FileTape
from islands.island.among_hosts import network_among_hosts, own_name
from islands.island.follower import IslandFollower
from islands.island.forming import NOBODY, Ended, consequence_s
from islands.island.host_watchdog import NO_HUB, beat
from islands.island.jax_program import begin_program, check_environment
from islands.island.leader import LEADER, IslandLeader
from islands.island.shares import HostShares
from islands.learner.actor import LearnerActor
from islands.learner.commands import Commands
from islands.learner.compute import ComputeThread
from islands.model.workload import Place, Workload, load_workload
from islands.protocol.errors import DONE, FAILED, RunOverError, SettingsError, UnreachableError
from islands.protocol.identities import Role
from islands.protocol.messages.membership import ASKS_AGAIN_S
from islands.protocol.messages.multihost import HostHello
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.addresses import host_port, hub_urls, split_address
from islands.protocol.tape.process_entries import Failed
from islands.run.hosting.hub_requests import Requester, check_same, fetch_run_spec
from islands.run.hosting.process_runtime import (
    ConsoleTape,
    compiled_folder,
    context_in,
    live,
    network_of,
    on_ending_signals,
    say,
    tape_in,
    token_of,
)
from islands.run.records.tape_sentences import why_ended
from islands.run.roles import make_learner
from islands.settings.host import LearnerOptions
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.actors.scope import Scope
from messaging.clock import MonotonicClock
from messaging.errors import LocalFault
from messaging.websocket.network import WebsocketNetwork

END_S = 10.0
"""How long the process waits at its end for a step that was dispatched, and for its last words."""


class HostProcess:
    """One host's process of an island.

    Args:
        options: options of the learner, which are the same on all hosts but for the rank.
    """

    def __init__(self, options: LearnerOptions) -> None:
        """Start nothing yet; `train` does."""
        assert options.name is not None, "checked with the options"
        assert options.island_address is not None, "checked with the options"
        assert options.rank is not None, "checked with the options"
        self._options = options
        self._name = options.name
        self._rank = options.rank
        self._who = self._name if self._rank == 0 else f"{self._name}, rank {self._rank}"
        self._host, self._port = split_address("island_address", options.island_address)
        self._scope = Scope("island", lambda _, error: self._fail(error))
        self._asked = ""  # why a host was asked to end
        self._signals = contextlib.ExitStack()  # handled until the process ends
        self._learner: LearnerActor | None = None
        self._tape: FileTape | None = None
        self._forming: asyncio.Task[None]
        self._side: IslandLeader | IslandFollower | None = None

    async def train(self) -> Never:
        """Train until the island ends; the process ends with it, as its devices may hang.

        Raises:
            IslandsError: it could not begin; the sentence says why.
        """
        check_environment()
        self._scope.spawn(beat(), "beat")
        options = self._options
        network = network_of(options.connecting, token=token_of(options.connecting))
        try:
            await self._trained(network)
        finally:
            await network.close()

    async def _trained(self, network: WebsocketNetwork) -> Never:
        options = self._options
        spec, plan = await self._told_by_hub(network)
        spec = spec.with_precision(options.precision)
        if spec.settings.gossip.on:
            raise SettingsError(
                "the learners of this run gossip, and each must be on one host: start it without "
                "--hosts"
            )
        among = network_among_hosts(options.connecting, plan)
        if self._rank == 0:
            await _opened(among, self._host, self._port)
            leader = self._side = self._leader(spec, plan)
            work = self._lead(leader, network, among, spec, plan)
        else:
            follower = self._side = self._follower(among, network, spec, plan)
            work = self._follow(follower, spec, plan)
        self._forming = self._scope.spawn(self._look_for_run(network, plan), "run")
        self._scope.spawn(work, "work")
        ended = await self._side.ended
        await self._conclude(ended, among)

    async def _told_by_hub(self, network: WebsocketNetwork) -> tuple[RunSpec, RunPlan]:
        """Ask the hub what the run is; end this process if there is none to take part in."""
        options = self._options
        try:
            return await fetch_run_spec(
                network,
                options.supervisor_urls,
                Requester(Role.LEARNER, self._name),
                wait_s=options.connecting.wait_s,
                say=say,
            )
        except UnreachableError as error:
            self._say(str(error))
            os._exit(NO_HUB)
        except RunOverError as error:
            self._say(str(error))
            os._exit(DONE)

    async def _look_for_run(self, network: WebsocketNetwork, plan: RunPlan) -> None:
        """Look now and then whether the run goes on, while the hosts wait for one another."""
        while True:
            await asyncio.sleep(ASKS_AGAIN_S)
            _, now = await self._told_by_hub(network)
            if now.begun != plan.begun:
                raise UnreachableError("the run was begun anew meanwhile")

    async def _conclude(self, ended: Ended, among: WebsocketNetwork) -> Never:
        """Say why the island ends, and end the process."""
        say(f"{self._who}: it ends: {ended.reason}")
        if ended.code and self._learner is not None:
            self._learner.record(Failed(ended.reason))
        if self._tape is not None:
            await asyncio.to_thread(self._tape.close)
        await among.close()
        sys.stdout.flush()
        code = ended.code_at(self._rank)
        os._exit(code)  # a device that waits for lost hosts would keep the process alive

    # --- rank 0 -------------------------------------------------------------------------------

    def _leader(self, spec: RunSpec, plan: RunPlan) -> IslandLeader:
        return IslandLeader(
            self._options.hosts,
            host=own_name(),
            facts=facts_of(self._options, spec, plan),
            scope=self._scope,
            worker=self._worker(),
            say=self._say,
            leave=self._leave,
        )

    async def _lead(
        self,
        leader: IslandLeader,
        network: WebsocketNetwork,
        among: WebsocketNetwork,
        spec: RunSpec,
        plan: RunPlan,
    ) -> None:
        """Lead the island as the learner that the run knows, to the learner's end."""
        options = self._options
        self._say(
            f"rank 0 waits for {options.hosts - 1} more at {host_port(self._host, self._port)}"
        )
        await leader.form(among.listen(LEADER, guests=True))
        self._forming.cancel()
        self._say(f"all {options.hosts} hosts are here")
        coordinator = host_port(self._host, self._port + 1)
        leader.begin(coordinator, spec.settings.timing)
        workload = await self._prepared(coordinator, spec, plan)
        compute = self._made(workload, spec, leader.commands)
        leader.trains(compute, HostShares(lambda: compute.model, options.hosts))
        began_s = MonotonicClock().now_s()
        tape = tape_in(options.folder, self._name, options.keeping, began_s=began_s)
        self._tape = tape
        addresses = options.supervisor_urls
        told = ConsoleTape(tape, say)
        context = context_in(network, addresses, spec, plan, told, began_s=began_s)
        learner = self._learner = make_learner(
            self._name, context, leader, tell=self._say, sharing=leader.shares
        )
        self._say(f"joining run {spec.settings.run!r} at {addresses[0]}")
        await live([learner], self._leave, starting=lambda: learner.state.starting)
        await asyncio.to_thread(compute.join, END_S)
        reason = "" if learner.exit is None else why_ended(learner.exit.reason)
        leader.end(Ended(self._asked or reason, FAILED if self._asked else DONE, NOBODY))

    def _say(self, told: str) -> None:
        say(f"{self._who}: {told}")

    def _leave(self, reason: str) -> None:
        """Have the learner leave the run, as a host was asked to end."""
        self._asked = self._asked or reason
        if self._learner is None:
            assert self._side is not None, "only the hosts of an island are asked"
            self._side.end(Ended(reason, FAILED, NOBODY))
        else:
            self._learner.leave(reason)

    def _fail(self, error: BaseException) -> None:
        """End the island, as this host cannot go on."""
        if self._side is None:
            self._say(f"it failed: {error}")
            os._exit(FAILED)
        delay_s = consequence_s(error)
        asyncio.get_running_loop().call_later(delay_s, self._side.fail, error)

    # --- other ranks --------------------------------------------------------------------------

    def _follower(
        self, among: WebsocketNetwork, network: WebsocketNetwork, spec: RunSpec, plan: RunPlan
    ) -> IslandFollower:
        options = self._options
        facts = facts_of(options, spec, plan)
        hello = HostHello(PROTOCOL, self._rank, options.hosts, own_name(), facts)
        urls = hub_urls("island_address", (host_port(self._host, self._port),), LEADER)
        return IslandFollower(
            *(hello, among, urls[0], self._scope),
            upward=network,
            dialling=dialling(spec.settings.timing),
            worker=self._worker(),
        )

    async def _follow(self, follower: IslandFollower, spec: RunSpec, plan: RunPlan) -> None:
        """Follow rank 0, which tells when the island ends."""
        self._signals.enter_context(on_ending_signals(follower.leave))
        waiting = self._scope.spawn(self._tell_obstacles(follower), "waiting")
        coordinator = await follower.form()
        waiting.cancel()
        self._forming.cancel()
        workload = await self._prepared(coordinator, spec, plan)
        follower.train(self._made(workload, spec, follower.commands))

    async def _tell_obstacles(self, follower: IslandFollower) -> None:
        """Tell why rank 0 is not reached, whenever that changes."""
        told: str | None = ""
        while True:
            await asyncio.sleep(2.0)
            obstacle = follower.obstacle
            if obstacle != told:
                told = obstacle
                why = f": {obstacle}" if obstacle else " and the other hosts"
                where = host_port(self._host, self._port)
                self._say(f"it waits for rank 0 at island_address {where}{why}")

    # --- both ---------------------------------------------------------------------------------

    def _worker(self) -> ThreadWorker:
        return ThreadWorker(f"island-{self._name}", self._fail, finish=False)

    async def _prepared(self, coordinator: str, spec: RunSpec, plan: RunPlan) -> Workload:
        """Begin the program of JAX, then build what is trained."""
        options = self._options

        def prepare() -> Workload:
            begin_program(coordinator, hosts=options.hosts, rank=self._rank)
            workload = load_workload(spec, options.task_settings)
            check_same(workload.plan(spec.settings).layout, plan.layout)
            workload.keep_compiled(compiled_folder())
            return workload

        return await asyncio.to_thread(prepare)

    def _made(self, workload: Workload, spec: RunSpec, commands: Commands) -> ComputeThread:
        options = self._options
        place = Place(self._name, options.devices, options.model_parallel)
        return ComputeThread(
            lambda: workload.trainer(spec.settings, place),
            spec.settings,
            self._name,
            commands=commands,
        )


def facts_of(options: LearnerOptions, spec: RunSpec, plan: RunPlan) -> dict[str, str]:
    """Return what must be equal on all hosts of an island, by what it is."""
    return {
        "name": str(options.name),
        "the run": f"{spec.settings.run} {plan.begun}",
        "the version of JAX": version("jax"),
        "model_parallel": str(options.model_parallel),
        "precision": str(options.precision or ""),
        "task_settings": json.dumps(options.task_settings, sort_keys=True, default=str),
    }


async def _opened(network: WebsocketNetwork, host: str, port: int) -> None:
    """Let the other hosts dial this one.

    Raises:
        UnreachableError: this host does not have that address yet; it may have it later.
        LocalFault: the port is in use, or the network needs a token.
    """
    try:
        await network.open(host, port)
    except LocalFault as error:
        cause = error.__cause__
        late = isinstance(cause, socket.gaierror) or (
            isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL
        )
        if late:
            raise UnreachableError(f"island_address is none of this host: {error}") from error
        raise
