"""One host's process of an island, from its start to its end.

    what the hub tells of the run ─▶ all hosts are here ─▶ one program of JAX ─▶ steps ─▶ the end

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

from islands.island.follower import IslandFollower
from islands.island.forming import NOBODY, Ended, consequence_s
from islands.island.host import HostPlace, IslandHost
from islands.island.host_watchdog import NO_HUB, beat
from islands.model.interfaces import Workload
from islands.protocol.errors import DONE, FAILED, RunOverError, SettingsError, UnreachableError
from islands.protocol.messages.membership import ASKS_AGAIN_S
from islands.protocol.settings.addresses import host_port, split_address
from islands.protocol.tape.process_entries import Failed
from islands.run import learner_process
from islands.run.hosting.process_runtime import on_ending_signals, say
from islands.settings.host import LearnerOptions
from messaging.actors.scope import Scope
from messaging.errors import LocalFault
from messaging.websocket.network import WebsocketNetwork

END_S = 10.0
"""Longest wait at the end for a step that was dispatched."""

OBSTACLES_S = 2.0
"""Time between two looks why rank 0 is not reached."""

LEFT_BY_OTHERS = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "JAX_LOCAL_DEVICE_IDS",
    "MEGASCALE_COORDINATOR_ADDRESS",
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_SLICE_ID",
)
"""Variables of other launchers, which JAX would take for the topology of its program."""

HEARTBEAT_S = 30
"""JAX ends a process whose siblings are silent for so long; ours are found before (`health.py`)."""

CONNECT_S = 120


class HostProcess:
    """One host's process; the options are the same on all hosts of the island but for the rank."""

    def __init__(self, options: LearnerOptions) -> None:
        assert options.name is not None, "checked with the options"
        assert options.island_address is not None, "checked with the options"
        assert options.rank is not None, "checked with the options"
        self._options = options
        address = host_port(*split_address("island_address", options.island_address))
        self._place = HostPlace(options.rank, options.hosts, address)
        self._who = learner_process.Membership.of(options, options.name, say)
        self._title = self._who.name + (f", rank {options.rank}" if options.rank else "")
        self._scope = Scope("island", lambda _, error: self._fail(error))
        self._asked = ""  # why a host was asked to end
        self._signals = contextlib.ExitStack()  # handled until the process ends
        self._forming: asyncio.Task[None]
        self._host: IslandHost | None = None
        self._process: learner_process.LearnerProcess | None = None  # of rank 0

    async def train(self) -> Never:
        """Train until the island ends; the process ends with it, as its devices may hang."""
        check_environment()
        self._scope.spawn(beat(), "beat")
        async with learner_process.network_to_hub(self._who) as network:
            run = await self._fetched(network)
            if run.spec.settings.gossip.on:
                raise SettingsError(
                    "the learners of this run gossip, and each must be on one host: start it "
                    "without --hosts"
                )
            host = self._host = IslandHost(
                run,
                self._place,
                facts_of(self._options),
                scope=self._scope,
                say=self._say,
                fail=self._fail,
                leave=self._leave,
            )
            await _opened(host)
            self._forming = self._scope.spawn(self._look_for_run(run), "run")
            self._scope.spawn(self._work(host, run), "work")
            ended = await host.side.ended
            await self._conclude(ended, host)

    async def _fetched(self, network: WebsocketNetwork) -> learner_process.FetchedRun:
        """Ask the hub what the run is; end this process if there is none to take part in."""
        try:
            return await learner_process.fetch_run(self._who, network)
        except UnreachableError as error:
            self._say(str(error))
            os._exit(NO_HUB)
        except RunOverError as error:
            self._say(str(error))
            os._exit(DONE)

    async def _look_for_run(self, run: learner_process.FetchedRun) -> None:
        """Look now and then whether the run goes on, while the hosts wait for one another."""
        while True:
            await asyncio.sleep(ASKS_AGAIN_S)
            now = await self._fetched(run.network)
            if now.plan.begun != run.plan.begun:
                raise UnreachableError("the run was begun anew meanwhile")

    async def _work(self, host: IslandHost, run: learner_process.FetchedRun) -> None:
        """Step with the other hosts; rank 0 does to the learner's end, and then ends the island."""
        place, options = self._place, self._options
        address, port = split_address("island_address", place.address)
        coordinator = await self._met(host, host_port(address, port + 1))
        self._forming.cancel()

        def begin() -> Workload:
            begin_program(coordinator, place)
            return learner_process.load_task(run, options)

        workload = await asyncio.to_thread(begin)
        compute = learner_process.device_thread(workload, run, options, commands=host.side.commands)
        process = self._process = host.train(compute)
        if process is None:
            return
        await process.live(self._leave)
        await asyncio.to_thread(compute.join, END_S)
        reason = self._asked or process.ended
        host.side.end(Ended(reason, FAILED if self._asked else DONE, NOBODY))

    async def _met(self, host: IslandHost, coordinator: str) -> str:
        """Wait for the other hosts; return where the coordinator of JAX is."""
        side, place = host.side, self._place
        if isinstance(side, IslandFollower):
            self._signals.enter_context(on_ending_signals(side.leave))
            waiting = self._scope.spawn(self._report_obstacles(side), "waiting")
            address = await host.meet()
            waiting.cancel()
            return address
        self._say(f"rank 0 waits for {place.hosts - 1} more at {place.address}")
        await host.meet(coordinator)
        self._say(f"all {place.hosts} hosts are here")
        return coordinator

    async def _report_obstacles(self, follower: IslandFollower) -> None:
        shown: str | None = ""
        while True:
            await asyncio.sleep(OBSTACLES_S)
            obstacle = follower.obstacle
            if obstacle != shown:
                shown = obstacle
                why = f": {obstacle}" if obstacle else " and the other hosts"
                self._say(f"it waits for rank 0 at island_address {self._place.address}{why}")

    def _say(self, sentence: str) -> None:
        say(f"{self._title}: {sentence}")

    # --- the end ------------------------------------------------------------------------------

    def _leave(self, reason: str) -> None:
        self._asked = self._asked or reason
        if self._process is None:
            assert self._host is not None, "only the hosts of an island are asked"
            self._host.side.end(Ended(reason, FAILED, NOBODY))
        else:
            self._process.learner.leave(reason)

    def _fail(self, error: BaseException) -> None:
        if self._host is None:
            self._say(f"it failed: {error}")
            os._exit(FAILED)
        side = self._host.side
        asyncio.get_running_loop().call_later(consequence_s(error), side.fail, error)

    async def _conclude(self, ended: Ended, host: IslandHost) -> Never:
        self._say(f"it ends: {ended.reason}")
        if self._process is not None:
            if ended.code:
                self._process.learner.record(Failed(ended.reason))
            await self._process.close()
        await host.network.close()
        sys.stdout.flush()
        os._exit(ended.code_at(self._place.rank))  # a device that waits for lost hosts stays


