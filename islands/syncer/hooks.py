"""Callbacks of a syncer into its host: when it is ready, exports, is stopped or reports its end."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.protocol.identities import FinalVersions
from islands.protocol.syncer.state import SyncerState

Export = Callable[[list[NDArray[np.float32]], FinalVersions], None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of one syncer; one that is None is not called.

    Args:
        ready: called when the syncer has read its journal and listens.
        export: given the final values on the worker, before anybody hears that the run is over.
        stopped: given what is published, on a thread, if the syncer is stopped before the run ends.
        report: called when the final cut is durable and exported; returns the syncer's share of the
            summary as JSON.
    """

    ready: Callable[[], object] | None = None
    export: Export | None = None
    stopped: Export | None = None
    report: Callable[[SyncerState], bytes] | None = None
