"""Which incarnations have ended: none of them is ever let in again.

The highest ended incarnation of each name is remembered, also across restarts. Names come and go
for weeks, and all of this is in every journal record, so only the newest `NAMES_KEPT` are kept one
by one. Incarnations are given in order, so for all that were forgotten one number is enough: the
highest of them, `floor`. Whatever is not above it and has no open account has ended.
"""

from dataclasses import dataclass, field

from islands.identities import Incarnation, LearnerName

NAMES_KEPT = 4096
"""About 200 KB of a record. Beyond these, a name that comes back is not counted as a rejoin."""

NAMES_OVER = NAMES_KEPT // 4
"""Names are forgotten so many at a time: each time, all are put in order."""


@dataclass(slots=True)
class Fence:
    """The ended incarnations: by name, and for all names that were forgotten."""

    names: dict[LearnerName, Incarnation] = field(default_factory=dict)
    floor: Incarnation | None = None

    def end(self, name: LearnerName, incarnation: Incarnation) -> None:
        """An incarnation has ended, and with it all before it of that name."""
        self.names[name] = max(incarnation, self.names.get(name, incarnation))
        if len(self.names) <= NAMES_KEPT + NAMES_OVER:
            return
        in_order = sorted(self.names.items(), key=_given)
        forgotten, kept = in_order[:-NAMES_KEPT], in_order[-NAMES_KEPT:]
        highest = forgotten[-1][1]
        self.floor = highest if self.floor is None else max(highest, self.floor)
        self.names = dict(kept)

    def knows(self, name: LearnerName) -> bool:
        """Whether an incarnation of this name has ended, as far as it is remembered."""
        return name in self.names

    def ended(self, name: LearnerName, incarnation: Incarnation, *, open_account: bool) -> bool:
        """Whether an incarnation has ended.

        Args:
            name: of the learner.
            incarnation: of it.
            open_account: whether the ledger has an open book of this very incarnation.
        """
        known = self.names.get(name)
        if known is not None and incarnation <= known:
            return True
        return self.floor is not None and incarnation <= self.floor and not open_account


def _given(entry: tuple[LearnerName, Incarnation]) -> tuple[int, int, LearnerName]:
    name, incarnation = entry
    return incarnation.epoch, incarnation.counter, name
