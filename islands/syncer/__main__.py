"""Run a syncer (`python -m islands.syncer`), which merges and publishes; it needs no accelerator.

The process hosts the supervisor too, unless it is given the address of one.
"""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.host import SyncerOptions

if TYPE_CHECKING:  # at run time, whatever --help does not need is imported later
    from islands.run.hosting.watchdog import Watchdog


def entry(options: SyncerOptions, common: Common) -> int:
    """Run a syncer to its end; returns the exit code."""
    if options.supervisor:
        from islands.run.hosting.process_runtime import run_service

        return run_service(lambda watchdog: _apart(options, watchdog))
    from islands.cli.serve import serve

    return serve(options, common)


async def _apart(options: SyncerOptions, watchdog: "Watchdog") -> int:
    """Run a syncer whose supervisor is another process; the run spec is fetched from it."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # of an outer optimizer of optax, if there is one
    from islands.keeping.copies import copies_of
    from islands.metrics.sources import serve_syncer
    from islands.protocol.identities import Role
    from islands.protocol.invitations import Invitations
    from islands.run.hosting.hub_requests import Requester, fetch_run_spec
    from islands.run.hosting.process_runtime import (
        context_in,
        credentials_of,
        key_file_of,
        live,
        network_of,
        say,
        tape_in,
        token_of,
    )
    from islands.run.roles import hooks_of, journal_disk, make_syncer, read_initial
    from messaging.clock import MonotonicClock, WallClock

    connecting, listening = options.connecting, options.listening
    network = network_of(connecting, listening, token=token_of(connecting))
    disk = journal_disk(options.folder)  # locked before any peer hears of this start
    try:
        await network.open(listening.host, listening.port, advertise=listening.advertise)
        addresses = options.supervisor_urls
        requester = Requester(Role.SYNCER, options.name)
        spec, plan = await fetch_run_spec(
            network, addresses, requester, wait_s=connecting.wait_s, say=say
        )
        key_file = key_file_of(options.folder, connecting, options.key_file)
        credentials = credentials_of(spec.settings.run, key_file, plan.begun)
        invitations = Invitations(spec.settings.run, credentials)
        network.judge = lambda token: invitations.judge(token, WallClock().now_s())

        def revoked(all_of_them: tuple[tuple[str, int], ...]) -> None:
            invitations.revoked.update(all_of_them)
            network.end_refused()

        began_s = MonotonicClock().now_s()
        tape = tape_in(options.folder, options.name, options.keeping, began_s=began_s)
        context = context_in(network, addresses, spec, plan, tape, began_s=began_s)
        syncer = make_syncer(
            options.name,
            context,
            disk=disk,
            shards=plan.shards,
            credentials=credentials,
            initial=read_initial(options.file.start_from, plan.layout),
            may_return=plan.may_return,
            hooks=replace(hooks_of(options.folder, spec, context, watchdog.ready), revoked=revoked),
            follower=copies_of(options.folder, options.saving, spec, plan),
        )
        serve_syncer(network, syncer, connecting)
        say(f"syncer of run {spec.settings.run!r} at {network.url(options.name)}")
        await live([syncer], syncer.ref.stop, tape)
    finally:
        await network.close()
        disk.close()
    return 0


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            SyncerOptions,
            program="python -m islands.syncer",
            description="Merge and publish; host the supervisor too, unless one is named.",
        )
    )
