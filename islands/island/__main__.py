"""`python -m islands.island`: one host's process, which `islands.learner --hosts` starts."""

import os
import sys

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.host import LearnerOptions


def entry(options: LearnerOptions, _: Common) -> int:
    """Train to the island's end, with which the process ends."""
    from islands.island.host_process import HostProcess
    from islands.run.hosting.process_runtime import run

    if options.threads is not None:  # read by XLA when JAX is first used
        os.environ["PJRT_NPROC"] = str(options.threads)
    return run(lambda: HostProcess(options).train())


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            LearnerOptions,
            program="python -m islands.learner",  # whose environment variables count
            description="Train on this host's devices as a part of one learner of a run.",
        )
    )
