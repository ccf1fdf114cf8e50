"""`islands` whose hub writes down the reports that reach it: `python -m tests.engines.watched_run`.

It takes the same words. `islands.lab.faults.fleet.Reader` reads what it wrote, in the run's folder.
"""

import sys

import islands.run.coordinator
from islands.cli.__main__ import main
from islands.lab.faults.__main__ import WatchedHub

if __name__ == "__main__":
    setattr(islands.run.coordinator, "Coordinator", WatchedHub)  # noqa: B010  (it is a class)
    sys.exit(main())
