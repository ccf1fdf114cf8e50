"""`python -m islands.learner`: one learner on this host's devices."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.protocol.errors import SettingsError
from islands.settings.groups import default_name
from islands.settings.host import LearnerOptions

if TYPE_CHECKING:  # at run time they are imported where needed, so that --help answers at once
    from islands.run.learner_process import FetchedRun
    from messaging.websocket.network import WebsocketNetwork
    from messaging.websocket.security import Keyring

COMPUTE_END_S = 10.0
"""Longest wait at the end for a step that was dispatched."""


def entry(options: LearnerOptions, common: Common) -> int:
    """Run a learner to its end; returns the exit code."""
    from islands.run.hosting.process_runtime import run

    if options.hosts > 1:
        from islands.island.host_watchdog import HostWatchdog, command_of

        who = f"{options.name}, rank {options.rank}"
        return run(lambda: HostWatchdog(command_of(common.words), who).watch())
    if options.threads is not None:  # read by XLA when JAX is first used
        os.environ["PJRT_NPROC"] = str(options.threads)
    name = options.name or default_name()
    return run(lambda: _learn(options, name))


async def _learn(options: LearnerOptions, name: str) -> int:
    from islands.learner.moments import CheckpointFile
    from islands.model.memory import ADAM_MOMENTS, slow_write_s
    from islands.run.hosting.process_runtime import say
    from islands.run.learner_process import (
        LearnerProcess,
        Membership,
        device_thread,
        fetch_run,
        load_task,
        network_to_hub,
    )
    from messaging.websocket.security import Keyring

    who, keyring = Membership.of(options, name, say), Keyring()
    async with network_to_hub(who) as network:
        run = await fetch_run(who, network)
        async with _peer_links(options, run, keyring) as peers:
            workload = await asyncio.to_thread(load_task, run, options)
            kept = None  # for a learner without a name to restart under
            if options.name is not None:
                beginning = f"{run.spec.settings.run} {run.plan.begun}"
                kept = CheckpointFile(options.folder / "processes" / options.name, beginning)
            compute = device_thread(workload, run, options, kept=kept)
            process = LearnerProcess(
                run, compute, kept=kept, peers=peers, keyring=None if peers is None else keyring
            )
            try:
                await process.live()
            finally:
                await process.close()
            keep_s = ADAM_MOMENTS * slow_write_s(run.plan.layout)
            if not compute.join(COMPUTE_END_S + keep_s):  # a hanging device keeps it alive else
                os._exit(0)
    if process.ended:
        who.report(f"it ends: {process.ended}")
    return 0


@asynccontextmanager
async def _peer_links(
    options: LearnerOptions, run: "FetchedRun", keyring: "Keyring"
) -> "AsyncIterator[WebsocketNetwork | None]":
    """Listen for other learners until the end, in a run in which learners gossip."""
    from islands.run.hosting.process_runtime import network_of
    from islands.settings.wire_limits import limits_of

    if not run.spec.settings.gossip.on:
        yield None
        return
    listening, limits = options.listening, limits_of(run.plan.layout)
    dialled_with_tls = any(url.startswith("wss:") for url in run.who.addresses)
    if dialled_with_tls and listening.tls_certificate is None:
        raise SettingsError(
            "tls_certificate is not set; the hub is dialled with TLS and the learners of this run "
            "gossip, so each of them needs a certificate with its key: without one, what learners "
            "send to one another could be read on the way"
        )
    peers = network_of(options.connecting, listening, token=keyring, limits=limits)
    try:
        await peers.open(listening.host, listening.port, advertise=listening.advertise)
        yield peers
    finally:
        await peers.close()


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            LearnerOptions,
            program="python -m islands.learner",
            description="Train on this host's devices as one learner of a run.",
        )
    )