def facts_of(options: LearnerOptions) -> dict[str, str]:
    """Return what must be equal on all hosts of an island, by what it is."""
    return {
        "the version of JAX": version("jax"),
        "model_parallel": str(options.model_parallel),
        "precision": str(options.precision or ""),
        "task_settings": json.dumps(options.task_settings, sort_keys=True, default=str),
    }


async def _opened(host: IslandHost) -> None:
    """Let the other hosts dial this one, if it is rank 0."""
    try:
        await host.open()
    except LocalFault as error:
        cause = error.__cause__
        late = isinstance(cause, socket.gaierror) or (
            isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL
        )
        if late:
            raise UnreachableError(f"island_address is none of this host: {error}") from error
        raise


# --- the program of JAX that the processes form together --------------------------------------


def check_environment() -> None:
    """Refuse variables of another launcher, as they contradict this island's topology."""
    left = [name for name in LEFT_BY_OTHERS if os.environ.get(name)]
    if left:
        raise SettingsError(
            f"{left[0]} is set in the environment, by another launcher; an island's hosts are "
            "told by --hosts, --rank and --island_address: unset it"
        )


def begin_program(coordinator: str, place: HostPlace) -> None:
    """Connect this process with those of the other hosts; returns once all are connected."""
    os.environ.setdefault("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo")
    os.environ["JAX_ENABLE_PREEMPTION_SERVICE"] = "false"  # it would take SIGTERM for itself
    import jax

    jax.distributed.initialize(
        coordinator_address=coordinator,
        cluster_detection_method="deactivate",  # it would choose devices by a cluster's variables
        num_processes=place.hosts,
        process_id=place.rank,
        coordinator_bind_address=coordinator if place.rank == 0 else None,
        initialization_timeout=CONNECT_S,
        heartbeat_timeout_seconds=HEARTBEAT_S,
    )
