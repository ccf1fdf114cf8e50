"""`python -m islands.standby`: copies a run's journal to this host, and can go on with it."""

import sys
from dataclasses import fields, replace

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.host import StandbyOptions, SyncerOptions


def entry(options: StandbyOptions, common: Common) -> int:
    """Follow a run until it ends, or go on as its syncer, or its hub, to the end of that."""
    from islands.keeping.promotion import answered, standby_in
    from islands.keeping.standby_state import HUB
    from islands.run.hosting.process_runtime import run_service
    from islands.run.standby_process import follow
    from islands.syncer.__main__ import entry as go_on

    kept, before = standby_in(options.folder), answered(options.folder)
    if kept is not None and "name" not in (common.given or ()):
        options = replace(options, name=kept.name)
    role = "" if before is None else before.role
    if not role:
        promoted: list[str] = []
        run_service(lambda watchdog: follow(options, watchdog, promoted.append))
        role = "".join(promoted)
    if not role:
        return 0
    values = {each.name: getattr(options, each.name) for each in fields(SyncerOptions)}
    syncer = SyncerOptions(**values)
    return go_on(replace(syncer, supervisor=()) if role == HUB else syncer, common)


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            StandbyOptions,
            program="python -m islands.standby",
            description="Copy a run's journal, and go on with it if the syncer's host is lost.",
        )
    )
