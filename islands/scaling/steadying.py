"""What is added and drained, look by look, so that a fleet follows its target and does not flap.

===================================  ===============================================================
in the last looks more were wanted   as many are added as all of them wanted, after `ADD_LOOKS`
in the last looks fewer were wanted  as many are drained as none of them wanted, after `DRAIN_LOOKS`
added or drained                     counts as done for `PENDING_LOOKS`, then what is there counts
===================================  ===============================================================

So a number that swings between two changes nothing, islands go later than they come, and one that
waits in an engine's queue is not asked for twice. An entry is not changed while its change pends.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

ADD_LOOKS, DRAIN_LOOKS = 2, 5
PENDING_LOOKS = 10
"""Least; it is also as many as `PENDING_S` take."""
PENDING_S = 600.0
"""Time for an island to be placed, to compile and to join."""
CHANGE_MOST = 16
"""Islands that are added or drained at once, of one entry."""


@dataclass(slots=True)
class History:
    """What was wanted of one entry lately, and what pends.

    Args:
        wanted: in the last looks.
        expected: how many islands there will be once all is carried out; None: all is.
        waits: looks until what is there counts again.
    """

    wanted: deque[int] = field(default_factory=lambda: deque(maxlen=DRAIN_LOOKS))
    expected: int | None = None
    waits: int = 0


@dataclass(slots=True)
class Steadying:
    """The memory of one command.

    Args:
        interval_s: time between two looks.
        entries: of each entry.
    """

    interval_s: float = PENDING_S / PENDING_LOOKS
    entries: dict[str, History] = field(default_factory=dict)

    def look(self, wanted: Mapping[str, int], present: Mapping[str, int]) -> dict[str, int]:
        """Return how many islands of each entry are to be added, or drained if it is below 0.

        Args:
            wanted: of each entry.
            present: of each entry.
        """
        changes = {}
        for name, number in wanted.items():
            change = self._change(name, number, present.get(name, 0))
            if change:
                changes[name] = change
        return changes

    def forget(self, name: str) -> None:
        """Note that a change of an entry could not be carried out."""
        self.entries[name].expected = None

    def _change(self, name: str, wanted: int, present: int) -> int:
        history = self.entries.setdefault(name, History())
        history.wanted.append(wanted)
        if history.expected is not None:
            history.waits -= 1
            if present != history.expected and history.waits > 0:
                return 0
            history.expected = None
        looks = list(history.wanted)
        more = min(looks[-ADD_LOOKS:]) if len(looks) >= ADD_LOOKS else present
        fewer = max(looks) if len(looks) == DRAIN_LOOKS else present
        change = max(0, more - present) or min(0, fewer - present)
        change = max(-CHANGE_MOST, min(CHANGE_MOST, change))
        if change:
            history.expected = present + change
            history.waits = max(PENDING_LOOKS, ceil(PENDING_S / self.interval_s))
        return change
