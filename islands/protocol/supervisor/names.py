"""Contested names: when a joiner takes over a name that another incarnation holds.

A joiner may prove that it held the name before, by the credential of that incarnation. Incarnations
therefore form lines of descent, each of which began with a joiner that proved nothing.

=====================================================  ============  ============
a joiner whose name another incarnation holds          it is silent  it is live
=====================================================  ============  ============
has another role than the holder                       refused       refused
has another role: a syncer that proves the run's key   admitted      admitted
proves to be that incarnation: its memory is intact    admitted      admitted
proves one of an older line: it was there before       admitted      admitted
proves nothing: its process was started again          admitted      retries
=====================================================  ============  ============

So a name that was taken while its owner was away goes back to its owner. Of two processes that were
both given one name, the older one goes on, and the other one retries until the older one has ended.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, Role

LINES_KEPT = 8
"""Number of incarnations per name whose line is kept; an older one counts as its own line."""


@dataclass(slots=True)
class Lineages:
    """The lines of one name: the first incarnation of the line, by each of its newest ones."""

    begun: dict[Incarnation, Incarnation] = field(default_factory=dict)

    def of(self, incarnation: Incarnation) -> Incarnation:
        """The first incarnation of an incarnation's line; itself if the line is not known."""
        return self.begun.get(incarnation, incarnation)

    def admit(self, incarnation: Incarnation, shown: Incarnation | None) -> None:
        """Add a new incarnation to the line of the one that it proved; to a new line if None."""
        self.begun[incarnation] = incarnation if shown is None else self.of(shown)
        if len(self.begun) > LINES_KEPT:
            del self.begun[min(self.begun)]


def why_taken(
    who: tuple[str, Role],
    *,
    holder: tuple[Role, Incarnation],
    silent: bool,
    lines: Lineages,
    shown: Incarnation | None,
    proven: bool,
) -> tuple[str, bool] | None:
    """Why a name stays with its holder, and whether to retry; None if it is given up."""
    name, role = who
    held_by, incarnation = holder
    if held_by is not role:
        if role is Role.SYNCER and proven:
            return None
        return f"the name {name!r} is that of a {held_by.value}; choose another", False
    older = shown is not None and (shown == incarnation or lines.of(shown) < lines.of(incarnation))
    if silent or older:
        return None
    return f"the name {name!r} is taken by a live {role.value}", True
