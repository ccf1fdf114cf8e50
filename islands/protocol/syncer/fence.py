"""The fence: it remembers which incarnations have ended, and none of them is admitted again.

The highest ended incarnation of each name is remembered, also across restarts. Names come and go
for weeks, and every journal record holds the whole fence, so only the newest `NAMES_KEPT` are kept
one by one. Incarnations are numbered in order, so one number suffices for all forgotten names: the
highest of them, `floor`. An incarnation that is not above it and has no open account has ended.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName

NAMES_KEPT = 4096
"""These take about 200 KB of a record. A forgotten name that returns is not counted as a rejoin."""

NAMES_OVER = NAMES_KEPT // 4
"""Names are forgotten this many at a time, since each time all of them must be sorted."""


@dataclass(slots=True)
class Fence:
    """The ended incarnations: by name, and for all names that were forgotten."""

    names: dict[LearnerName, Incarnation] = field(default_factory=dict)
    floor: Incarnation | None = None

    def end(self, name: LearnerName, incarnation: Incarnation) -> None:
        """Mark an incarnation as ended, and with it all earlier ones of that name."""
        self.names[name] = max(incarnation, self.names.get(name, incarnation))
        if len(self.names) <= NAMES_KEPT + NAMES_OVER:
            return
        in_order = sorted(self.names.items(), key=_given)
        forgotten, kept = in_order[:-NAMES_KEPT], in_order[-NAMES_KEPT:]
        highest = forgotten[-1][1]
        self.floor = highest if self.floor is None else max(highest, self.floor)
        self.names = dict(kept)

    def knows(self, name: LearnerName) -> bool:
        """Return whether an ended incarnation of this name is remembered."""
        return name in self.names

    def ended(self, name: LearnerName, incarnation: Incarnation, *, open_account: bool) -> bool:
        """Return whether an incarnation has ended.

        Args:
            name: the learner's name.
            incarnation: the learner's incarnation.
            open_account: whether the ledger has an open book of this very incarnation, which shows
                that it has not ended although it is not above `floor`.
        """
        known = self.names.get(name)
        if known is not None and incarnation <= known:
            return True
        return self.floor is not None and incarnation <= self.floor and not open_account


def _given(entry: tuple[LearnerName, Incarnation]) -> tuple[int, int, LearnerName]:
    name, incarnation = entry
    return incarnation.epoch, incarnation.counter, name
