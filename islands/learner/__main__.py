"""`python -m islands.learner`: one learner on this host's devices."""

import asyncio
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.protocol.errors import SettingsError
from islands.settings.groups import ListenOptions, default_name
from islands.settings.host import LearnerOptions

if TYPE_CHECKING:  # at run time they are imported where needed, so that --help answers at once
    from pathlib import Path

    from islands.layout.leaves import Layout
    from islands.learner.moments_checkpoint import CheckpointFile
    from islands.model.workload import Workload
    from islands.settings.run_spec import RunSpec

COMPUTE_END_S = 10.0
"""How long the process waits at its end for a step that was dispatched."""


def entry(options: LearnerOptions, _: Common) -> int:
    """Run a learner to its end; returns the exit code."""
    from islands.run.hosting.process_runtime import run

    if options.hosts > 1:
        from islands.island.host_watchdog import HostWatchdog, command_of

        who = f"{options.name}, rank {options.rank}"
        return run(lambda: HostWatchdog(command_of(sys.argv[1:]), who).watch())
    if options.threads is not None:  # read by XLA when JAX is first used
        os.environ["PJRT_NPROC"] = str(options.threads)
    name = options.name or default_name()
    return run(lambda: _learn(options, name))


async def _learn(options: LearnerOptions, name: str) -> int:
    from islands.learner.compute import ComputeThread
    from islands.model.memory.process_memory import ADAM_MOMENTS, slow_write_s
    from islands.model.workload import Place
    from islands.protocol.identities import Role
    from islands.run.hosting.hub_requests import Requester, check_same, fetch_run_spec
    from islands.run.hosting.process_runtime import (
        ConsoleTape,
        compiled_folder,
        context_in,
        live,
        network_of,
        say,
        tape_in,
        token_of,
    )
    from islands.run.records.tape_sentences import why_ended
    from islands.run.roles import make_learner
    from islands.settings.wire_limits import limits_of
    from messaging.clock import MonotonicClock
    from messaging.websocket.security import Keyring

    connecting, listening = options.connecting, options.listening
    network = network_of(connecting, token=token_of(connecting))
    peers, keyring = None, Keyring()
    try:
        addresses = options.supervisor_urls
        requester = Requester(Role.LEARNER, name)
        spec, plan = await fetch_run_spec(
            network, addresses, requester, wait_s=connecting.wait_s, say=say
        )
        spec = spec.with_precision(options.precision)
        if spec.settings.gossip.on:
            check_peer_links(addresses, listening)
            peers = network_of(connecting, listening, token=keyring, limits=limits_of(plan.layout))
            await peers.open(listening.host, listening.port, advertise=listening.advertise)
        workload, layout = await asyncio.to_thread(_prepare, spec, options.task_settings)
        check_same(layout, plan.layout)
        workload.keep_compiled(compiled_folder())
        place = Place(name, options.devices, options.model_parallel)
        began_s = MonotonicClock().now_s()
        tape = tape_in(options.folder, name, options.keeping, began_s=began_s)
        told = ConsoleTape(tape, say)
        context = context_in(network, addresses, spec, plan, told, began_s=began_s)
        context = replace(context, peers=peers, keyring=None if peers is None else keyring)
        kept = moments_of(options.folder, options.name, f"{spec.settings.run} {plan.begun}")
        compute = ComputeThread(
            lambda: workload.trainer(spec.settings, place), spec.settings, name, kept
        )
        learner = make_learner(
            name,
            context,
            compute,
            tell=lambda told: say(f"{name}: {told}"),
            kept=kept,
        )
        say(f"{name}: joining run {spec.settings.run!r} at {addresses[0]}")
        await live([learner], learner.leave, tape, lambda: learner.state.starting)
        keep_s = ADAM_MOMENTS * slow_write_s(layout)
        if not compute.join(COMPUTE_END_S + keep_s):  # a hanging device must not keep it alive
            os._exit(0)
    finally:
        await network.close()
        if peers is not None:
            await peers.close()
    if learner.exit is not None:
        say(f"{name}: it ends: {why_ended(learner.exit.reason)}")
    return 0


def check_peer_links(supervisor: tuple[str, ...], listening: ListenOptions) -> None:
    """Refuse to gossip without TLS where the hub is dialled with it.

    Raises:
        SettingsError: says what is missing.
    """
    if any(url.startswith("wss:") for url in supervisor) and listening.tls_certificate is None:
        raise SettingsError(
            "tls_certificate is not set; the hub is dialled with TLS and the learners of this run "
            "gossip, so each of them needs a certificate with its key: without one, what learners "
            "send to one another could be read on the way"
        )


def moments_of(folder: "Path", name: str | None, run: str) -> "CheckpointFile | None":
    """The moments' checkpoint; None for a learner without a name of its own to restart under."""
    from islands.learner.moments_checkpoint import CheckpointFile

    return None if name is None else CheckpointFile(folder / "processes" / name, run)


def _prepare(spec: "RunSpec", own: dict[str, object]) -> "tuple[Workload, Layout]":
    """Read the corpus and plan the model, off the loop that keeps systemd's watchdog quiet."""
    from islands.model.workload import load_workload

    workload = load_workload(spec, own)
    return workload, workload.plan(spec.settings).layout


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            LearnerOptions,
            program="python -m islands.learner",
            description="Train on this host's devices as one learner of a run.",
        )
    )
