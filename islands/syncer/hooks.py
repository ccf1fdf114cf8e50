"""Callbacks of a syncer into its host: when it is ready, exports, is stopped or has finished."""

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
        finished: called with the reason when the final cut is durable and exported.
        report: called just before `finished`; returns the syncer's share of the summary as JSON.
    """

    ready: Callable[[], object] | None = None
    export: Export | None = None
    stopped: Export | None = None
    finished: Callable[[str], None] | None = None
    report: Callable[[SyncerState], bytes] | None = None
