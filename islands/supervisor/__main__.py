"""`python -m islands.supervisor` runs the supervisor in a process apart from the syncer."""

import sys

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.host import SupervisorOptions


def entry(options: SupervisorOptions, common: Common) -> int:
    from islands.cli.serve import serve

    return serve(options, common)


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            SupervisorOptions,
            program="python -m islands.supervisor",
            description="Admit, watch and evict the members of a run.",
        )
    )
