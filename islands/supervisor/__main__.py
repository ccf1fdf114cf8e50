"""`python -m islands.supervisor` runs the supervisor in a process apart from the syncer."""

import sys

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.host import SupervisorOptions


def entry(options: SupervisorOptions, common: Common) -> int:
    """Run a supervisor to its end; returns the exit code."""
    from islands.cli.serve import serve
    from islands.run.coordinator import CoordinatorSettings

    return serve(
        options.file,
        lambda spec: CoordinatorSettings(
            folder=options.folder,
            spec=spec,
            listening=options.listening,
            connecting=options.connecting,
            keeping=options.keeping,
            key_file=options.key_file,
            extend=options.extend,
            syncers=options.syncer_urls,
        ),
        common.given,
        restart=options.restart,
    )


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            SupervisorOptions,
            program="python -m islands.supervisor",
            description="Admit, watch and evict the members of a run.",
        )
    )
