"""`python -m islands.standby`: copies a run's journal to this host, and can go on with it."""

import sys
from dataclasses import fields, replace

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.host import StandbyOptions, SyncerOptions


def entry(options: StandbyOptions, common: Common) -> int:
    """Follow a run until it ends, or go on as its syncer, or its hub, to the end of that."""
    from islands.keeping.promotion import answered
    from islands.keeping.standby_state import HUB
    from islands.run.hosting.process_runtime import run_service
    from islands.run.standby_process import follow
    from islands.syncer.__main__ import entry as go_on

    before = answered(options.folder)
    if before is None or not before.role:
        run_service(lambda watchdog: follow(options, watchdog))
        before = answered(options.folder)
    if before is None or not before.role:
        return 0
    values = {each.name: getattr(options, each.name) for each in fields(SyncerOptions)}
    syncer = SyncerOptions(**values)
    return go_on(replace(syncer, supervisor=()) if before.role == HUB else syncer, common)


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            StandbyOptions,
            program="python -m islands.standby",
            description="Copy a run's journal, and go on with it if the syncer's host is lost.",
        )
    )
