"""Callbacks of a syncer into its host: when it is ready, exports, is stopped or has finished."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from islands.protocol.identities import FinalVersions, Version
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.state import SyncerState

Export = Callable[[list[NDArray[np.float32]], FinalVersions], None]


class Recorder(Protocol):
    """Records what is merged; none of its methods waits, and the arrays given do not change."""

    def held(
        self, fragment: int, version: Version, arrays: Mapping[str, NDArray[np.generic]]
    ) -> None:
        """Record a fragment that this start begins with: its `value` and the optimizer's state."""

    def merged(
        self,
        action: BeginMerge,
        contributions: Sequence[NDArray[np.float32]],
        value: NDArray[np.float32],
        made: str,
    ) -> None:
        """Record a merge, on the worker: contributions as sent, the new value and its digest."""

    def close(self) -> None:
        """End the record."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of one syncer; one that is None is not called.

    Args:
        ready: called when the syncer has read its journal and listens.
        export: given the final values on the worker, before anybody hears that the run is over.
        stopped: given what is published, on a thread, if the syncer is stopped before the run ends.
        finished: called with the reason when the final cut is durable and exported.
        report: called just before `finished`; returns the syncer's share of the summary as JSON.
        recorder: records every merge; closed when the syncer has ended.
    """

    ready: Callable[[], object] | None = None
    export: Export | None = None
    stopped: Export | None = None
    finished: Callable[[str], None] | None = None
    report: Callable[[SyncerState], bytes] | None = None
    recorder: Recorder | None = None
