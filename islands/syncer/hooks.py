"""What the host of a syncer does at its turning points."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.identities import Cut
from islands.syncer.state import SyncerState

Export = Callable[[list[NDArray[np.float32]], Cut], None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Calls of one syncer into its host; what is None is not done.

    Args:
        ready: called when it has read its journal and listens.
        export: given the final values on the worker, before anybody hears that the run is over.
        stopped: given what is published, on a thread, when it is stopped before the end of the run.
        finished: called with the reason when the final cut is durable and exported.
        report: its share of the run's summary, as JSON, asked for then.
    """

    ready: Callable[[], object] | None = None
    export: Export | None = None
    stopped: Export | None = None
    finished: Callable[[str], None] | None = None
    report: Callable[[SyncerState], bytes] | None = None
