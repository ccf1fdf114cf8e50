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
    """Callbacks of one syncer: `ready` when it has read its journal and listens.

    `export` is given the final values on the worker, before anybody hears that the run is over;
    `stopped`, on a thread, what is published if the syncer is stopped before that. `report` is
    called when the final cut is durable and exported, and returns the syncer's part of the summary
    as JSON.
    """

    ready: Callable[[], object] | None = None
    export: Export | None = None
    stopped: Export | None = None
    report: Callable[[SyncerState], bytes] | None = None
